//! Replay: the tree is laid out, then every recorded process and thread does what it did, at its time, on another path.
pub mod clock;
pub mod engine;
mod hands;
pub mod mapping;
pub mod plan;
pub mod prepare;
pub mod report;
pub mod tree;

use crate::container;
use crate::model::{Event, Op, Summary, Trace};
use crate::{fail, Result};
use engine::Copy;
use mapping::Mapping;
use prepare::Noise;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Timing {
    /// The recorded time between the end of an operation and the start of the thread's next one (the paper's).
    #[default]
    Think,
    /// The recorded start times.
    Abs,
    /// No waiting.
    Asap,
}

impl Timing {
    pub fn name(self) -> &'static str {
        match self {
            Timing::Think => "think",
            Timing::Abs => "abs",
            Timing::Asap => "asap",
        }
    }
}

fn one() -> f64 {
    1.0
}

fn one_copy() -> u32 {
    1
}

#[derive(Clone, Debug, Deserialize)]
pub struct Options {
    pub trace: PathBuf,
    pub target: PathBuf,
    #[serde(default)]
    pub timing: Timing,
    /// Think times and start times are multiplied by it.
    #[serde(default = "one")]
    pub scale: f64,
    #[serde(default = "one_copy")]
    pub copies: u32,
    /// Copies of all hosts together; this one runs `first_copy` and those after it.
    #[serde(default)]
    pub first_copy: u32,
    #[serde(default)]
    pub seed: u64,
    /// Copies start at times drawn from U[0, this], seconds.
    #[serde(default)]
    pub spread_seconds: f64,
    #[serde(default)]
    pub o_sync: bool,
    #[serde(default)]
    pub o_direct: bool,
    /// All copies work on one tree (the paper's overlapping working sets) instead of one each.
    #[serde(default)]
    pub shared_tree: bool,
    #[serde(default)]
    pub rt_priority: Option<i32>,
    #[serde(default)]
    pub spin_ns: u64,
    #[serde(default)]
    pub only: Vec<String>,
    /// Lay the tree out and stop.
    #[serde(default)]
    pub prepare_only: bool,
    /// The tree is there already.
    #[serde(default)]
    pub prepared: bool,
    #[serde(default)]
    pub deadline_seconds: Option<f64>,
    /// Where the replayed operations of the first copy go, as a trace.
    #[serde(default)]
    pub out: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
pub struct Outcome {
    pub prepared: prepare::Prepared,
    pub copies: Vec<report::CopyResult>,
    pub fidelity: Option<report::Fidelity>,
    pub processes: usize,
    pub threads: usize,
    pub spin_seconds: f64,
    pub wall_seconds: f64,
    pub cpu_seconds: f64,
    pub timed_out: bool,
}

/// The seeded start of a copy, seconds: the same on all hosts.
pub fn start_of(copy: u32, seed: u64, spread_seconds: f64) -> f64 {
    let mut noise = Noise(seed ^ 0x7265_706c_6179);
    let mut word = 0;
    for _ in 0..=copy {
        word = noise.word();
    }
    (word >> 11) as f64 / (1u64 << 53) as f64 * spread_seconds
}

fn children_cpu() -> f64 {
    // SAFETY: writes one rusage, all of whose fields are integers
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage);
        usage
    };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

