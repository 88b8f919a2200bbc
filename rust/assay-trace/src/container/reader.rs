//! Reads a trace file, up to the last whole block.
use super::{Block, Kind, Rows, BLOCK_HEADER, BLOCK_MAGIC, MAGIC, VERSION};
use crate::codec;
use crate::model::{Trace, MOST_BYTES};
use crate::{fail, Context, Error, Result};
use serde::Deserialize;
use std::fs;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

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
    // rows may be replaced, but what events refer to already stays
    if first > into.len() || into.len() - first > rows.rows.len() {
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
        Some(Kind::Files) => {
            table(block, body, &mut trace.files)?;
            let known = trace.paths.len();
            if let Some(bad) = trace.files.iter().position(|f| f.path as usize >= known) {
                trace.files.truncate(bad);
                fail!("a file refers to what is not there (byte {})", block.offset);
            }
        }
        Some(Kind::Events) => {
            let events = codec::decode(body, block.raw as usize, block.rows as usize)?;
            for e in &events {
                if e.task as usize >= trace.tasks.len()
                    || e.file.max(e.file2) as usize >= trace.files.len()
                    || e.path.max(e.path2) as usize >= trace.paths.len()
                    || e.bytes() > MOST_BYTES
                    || e.start.checked_add(e.duration).is_none()
                {
                    fail!("an event is impossible (byte {})", block.offset);
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
