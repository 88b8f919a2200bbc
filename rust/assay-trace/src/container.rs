//! The trace file: a header, blocks with checksums, and an index at the end. docs/trace.md describes it.
//!
//! Blocks are written whole and in order, so that a file whose writer was killed can be read up to the last whole block.
use crate::codec;
use crate::model::{Event, File, Meta, Summary, Task, Trace};
use crate::{fail, Context, Error, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

pub const MAGIC: &[u8; 8] = b"ASSAYTRC";
pub const VERSION: u16 = 1;
const BLOCK_MAGIC: u32 = 0x4b4c_4241; // "ABLK"
const BLOCK_HEADER: usize = 44;
const END_MAGIC: &[u8; 8] = b"ENDTRACE";
/// Rows of a block: large enough to compress well, small enough to lose little.
pub const BLOCK_ROWS: usize = 65_536;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub enum Kind {
    Meta = 1,
    Paths = 2,
    Tasks = 3,
    Files = 4,
    Events = 5,
    Summary = 6,
    Index = 7,
}

impl Kind {
    fn from_number(n: u8) -> Option<Kind> {
        [
            Kind::Meta,
            Kind::Paths,
            Kind::Tasks,
            Kind::Files,
            Kind::Events,
            Kind::Summary,
            Kind::Index,
        ]
        .into_iter()
        .find(|k| *k as u8 == n)
    }
}

/// Where a block lies and what it holds. `first` and `last`: earliest start and latest end of its events, ns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Block {
    pub kind: u8,
    pub offset: u64,
    pub rows: u32,
    pub raw: u32,
    pub stored: u32,
    pub first: u64,
    pub last: u64,
    #[serde(skip)]
    crc: u32,
}

/// Rows of a table with the number of the first one.
#[derive(Serialize, Deserialize)]
struct Rows<T> {
    first: u64,
    rows: Vec<T>,
}

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

fn header(bytes: &[u8], offset: u64) -> Result<Block> {
    let word =
        |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
    if bytes.len() < BLOCK_HEADER
        || word(0) != BLOCK_MAGIC
        || word(36) != crc32fast::hash(&bytes[..36])
    {
        fail!("no block at byte {offset}");
    }
    Ok(Block {
        kind: bytes[4],
        offset,
        rows: word(8),
        raw: word(12),
        stored: word(16),
        first: long(20),
        last: long(28),
        crc: word(40),
    })
}

/// Reads blocks one by one; nothing but the current block is in memory.
pub struct Reader<R> {
    source: R,
    at: u64,
    length: u64,
}

impl<R: Read + Seek> Reader<R> {
    /// Raises an error when it is no trace, or one of a later version.
    pub fn new(mut source: R) -> Result<Reader<R>> {
        let length = source
            .seek(SeekFrom::End(0))
            .context(|| "cannot seek in the trace".into())?;
        source
            .seek(SeekFrom::Start(0))
            .context(|| "cannot seek in the trace".into())?;
        let mut head = [0u8; 16];
        if source.read_exact(&mut head).is_err() || head[..8] != MAGIC[..] {
            fail!("this is no trace of Assay; other formats come in with: assay trace import");
        }
        let version = u16::from_le_bytes([head[8], head[9]]);
        if version != VERSION {
            fail!("the trace has format version {version}, this Assay reads version {VERSION}");
        }
        Ok(Reader {
            source,
            at: 16,
            length,
        })
    }

    /// The next block and its body; None at the end, an error where the file is cut off or damaged.
    pub fn next_block(
        &mut self,
        wanted: impl Fn(&Block) -> bool,
    ) -> Result<Option<(Block, Vec<u8>)>> {
        loop {
            let left = self.length.saturating_sub(self.at);
            if left == 0 {
                return Ok(None);
            }
            let mut head = [0u8; BLOCK_HEADER];
            self.source
                .read_exact(&mut head)
                .context(|| format!("cut off at byte {}", self.at))?;
            let block = header(&head, self.at)?;
            let stored = u64::from(block.stored);
            if left < BLOCK_HEADER as u64 + stored {
                fail!("cut off at byte {}", self.at);
            }
            self.at += BLOCK_HEADER as u64 + stored;
            if block.kind == Kind::Index as u8 {
                self.at = self.length;
                return Ok(None);
            }
            if !wanted(&block) {
                self.source
                    .seek(SeekFrom::Start(self.at))
                    .context(|| "cannot seek".into())?;
                continue;
            }
            let mut body = vec![0u8; block.stored as usize];
            self.source
                .read_exact(&mut body)
                .context(|| format!("cut off at byte {}", block.offset))?;
            if crc32fast::hash(&body) != block.crc {
                self.at = block.offset;
                fail!("the block at byte {} is damaged", block.offset);
            }
            return Ok(Some((block, body)));
        }
    }
}

fn table<T: for<'a> Deserialize<'a>>(block: &Block, body: &[u8], into: &mut Vec<T>) -> Result<()> {
    let rows: Rows<T> = json(block, body)?;
    let first = rows.first as usize;
    if first > into.len() {
        fail!("a table has a gap at byte {}", block.offset);
    }
    into.truncate(first);
    into.extend(rows.rows);
    Ok(())
}

