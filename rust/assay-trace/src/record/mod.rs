//! The recorder: starts a command or attaches to a process, drains the kernel's rings, writes the trace as it goes.
mod calls;
mod collect;
pub mod kernel;

use crate::container::{Writer, BLOCK_ROWS};
use crate::model::{Event, File, Meta, Summary, Task};
use crate::{fail, Context, Result};
use collect::{device, Collector};
use kernel::{Kernel, Settings};
use serde::{Deserialize, Serialize};
use std::ffi::CString;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{sync_channel, Receiver, SyncSender, TrySendError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const POLL: Duration = Duration::from_millis(5);
/// What ended later than this before now may be overtaken by what is still being written on another CPU.
const SETTLE_NS: u64 = 2_000_000;
/// So much of a recording is lost at most when the recorder is killed.
const FLUSH: Duration = Duration::from_millis(500);

#[derive(Debug, Deserialize)]
pub struct Options {
    pub out: PathBuf,
    #[serde(default)]
    pub command: Vec<String>,
    #[serde(default)]
    pub pid: Option<u32>,
    /// Keep only what lies below this directory.
    #[serde(default)]
    pub mount: String,
    /// Raw tracepoints and hashes: kernel 5.8 to 5.11, about 2.5 times the cost.
    #[serde(default)]
    pub raw: bool,
    #[serde(default)]
    pub stat: bool,
    #[serde(default)]
    pub mmap: bool,
    /// Go on until all descendants of the command have ended.
    #[serde(default)]
    pub wait_all: bool,
    #[serde(default)]
    pub seconds: Option<f64>,
}

#[derive(Debug, Serialize)]
pub struct Outcome {
    pub summary: Summary,
    pub bytes: u64,
    /// CPU time of the recorder itself, user and system.
    pub recorder_seconds: f64,
    pub wall_seconds: f64,
}

struct Batch {
    paths: Vec<String>,
    files: Vec<File>,
    tasks: Vec<Task>,
    events: Vec<Event>,
}

static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn on_signal(_: libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

struct Signals(Vec<(libc::c_int, libc::sighandler_t)>);

impl Signals {
    fn take() -> Signals {
        STOP.store(false, Ordering::Relaxed);
        let handler = on_signal as extern "C" fn(libc::c_int) as libc::sighandler_t;
        Signals(
            [libc::SIGINT, libc::SIGTERM, libc::SIGHUP]
                .into_iter()
                // SAFETY: the handler does nothing but an atomic store
                .map(|n| (n, unsafe { libc::signal(n, handler) }))
                .collect(),
        )
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for &(n, old) in &self.0 {
            // SAFETY: what was installed before
            unsafe { libc::signal(n, old) };
        }
    }
}

fn now() -> u64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes one timespec
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

fn cpu_seconds() -> f64 {
    // SAFETY: writes one rusage, all of whose fields are integers
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// A child that waits before its exec until it is let go.
struct Child {
    pid: libc::pid_t,
    gate: libc::c_int,
}

impl Child {
    fn spawn(command: &[String]) -> Result<Child> {
        let words: Vec<CString> = command
            .iter()
            .map(|w| CString::new(w.as_str()))
            .collect::<std::result::Result<_, _>>()
            .context(|| "the command".into())?;
        let mut argv: Vec<*const libc::c_char> = words.iter().map(|w| w.as_ptr()).collect();
        argv.push(std::ptr::null());
        let mut gate = [0; 2];
        // SAFETY: writes two descriptors
        if unsafe { libc::pipe2(gate.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
            fail!("cannot make a pipe: {}", std::io::Error::last_os_error());
        }
        // SAFETY: between fork and exec the child makes system calls only, on memory prepared before
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            unsafe {
                for n in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE] {
                    libc::signal(n, libc::SIG_DFL);
                }
                libc::close(gate[1]);
                let mut byte = 0u8;
                if libc::read(gate[0], (&raw mut byte).cast(), 1) == 1 {
                    libc::execvp(argv[0], argv.as_ptr());
                }
                libc::_exit(127);
            }
        }
        // SAFETY: our end of the pipe
        unsafe { libc::close(gate[0]) };
        if pid < 0 {
            fail!("cannot fork: {}", std::io::Error::last_os_error());
        }
        Ok(Child { pid, gate: gate[1] })
    }

    fn go(&self) {
        // SAFETY: one byte to our own pipe
        unsafe {
            libc::write(self.gate, b"x".as_ptr().cast(), 1);
            libc::close(self.gate);
        }
    }

    /// The exit code once it has ended (128 + n for signal n).
    fn ended(&self) -> Option<i32> {
        let mut status = 0;
        // SAFETY: writes one integer
        if unsafe { libc::waitpid(self.pid, &mut status, libc::WNOHANG) } != self.pid {
            return None;
        }
        Some(if libc::WIFEXITED(status) {
            libc::WEXITSTATUS(status)
        } else {
            128 + libc::WTERMSIG(status)
        })
    }
}

/// Writes batches until the channel closes; after an error it counts what it cannot write.
fn write_all(mut writer: Writer, batches: &Receiver<Batch>) -> (Writer, u64, Option<String>) {
    let (mut paths, mut files) = (vec![String::new()], vec![File::default()]);
    let (mut unwritten, mut error) = (0, None);
    while let Ok(batch) = batches.recv() {
        paths.extend(batch.paths);
        files.extend(batch.files);
        let before = writer.events;
        if let Err(e) = writer.append(&paths, &batch.tasks, &files, &batch.events) {
            error.get_or_insert(e.to_string());
        }
        unwritten += batch.events.len() as u64 - (writer.events - before);
    }
    (writer, unwritten, error)
}

struct Feed {
    sender: SyncSender<Batch>,
    paths: usize,
    files: usize,
    events: Vec<Event>,
    flushed: Instant,
}

impl Feed {
    /// Hands over what there is when it fills a block or is old enough. Never waits unless `last`: the rings go on
    /// filling.
    fn pass(&mut self, collector: &Collector, last: bool) {
        if self.events.is_empty() && !last {
            return;
        }
        if self.events.len() < BLOCK_ROWS && self.flushed.elapsed() < FLUSH && !last {
            return;
        }
        let trace = &collector.tables.trace;
        let batch = Batch {
            paths: trace.paths[self.paths..].to_vec(),
            files: trace.files[self.files..].to_vec(),
            tasks: trace.tasks.clone(),
            events: std::mem::take(&mut self.events),
        };
        let sent = if last {
            self.sender
                .send(batch)
                .map_err(|e| TrySendError::Disconnected(e.0))
        } else {
            self.sender.try_send(batch)
        };
        match sent {
            Ok(()) => {
                self.paths = trace.paths.len();
                self.files = trace.files.len();
                self.flushed = Instant::now();
            }
            Err(TrySendError::Full(batch) | TrySendError::Disconnected(batch)) => {
                self.events = batch.events
            }
        }
    }
}

fn inherit(collector: &mut Collector, pid: u32) {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fd")) else {
        return;
    };
    for entry in entries.flatten() {
        let (Ok(status), Ok(path)) = (
            std::fs::metadata(entry.path()),
            std::fs::read_link(entry.path()),
        ) else {
            continue;
        };
        if status.is_file() || status.is_dir() {
            collector.inherit(
                &path.to_string_lossy(),
                device(status.dev()),
                status.ino(),
                status.len(),
                status.mode(),
            );
        }
    }
}

/// What is mapped in the recorder itself, the dynamic linker above all: programs have their pages read before they open
/// anything.
fn inherit_mapped(collector: &mut Collector) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for path in maps.lines().filter_map(|l| l.find('/').map(|at| &l[at..])) {
        if let Ok(status) = std::fs::metadata(path) {
            collector.inherit(
                path,
                device(status.dev()),
                status.ino(),
                status.len(),
                status.mode(),
            );
        }
    }
}

