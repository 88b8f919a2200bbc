//! Contents of blocks behind right checksums: kind, rows and length of each block come first, its content after them.
#![no_main]
#[path = "../../tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut blocks: Vec<(u8, u32, &[u8])> = vec![
        (2, 1, br#"{"first":1,"rows":["/w/a","/w/b"]}"#),
        (4, 1, br#"{"first":1,"rows":[{"dev":1,"ino":2,"path":1,"size":9,"flags":0,"mode":0,"created":false,"inherited":true}]}"#),
        (3, 1, br#"{"first":0,"rows":[{"tid":1,"pid":1,"parent":0,"birth":0,"end":9,"name":"x"}]}"#),
    ];
    let mut rest = bytes;
    while let [kind, rows, low, high, tail @ ..] = rest {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(tail.len());
        let (content, after) = tail.split_at(length);
        blocks.push((kind % 8, u32::from(*rows), content));
        rest = after;
    }
    common::use_file(&common::file_of(&blocks));
});
