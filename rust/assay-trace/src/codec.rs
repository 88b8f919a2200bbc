//! Events as columns: each field predicted from the row before, what is left over as zig-zag varints, the columns
//! together compressed by zstd. Ends of sequential files, counts and results are mostly predicted right and cost nothing.
use crate::model::{Event, Op};
use crate::{fail, Context, Result};
use std::collections::HashMap;

const COLUMNS: usize = 14;
const LEVEL: i32 = 3;
/// More than a block ever holds; a damaged length is refused before memory is asked for.
pub const MAX_RAW: usize = 1 << 28;

pub fn put_varint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn zigzag(n: i64) -> u64 {
    ((n << 1) ^ (n >> 63)) as u64
}

fn unzigzag(n: u64) -> i64 {
    (n >> 1) as i64 ^ -((n & 1) as i64)
}

/// Reads varints from a slice; a cut-off or overlong one is an error.
pub struct Varints<'a>(&'a [u8]);

impl Varints<'_> {
    pub fn unsigned(&mut self) -> Result<u64> {
        let mut n = 0u64;
        for shift in (0..70).step_by(7) {
            let Some((&byte, rest)) = self.0.split_first() else {
                fail!("a column ends too early");
            };
            self.0 = rest;
            if shift == 63 && byte > 1 {
                fail!("a number is too long");
            }
            n |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(n);
            }
        }
        fail!("a number is too long")
    }

    fn signed(&mut self) -> Result<i64> {
        self.unsigned().map(unzigzag)
    }
}

/// What the next row is predicted from; the same on both sides.
#[derive(Default)]
struct Predictor {
    end: u64,
    task: u32,
    file: u32,
    next_offset: HashMap<u32, i64>,
    last_fd: HashMap<u32, i32>,
    last_count: HashMap<u8, u64>,
}

impl Predictor {
    fn learn(&mut self, e: &Event) {
        self.end = e.start.wrapping_add(e.duration);
        self.task = e.task;
        self.file = e.file;
        self.next_offset
            .insert(e.file, e.offset.wrapping_add(e.result.max(0)));
        self.last_fd.insert(e.file, e.fd);
        self.last_count.insert(e.op as u8, e.count);
    }

    fn offset(&self, file: u32) -> i64 {
        self.next_offset.get(&file).copied().unwrap_or(0)
    }

    fn fd(&self, file: u32) -> i32 {
        self.last_fd.get(&file).copied().unwrap_or(-1)
    }

    fn count(&self, op: u8) -> u64 {
        self.last_count.get(&op).copied().unwrap_or(0)
    }
}

/// One block's payload.
pub fn encode(events: &[Event]) -> Result<(Vec<u8>, usize)> {
    let mut columns: [Vec<u8>; COLUMNS] = std::array::from_fn(|_| Vec::with_capacity(events.len()));
    let mut p = Predictor::default();
    for e in events {
        let op = e.op as u8;
        let values = [
            zigzag(e.start.wrapping_add(e.duration).wrapping_sub(p.end) as i64),
            e.duration,
            zigzag(i64::from(e.task) - i64::from(p.task)),
            u64::from(op),
            e.flags,
            zigzag(i64::from(e.file) - i64::from(p.file)),
            u64::from(e.file2),
            u64::from(e.path),
            u64::from(e.path2),
            zigzag(i64::from(e.fd) - i64::from(p.fd(e.file))),
            zigzag(e.offset.wrapping_sub(p.offset(e.file))),
            zigzag(e.offset2),
            zigzag(e.count.wrapping_sub(p.count(op)) as i64),
            zigzag(e.result.wrapping_sub(e.count as i64)),
        ];
        for (column, value) in columns.iter_mut().zip(values) {
            put_varint(column, value);
        }
        p.learn(e);
    }
    let mut raw = vec![COLUMNS as u8];
    for (i, column) in columns.iter().enumerate() {
        raw.push(i as u8 + 1);
        raw.extend_from_slice(&(column.len() as u32).to_le_bytes());
    }
    for column in &columns {
        raw.extend_from_slice(column);
    }
    let packed = compress(&raw)?;
    Ok((packed, raw.len()))
}

pub fn compress(raw: &[u8]) -> Result<Vec<u8>> {
    zstd::bulk::compress(raw, LEVEL).context(|| "cannot compress a block".into())
}

