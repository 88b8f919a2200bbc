//! What a replay did, and how faithful it was.
use super::engine::Copy;
use super::plan::Plan;
use super::{Options, Timing};
use crate::model::{Class, Op, Trace};
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Debug, Default, Serialize, Clone)]
pub struct ClassTotals {
    pub operations: u64,
    pub bytes: u64,
    pub errors: u64,
    pub latency_mean_seconds: f64,
    pub latency_min_seconds: f64,
    pub latency_max_seconds: f64,
    /// Upper edges of log-linear bins, ns, and how many operations fell in.
    pub latency_ns: Vec<u64>,
    pub counts: Vec<u64>,
    /// Per second of the run: bytes, operations, summed latency in seconds.
    pub series: Vec<(u64, u64, f64)>,
}

#[derive(Debug, Default, Serialize)]
pub struct Fidelity {
    pub timing: String,
    /// Issue time minus the time it was due, seconds: percentiles. Empty for asap.
    pub issue_error_seconds: BTreeMap<String, f64>,
    pub think_time_median_seconds: f64,
    /// Operations issued more than 100 us after they were due.
    pub late: u64,
    /// Sum of the issue errors of the thread that has most, as a share of the replay's length.
    pub drift: f64,
    pub order_kept: bool,
    pub operations: u64,
    pub reached: u64,
    pub skipped: BTreeMap<String, u64>,
    pub substituted: BTreeMap<String, u64>,
    pub mismatches: u64,
    /// "operation: expected, got" with counts, most frequent first.
    pub mismatch_kinds: Vec<(String, u64)>,
    pub trace_dropped: u64,
    pub trace_whole: bool,
}

#[derive(Debug, Serialize)]
pub struct CopyResult {
    pub copy: u32,
    pub start_seconds: f64,
    pub seconds: f64,
    pub recorded_seconds: f64,
    pub classes: BTreeMap<String, ClassTotals>,
}

const SUB: u32 = 6; // 64 bins per power of two: 1.6 %

fn bin(ns: u64) -> usize {
    if ns < 1 << SUB {
        return ns as usize;
    }
    let power = 63 - ns.leading_zeros();
    let within = (ns >> (power - SUB)) & ((1 << SUB) - 1);
    (((power - SUB + 1) << SUB) as u64 + within) as usize
}

fn value(bin: usize) -> u64 {
    let (power, within) = ((bin >> SUB) as u32, bin as u64 & ((1 << SUB) - 1));
    if power == 0 {
        return within;
    }
    let width = 1u64 << (power - 1);
    (((1 << SUB) + within) << (power - 1)) + width / 2
}

#[derive(Default)]
struct Gather {
    bins: BTreeMap<usize, u64>,
    totals: ClassTotals,
    sum: u128,
    min: u64,
    max: u64,
}