fn raise_descriptor_limit() {
    // SAFETY: reads and writes one rlimit
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

/// Replays. Must be called from a process with one thread: it forks.
pub fn replay(options: &Options) -> Result<Outcome> {
    if options.scale.is_nan() || options.scale < 0.0 || options.scale > 1e6 {
        fail!("a time scale of {} is of no use", options.scale);
    }
    let trace = container::read(&options.trace)?;
    let mapping = Mapping {
        only: options.only.clone(),
    };
    let plan = plan::build(&trace, &mapping);
    let steps: usize = plan.lanes.iter().map(|l| l.steps.len()).sum();
    if steps == 0 {
        fail!(
            "{} holds nothing to replay{}",
            options.trace.display(),
            if options.only.is_empty() {
                ""
            } else {
                " below the given directories"
            }
        );
    }
    let tree = tree::initial_tree(&trace, &mapping);
    let root = |copy: u32| {
        if options.shared_tree {
            options.target.clone()
        } else {
            options.target.join(format!("copy-{copy}"))
        }
    };
    let numbers: Vec<u32> =
        (options.first_copy..options.first_copy + options.copies.max(1)).collect();
    let mut prepared = prepare::Prepared::default();
    if !options.prepared {
        for &n in numbers.iter().take(if options.shared_tree {
            1
        } else {
            numbers.len()
        }) {
            let seed = options.seed.wrapping_add(u64::from(n));
            let one = prepare::prepare(&root(n), &tree, &mapping, seed)?;
            prepared.files += one.files;
            prepared.directories += one.directories;
            prepared.bytes += one.bytes;
            prepared.written_bytes += one.written_bytes;
            prepared.removed += one.removed;
            prepared.seconds += one.seconds;
        }
    }
    let mut outcome = Outcome {
        prepared,
        copies: Vec::new(),
        fidelity: None,
        processes: plan.processes.len(),
        threads: plan.lanes.len(),
        spin_seconds: 0.0,
        wall_seconds: 0.0,
        cpu_seconds: 0.0,
        timed_out: false,
    };
    if options.prepare_only {
        return Ok(outcome);
    }
    let mut options = options.clone();
    if options.spin_ns == 0 && options.timing != Timing::Asap {
        options.spin_ns = clock::calibrate(options.rt_priority);
    }
    outcome.spin_seconds = options.spin_ns as f64 / 1e9;
    raise_descriptor_limit();
    let mut copies = Vec::new();
    for &n in &numbers {
        copies.push(Copy::new(
            &trace,
            &plan,
            &mapping,
            &root(n),
            &options,
            options.seed ^ u64::from(n),
        )?);
    }
    let cpu = children_cpu();
    let origin = clock::now() + 20_000_000;
    for (copy, &n) in copies.iter_mut().zip(&numbers) {
        copy.begin = origin + (start_of(n, options.seed, options.spread_seconds) * 1e9) as u64;
    }
    outcome.timed_out = !run_all(&copies, options.deadline_seconds, plan.cross_process);
    outcome.wall_seconds = clock::now().saturating_sub(origin) as f64 / 1e9;
    outcome.cpu_seconds = children_cpu() - cpu;
    for (copy, &n) in copies.iter().zip(&numbers) {
        outcome
            .copies
            .push(report::copy_result(&plan, copy, n, origin));
    }
    let pairs: Vec<(u32, &Copy)> = numbers.iter().copied().zip(copies.iter()).collect();
    outcome.fidelity = Some(report::fidelity(&trace, &plan, &pairs, &options));
    if let (Some(out), Some(copy)) = (&options.out, copies.first()) {
        container::write(out, &replayed(&trace, &plan, copy))?;
    }
    Ok(outcome)
}

/// One process per copy, which forks the copy's processes. False when the deadline came first.
fn run_all(copies: &[Copy], deadline_seconds: Option<f64>, shares_descriptors: bool) -> bool {
    let mut running: Vec<libc::pid_t> = Vec::new();
    for copy in copies {
        // SAFETY: this process has one thread; the child ends with _exit
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: its own group, so that a deadline ends all of it; it ends with its parent
            unsafe {
                libc::setpgid(0, 0);
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            }
            if shares_descriptors {
                copy.open_inherited();
            }
            copy.run();
            // SAFETY: no destructors of the parent's may run here
            unsafe { libc::_exit(0) };
        }
        running.push(pid);
    }
    let end = deadline_seconds.map(|s| clock::now() + (s * 1e9) as u64);
    while !running.is_empty() {
        running.retain(|&pid| {
            let mut status = 0;
            // SAFETY: our own child
            pid > 0 && unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) } == 0
        });
        if end.is_some_and(|end| clock::now() > end) {
            for pid in running {
                // SAFETY: the group of our own child
                unsafe {
                    libc::kill(-pid, libc::SIGKILL);
                }
            }
            return false;
        }
        if !running.is_empty() {
            clock::sleep_until(clock::now() + 1_000_000);
        }
    }
    true
}

/// What one copy did, as a trace of its own.
fn replayed(trace: &Trace, plan: &plan::Plan, copy: &Copy) -> Trace {
    let mut out = Trace {
        events: Vec::with_capacity(copy.operations()),
        summary: None,
        ..trace.clone()
    };
    out.meta.backend = "replay".into();
    for (n, lane) in plan.lanes.iter().enumerate() {
        for (i, step) in lane.steps.iter().enumerate().take(copy.reached(n as u32)) {
            let d = copy.done(n as u32, i);
            if d.start == 0 || step.op == Op::Wait {
                continue;
            }
            out.events.push(Event {
                start: d.start.saturating_sub(copy.begin),
                duration: d.duration,
                result: d.result,
                ..trace.events[step.event as usize].clone()
            });
        }
    }
    out.sort();
    out.summary = Some(Summary {
        events: out.events.len() as u64,
        duration: out.events.last().map_or(0, Event::end),
        ..Summary::default()
    });
    out
}
