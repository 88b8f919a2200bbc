//! What a trace consists of: the paper's Table I, and what decides how a file system will bear it.
use crate::model::{flag, Class, Event, Op, Trace};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, HashSet};

#[derive(Debug, Default, Serialize)]
pub struct Row {
    pub operations: u64,
    /// Of all operations.
    pub share: f64,
    pub bytes: u64,
    pub mean_bytes: f64,
    pub errors: u64,
    pub latency_mean_seconds: f64,
    pub latency_p50_seconds: f64,
    pub latency_p99_seconds: f64,
}

#[derive(Debug, Default, Serialize)]
pub struct HotFile {
    pub path: String,
    pub operations: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
}

#[derive(Debug, Default, Serialize)]
pub struct Info {
    pub operations: u64,
    pub seconds: f64,
    pub processes: usize,
    pub threads: usize,
    pub files: usize,
    pub classes: BTreeMap<String, Row>,
    pub calls: BTreeMap<String, Row>,
    /// Requests by size: upper edge (a power of two, bytes) to counts.
    pub read_sizes: Vec<(u64, u64)>,
    pub write_sizes: Vec<(u64, u64)>,
    /// Share of data operations that begin where the one before on the same open file ended.
    pub sequential_read_share: f64,
    pub sequential_write_share: f64,
    pub think_time_percentiles_seconds: BTreeMap<String, f64>,
    pub think_time_total_seconds: f64,
    pub concurrency_mean: f64,
    pub concurrency_max: u32,
    /// Distinct 4 KiB pages touched, in bytes.
    pub working_set_bytes: u64,
    pub read_working_set_bytes: u64,
    pub written_working_set_bytes: u64,
    /// Per interval: read and written bytes, operations.
    pub interval_seconds: f64,
    pub mix: Vec<(u64, u64, u64)>,
    pub hottest: Vec<HotFile>,
    /// Of all bytes read.
    pub mapped_share: f64,
    pub asynchronous_share: f64,
    pub sync_opens: u64,
    pub dropped: u64,
    pub unwritten: u64,
    pub whole: bool,
    pub unreadable_bytes: u64,
}

#[derive(Default)]
struct Latencies(Vec<u64>);

impl Latencies {
    fn percentile(&mut self, q: f64) -> f64 {
        if self.0.is_empty() {
            return 0.0;
        }
        let at = ((self.0.len() as f64 * q).ceil() as usize).clamp(1, self.0.len()) - 1;
        *self.0.select_nth_unstable(at).1 as f64 / 1e9
    }

    fn mean(&self) -> f64 {
        self.0.iter().map(|&n| n as f64).sum::<f64>() / self.0.len().max(1) as f64 / 1e9
    }
}

fn rows<'a>(groups: HashMap<&'a str, Vec<&Event>>, total: u64) -> BTreeMap<String, Row> {
    groups
        .into_iter()
        .map(|(name, events): (&'a str, _)| {
            let mut latencies = Latencies(events.iter().map(|e| e.duration).collect());
            let bytes: u64 = events.iter().map(|e| e.bytes()).sum();
            let n = events.len() as u64;
            let row = Row {
                operations: n,
                share: n as f64 / total.max(1) as f64,
                bytes,
                mean_bytes: bytes as f64 / n.max(1) as f64,
                errors: events.iter().filter(|e| e.result < 0).count() as u64,
                latency_mean_seconds: latencies.mean(),
                latency_p50_seconds: latencies.percentile(0.5),
                latency_p99_seconds: latencies.percentile(0.99),
            };
            (name.to_owned(), row)
        })
        .collect()
}

fn sizes(events: &[Event], class: Class) -> Vec<(u64, u64)> {
    let mut bins: BTreeMap<u64, u64> = BTreeMap::new();
    for e in events
        .iter()
        .filter(|e| e.op.class() == class && e.result > 0)
    {
        *bins
            .entry(e.bytes().max(1).next_power_of_two())
            .or_default() += 1;
    }
    bins.into_iter().collect()
}

const PAGE: u64 = 4096;

