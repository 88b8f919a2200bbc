//! Which targets are accessed how often in each second: the patterns of section V of the methodology.
//!
//! A file is a table of groups: its bytes `[i * unit, (i + 1) * unit)` are in group `table[i % len]`. A group lists the
//! targets that a read and that a write of such a piece touches. Tables are small for striped files (one entry per stripe
//! column) and as long as the file has objects where names are hashed.

use std::fmt;

/// Reads and writes; other operations touch no data.
pub const CLASSES: usize = 2;
/// Counters beyond this would not fit into memory: 4 GiB of them.
const MOST_COUNTERS: usize = 1 << 30;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error(pub String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// Lists of targets, one per group: those of group `g` are `items[starts[g]..starts[g + 1]]`.
#[derive(Debug, Clone)]
pub struct Lists {
    pub starts: Vec<u32>,
    pub items: Vec<u32>,
}

impl Lists {
    fn check(&self, targets: usize) -> Result<usize, Error> {
        let ordered = self.starts.first() == Some(&0)
            && self.starts.windows(2).all(|w| w[0] <= w[1])
            && self.starts.last().map(|&n| n as usize) == Some(self.items.len());
        if !ordered {
            return Err(Error(
                "the lists of targets do not ascend from 0 to their end".into(),
            ));
        }
        match self.items.iter().find(|&&t| t as usize >= targets) {
            Some(t) => Err(Error(format!(
                "target {t} of {targets}: targets count from 0"
            ))),
            None => Ok(self.starts.len() - 1),
        }
    }

    #[inline]
    fn of(&self, group: u32) -> &[u32] {
        let (from, to) = (self.starts[group as usize], self.starts[group as usize + 1]);
        &self.items[from as usize..to as usize]
    }
}

/// Where the pieces of every file of every stream go. File `f` of stream `s` is number `s * files + f` in `table_starts`.
#[derive(Debug, Clone)]
pub struct Placement {
    targets: usize,
    files: usize,
    units: Vec<u64>,
    table_starts: Vec<u64>,
    tables: Vec<u32>,
    lists: [Lists; CLASSES],
}

impl Placement {
    /// `units` has one entry per file; `table_starts` one per file of every stream and one more at the end.
    pub fn new(
        targets: usize,
        units: Vec<u64>,
        table_starts: Vec<u64>,
        tables: Vec<u32>,
        lists: [Lists; CLASSES],
    ) -> Result<Self, Error> {
        let groups = lists[0].check(targets)?.min(lists[1].check(targets)?);
        let files = units.len();
        if units.contains(&0) {
            return Err(Error("a stripe unit of 0 bytes".into()));
        }
        if files == 0 || table_starts.len() % files != 1 % files {
            return Err(Error(format!(
                "{} table ends for {files} files",
                table_starts.len()
            )));
        }
        let ordered = table_starts.first() == Some(&0)
            && table_starts.windows(2).all(|w| w[0] < w[1])
            && table_starts.last() == Some(&(tables.len() as u64));
        if !ordered {
            return Err(Error(
                "a file without a table, or tables out of order".into(),
            ));
        }
        if let Some(group) = tables.iter().find(|&&g| g as usize >= groups) {
            return Err(Error(format!(
                "group {group} of {groups}: groups count from 0"
            )));
        }
        Ok(Self {
            targets,
            files,
            units,
            table_starts,
            tables,
            lists,
        })
    }

    fn table(&self, number: usize) -> &[u32] {
        &self.tables[self.table_starts[number] as usize..self.table_starts[number + 1] as usize]
    }

    /// How many streams the tables are for.
    pub fn streams(&self) -> usize {
        (self.table_starts.len() - 1) / self.files
    }
}

/// A piece of a trace: one entry per access in each slice.
#[derive(Debug, Clone, Copy)]
pub struct Accesses<'a> {
    /// Nanoseconds from the start of the trace.
    pub at: &'a [u64],
    /// 0 read, 1 write; anything else is passed over.
    pub class: &'a [u8],
    pub file: &'a [u32],
    pub offset: &'a [u64],
    pub length: &'a [u64],
}

impl Accesses<'_> {
    fn check(&self, files: usize) -> Result<(), Error> {
        let n = self.at.len();
        if [
            self.class.len(),
            self.file.len(),
            self.offset.len(),
            self.length.len(),
        ]
        .iter()
        .any(|&m| m != n)
        {
            return Err(Error("the columns of the accesses differ in length".into()));
        }
        if let Some(f) = self.file.iter().find(|&&f| f as usize >= files) {
            return Err(Error(format!("file {f} of {files}: files count from 0")));
        }
        let fits = |(&o, &l): (&u64, &u64)| o.checked_add(l).is_some();
        match self.offset.iter().zip(self.length).position(|p| !fits(p)) {
            Some(i) => Err(Error(format!("access {i} ends beyond 2^64 bytes"))),
            None => Ok(()),
        }
    }
}

/// Counts of some streams.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    /// Per class, one row of `targets` counters per second.
    pub rows: [Vec<u32>; CLASSES],
    /// Per class and target: bytes of the pieces whose access touched it.
    pub bytes: [Vec<u64>; CLASSES],
    /// Touches of a target, all together.
    pub touches: u64,
    stamps: Vec<u64>,
    stamp: u64,
}

