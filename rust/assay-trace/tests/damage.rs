//! Garbage, truncation, flipped bits and edited lines: an error or a trace, never a panic. Debug builds also notice
//! overflows. fuzz/ does the same for minutes, guided by coverage (scripts/fuzz).
#![allow(clippy::unwrap_used)]
mod common;

use assay_trace::container;
use assay_trace::import::import;
use assay_trace::replay::prepare::Noise;
use common::{file_of, use_file, use_text};

const ROUNDS: usize = 1500;

const STRACE: &str = r#"10 100.000001 openat(AT_FDCWD</w>, "a", O_RDWR|O_CREAT|O_TRUNC, 0644) = 3</w/a> <0.000010>
10 100.000020 write(3</w/a>, "x, y) = 3", 9) = 9 <0.000002>
10 100.000030 dup(3</w/a>) = 4</w/a> <0.000001>
10 100.000040 clone(child_stack=NULL, flags=CLONE_FILES|CLONE_THREAD|SIGCHLD) = 11 <0.0001>
11 100.000050 write(4</w/a>, "zz", 2 <unfinished ...>
[pid 10] 100.000060 pread64(3</w/a>, "x", 1, 4) = 1 <0.000002>
11 100.000070 <... write resumed>) = 2 <0.000020>
10 12:34:56.000080 lseek(3</w/a>, 0, SEEK_CUR) = 11 <0.000001>
10 100.000085 wait4(-1, NULL, 0, NULL) = 11 <0.000001>
10 100.000090 copy_file_range(3, [18], 4, NULL, 4096, 0) = 4096 <0.1>
10 100.000091 fallocate(3, FALLOC_FL_KEEP_SIZE, 0, 65536) = 0 <0.1>
10 100.000092 pwritev2(3, [{iov_base="a", iov_len=1}], 1, 9223372036854775807, 0) = 1 <0.1>
10 100.000100 rename("/w/a", "/w/b") = 0 <0.000001>
10 100.000105 creat("/w/c", 0600) = 5 <0.000001>
10 100.000106 symlinkat("\303\244\n", AT_FDCWD, "l") = 0 <0.1>
10 100.000107 newfstatat(3, "", {st_mode=S_IFREG}, AT_EMPTY_PATH) = 0 <0.1>
10 100.000110 unlink("/w/none") = -1 ENOENT (No such file or directory) <0.000001>
10 100.000120 +++ exited with 0 +++
"#;
const IOLOG: &str = "fio version 3 iolog\n0 f add\n0 f open\n10 f read 0 4096\n30 f write 8192 512\n40 f trim 0 4096\n50 f close\n";
const BLOCKS: &str = "8,0 1 1 0.000000001 77 Q W 2048 + 8 [kworker]\n8,0 1 2 0.00000002 77 C W 2048 + 8 [0]\n\
    128166372003061629,usr,0,Read,7014609920,24576,41286\n419,W,8792731648,16384,1577808000000046\n";

/// Words that push numbers and structure to their limits.
const WORDS: [&str; 16] = [
    "9223372036854775807",
    "18446744073709551615",
    "-1",
    "0x7fffffffffffffff",
    "-9223372036854775808",
    "4294967295",
    "(",
    ")",
    "\"",
    "<",
    ">",
    "\\",
    ", ",
    "= ",
    "\u{e4}",
    "..",
];

fn edited(text: &str, noise: &mut Noise) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..=noise.word() % 4 {
        let at = noise.word() as usize % bytes.len().max(1);
        let to = (at + noise.word() as usize % 24).min(bytes.len());
        let word = WORDS[noise.word() as usize % WORDS.len()].bytes();
        match noise.word() % 5 {
            0 => drop(bytes.drain(at..to)),
            1 => drop(bytes.splice(at..at, word)),
            2 => drop(bytes.splice(at..to, word)),
            3 if at < bytes.len() => bytes[at] ^= 1 << (noise.word() % 8),
            _ => number_replaced(&mut bytes, at, word.collect()),
        }
    }
    bytes
}