/// The results of one copy by class. `origin`: the clock at second zero of the series.
pub fn copy_result(plan: &Plan, copy: &Copy, number: u32, origin: u64) -> CopyResult {
    let mut classes: BTreeMap<&str, Gather> = BTreeMap::new();
    let (mut first, mut last) = (u64::MAX, 0);
    for (n, lane) in plan.lanes.iter().enumerate() {
        for (i, step) in lane.steps.iter().enumerate().take(copy.reached(n as u32)) {
            let d = copy.done(n as u32, i);
            if d.start == 0 || step.op == Op::Wait {
                continue;
            }
            first = first.min(d.start);
            last = last.max(d.start + d.duration);
            let g = classes
                .entry(step.op.class().name())
                .or_insert_with(|| Gather {
                    min: u64::MAX,
                    ..Gather::default()
                });
            let bytes = if moves_data(step.op) {
                d.result.max(0) as u64
            } else {
                0
            };
            g.totals.operations += 1;
            g.totals.bytes += bytes;
            g.totals.errors += u64::from(d.result < 0 && step.result >= 0);
            g.sum += u128::from(d.duration);
            g.min = g.min.min(d.duration);
            g.max = g.max.max(d.duration);
            *g.bins.entry(bin(d.duration)).or_default() += 1;
            let second = ((d.start + d.duration).saturating_sub(origin) / 1_000_000_000) as usize;
            if g.totals.series.len() <= second {
                g.totals.series.resize(second + 1, (0, 0, 0.0));
            }
            let s = &mut g.totals.series[second];
            *s = (s.0 + bytes, s.1 + 1, s.2 + d.duration as f64 / 1e9);
        }
    }
    let classes = classes
        .into_iter()
        .map(|(name, g)| {
            let mut t = g.totals;
            t.latency_mean_seconds = g.sum as f64 / t.operations.max(1) as f64 / 1e9;
            t.latency_min_seconds = g.min as f64 / 1e9;
            t.latency_max_seconds = g.max as f64 / 1e9;
            t.latency_ns = g.bins.keys().map(|&b| value(b)).collect();
            t.counts = g.bins.values().copied().collect();
            (name.to_owned(), t)
        })
        .collect();
    CopyResult {
        copy: number,
        start_seconds: first.min(last).saturating_sub(origin) as f64 / 1e9,
        seconds: last.saturating_sub(first) as f64 / 1e9,
        recorded_seconds: plan.span as f64 / 1e9,
        classes,
    }
}

fn moves_data(op: Op) -> bool {
    matches!(op.class(), Class::Read | Class::Write | Class::Mapped) && op != Op::CloneRange
}

/// Whether the file system answered as it did when recorded.
fn same(op: Op, expected: i64, got: i64) -> bool {
    if expected < 0 || got < 0 {
        return expected.min(0) == got.min(0);
    }
    // a page-in is of whole pages, also where the file ends within one
    !moves_data(op) || expected == got || op == Op::PageIn
}

fn word(op: Op, result: i64) -> String {
    if result < 0 {
        return errno_name(-result);
    }
    if moves_data(op) {
        "bytes".into()
    } else {
        "success".into()
    }
}

pub fn errno_name(n: i64) -> String {
    let known = [
        (libc::EPERM, "EPERM"),
        (libc::ENOENT, "ENOENT"),
        (libc::EIO, "EIO"),
        (libc::EBADF, "EBADF"),
        (libc::ENOMEM, "ENOMEM"),
        (libc::EACCES, "EACCES"),
        (libc::EBUSY, "EBUSY"),
        (libc::EEXIST, "EEXIST"),
        (libc::EXDEV, "EXDEV"),
        (libc::ENOTDIR, "ENOTDIR"),
        (libc::EISDIR, "EISDIR"),
        (libc::EINVAL, "EINVAL"),
        (libc::EMFILE, "EMFILE"),
        (libc::ENOSPC, "ENOSPC"),
        (libc::EROFS, "EROFS"),
        (libc::ENOTEMPTY, "ENOTEMPTY"),
        (libc::ELOOP, "ELOOP"),
        (libc::ENOTSUP, "ENOTSUP"),
        (libc::ENOTTY, "ENOTTY"),
        (libc::ESTALE, "ESTALE"),
        (libc::ENOTCONN, "ENOTCONN"),
    ];
    known
        .iter()
        .find(|(e, _)| i64::from(*e) == n)
        .map_or_else(|| format!("errno {n}"), |(_, name)| (*name).into())
}

const LATE: u64 = 100_000;

