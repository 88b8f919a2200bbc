//! fio's iolog, versions 1 to 3 (fio(1), "TRACE FILE FORMAT"; fio's iolog.c).
use super::{lines, Notes};
use crate::model::{Event, File, Op, Tables, MOST_BYTES, UNKNOWN_SIZE};
use crate::{fail, Result};
use std::collections::HashMap;

pub fn parse(text: &[u8], tables: &mut Tables, notes: &mut Notes) -> Result<()> {
    let mut version = 0;
    let mut files: HashMap<String, u32> = HashMap::new();
    let task = tables.task(1, 1, 0);
    let mut clock = 0u64;
    for (number, line) in lines(text) {
        notes.imported.lines += 1;
        if version == 0 {
            version = match line.trim() {
                "fio version 1 iolog" => 1,
                "fio version 2 iolog" => 2,
                "fio version 3 iolog" => 3,
                _ => {
                    if line.starts_with("fio version") {
                        fail!("line {number}: {line:?} is a version this Assay does not know");
                    }
                    1 // version 1 may come without a header
                }
            };
            if line.starts_with("fio version") {
                continue;
            }
        }
        match one(&line, version, task, &mut clock, &mut files, tables) {
            Ok(Some(event)) => tables.trace.events.push(event),
            Ok(None) => {}
            Err(what) => notes.bad(number, &what)?,
        }
    }
    Ok(())
}

fn one(
    line: &str,
    version: u32,
    task: u32,
    clock: &mut u64,
    files: &mut HashMap<String, u32>,
    tables: &mut Tables,
) -> std::result::Result<Option<Event>, String> {
    let mut words: Vec<&str> = line.split_whitespace().collect();
    if version == 1 {
        return version_1(&words, task, clock, files, tables).map(Some);
    }
    if version == 3 {
        if words.is_empty() {
            return Err("empty".into());
        }
        let microseconds: u64 = words[0]
            .parse()
            .map_err(|_| format!("{:?} is no time", words[0]))?;
        *clock = microseconds
            .checked_mul(1000)
            .ok_or("the time is too large")?;
        words.remove(0);
    }
    let [name, action, rest @ ..] = words.as_slice() else {
        return Err("a file and an action are needed".into());
    };
    let mut numbers = [0u64; 2];
    for (n, word) in numbers.iter_mut().zip(rest) {
        *n = word.parse().map_err(|_| format!("{word:?} is no number"))?;
    }
    if *action == "wait" {
        // version 2: microseconds since the start
        *clock = numbers[0]
            .checked_mul(1000)
            .ok_or("the time is too large")?;
        return Ok(None);
    }
    let op = match *action {
        "add" => {
            new_file(name, files, tables);
            return Ok(None);
        }
        "open" => Op::Open,
        "close" => Op::Close,
        "read" => Op::Pread,
        "write" => Op::Pwrite,
        "sync" => Op::Fsync,
        "datasync" => Op::Fdatasync,
        "trim" => Op::Fallocate,
        _ => return Err(format!("unknown action {action:?}")),
    };
    if matches!(op, Op::Pread | Op::Pwrite | Op::Fallocate) && rest.len() < 2 {
        return Err(format!("{action} needs an offset and a length"));
    }
    event(op, name, numbers, task, *clock, files, tables).map(Some)
}

fn version_1(
    words: &[&str],
    task: u32,
    clock: &mut u64,
    files: &mut HashMap<String, u32>,
    tables: &mut Tables,
) -> std::result::Result<Event, String> {
    let [direction, offset, length] = words else {
        return Err("version 1 has three numbers a line".into());
    };
    let number = |w: &str| w.parse::<u64>().map_err(|_| format!("{w:?} is no number"));
    let op = match number(direction)? {
        0 => Op::Pread,
        1 => Op::Pwrite,
        2 => Op::Fallocate,
        n => return Err(format!("{n} is no direction")),
    };
    *clock += 1; // no times: in this order
    let numbers = [number(offset)?, number(length)?];
    event(op, "/iolog", numbers, task, *clock, files, tables)
}