/// The number at or after `at` becomes another.
fn number_replaced(bytes: &mut Vec<u8>, at: usize, word: Vec<u8>) {
    let Some(from) = (at..bytes.len()).find(|&i| bytes[i].is_ascii_digit()) else {
        return;
    };
    let to = (from..bytes.len())
        .find(|&i| !bytes[i].is_ascii_digit())
        .unwrap_or(bytes.len());
    bytes.splice(from..to, word);
}

#[test]
fn edited_texts_are_traces_or_errors() {
    let mut noise = Noise(5);
    for (formats, text) in [
        (&["strace"][..], STRACE),
        (&["iolog"], IOLOG),
        (&["blkparse", "msr", "alibaba"], BLOCKS),
    ] {
        for _ in 0..ROUNDS {
            let bytes = edited(text, &mut noise);
            for format in formats {
                use_text(format, &bytes);
            }
        }
    }
}

#[test]
fn calls_without_arguments_are_malformed() {
    for name in STRACE
        .lines()
        .filter_map(|l| l.split_once('(')?.0.rsplit_once(' '))
    {
        use_text(
            "strace",
            format!("1 1.0 {}() = 3 <0.1>\n", name.1).as_bytes(),
        );
    }
}

#[test]
fn garbage_is_an_error_or_a_trace() {
    let mut noise = Noise(6);
    for n in 0..ROUNDS {
        let mut bytes = vec![0; n % 300];
        noise.fill(&mut bytes);
        use_file(&bytes);
        for format in assay_trace::import::FORMATS {
            use_text(format, &bytes);
        }
    }
}

#[test]
fn damage_behind_right_checksums_is_noticed_or_harmless() {
    let (trace, _) = import("strace", STRACE.as_bytes(), true).unwrap();
    let (packed, raw) = assay_trace::codec::encode(&trace.events).unwrap();
    let events = assay_trace::codec::decompress(&packed, raw).unwrap();
    let rows = |first: usize, rows: String| format!("{{\"first\":{first},\"rows\":{rows}}}");
    let tables = [
        (2u8, rows(1, json(&trace.paths[1..]))),
        (4, rows(1, json(&trace.files[1..]))),
        (3, rows(0, json(&trace.tasks))),
    ];
    let mut noise = Noise(7);
    for _ in 0..ROUNDS {
        let mut blocks: Vec<(u8, u32, Vec<u8>)> = tables
            .iter()
            .map(|(kind, text)| (*kind, 1, text.clone().into_bytes()))
            .chain([(5, trace.events.len() as u32, events.clone())])
            .collect();
        for _ in 0..=noise.word() % 3 {
            let block = noise.word() as usize % blocks.len();
            match noise.word() % 6 {
                0 => blocks[block].1 = noise.word() as u32,
                1 => drop(blocks.remove(block)),
                2 => blocks.push(blocks[block].clone()),
                3 if block < 3 => blocks[block].2 = edited(&tables[block].1, &mut noise),
                _ => {
                    let content = &mut blocks[block].2;
                    let at = noise.word() as usize % content.len();
                    content[at] = noise.word() as u8;
                }
            }
            if blocks.is_empty() {
                break;
            }
        }
        let whole: Vec<(u8, u32, &[u8])> = blocks
            .iter()
            .map(|(k, n, c)| (*k, *n, c.as_slice()))
            .collect();
        use_file(&file_of(&whole));
    }
}

fn json<T: serde::Serialize>(rows: &[T]) -> String {
    serde_json::to_string(rows).unwrap()
}

#[test]
fn the_helper_writes_files_that_are_read() {
    let file = file_of(&[
        (1, 1, b"{\"backend\":\"x\"}"),
        (2, 1, br#"{"first":1,"rows":["/a"]}"#),
    ]);
    let trace = container::read_from(std::io::Cursor::new(file), None).unwrap();
    assert_eq!(
        (trace.meta.backend.as_str(), trace.unreadable_bytes),
        ("x", 0)
    );
    assert_eq!(trace.paths[1], "/a");
}