/// The fidelity of all copies together.
pub fn fidelity(
    trace: &Trace,
    plan: &Plan,
    copies: &[(u32, &Copy)],
    options: &Options,
) -> Fidelity {
    let mut f = Fidelity {
        timing: options.timing.name().into(),
        order_kept: true,
        trace_dropped: trace
            .summary
            .as_ref()
            .map_or(0, |s| s.dropped + s.unwritten),
        trace_whole: trace.summary.is_some() && trace.unreadable_bytes == 0,
        skipped: plan.skipped.iter().map(|(k, v)| (k.clone(), *v)).collect(),
        ..Fidelity::default()
    };
    let mut errors: Vec<u64> = Vec::new();
    let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
    for (_, copy) in copies {
        for (n, lane) in plan.lanes.iter().enumerate() {
            let (mut before, mut sum, mut ideal_end, mut last_error) = (0, 0u64, 0u64, 0u64);
            let reached = copy.reached(n as u32);
            for (i, step) in lane.steps.iter().enumerate() {
                if step.op == Op::Wait {
                    continue;
                }
                f.operations += 1;
                let d = if i < reached {
                    copy.done(n as u32, i)
                } else {
                    Default::default()
                };
                if d.start == 0 {
                    continue;
                }
                f.reached += 1;
                f.order_kept &= d.start >= before;
                before = d.start;
                let expected = step.result;
                if !same(step.op, expected, d.result) {
                    f.mismatches += 1;
                    let kind = if expected >= 0 && d.result >= 0 {
                        format!("{}: other number of bytes", step.op.name())
                    } else {
                        format!(
                            "{}: {} instead of {}",
                            step.op.name(),
                            word(step.op, d.result),
                            word(step.op, expected)
                        )
                    };
                    *kinds.entry(kind).or_default() += 1;
                }
                if options.timing != Timing::Asap {
                    // a perfect replayer would have issued it when due, or when the operation before, of the length it
                    // had here, would have ended: what the file system takes longer is no error of the replayer, its
                    // own lateness stays one until it is made good
                    let ideal = d.due.max(ideal_end);
                    ideal_end = ideal + d.duration;
                    let error = d.start.saturating_sub(ideal);
                    last_error = error;
                    errors.push(error);
                    sum += error;
                    f.late += u64::from(error > LATE);
                }
            }
            // think times add up every lateness, start times forget what was made good
            let behind = if options.timing == Timing::Think {
                sum
            } else {
                last_error
            };
            f.drift = f.drift.max(behind as f64 / plan.span.max(1) as f64);
        }
    }
    for lane in &plan.lanes {
        for step in &lane.steps {
            let name = match step.op {
                Op::Readv | Op::Preadv => "vector read as pread",
                Op::Writev | Op::Pwritev => "vector write as pwrite",
                Op::AioRead | Op::AioWrite | Op::AioFsync => "libaio as parallel threads",
                Op::UringRead | Op::UringWrite | Op::UringFsync => "io_uring as parallel threads",
                Op::PageIn => "page-in as pread",
                Op::Sendfile | Op::Splice => "transfer as its file's half",
                _ => continue,
            };
            *f.substituted.entry(name.into()).or_default() += 1;
        }
    }
    if plan.mapped > 0 {
        f.substituted
            .insert("mmap as its page-ins".into(), plan.mapped);
    }
    let mut gaps: Vec<u64> = plan
        .lanes
        .iter()
        .flat_map(|l| l.steps.iter().map(|s| s.gap))
        .collect();
    gaps.sort_unstable();
    f.think_time_median_seconds = gaps.get(gaps.len() / 2).map_or(0.0, |&g| g as f64 / 1e9);
    errors.sort_unstable();
    if !errors.is_empty() {
        for (name, q) in [
            ("50", 0.5),
            ("90", 0.9),
            ("99", 0.99),
            ("99.9", 0.999),
            ("100", 1.0),
        ] {
            let at = ((errors.len() as f64 * q).ceil() as usize).clamp(1, errors.len()) - 1;
            f.issue_error_seconds
                .insert(name.into(), errors[at] as f64 / 1e9);
        }
    }
    f.mismatch_kinds = kinds.into_iter().collect();
    f.mismatch_kinds.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    f
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_within_two_per_cent() {
        for ns in [0u64, 1, 63, 64, 65, 1000, 123_456, 10_000_000_000] {
            let back = value(bin(ns));
            assert!(back.abs_diff(ns) as f64 <= 0.016 * ns as f64, "{ns} {back}");
        }
    }
}