fn kernel_release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .map_or_else(|_| String::new(), |s| s.trim().to_owned())
}

/// Records until the command ends, the process ends, the time is over or a signal comes.
pub fn record(options: &Options) -> Result<Outcome> {
    if options.command.is_empty() == options.pid.is_none() {
        fail!("give either a command or --pid");
    }
    let cpu_before = cpu_seconds();
    let mut kernel = Kernel::load(&Settings {
        raw: options.raw,
        with_stat: options.stat,
        with_mmap: options.mmap,
        adopt: options.pid,
    })?;
    let began = now();
    let clock = Instant::now();
    let meta = Meta {
        backend: if options.raw { "ebpf-raw" } else { "ebpf" }.into(),
        command: options.command.clone(),
        machine: std::fs::read_to_string("/proc/sys/kernel/hostname")
            .unwrap_or_default()
            .trim()
            .into(),
        kernel: kernel_release(),
        started_at: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0.0, |d| d.as_secs_f64()),
        mount: options.mount.clone(),
        ..Meta::default()
    };
    let writer = Writer::create(&options.out, &meta)?;
    let signals = Signals::take();
    let mut collector = Collector::new(began, &options.mount);
    inherit_mapped(&mut collector);
    let child = match options.pid {
        Some(pid) => {
            inherit(&mut collector, pid);
            None
        }
        None => {
            let child = Child::spawn(&options.command)?;
            inherit(&mut collector, child.pid as u32);
            kernel.trace(child.pid as u32)?;
            collector.tables.task(child.pid as u32, child.pid as u32, 0);
            collector.alive = 1;
            Some(child)
        }
    };
    let (sender, receiver) = sync_channel(64);
    let writing = std::thread::spawn(move || write_all(writer, &receiver));
    let mut feed = Feed {
        sender,
        paths: 1,
        files: 1,
        events: Vec::with_capacity(BLOCK_ROWS * 2),
        flushed: Instant::now(),
    };
    if let Some(child) = &child {
        child.go();
    }
    let mut exit_code = None;
    let mut slots = Vec::with_capacity(1 << 16);
    let mut asked = false;
    loop {
        std::thread::sleep(POLL);
        let over = options
            .seconds
            .is_some_and(|s| clock.elapsed().as_secs_f64() >= s)
            || ended(options, child.as_ref(), &mut exit_code, &collector)
            || (STOP.load(Ordering::Relaxed) && child.is_none());
        if STOP.swap(false, Ordering::Relaxed) && !over {
            if asked {
                break;
            }
            asked = true; // the command gets the chance to end; a second signal ends the recording
            if let Some(child) = &child {
                // SAFETY: our own child, not reaped yet
                unsafe { libc::kill(child.pid, libc::SIGTERM) };
            }
        }
        let horizon = now() - SETTLE_NS;
        kernel.drain(&mut slots, |bytes| collector.push_record(bytes));
        collector.push_slots(&mut slots);
        collector.release(horizon, &mut feed.events);
        feed.pass(&collector, false);
        if over {
            break;
        }
    }
    std::thread::sleep(Duration::from_millis(3));
    kernel.drain(&mut slots, |bytes| collector.push_record(bytes));
    collector.push_slots(&mut slots);
    collector.release(u64::MAX, &mut feed.events);
    let duration = now() - began;
    feed.pass(&collector, true);
    drop(feed);
    drop(signals);
    let Ok((mut writer, unwritten, error)) = writing.join() else {
        fail!("the trace's writer failed");
    };
    let mut warnings = std::mem::take(&mut kernel.warnings);
    warnings.extend(error.clone());
    let summary = Summary {
        events: writer.events,
        dropped: kernel.drops(),
        unwritten,
        duration,
        exit_code,
        warnings,
    };
    let bytes = match writer.finish(&summary) {
        Ok(bytes) => bytes,
        Err(_) => std::fs::metadata(&options.out).map_or(0, |m| m.len()), // readable without its end; the warning says why
    };
    Ok(Outcome {
        summary,
        bytes,
        recorder_seconds: cpu_seconds() - cpu_before,
        wall_seconds: clock.elapsed().as_secs_f64(),
    })
}

fn ended(
    options: &Options,
    child: Option<&Child>,
    exit_code: &mut Option<i32>,
    collector: &Collector,
) -> bool {
    match (child, options.pid) {
        (Some(child), _) => {
            if exit_code.is_none() {
                *exit_code = child.ended();
            }
            exit_code.is_some() && (!options.wait_all || collector.alive <= 0)
        }
        (None, Some(pid)) => !std::path::Path::new(&format!("/proc/{pid}")).exists(),
        (None, None) => true,
    }
}
