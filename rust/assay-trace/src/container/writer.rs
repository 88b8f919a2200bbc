//! Writes a trace file: block after block, tables before what refers to them.
use super::{Block, Kind, Rows, BLOCK_HEADER, BLOCK_MAGIC, BLOCK_ROWS, END_MAGIC, MAGIC, VERSION};
use crate::codec;
use crate::model::{Event, File, Meta, Summary, Task, Trace};
use crate::{fail, Context, Result};
use serde::Serialize;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

pub struct Writer {
    file: fs::File,
    path: PathBuf,
    at: u64,
    index: Vec<Block>,
    paths: usize,
    files: usize,
    tasks: Vec<Task>,
    pub events: u64,
    broken: bool,
}

impl Writer {
    /// Raises an error when the file cannot be made.
    pub fn create(path: &Path, meta: &Meta) -> Result<Writer> {
        let file = fs::File::create(path).context(|| format!("cannot write {}", path.display()))?;
        let mut writer = Writer {
            file,
            path: path.to_owned(),
            at: 0,
            index: Vec::new(),
            paths: 1,
            files: 1,
            tasks: Vec::new(),
            events: 0,
            broken: false,
        };
        let mut header = Vec::from(&MAGIC[..]);
        header.extend_from_slice(&VERSION.to_le_bytes());
        header.extend_from_slice(&[0; 6]);
        writer.put(&header)?;
        writer.json(Kind::Meta, meta, 1)?;
        Ok(writer)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        if self.broken {
            fail!("{} could not be written before", self.path.display());
        }
        if let Err(e) = self.file.write_all(bytes) {
            // what is there stays readable: whole blocks only
            self.broken = true;
            let _ = self.file.set_len(self.at);
            fail!("cannot write {}: {e}", self.path.display());
        }
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn block(
        &mut self,
        kind: Kind,
        rows: usize,
        raw: usize,
        body: &[u8],
        span: (u64, u64),
    ) -> Result<()> {
        let mut out = Vec::with_capacity(BLOCK_HEADER + body.len());
        out.extend_from_slice(&BLOCK_MAGIC.to_le_bytes());
        out.extend_from_slice(&[kind as u8, 0, 0, 0]);
        for n in [rows, raw, body.len()] {
            out.extend_from_slice(&(n as u32).to_le_bytes());
        }
        out.extend_from_slice(&span.0.to_le_bytes());
        out.extend_from_slice(&span.1.to_le_bytes());
        let head_crc = crc32fast::hash(&out);
        out.extend_from_slice(&head_crc.to_le_bytes());
        out.extend_from_slice(&crc32fast::hash(body).to_le_bytes());
        out.extend_from_slice(body);
        let offset = self.at;
        self.put(&out)?;
        self.index.push(Block {
            kind: kind as u8,
            offset,
            rows: rows as u32,
            raw: raw as u32,
            stored: body.len() as u32,
            first: span.0,
            last: span.1,
            crc: 0,
        });
        Ok(())
    }

    fn json<T: Serialize>(&mut self, kind: Kind, value: &T, rows: usize) -> Result<()> {
        let raw = serde_json::to_vec(value).context(|| "cannot encode a table".into())?;
        let body = codec::compress(&raw)?;
        self.block(kind, rows, raw.len(), &body, (0, 0))
    }

    /// What the tables have gained since the last call, then the events. Tables come before what refers to them.
    pub fn append(
        &mut self,
        paths: &[String],
        tasks: &[Task],
        files: &[File],
        events: &[Event],
    ) -> Result<()> {
        if paths.len() > self.paths {
            let rows = Rows {
                first: self.paths as u64,
                rows: paths[self.paths..].to_vec(),
            };
            self.json(Kind::Paths, &rows, rows.rows.len())?;
            self.paths = paths.len();
        }
        if files.len() > self.files {
            let rows = Rows {
                first: self.files as u64,
                rows: files[self.files..].to_vec(),
            };
            self.json(Kind::Files, &rows, rows.rows.len())?;
            self.files = files.len();
        }
        // tasks change (name, end): from the first that differs, the last word counts
        let same = self
            .tasks
            .iter()
            .zip(tasks)
            .take_while(|(a, b)| a == b)
            .count();
        if same < tasks.len() {
            let rows = Rows {
                first: same as u64,
                rows: tasks[same..].to_vec(),
            };
            self.json(Kind::Tasks, &rows, rows.rows.len())?;
            self.tasks = tasks.to_vec();
        }
        for part in events.chunks(BLOCK_ROWS) {
            let (body, raw) = codec::encode(part)?;
            let first = part.iter().map(|e| e.start).min().unwrap_or(0);
            let last = part.iter().map(Event::end).max().unwrap_or(0);
            self.block(Kind::Events, part.len(), raw, &body, (first, last))?;
            self.events += part.len() as u64;
        }
        Ok(())
    }

    /// Summary and index. The writer is of no use afterwards.
    pub fn finish(&mut self, summary: &Summary) -> Result<u64> {
        self.json(Kind::Summary, summary, 1)?;
        let at = self.at;
        let index = std::mem::take(&mut self.index);
        self.json(Kind::Index, &index, index.len())?;
        let mut tail = at.to_le_bytes().to_vec();
        tail.extend_from_slice(END_MAGIC);
        self.put(&tail)?;
        self.file
            .sync_all()
            .context(|| format!("cannot write {}", self.path.display()))?;
        Ok(self.at)
    }
}

/// Writes a whole trace.
pub fn write(path: &Path, trace: &Trace) -> Result<u64> {
    let mut writer = Writer::create(path, &trace.meta)?;
    writer.append(&trace.paths, &trace.tasks, &trace.files, &trace.events)?;
    let summary = trace.summary.clone().unwrap_or_else(|| Summary {
        events: trace.events.len() as u64,
        duration: trace.duration(),
        ..Summary::default()
    });
    writer.finish(&Summary {
        events: trace.events.len() as u64,
        ..summary
    })
}
