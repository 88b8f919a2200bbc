//! Block traces: each device or volume becomes one file, each request a pread or pwrite of it.
use super::{lines, seconds, Notes};
use crate::model::{Event, File, Op, Tables, MOST_BYTES, UNKNOWN_SIZE};
use crate::Result;
use std::collections::HashMap;

type Parsed<T> = std::result::Result<T, String>;

struct Request<'a> {
    device: &'a str,
    write: bool,
    offset: u64,
    bytes: u64,
    start: u64,
    duration: u64,
    task: u32,
}

#[derive(Default)]
struct Devices(HashMap<String, u32>);

impl Devices {
    fn add(&mut self, r: &Request, tables: &mut Tables) -> Parsed<()> {
        let end = r
            .offset
            .checked_add(r.bytes)
            .filter(|&e| e < 1 << 62)
            .ok_or("the offset is too large")?;
        if r.bytes > MOST_BYTES {
            return Err("the length is too large".into());
        }
        let file = match self.0.get(r.device) {
            Some(&n) => n,
            None => {
                let path = tables.path(&format!("/{}", r.device.replace('/', "_")));
                let n = tables.file(File {
                    path,
                    size: UNKNOWN_SIZE,
                    mode: 0o100_644,
                    inherited: true,
                    ..File::default()
                });
                self.0.insert(r.device.to_owned(), n);
                n
            }
        };
        let f = &mut tables.trace.files[file as usize];
        f.size = if f.size == UNKNOWN_SIZE {
            end
        } else {
            f.size.max(end)
        };
        let task = tables.task(r.task, r.task, 0);
        tables.trace.events.push(Event {
            start: r.start,
            duration: r.duration,
            file,
            offset: r.offset as i64,
            count: r.bytes,
            result: r.bytes as i64,
            // requests of one device overlap: none waits for the one before
            flags: crate::model::flag::ASYNC,
            ..Event::new(if r.write { Op::Pwrite } else { Op::Pread }, task)
        });
        Ok(())
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Parsed<T> {
    text.trim()
        .parse()
        .map_err(|_| format!("{text:?} is no number"))
}

fn each(
    text: &[u8],
    tables: &mut Tables,
    notes: &mut Notes,
    mut parse: impl FnMut(&str, &mut Tables) -> Parsed<bool>,
) -> Result<()> {
    for (n, line) in lines(text) {
        notes.imported.lines += 1;
        match parse(&line, tables) {
            Ok(true) => {}
            Ok(false) => notes.imported.ignored += 1,
            Err(what) => notes.bad(n, &what)?,
        }
    }
    Ok(())
}

/// MSR Cambridge: Timestamp (100 ns since 1601), Hostname, DiskNumber, Type, Offset, Size, ResponseTime (100 ns).
pub fn msr(text: &[u8], tables: &mut Tables, notes: &mut Notes) -> Result<()> {
    let mut devices = Devices::default();
    let mut first = None;
    each(text, tables, notes, |line, tables| {
        let cells: Vec<&str> = line.split(',').collect();
        let [time, host, disk, kind, offset, size, response] = cells.as_slice() else {
            return Err(format!(
                "seven columns are needed, {} are there",
                cells.len()
            ));
        };
        if *time == "Timestamp" {
            return Ok(false);
        }
        let time: u64 = number(time)?;
        let first = *first.get_or_insert(time);
        let response: u64 = number(response)?;
        devices.add(
            &Request {
                device: &format!("{host}-{disk}"),
                write: write(kind)?,
                offset: number(offset)?,
                bytes: number(size)?,
                start: time.saturating_sub(first).saturating_mul(100).min(1 << 62),
                duration: response.saturating_mul(100).min(1 << 62),
                task: 1,
            },
            tables,
        )?;
        Ok(true)
    })
}

fn write(kind: &str) -> Parsed<bool> {
    match kind.trim() {
        "Read" | "R" | "r" | "0" => Ok(false),
        "Write" | "W" | "w" | "1" => Ok(true),
        other => Err(format!("{other:?} is neither read nor write")),
    }
}

/// Alibaba (device_id, R or W, offset in bytes, length in bytes, time in us) and Tencent (time in s, offset in sectors,
/// size in sectors, 0 or 1, volume), told apart by the second column.
pub fn alibaba(text: &[u8], tables: &mut Tables, notes: &mut Notes) -> Result<()> {
    let mut devices = Devices::default();
    each(text, tables, notes, |line, tables| {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        let [a, b, c, d, e] = cells.as_slice() else {
            return Err(format!(
                "five columns are needed, {} are there",
                cells.len()
            ));
        };
        if a.bytes().any(|b| b.is_ascii_alphabetic()) {
            return Ok(false);
        }
        let letters = matches!(*b, "R" | "W" | "r" | "w");
        let start: u64 = number(if letters { e } else { a })?;
        let scale = |n: u64, by: u64| {
            n.checked_mul(by)
                .ok_or_else(|| "a number is too large".to_owned())
        };
        let request = if letters {
            Request {
                device: &format!("volume-{a}"),
                write: write(b)?,
                offset: number(c)?,
                bytes: number(d)?,
                start: scale(start, 1000)?,
                duration: 0,
                task: 1,
            }
        } else {
            Request {
                device: &format!("volume-{e}"),
                write: write(d)?,
                offset: scale(number(b)?, 512)?,
                bytes: scale(number(c)?, 512)?,
                start: scale(start, 1_000_000_000)?,
                duration: 0,
                task: 1,
            }
        };
        devices.add(&request, tables)?;
        Ok(true)
    })
}

/// blkparse's default text: device cpu sequence time pid action rwbs sector + sectors [process]. Requests are taken at
/// their issue (D) and end at their completion (C) where both are there, else at their queueing (Q).
pub fn blkparse(text: &[u8], tables: &mut Tables, notes: &mut Notes) -> Result<()> {
    let mut devices = Devices::default();
    let has_issue = lines(text).any(|(_, l)| l.split_whitespace().nth(5) == Some("D"));
    let mut issued: HashMap<(String, u64, u64), usize> = HashMap::new();
    each(text, tables, notes, |line, tables| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_device = words.first().is_some_and(|w| {
            w.split_once(',')
                .is_some_and(|(a, b)| a.parse::<u32>().is_ok() && b.parse::<u32>().is_ok())
        });
        if !is_device {
            return Ok(false); // the summary at the end
        }
        let [device, _cpu, _sequence, time, pid, action, rwbs, rest @ ..] = words.as_slice() else {
            return Err("too few columns".into());
        };
        if !matches!(*action, "Q" | "D" | "C") || !(rwbs.contains('R') || rwbs.contains('W')) {
            return Ok(false);
        }
        let [sector, "+", sectors, ..] = rest else {
            return Ok(false);
        };
        let (sector, sectors): (u64, u64) = (number(sector)?, number(sectors)?);
        let time = seconds(time).ok_or("the time is malformed")?;
        let key = ((*device).to_owned(), sector, sectors);
        if *action == "C" {
            if let Some(n) = issued.remove(&key) {
                let e = &mut tables.trace.events[n];
                e.duration = time.saturating_sub(e.start);
            }
            return Ok(true);
        }
        if has_issue != (*action == "D") {
            return Ok(false);
        }
        let scale = |n: u64| {
            n.checked_mul(512)
                .ok_or_else(|| "a number is too large".to_owned())
        };
        devices.add(
            &Request {
                device,
                write: rwbs.contains('W'),
                offset: scale(sector)?,
                bytes: scale(sectors)?,
                start: time,
                duration: 0,
                task: number(pid)?,
            },
            tables,
        )?;
        issued.insert(key, tables.trace.events.len() - 1);
        Ok(true)
    })
}

#[cfg(test)]
mod tests {
    use super::super::import;

