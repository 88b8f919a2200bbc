//! Traces of other tools. A malformed line is counted and reported with its number, and skipped unless `strict`.
pub mod blocks;
pub mod iolog;
pub mod strace;

use crate::model::{Meta, Tables, Trace};
use crate::{fail, Result};
use serde::Serialize;

#[derive(Debug, Default, Serialize)]
pub struct Imported {
    pub lines: u64,
    pub skipped: u64,
    /// The first few malformed lines: number and what is wrong.
    pub problems: Vec<(u64, String)>,
    /// Calls that are none of file I/O.
    pub ignored: u64,
}

const SHOWN: usize = 20;

/// Collects what went wrong.
pub struct Notes {
    pub imported: Imported,
    strict: bool,
}

impl Notes {
    fn new(strict: bool) -> Notes {
        Notes {
            imported: Imported::default(),
            strict,
        }
    }

    /// Notes a malformed line; an error when the import is strict.
    fn bad(&mut self, line: u64, what: &str) -> Result<()> {
        if self.strict {
            fail!("line {line}: {what}");
        }
        self.imported.skipped += 1;
        if self.imported.problems.len() < SHOWN {
            self.imported.problems.push((line, what.to_owned()));
        }
        Ok(())
    }
}

pub const FORMATS: [&str; 5] = ["strace", "iolog", "blkparse", "msr", "alibaba"];

/// Reads a foreign trace. Raises an error when the format is unknown, nothing was understood, or a line is malformed and
/// `strict` is set.
pub fn import(format: &str, text: &[u8], strict: bool) -> Result<(Trace, Imported)> {
    let mut notes = Notes::new(strict);
    let mut tables = Tables::new();
    match format {
        "strace" => strace::parse(text, &mut tables, &mut notes)?,
        "iolog" => iolog::parse(text, &mut tables, &mut notes)?,
        "blkparse" => blocks::blkparse(text, &mut tables, &mut notes)?,
        "msr" => blocks::msr(text, &mut tables, &mut notes)?,
        "alibaba" => blocks::alibaba(text, &mut tables, &mut notes)?,
        _ => fail!(
            "unknown format {format:?}; known: {}, darshan",
            FORMATS.join(", ")
        ),
    }
    let mut trace = tables.trace;
    trace.meta = Meta {
        backend: format.to_owned(),
        ..trace.meta
    };
    // time zero is the first event
    let first = trace.events.iter().map(|e| e.start).min().unwrap_or(0);
    for e in &mut trace.events {
        e.start -= first;
    }
    for t in &mut trace.tasks {
        t.birth = t.birth.saturating_sub(first);
        if t.end != u64::MAX {
            t.end = t.end.saturating_sub(first);
        }
    }
    trace.sort();
    trace.summary = Some(crate::model::Summary {
        events: trace.events.len() as u64,
        duration: trace.duration(),
        ..Default::default()
    });
    if trace.events.is_empty() && notes.imported.lines > 0 {
        fail!(
            "nothing in it could be read as {format}{}",
            notes
                .imported
                .problems
                .first()
                .map_or(String::new(), |(n, p)| format!("; line {n}: {p}"))
        );
    }
    Ok((trace, notes.imported))
}

/// Lines of a text, numbered from 1, without their ends; bytes that are no UTF-8 are replaced.
fn lines(text: &[u8]) -> impl Iterator<Item = (u64, std::borrow::Cow<'_, str>)> {
    text.split(|&b| b == b'\n')
        .enumerate()
        .map(|(i, l)| {
            (
                i as u64 + 1,
                String::from_utf8_lossy(l.strip_suffix(b"\r").unwrap_or(l)),
            )
        })
        .filter(|(_, l)| !l.trim().is_empty())
}

/// Seconds with a fraction of any length, as nanoseconds.
fn seconds(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if fraction.len() > 18 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    let digits: String = fraction
        .chars()
        .chain("000000000".chars())
        .take(9)
        .collect();
    whole
        .checked_mul(1_000_000_000)?
        .checked_add(digits.parse().ok()?)
}