/// Pages as ranges are too many to keep one by one for large traces: marked in a set per file, 64 to a word.
#[derive(Default)]
struct Pages(HashMap<(u32, u64), u64>);

impl Pages {
    fn mark(&mut self, file: u32, offset: u64, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let (first, last) = (offset / PAGE, (offset.saturating_add(bytes - 1)) / PAGE);
        for word in first / 64..=last / 64 {
            let from = first.max(word * 64) - word * 64;
            let to = last.min(word * 64 + 63) - word * 64;
            let mask = (u64::MAX >> (63 - to)) & (u64::MAX << from);
            *self.0.entry((file, word)).or_default() |= mask;
        }
    }

    fn bytes(&self) -> u64 {
        self.0
            .values()
            .map(|w| u64::from(w.count_ones()))
            .sum::<u64>()
            * PAGE
    }
}

/// Characterises a trace. Of `interval_seconds` 0, a tenth to a minute is chosen by the trace's length.
pub fn info(trace: &Trace, interval_seconds: f64) -> Info {
    let events: Vec<&Event> = trace.events.iter().filter(|e| e.op != Op::Wait).collect();
    let total = events.len() as u64;
    let span = trace.duration() as f64 / 1e9;
    let mut by_class: HashMap<&str, Vec<&Event>> = HashMap::new();
    let mut by_call: HashMap<&str, Vec<&Event>> = HashMap::new();
    for e in &events {
        by_class.entry(e.op.class().name()).or_default().push(e);
        by_call.entry(e.op.name()).or_default().push(e);
    }
    let mut out = Info {
        operations: total,
        seconds: span,
        classes: rows(by_class, total),
        calls: rows(by_call, total),
        read_sizes: sizes(&trace.events, Class::Read),
        write_sizes: sizes(&trace.events, Class::Write),
        dropped: trace.summary.as_ref().map_or(0, |s| s.dropped),
        unwritten: trace.summary.as_ref().map_or(0, |s| s.unwritten),
        whole: trace.summary.is_some() && trace.unreadable_bytes == 0,
        unreadable_bytes: trace.unreadable_bytes,
        ..Info::default()
    };
    let tasks: HashSet<u32> = events.iter().map(|e| e.task).collect();
    out.threads = tasks.len();
    out.processes = tasks
        .iter()
        .map(|&t| trace.tasks[t as usize].pid)
        .collect::<HashSet<_>>()
        .len();
    patterns(trace, &events, &mut out);
    over_time(&events, span, interval_seconds, &mut out);
    thinking(trace, &events, &mut out);
    out.sync_opens = events
        .iter()
        .filter(|e| e.op == Op::Open && e.call_flags() & libc::O_DSYNC as u64 != 0)
        .count() as u64;
    out.asynchronous_share =
        events.iter().filter(|e| e.flags & flag::ASYNC != 0).count() as f64 / total.max(1) as f64;
    let mapped = out.classes.get("page-in").map_or(0, |r| r.bytes) as f64;
    let read = out.classes.get("read").map_or(0, |r| r.bytes) as f64;
    out.mapped_share = if mapped > 0.0 {
        mapped / (mapped + read)
    } else {
        0.0
    };
    out
}

