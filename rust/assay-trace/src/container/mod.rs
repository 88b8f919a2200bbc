//! The trace file: a header, blocks with checksums, and an index at the end. docs/trace.md describes it.
//!
//! Blocks are written whole and in order, so that a file whose writer was killed can be read up to the last whole block.
mod reader;
mod writer;

pub use reader::{read, read_from, Reader};
use serde::{Deserialize, Serialize};
pub use writer::{write, Writer};

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Event, File, Op, Tables, Trace};
    use std::fs;
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
