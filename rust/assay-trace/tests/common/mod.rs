//! What every trace, however odd, must go through without a panic. Shared by the tests and by fuzz/.
use assay_trace::model::Trace;
use assay_trace::replay::{mapping::Mapping, plan, tree};
use assay_trace::{anonymise, codec, container, export, import, info};
use std::io::Cursor;

/// Everything that is done with a trace without touching a disk.
pub fn use_trace(trace: &Trace) {
    info::info(trace, 0.0);
    for only in [vec![], vec!["/w".to_owned()]] {
        let mapping = Mapping { only };
        tree::initial_tree(trace, &mapping);
        plan::build(trace, &mapping);
    }
    export::iolog(trace);
    export::csv(trace);
    let (packed, raw) = codec::encode(&trace.events).expect("events can be encoded");
    let back = codec::decode(&packed, raw, trace.events.len()).expect("what was encoded");
    assert_eq!(back, trace.events);
    let mut without_names = trace.clone();
    anonymise::anonymise(&mut without_names, 1);
}

/// Imports a text; strict or not, it is an error or a trace.
#[allow(dead_code)]
pub fn use_text(format: &str, text: &[u8]) {
    if let Ok((trace, notes)) = import::import(format, text, false) {
        assert!(notes.skipped + notes.ignored <= notes.lines);
        use_trace(&trace);
        let strict = import::import(format, text, true);
        assert_eq!(strict.is_err(), notes.skipped > 0);
    }
}

/// Reads a file's bytes; what is damaged is left out.
#[allow(dead_code)]
pub fn use_file(bytes: &[u8]) {
    if let Ok(trace) = container::read_from(Cursor::new(bytes), None) {
        use_trace(&trace);
    }
}

/// A trace file with the given bytes as its blocks' contents, lengths and checksums right: (kind, rows, raw content).
#[allow(dead_code)]
pub fn file_of(blocks: &[(u8, u32, &[u8])]) -> Vec<u8> {
    let mut out = b"ASSAYTRC\x01\0\0\0\0\0\0\0".to_vec();
    for (kind, rows, raw) in blocks {
        let body = codec::compress(raw).expect("zstd compresses anything");
        let from = out.len();
        out.extend_from_slice(b"ABLK");
        out.extend_from_slice(&[*kind, 0, 0, 0]);
        for n in [*rows, raw.len() as u32, body.len() as u32] {
            out.extend_from_slice(&n.to_le_bytes());
        }
        out.extend_from_slice(&[0; 16]);
        let head = crc32(&out[from..]);
        out.extend_from_slice(&head.to_le_bytes());
        out.extend_from_slice(&crc32(&body).to_le_bytes());
        out.extend_from_slice(&body);
    }
    out
}

#[allow(dead_code)]
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |mut crc, &b| {
        crc ^= u32::from(b);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xedb8_8320 & 0u32.wrapping_sub(crc & 1));
        }
        crc
    })
}