fn absolute(name: &str) -> String {
    if name.starts_with('/') {
        name.to_owned()
    } else {
        format!("/{name}")
    }
}

fn new_file(name: &str, files: &mut HashMap<String, u32>, tables: &mut Tables) -> u32 {
    if let Some(&n) = files.get(name) {
        return n;
    }
    let path = tables.path(&absolute(name));
    let n = tables.file(File {
        path,
        size: UNKNOWN_SIZE,
        inherited: true,
        mode: 0o100_644,
        ..File::default()
    });
    files.insert(name.to_owned(), n);
    n
}

fn event(
    op: Op,
    name: &str,
    [offset, length]: [u64; 2],
    task: u32,
    clock: u64,
    files: &mut HashMap<String, u32>,
    tables: &mut Tables,
) -> std::result::Result<Event, String> {
    let offset = i64::try_from(offset).map_err(|_| "the offset is too large")?;
    if length > MOST_BYTES && matches!(op, Op::Pread | Op::Pwrite) {
        return Err("the length is too large".into());
    }
    let mut e = Event::new(op, task);
    e.start = clock;
    e.file = new_file(name, files, tables);
    match op {
        Op::Open => {
            e.path = tables.path(&absolute(name));
            let f = tables.file(File {
                path: e.path,
                size: UNKNOWN_SIZE,
                flags: 2,
                mode: 0o100_644,
                ..File::default()
            });
            files.insert(name.to_owned(), f);
            e.file = f;
            e.flags = (libc::O_RDWR as u64) << crate::model::flag::SHIFT;
            e.result = 3;
        }
        Op::Fallocate => {
            e.flags = 3 << crate::model::flag::SHIFT; // FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
            e.offset = offset;
            e.count = length;
        }
        Op::Pread | Op::Pwrite => {
            e.offset = offset;
            e.count = length;
            e.result = length as i64;
            // what is read must have been there
            let end = offset as u64 + length; // below 2^63 + 2^31
            if op == Op::Pread {
                let f = &mut tables.trace.files[e.file as usize];
                f.size = if f.size == UNKNOWN_SIZE {
                    end
                } else {
                    f.size.max(end)
                };
            }
        }
        _ => {}
    }
    Ok(e)
}

#[cfg(test)]
mod tests {
    use super::super::import;
    use super::*;

    #[test]
    fn all_versions_are_read() {
        for text in [
            "fio version 3 iolog\n0 f add\n0 f open\n10 f read 0 4096\n30 f write 8192 512\n40 f datasync\n50 f close\n",
            "fio version 2 iolog\nf add\nf open\nf read 0 4096\nf wait 30\nf write 8192 512\nf datasync\nf close\n",
        ] {
            let (trace, notes) = import("iolog", text.as_bytes(), true).unwrap();
            let ops: Vec<Op> = trace.events.iter().map(|e| e.op).collect();
            assert_eq!(ops, [Op::Open, Op::Pread, Op::Pwrite, Op::Fdatasync, Op::Close]);
            assert_eq!(trace.events[2].offset, 8192);
            assert_eq!(trace.events[2].start, 30_000);
            assert_eq!(trace.files[trace.events[1].file as usize].size, 4096);
            assert_eq!(notes.skipped, 0);
        }
        let (trace, _) = import("iolog", b"0 0 4096\n1 4096 4096\n", true).unwrap();
        assert_eq!(trace.events.len(), 2);
    }

    #[test]
    fn a_malformed_line_is_named() {
        let text = b"fio version 3 iolog\n0 f open\n1 f read x 1\n2 f close\n";
        assert_eq!(
            import("iolog", text, false).unwrap().1.problems,
            [(3, "\"x\" is no number".to_owned())]
        );
        assert!(import("iolog", text, true)
            .unwrap_err()
            .0
            .starts_with("line 3"));
    }
}
