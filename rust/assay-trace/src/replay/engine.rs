//! Carries a plan out: one process per recorded process, one thread per recorded thread, every operation at its time.
//!
//! All that processes share lies in anonymous shared memory made before they are: what each operation took, how far each
//! thread is, which descriptor an open file has. When one open file is used by several processes, the processes share
//! their descriptor table (CLONE_FILES), so that it is one open file of the kernel, too.
use super::clock::{self, Waiter};
use super::hands::Hands;
use super::mapping::Mapping;
use super::plan::{Lane, Plan, Step};
use super::{Options, Timing};
use crate::model::{Op, Trace};
use crate::{fail, Result};
use std::collections::HashMap;
use std::ffi::CString;
use std::path::Path;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

/// What one operation did. A start of 0: it was not reached.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Done {
    pub start: u64,
    pub duration: u64,
    /// Bytes, 0, or a negative errno.
    pub result: i64,
    /// When it could start: its time came and what it waits for was done.
    pub due: u64,
}

struct Memory {
    address: *mut u8,
    length: usize,
}

impl Memory {
    fn new(length: usize) -> Result<Memory> {
        let length = length.max(4096);
        // SAFETY: fresh anonymous memory, zeroed; the result is checked
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            fail!("no memory for {length} bytes of results");
        }
        Ok(Memory {
            address: address.cast(),
            length,
        })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: ours; nobody keeps a pointer into it
        unsafe { libc::munmap(self.address.cast(), self.length) };
    }
}

/// One copy of the trace, ready to run.
pub struct Copy<'a> {
    pub(super) plan: &'a Plan,
    first: Vec<usize>,
    memory: Memory,
    progress_at: usize,
    fds_at: usize,
    pub(super) paths: Vec<CString>,
    /// Texts of symbolic links, by the numbers of the link's path and of its recorded text.
    pub(super) links: HashMap<(u32, u32), CString>,
    pub(super) root: CString,
    pub(super) options: &'a Options,
    pub begin: u64,
    pub(super) seed: u64,
    inherited: &'a [(u32, bool)],
    file_paths: Vec<u32>,
    steps: usize,
}

// SAFETY: the shared memory is accessed through atomics, or by the one thread that owns the record
unsafe impl Sync for Copy<'_> {}

const LINE: usize = 64;