fn json<T: for<'a> Deserialize<'a>>(block: &Block, body: &[u8]) -> Result<T> {
    let raw = codec::decompress(body, block.raw as usize)?;
    serde_json::from_slice(&raw)
        .context(|| format!("the block at byte {} is damaged", block.offset))
}

fn take(trace: &mut Trace, block: &Block, body: &[u8]) -> Result<()> {
    match Kind::from_number(block.kind) {
        Some(Kind::Meta) => trace.meta = json(block, body)?,
        Some(Kind::Summary) => trace.summary = Some(json(block, body)?),
        Some(Kind::Paths) => table(block, body, &mut trace.paths)?,
        Some(Kind::Tasks) => table(block, body, &mut trace.tasks)?,
        Some(Kind::Files) => table(block, body, &mut trace.files)?,
        Some(Kind::Events) => {
            let events = codec::decode(body, block.raw as usize, block.rows as usize)?;
            for e in &events {
                if e.task as usize >= trace.tasks.len()
                    || e.file.max(e.file2) as usize >= trace.files.len()
                    || e.path.max(e.path2) as usize >= trace.paths.len()
                {
                    fail!(
                        "an event refers to what is not there (byte {})",
                        block.offset
                    );
                }
            }
            trace.events.extend(events);
        }
        Some(Kind::Index) | None => {} // a kind of a later version
    }
    Ok(())
}

/// Reads a trace from any source, up to the last whole block. `range` keeps only blocks of events that touch it (ns).
pub fn read_from<R: Read + Seek>(source: R, range: Option<(u64, u64)>) -> Result<Trace> {
    let mut reader = Reader::new(source)?;
    let mut trace = Trace::new();
    let wanted = |b: &Block| {
        b.kind != Kind::Events as u8
            || range.is_none_or(|(from, to)| b.last >= from && b.first <= to)
    };
    loop {
        let at = reader.at;
        match reader.next_block(wanted) {
            Ok(Some((block, body))) => {
                if take(&mut trace, &block, &body).is_err() {
                    trace.unreadable_bytes = reader.length - block.offset;
                    break;
                }
            }
            Ok(None) => break,
            Err(_) => {
                trace.unreadable_bytes = reader.length - at;
                break;
            }
        }
    }
    if let Some((from, to)) = range {
        trace.events.retain(|e| e.end() >= from && e.start <= to);
    }
    Ok(trace)
}

/// Reads a trace file. Raises an error when it is missing or no trace.
pub fn read(path: &Path) -> Result<Trace> {
    let file = fs::File::open(path).context(|| format!("cannot open {}", path.display()))?;
    read_from(BufReader::with_capacity(1 << 20, file), None)
        .map_err(|Error(e)| Error(format!("{}: {e}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Op, Tables};
    use std::io::Cursor;

    fn sample(n: u64) -> Trace {
        let mut tables = Tables::new();
        let task = tables.task(10, 10, 0);
        let path = tables.path("/a/b");
        let file = tables.file(File {
            path,
            size: 9,
            ..File::default()
        });
        for i in 0..n {
            tables.trace.events.push(Event {
                start: i * 10,
                duration: 4,
                file,
                offset: i as i64 * 512,
                count: 512,
                result: 512,
                ..Event::new(Op::Read, task)
            });
        }
        tables.trace
    }

    fn bytes(trace: &Trace) -> Vec<u8> {
        let path = std::env::temp_dir().join(format!(
            "assay-container-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        write(&path, trace).unwrap();
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(path).unwrap();
        bytes
    }

    #[test]
    fn a_trace_comes_back_and_regular_io_is_small() {
        let trace = sample(200_000);
        let file = bytes(&trace);
        let back = read_from(Cursor::new(&file), None).unwrap();
        assert_eq!(back.events, trace.events);
        assert_eq!(
            (back.tasks, back.files, back.paths),
            (trace.tasks, trace.files, trace.paths)
        );
        assert_eq!(back.summary.unwrap().events, 200_000);
        assert!(file.len() < 200_000, "{}", file.len());
    }

    #[test]
    fn a_range_reads_only_its_blocks() {
        let part = read_from(
            Cursor::new(bytes(&sample(200_000))),
            Some((1_000_000, 1_000_100)),
        )
        .unwrap();
        assert_eq!(part.events.len(), 11);
    }

    #[test]
    fn a_cut_file_is_readable_to_the_last_whole_block_at_every_length() {
        let mut trace = sample(3000);
        trace.meta.command = vec!["x".into()];
        let file = bytes(&trace);
        let mut before = 0;
        for cut in 16..file.len() {
            let got = read_from(Cursor::new(&file[..cut]), None).unwrap();
            assert!(
                got.events.len() >= before
                    && got.events.iter().zip(&trace.events).all(|(a, b)| a == b)
            );
            before = got.events.len();
        }
        assert_eq!(before, 3000);
    }

    #[test]
    fn every_flipped_byte_is_noticed_or_harmless() {
        let trace = sample(500);
        let file = bytes(&trace);
        for at in 16..file.len() {
            let mut bad = file.clone();
            bad[at] ^= 0x55;
            let got = read_from(Cursor::new(&bad), None).unwrap();
            assert!(
                got.unreadable_bytes > 0 || got.events == trace.events,
                "byte {at}"
            );
        }
    }
}