    #[test]
    fn requests_of_all_formats() {
        let msr = "128166372003061629,usr,0,Read,7014609920,24576,41286\n128166372016382155,usr,0,Write,2517696512,4096,703\n";
        let (t, _) = import("msr", msr.as_bytes(), true).unwrap();
        assert_eq!(
            (t.events[0].count, t.events[0].duration),
            (24_576, 4_128_600)
        );
        assert_eq!(t.events[1].start, 1_332_052_600);
        let (t, _) = import("alibaba", b"3,W,4096,512,100\n3,R,0,512,350\n", true).unwrap();
        assert_eq!(t.events[1].start, 250_000);
        let (t, _) = import("alibaba", b"1538323200,10,2,1,1063\n", true).unwrap();
        assert_eq!((t.events[0].offset, t.events[0].count), (5120, 1024));
        let blk = "  8,0    3        1     0.000000000   697  D   W 223490 + 8 [kjournald]\n  8,0    3   2   0.000500000   0  C   W 223490 + 8 [0]\nCPU3 (8,0):\n";
        let (t, _) = import("blkparse", blk.as_bytes(), true).unwrap();
        assert_eq!((t.events.len(), t.events[0].duration), (1, 500_000));
    }

    #[test]
    fn nonsense_is_refused_with_its_line() {
        assert!(import("msr", b"a,b\n", true)
            .unwrap_err()
            .0
            .starts_with("line 1"));
        assert!(import("alibaba", b"1,W,99999999999999999999,1,1\n", false).is_err());
    }
}