impl Counts {
    fn add(&mut self, other: &Self) {
        for class in 0..CLASSES {
            merge(&mut self.rows[class], &other.rows[class]);
            merge(&mut self.bytes[class], &other.bytes[class]);
        }
        self.touches += other.touches;
    }
}

fn merge<T: Copy + Default + std::ops::AddAssign>(into: &mut Vec<T>, from: &[T]) {
    if into.len() < from.len() {
        into.resize(from.len(), T::default());
    }
    for (a, &b) in into.iter_mut().zip(from) {
        *a += b;
    }
}

/// Counts accesses piece by piece: a trace of any length passes through.
#[derive(Debug)]
pub struct Counter {
    placement: Placement,
    /// Count a target once per access, however many pieces of it the access touches.
    once: bool,
    parts: Vec<Counts>,
}

impl Counter {
    pub fn new(placement: Placement, once: bool, threads: usize) -> Self {
        Self {
            placement,
            once,
            parts: vec![Counts::default(); threads.max(1)],
        }
    }

    /// Takes in accesses, once for every stream, shifted by that stream's start in nanoseconds.
    pub fn feed(&mut self, accesses: Accesses<'_>, shifts: &[u64]) -> Result<(), Error> {
        accesses.check(self.placement.files)?;
        if shifts.len() != self.placement.streams() {
            return Err(Error(format!(
                "{} starts for {} streams",
                shifts.len(),
                self.placement.streams()
            )));
        }
        let last = accesses.at.iter().max().copied().unwrap_or(0);
        let latest = shifts.iter().max().copied().unwrap_or(0);
        let seconds = last.saturating_add(latest) / 1_000_000_000 + 1;
        let counters = usize::try_from(seconds)
            .ok()
            .and_then(|s| s.checked_mul(self.placement.targets));
        if counters.is_none_or(|n| n > MOST_COUNTERS) {
            return Err(Error(format!(
                "{seconds} seconds of {} targets do not fit into memory",
                self.placement.targets
            )));
        }
        let (placement, once) = (&self.placement, self.once);
        let jobs: Vec<(usize, u64)> = shifts.iter().copied().enumerate().collect();
        let share = jobs.len().div_ceil(self.parts.len()).max(1);
        let work = |counts: &mut Counts, jobs: &[(usize, u64)]| {
            for &(stream, shift) in jobs {
                count(placement, once, accesses, stream, shift, counts);
            }
        };
        std::thread::scope(|scope| {
            for (counts, jobs) in self.parts.iter_mut().zip(jobs.chunks(share)) {
                if share < shifts.len() {
                    scope.spawn(move || work(counts, jobs));
                } else {
                    work(counts, jobs);
                }
            }
        });
        Ok(())
    }

    /// All counts so far; rows of both classes are equally many.
    pub fn counts(&self) -> Counts {
        let mut all = Counts::default();
        for part in &self.parts {
            all.add(part);
        }
        let longest = all.rows.iter().map(Vec::len).max().unwrap_or(0);
        for class in 0..CLASSES {
            all.rows[class].resize(longest, 0);
            all.bytes[class].resize(self.placement.targets, 0);
        }
        all
    }
}

/// The column of a piece in a table and the width of a unit, without a division for the usual powers of two.
#[derive(Clone, Copy)]
enum Unit {
    Shift(u32),
    Bytes(u64),
}

impl Unit {
    fn new(bytes: u64) -> Self {
        if bytes.is_power_of_two() {
            Self::Shift(bytes.trailing_zeros())
        } else {
            Self::Bytes(bytes)
        }
    }

    #[inline(always)]
    fn of(self, offset: u64) -> u64 {
        match self {
            Self::Shift(n) => offset >> n,
            Self::Bytes(n) => offset / n,
        }
    }
}

fn count(
    p: &Placement,
    once: bool,
    a: Accesses<'_>,
    stream: usize,
    shift: u64,
    counts: &mut Counts,
) {
    let targets = p.targets;
    let units: Vec<Unit> = p.units.iter().map(|&u| Unit::new(u)).collect();
    counts.stamps.resize(targets, 0);
    for class in 0..CLASSES {
        counts.bytes[class].resize(targets, 0);
    }
    for i in 0..a.at.len() {
        let class = usize::from(a.class[i]);
        if class >= CLASSES || a.length[i] == 0 {
            continue;
        }
        let file = a.file[i] as usize;
        let row = ((a.at[i] + shift) / 1_000_000_000) as usize * targets;
        let rows = &mut counts.rows[class];
        if rows.len() < row + targets {
            rows.resize(row + targets, 0);
        }
        let row = &mut rows[row..row + targets];
        let bytes = &mut counts.bytes[class];
        let table = p.table(stream * p.files + file);
        let lists = &p.lists[class];
        let (offset, end) = (a.offset[i], a.offset[i] + a.length[i]);
        let (first, last) = (units[file].of(offset), units[file].of(end - 1));
        let mut column = (first % table.len() as u64) as usize;
        counts.stamp += 1;
        for piece in first..=last {
            let from = offset.max(piece * p.units[file]);
            let size = end.min((piece + 1).saturating_mul(p.units[file])) - from;
            for &target in lists.of(table[column]) {
                let target = target as usize;
                bytes[target] += size;
                if once {
                    if counts.stamps[target] == counts.stamp {
                        continue;
                    }
                    counts.stamps[target] = counts.stamp;
                }
                row[target] += 1;
                counts.touches += 1;
            }
            column += 1;
            if column == table.len() {
                column = 0;
            }
        }
    }
}