fn patterns(trace: &Trace, events: &[&Event], out: &mut Info) {
    let mut next: HashMap<(u32, bool), i64> = HashMap::new();
    let mut counts = [[0u64; 2]; 2];
    let (mut read, mut written, mut all) = (Pages::default(), Pages::default(), Pages::default());
    let mut hot: HashMap<u32, HotFile> = HashMap::new();
    let path_of = |n: u32| trace.files[n as usize].path;
    for e in events {
        let class = e.op.class();
        let path = if e.path != 0 { e.path } else { path_of(e.file) };
        if path != 0 {
            hot.entry(path).or_default().operations += 1;
        }
        if !matches!(class, Class::Read | Class::Write | Class::Mapped) || e.result <= 0 {
            continue;
        }
        let bytes = e.bytes();
        let mut side = |file: u32, offset: i64, writes: bool| {
            if file == 0 {
                return;
            }
            let path = path_of(file);
            let expected = next.insert((file, writes), offset.saturating_add(bytes as i64));
            counts[usize::from(writes)][0] += 1;
            counts[usize::from(writes)][1] += u64::from(expected.unwrap_or(0) == offset);
            let pages = if writes { &mut written } else { &mut read };
            // of one path, however often it is opened
            pages.mark(path, offset.max(0) as u64, bytes);
            all.mark(path, offset.max(0) as u64, bytes);
            let file = hot.entry(path).or_default();
            if writes {
                file.written_bytes += bytes;
            } else {
                file.read_bytes += bytes;
            }
        };
        if e.op == Op::CloneRange {
            continue;
        }
        if e.file2 != 0 || matches!(e.op, Op::Splice | Op::Sendfile | Op::CopyFileRange) {
            side(e.file, e.offset, false);
            side(e.file2, e.offset2, true);
        } else {
            side(e.file, e.offset, class == Class::Write);
        }
    }
    let share = |c: [u64; 2]| c[1] as f64 / c[0].max(1) as f64;
    out.sequential_read_share = share(counts[0]);
    out.sequential_write_share = share(counts[1]);
    out.working_set_bytes = all.bytes();
    out.read_working_set_bytes = read.bytes();
    out.written_working_set_bytes = written.bytes();
    out.files = hot.len();
    let mut hottest: Vec<HotFile> = hot
        .into_iter()
        .map(|(path, f)| HotFile {
            path: trace.path(path).to_owned(),
            ..f
        })
        .collect();
    hottest.sort_by(|a, b| {
        b.operations
            .cmp(&a.operations)
            .then_with(|| a.path.cmp(&b.path))
    });
    hottest.truncate(20);
    out.hottest = hottest;
}

fn over_time(events: &[&Event], span: f64, interval: f64, out: &mut Info) {
    let wanted = if interval > 0.0 {
        interval
    } else {
        (span / 200.0).clamp(0.001, 60.0)
    };
    out.interval_seconds = wanted.max(span / 100_000.0);
    let width = (out.interval_seconds * 1e9).max(1.0) as u64;
    for e in events {
        let at = (e.end() / width) as usize;
        if at > 200_000 {
            continue;
        }
        if out.mix.len() <= at {
            out.mix.resize(at + 1, (0, 0, 0));
        }
        let slot = &mut out.mix[at];
        match e.op.class() {
            Class::Read | Class::Mapped => slot.0 += e.bytes(),
            Class::Write => slot.1 += e.bytes(),
            _ => {}
        }
        slot.2 += 1;
    }
    let mut edges: Vec<(u64, i32)> = events
        .iter()
        .filter(|e| e.duration > 0)
        .flat_map(|e| [(e.start, 1), (e.end(), -1)])
        .collect();
    edges.sort_unstable();
    let mut now = 0;
    for (_, step) in edges {
        now += step;
        out.concurrency_max = out.concurrency_max.max(now.max(0) as u32);
    }
    let busy: f64 = events.iter().map(|e| e.duration as f64 / 1e9).sum();
    out.concurrency_mean = if span > 0.0 { busy / span } else { 0.0 };
}

fn thinking(trace: &Trace, events: &[&Event], out: &mut Info) {
    let mut last: Vec<Option<u64>> = vec![None; trace.tasks.len()];
    let mut order: Vec<&&Event> = events
        .iter()
        .filter(|e| e.flags & flag::ASYNC == 0)
        .collect();
    order.sort_by_key(|e| e.start);
    let mut gaps = Latencies::default();
    for e in order {
        let slot = &mut last[e.task as usize];
        if let Some(end) = *slot {
            gaps.0.push(e.start.saturating_sub(end));
        }
        *slot = Some(e.end().max(slot.unwrap_or(0)));
    }
    out.think_time_total_seconds = gaps.mean() * gaps.0.len() as f64;
    for (name, q) in [("10", 0.1), ("50", 0.5), ("90", 0.9), ("99", 0.99)] {
        out.think_time_percentiles_seconds
            .insert(name.into(), gaps.percentile(q));
    }
}