pub fn decompress(packed: &[u8], raw_length: usize) -> Result<Vec<u8>> {
    if raw_length > MAX_RAW {
        fail!("a block claims {raw_length} bytes");
    }
    let raw = zstd::bulk::decompress(packed, raw_length)
        .context(|| "a block is not valid zstd".into())?;
    if raw.len() != raw_length {
        fail!("a block is shorter than it claims");
    }
    Ok(raw)
}

/// The events of one block's payload. Unknown columns of later versions are ignored.
pub fn decode(packed: &[u8], raw_length: usize, rows: usize) -> Result<Vec<Event>> {
    let raw = decompress(packed, raw_length)?;
    let count = *raw.first().unwrap_or(&0) as usize;
    let Some(mut body) = raw.get(1 + 5 * count..) else {
        fail!("a block's directory is cut off");
    };
    if rows > raw_length / COLUMNS {
        fail!("a block claims more rows than it has bytes for");
    }
    let mut columns: [Varints; COLUMNS] = std::array::from_fn(|_| Varints(&[]));
    for i in 0..count {
        let entry = &raw[1 + 5 * i..6 + 5 * i];
        let length = u32::from_le_bytes([entry[1], entry[2], entry[3], entry[4]]) as usize;
        if length > body.len() {
            fail!("a column is cut off");
        }
        let (column, rest) = body.split_at(length);
        body = rest;
        if (1..=COLUMNS).contains(&(entry[0] as usize)) {
            columns[entry[0] as usize - 1] = Varints(column);
        }
    }
    let mut p = Predictor::default();
    let mut events = Vec::with_capacity(rows);
    for _ in 0..rows {
        let [end, duration, task, op, flags, file, file2, path, path2, fd, offset, offset2, count, result] =
            &mut columns;
        let end = p.end.wrapping_add(end.signed()? as u64);
        let duration = duration.unsigned()?;
        let task = p.task.wrapping_add(task.signed()? as u32);
        let number = op.unsigned()?;
        let Some(op) = u8::try_from(number).ok().and_then(Op::from_number) else {
            fail!("operation {number} is unknown to this version");
        };
        let file = p.file.wrapping_add(file.signed()? as u32);
        let count = p.count(op as u8).wrapping_add(count.signed()? as u64);
        let e = Event {
            start: end.wrapping_sub(duration),
            duration,
            task,
            op,
            flags: flags.unsigned()?,
            file,
            file2: file2.unsigned()? as u32,
            path: path.unsigned()? as u32,
            path2: path2.unsigned()? as u32,
            fd: p.fd(file).wrapping_add(fd.signed()? as i32),
            offset: p.offset(file).wrapping_add(offset.signed()?),
            offset2: offset2.signed()?,
            count,
            result: (count as i64).wrapping_add(result.signed()?),
        };
        p.learn(&e);
        events.push(e);
    }
    Ok(events)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(i: u64) -> Event {
        Event {
            start: i * 1000,
            duration: i % 977,
            flags: i % 3,
            file: (i % 5) as u32,
            fd: (i % 5) as i32 - 1,
            offset: (i as i64 * 7919) % 1_000_003 - 5,
            count: 4096,
            result: if i % 11 == 0 { -2 } else { 4096 },
            path: (i % 2) as u32,
            ..Event::new(Op::ALL[i as usize % Op::ALL.len()], (i % 7) as u32)
        }
    }

    #[test]
    fn events_come_back() {
        let events: Vec<Event> = (0..5000).map(event).collect();
        let (packed, raw) = encode(&events).unwrap();
        assert_eq!(decode(&packed, raw, events.len()).unwrap(), events);
    }

    #[test]
    fn extremes_come_back() {
        let mut e = event(1);
        e.start = u64::MAX - 5;
        e.duration = 5;
        e.offset = i64::MIN;
        e.offset2 = i64::MAX;
        e.count = u64::MAX;
        e.result = i64::MIN;
        e.fd = i32::MIN;
        let events = vec![event(3), e.clone(), event(2), e];
        let (packed, raw) = encode(&events).unwrap();
        assert_eq!(decode(&packed, raw, events.len()).unwrap(), events);
    }

    #[test]
    fn damage_is_an_error() {
        let events: Vec<Event> = (0..300).map(event).collect();
        let (packed, raw) = encode(&events).unwrap();
        let plain = decompress(&packed, raw).unwrap();
        for cut in 0..plain.len() {
            let bad = compress(&plain[..cut]).unwrap();
            assert!(decode(&bad, cut, events.len()).is_err());
        }
    }
}