impl<'a> Copy<'a> {
    pub fn new(
        trace: &Trace,
        plan: &'a Plan,
        mapping: &Mapping,
        root: &Path,
        options: &'a Options,
        seed: u64,
    ) -> Result<Copy<'a>> {
        let mut first = Vec::with_capacity(plan.lanes.len());
        let mut steps = 0;
        for lane in &plan.lanes {
            first.push(steps);
            steps += lane.steps.len();
        }
        let progress_at = (steps * std::mem::size_of::<Done>()).next_multiple_of(LINE);
        let fds_at = progress_at + plan.lanes.len() * LINE;
        let memory = Memory::new(fds_at + trace.files.len() * 4 + LINE)?;
        let root = std::path::absolute(root)
            .unwrap_or_else(|_| root.to_owned())
            .to_string_lossy()
            .trim_end_matches('/')
            .to_owned();
        // what takes no part has no name: a step that used it nonetheless would fail
        let paths = trace
            .paths
            .iter()
            .map(|p| CString::new(mapping.target(&root, p).unwrap_or_default()).unwrap_or_default())
            .collect();
        let links = plan
            .lanes
            .iter()
            .flat_map(|lane| &lane.steps)
            .filter(|s| s.op == Op::Symlink)
            .map(|s| {
                let text = mapping.link_text(&root, trace.path(s.path), trace.path(s.path2));
                ((s.path, s.path2), CString::new(text).unwrap_or_default())
            })
            .collect();
        let copy = Copy {
            plan,
            first,
            memory,
            progress_at,
            fds_at,
            paths,
            links,
            root: CString::new(root).unwrap_or_default(),
            options,
            begin: 0,
            seed,
            inherited: &plan.open_before,
            file_paths: trace.files.iter().map(|f| f.path).collect(),
            steps,
        };
        for n in 0..trace.files.len() as u32 {
            copy.fd(n).store(-1, Ordering::Relaxed);
        }
        Ok(copy)
    }

    pub(super) fn fd(&self, file: u32) -> &AtomicI32 {
        // SAFETY: inside the memory, aligned
        unsafe {
            &*self
                .memory
                .address
                .add(self.fds_at + file as usize * 4)
                .cast()
        }
    }

    fn progress(&self, lane: u32) -> &AtomicU32 {
        // SAFETY: inside the memory, aligned
        unsafe {
            &*self
                .memory
                .address
                .add(self.progress_at + lane as usize * LINE)
                .cast()
        }
    }

    fn record(&self, lane: u32, index: usize) -> *mut Done {
        // SAFETY: inside the memory, aligned
        unsafe {
            self.memory
                .address
                .cast::<Done>()
                .add(self.first[lane as usize] + index)
        }
    }

    /// What an operation did, once its lane is past it.
    pub fn done(&self, lane: u32, index: usize) -> Done {
        // SAFETY: written before the lane's progress was
        unsafe { self.record(lane, index).read() }
    }

    /// How many operations of a lane are done.
    pub fn reached(&self, lane: u32) -> usize {
        self.progress(lane).load(Ordering::Acquire) as usize
    }

    pub fn operations(&self) -> usize {
        self.steps
    }

    /// Opens what was open before the trace began; an error is one of the results later on.
    pub fn open_inherited(&self) {
        for &(file, writes) in self.inherited {
            let path = &self.paths[self.file_paths[file as usize] as usize];
            let access = if writes { libc::O_RDWR } else { libc::O_RDONLY };
            // SAFETY: a valid C string
            let fd = unsafe {
                libc::open(
                    path.as_ptr(),
                    access | self.override_flags(writes) | libc::O_CLOEXEC,
                )
            };
            self.fd(file).store(fd, Ordering::Relaxed);
        }
    }

    pub(super) fn override_flags(&self, writes: bool) -> libc::c_int {
        let sync = if self.options.o_sync && writes {
            libc::O_SYNC
        } else {
            0
        };
        let direct = if self.options.o_direct {
            libc::O_DIRECT
        } else {
            0
        };
        sync | direct
    }

    /// Runs the copy in this process, which forks one process for each recorded one. Returns when all have ended.
    pub fn run(&self) {
        let mut waiting: Vec<u32> = (0..self.plan.processes.len() as u32).collect();
        let mut children: Vec<libc::pid_t> = Vec::new();
        while !waiting.is_empty() {
            waiting.retain(|&process| {
                if !self.due(process) {
                    return true;
                }
                children.push(self.fork(process));
                false
            });
            children.retain(|&pid| {
                let mut status = 0;
                // SAFETY: our own child
                pid > 0 && unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) } != pid
            });
            if !waiting.is_empty() {
                clock::sleep_until(clock::now() + 50_000);
            }
        }
        for pid in children {
            let mut status = 0;
            // SAFETY: our own child
            unsafe { libc::waitpid(pid, &mut status, 0) };
        }
    }

    /// A process is born when its parent has come to its fork, and not long before its time.
    fn due(&self, process: u32) -> bool {
        const EARLY: u64 = 5_000_000;
        self.plan.processes[process as usize].iter().any(|&n| {
            let lane = &self.plan.lanes[n as usize];
            let after = lane
                .after
                .is_none_or(|(l, i)| self.progress(l).load(Ordering::Acquire) > i);
            let time = self.options.timing != Timing::Abs
                || clock::now() + EARLY >= self.begin + self.scaled(lane.birth);
            after && time
        })
    }

    fn scaled(&self, ns: u64) -> u64 {
        if self.options.scale == 1.0 {
            ns
        } else {
            (ns as f64 * self.options.scale) as u64
        }
    }

    fn fork(&self, process: u32) -> libc::pid_t {
        let flags = if self.plan.cross_process {
            libc::CLONE_FILES
        } else {
            0
        } | libc::SIGCHLD;
        // SAFETY: like fork(2): no new stack, a copy of this single-threaded process
        let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) } as libc::pid_t;
        if pid == 0 {
            // SAFETY: the end of the copy's main process must be the end of its children
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            if !self.plan.cross_process {
                self.open_inherited();
            }
            self.process(process);
            // SAFETY: no destructors of the parent's may run here
            unsafe { libc::_exit(0) };
        }
        pid
    }

    fn process(&self, process: u32) {
        let lanes = &self.plan.processes[process as usize];
        if let [only] = lanes.as_slice() {
            self.lane(*only);
            return;
        }
        std::thread::scope(|scope| {
            for &n in lanes {
                let spawned = std::thread::Builder::new()
                    .stack_size(128 << 10)
                    .spawn_scoped(scope, move || self.lane(n));
                if spawned.is_err() {
                    self.progress(n).store(u32::MAX, Ordering::Release); // nobody shall wait for it; it shows as not reached
                }
            }
        });
    }

    fn wait_for(&self, step: &Step) -> Option<u64> {
        let (from, to) = step.dependencies;
        let mut waited = None;
        for d in &self.plan.dependencies[from as usize..to as usize] {
            let mut rounds = 0u32;
            while self.progress(d.lane).load(Ordering::Acquire) <= d.index {
                rounds += 1;
                if rounds < 200 {
                    std::hint::spin_loop();
                } else {
                    clock::sleep_until(clock::now() + 10_000);
                }
                waited = Some(0);
            }
        }
        waited.map(|_| clock::now())
    }

    fn lane(&self, n: u32) {
        let lane: &Lane = &self.plan.lanes[n as usize];
        let mut waiter = Waiter::new(self.options.spin_ns, self.options.rt_priority);
        let mut hands = Hands::new(self, n);
        let asap = self.options.timing == Timing::Asap;
        let mut last = self.begin;
        if let (Some((l, i)), Timing::Think) = (lane.after, self.options.timing) {
            while self.progress(l).load(Ordering::Acquire) <= i {
                clock::sleep_until(clock::now() + 10_000);
            }
            let parent = self.done(l, i as usize);
            last = parent.start + parent.duration;
        }
        let mut now = clock::now();
        if asap && now < self.begin {
            clock::sleep_until(self.begin);
            now = clock::now();
        }
        for (index, step) in lane.steps.iter().enumerate() {
            let mut due = match self.options.timing {
                Timing::Asap => now,
                Timing::Abs => self.begin + self.scaled(step.start),
                Timing::Think => last + self.scaled(step.gap),
            };
            if !asap && due > now {
                now = waiter.until(due);
            }
            if step.dependencies.0 != step.dependencies.1 {
                if let Some(after) = self.wait_for(step) {
                    due = due.max(after);
                    now = clock::now();
                }
            }
            let start = now;
            let result = hands.issue(step);
            now = clock::now();
            let done = Done {
                start,
                duration: now - start,
                result,
                due,
            };
            // SAFETY: this record is this lane's alone until its progress is published
            unsafe { self.record(n, index).write(done) };
            self.progress(n).store(index as u32 + 1, Ordering::Release);
            last = now;
        }
    }
}
