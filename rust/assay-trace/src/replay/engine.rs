//! Carries a plan out: one process per recorded process, one thread per recorded thread, every operation at its time.
//!
//! All that processes share lies in anonymous shared memory made before they are: what each operation took, how far each
//! thread is, which descriptor an open file has. When one open file is used by several processes, the processes share
//! their descriptor table (CLONE_FILES), so that it is one open file of the kernel, too.
use super::clock::{self, Waiter};
use super::plan::{Lane, Mapping, Plan, Step};
use super::prepare::Noise;
use super::{Options, Timing};
use crate::model::{Op, Trace};
use crate::{fail, Result};
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
    plan: &'a Plan,
    first: Vec<usize>,
    memory: Memory,
    progress_at: usize,
    fds_at: usize,
    paths: Vec<CString>,
    root: CString,
    options: &'a Options,
    pub begin: u64,
    seed: u64,
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
        let root = root.to_string_lossy().trim_end_matches('/').to_owned();
        let paths = trace
            .paths
            .iter()
            .map(|p| {
                let mapped = if mapping.holds(p) {
                    format!("{root}/{}", mapping.relative(p))
                } else {
                    p.clone()
                };
                CString::new(mapped).unwrap_or_default()
            })
            .collect();
        let copy = Copy {
            plan,
            first,
            memory,
            progress_at,
            fds_at,
            paths,
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

    fn fd(&self, file: u32) -> &AtomicI32 {
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

    fn override_flags(&self, writes: bool) -> libc::c_int {
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

/// One thread's buffer and the system calls it makes.
struct Hands<'a, 'b> {
    copy: &'a Copy<'b>,
    buffer: *mut u8,
    capacity: usize,
}

const LARGEST_BUFFER: u64 = 64 << 20;
const ALIGN: usize = 4096;

impl<'a, 'b> Hands<'a, 'b> {
    fn new(copy: &'a Copy<'b>, lane: u32) -> Hands<'a, 'b> {
        let largest = copy.plan.lanes[lane as usize]
            .steps
            .iter()
            .map(|s| s.count.max(s.result.max(0) as u64));
        let wanted = largest
            .filter(|&n| n <= LARGEST_BUFFER)
            .max()
            .unwrap_or(0)
            .min(LARGEST_BUFFER);
        let capacity = (wanted as usize + ALIGN).next_multiple_of(ALIGN);
        let mut buffer = std::ptr::null_mut();
        // SAFETY: aligned memory, checked below, never freed: the process ends with its threads
        let failed = unsafe { libc::posix_memalign(&mut buffer, ALIGN, capacity) };
        let buffer: *mut u8 = if failed == 0 {
            buffer.cast()
        } else {
            std::ptr::null_mut()
        };
        if !buffer.is_null() {
            // SAFETY: `capacity` bytes that were just allocated
            let slice = unsafe { std::slice::from_raw_parts_mut(buffer, capacity) };
            Noise(copy.seed ^ u64::from(lane)).fill(slice);
        }
        Hands {
            copy,
            buffer,
            capacity,
        }
    }

    fn path(&self, n: u32) -> *const libc::c_char {
        self.copy.paths[n as usize].as_ptr()
    }

    fn size(&self, count: u64) -> usize {
        let n = (count as usize).min(self.capacity - ALIGN);
        if self.copy.options.o_direct {
            n.next_multiple_of(ALIGN).min(self.capacity)
        } else {
            n
        }
    }

    fn offset(&self, offset: i64) -> i64 {
        if self.copy.options.o_direct {
            offset & !(ALIGN as i64 - 1)
        } else {
            offset
        }
    }

    fn issue(&mut self, s: &Step) -> i64 {
        if self.buffer.is_null() {
            return -i64::from(libc::ENOMEM);
        }
        let got = self.call(s);
        if got < 0 {
            return -i64::from(
                std::io::Error::last_os_error()
                    .raw_os_error()
                    .unwrap_or(libc::EIO),
            );
        }
        got
    }

    fn call(&mut self, s: &Step) -> i64 {
        let fd = self.copy.fd(s.file).load(Ordering::Relaxed);
        // SAFETY: every call gets valid C strings, or a buffer of at least the size it is told
        unsafe {
            match s.op {
                Op::Read
                | Op::Pread
                | Op::Readv
                | Op::Preadv
                | Op::AioRead
                | Op::UringRead
                | Op::PageIn => libc::pread(
                    fd,
                    self.buffer.cast(),
                    self.size(s.count),
                    self.offset(s.offset),
                ) as i64,
                Op::Write
                | Op::Pwrite
                | Op::Writev
                | Op::Pwritev
                | Op::AioWrite
                | Op::UringWrite => libc::pwrite(
                    fd,
                    self.buffer.cast(),
                    self.size(s.count),
                    self.offset(s.offset),
                ) as i64,
                Op::Sendfile | Op::Splice | Op::CopyFileRange => self.between(s, fd),
                Op::CloneRange => {
                    const FICLONE: libc::c_ulong = 0x4004_9409;
                    i64::from(libc::ioctl(
                        self.copy.fd(s.file2).load(Ordering::Relaxed),
                        FICLONE,
                        fd,
                    ))
                }
                Op::Lseek if s.count == libc::SEEK_END as u64 => {
                    libc::lseek(fd, 0, libc::SEEK_END).min(0)
                }
                Op::Lseek => libc::lseek(fd, s.offset, libc::SEEK_SET).min(0),
                Op::Fsync | Op::AioFsync | Op::UringFsync => i64::from(libc::fsync(fd)),
                Op::Fdatasync => i64::from(libc::fdatasync(fd)),
                Op::SyncFileRange => {
                    i64::from(libc::sync_file_range(fd, s.offset, s.count as i64, 7))
                }
                Op::Ftruncate => i64::from(libc::ftruncate(fd, s.offset)),
                Op::Fallocate => i64::from(libc::fallocate(
                    fd,
                    s.flags as libc::c_int,
                    s.offset,
                    s.count as i64,
                )),
                Op::Close => self.close(s, fd),
                Op::Dup => {
                    let copy = libc::dup(fd);
                    if copy >= 0 {
                        libc::close(copy);
                    }
                    i64::from(copy.min(0))
                }
                Op::Fstat => {
                    let mut status: libc::stat = std::mem::zeroed();
                    i64::from(libc::fstat(fd, &mut status))
                }
                Op::Readdir => libc::syscall(
                    libc::SYS_getdents64,
                    fd,
                    self.buffer,
                    self.size(if s.count == 0 { 32_768 } else { s.count })
                        .max(ALIGN / 2)
                        .min(self.capacity),
                ),
                Op::Sync => {
                    let fd = libc::open(self.copy.root.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
                    let got = libc::syscall(libc::SYS_syncfs, fd);
                    libc::close(fd);
                    got
                }
                Op::Open => self.open(s),
                Op::Truncate => i64::from(libc::truncate(self.path(s.path), s.offset)),
                Op::Rename => libc::syscall(
                    libc::SYS_renameat2,
                    libc::AT_FDCWD,
                    self.path(s.path),
                    libc::AT_FDCWD,
                    self.path(s.path2),
                    s.flags,
                ),
                Op::Unlink => i64::from(libc::unlink(self.path(s.path))),
                Op::Rmdir => i64::from(libc::rmdir(self.path(s.path))),
                Op::Mkdir => i64::from(libc::mkdir(self.path(s.path), 0o755)),
                Op::Link => i64::from(libc::link(self.path(s.path), self.path(s.path2))),
                Op::Symlink => i64::from(libc::symlink(self.path(s.path2), self.path(s.path))),
                Op::Stat => {
                    let mut status: libc::stat = std::mem::zeroed();
                    i64::from(libc::lstat(self.path(s.path), &mut status))
                }
                Op::Access => i64::from(libc::access(self.path(s.path), libc::F_OK)),
                Op::Readlink => libc::readlink(
                    self.path(s.path),
                    self.buffer.cast(),
                    self.capacity.min(4096),
                ) as i64,
                Op::Wait | Op::Mmap | Op::UringOther => 0,
            }
        }
    }

    /// Calls that move data between two descriptors, one of which may have been a pipe or socket.
    unsafe fn between(&mut self, s: &Step, fd: libc::c_int) -> i64 {
        let moved = s.result.max(0) as u64;
        let fd2 = self.copy.fd(s.file2).load(Ordering::Relaxed);
        // SAFETY: as in `call`
        unsafe {
            if s.file2 == 0 {
                return libc::pread(
                    fd,
                    self.buffer.cast(),
                    self.size(moved),
                    self.offset(s.offset),
                ) as i64;
            }
            if s.file == 0 {
                return libc::pwrite(
                    fd2,
                    self.buffer.cast(),
                    self.size(moved),
                    self.offset(s.offset2),
                ) as i64;
            }
            let (mut from, mut to) = (s.offset, s.offset2);
            libc::syscall(
                libc::SYS_copy_file_range,
                fd,
                &raw mut from,
                fd2,
                &raw mut to,
                s.count,
                0,
            )
        }
    }

    unsafe fn close(&mut self, s: &Step, fd: libc::c_int) -> i64 {
        // SAFETY: the descriptor is the replay's own
        unsafe {
            if s.last_close {
                self.copy.fd(s.file).store(-1, Ordering::Relaxed);
                return i64::from(libc::close(fd));
            }
            // Others go on using it: a duplicate's close does what a close does (flush), and leaves it open
            let copy = libc::dup(fd);
            if copy < 0 {
                return -1;
            }
            i64::from(libc::close(copy))
        }
    }

    unsafe fn open(&mut self, s: &Step) -> i64 {
        let mut flags = s.flags as libc::c_int | libc::O_CLOEXEC;
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
        if flags & libc::O_DIRECTORY == 0 && s.result >= 0 {
            flags |= self.copy.override_flags(writes);
        }
        // SAFETY: a valid C string
        let mut fd = unsafe { libc::open(self.path(s.path), flags, 0o644 as libc::c_uint) };
        if fd < 0 && self.copy.options.o_direct && flags & libc::O_DIRECT != 0 {
            // SAFETY: a valid C string; directories and some file systems refuse O_DIRECT
            fd = unsafe {
                libc::open(
                    self.path(s.path),
                    flags & !libc::O_DIRECT,
                    0o644 as libc::c_uint,
                )
            };
        }
        if fd >= 0 {
            if s.file != 0 {
                self.copy.fd(s.file).store(fd, Ordering::Relaxed);
            } else {
                // SAFETY: an open that failed in the trace: nobody uses it
                unsafe { libc::close(fd) };
            }
        }
        i64::from(fd.min(0))
    }
}
