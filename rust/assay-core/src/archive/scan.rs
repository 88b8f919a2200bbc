//! A parallel scanner: getdents64 and statx, histograms of power-of-two buckets, memory independent of the number of files.
//!
//! Directories are a stack of paths, each worker takes from its own and gives half of it away when others are idle. The
//! names of a large directory are handed out in chunks, so one directory of ten million files is still scanned by all.

use std::collections::HashMap;
use std::ffi::CString;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{
    fstat, openat, statx, AtFlags, FileType, Mode, OFlags, RawDir, Statx, StatxFlags, CWD,
};

pub use super::totals::{bucket, Totals, AGES, BUCKETS, DEPTHS};
use super::{mix, Failure, Gate};

const NAME_BUFFER: usize = 256 * 1024;

/// What to scan and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// Worker threads, at least 1.
    pub threads: usize,
    /// Do not descend into other mounted file systems.
    pub one_file_system: bool,
    /// Share of the files that are stat'ed, in (0, 1]; every name is counted in any case.
    pub sample: f64,
    /// Chooses the sample.
    pub seed: u64,
    /// Seconds since the epoch from which ages are counted.
    pub now: i64,
    /// Upper bound of names per second; 0: none.
    pub names_per_second: u64,
    /// Inodes with further links to come that are remembered; beyond it a file with n links counts 1/n per name.
    pub remembered_inodes: usize,
}

/// What has been seen so far.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    pub names: u64,
    pub directories: u64,
}

/// One name of a chunk: where it begins in the chunk's text, and its inode.
#[derive(Clone, Copy)]
struct Name {
    inode: u64,
    start: u32,
}

/// Names of regular files of one directory, sorted by inode: that is the order in which the disk holds them.
struct Chunk {
    directory: Arc<OwnedFd>,
    path: Arc<[u8]>,
    names: Vec<Name>,
    text: Vec<u8>,
}

enum Task {
    Directory { path: Vec<u8>, depth: usize },
    Files(Chunk),
}

struct Shared<'a> {
    options: &'a Options,
    device: (u32, u32),
    queue: Mutex<Vec<Task>>,
    waiting: Condvar,
    /// Tasks that are queued or being worked on; 0: the scan is over.
    pending: AtomicU64,
    idle: AtomicUsize,
    queued: AtomicUsize,
    stop: AtomicBool,
    names: AtomicU64,
    directories: AtomicU64,
    /// Links still to come of inodes that have been counted, by hash of the inode.
    links: Vec<Mutex<HashMap<u64, u32>>>,
    remembered: AtomicUsize,
    began: Instant,
}

/// Scans `root`. `progress` is called four times a second and ends the scan by returning false.
///
/// Fails only when the root cannot be read; what cannot be read below it is counted in [`Totals::errors`].
pub fn scan(
    root: &[u8],
    options: &Options,
    mut progress: impl FnMut(Progress) -> bool,
) -> Result<Totals, Failure> {
    let fail = |error: rustix::io::Errno| Failure::new(root, "read", error);
    let top = openat(
        CWD,
        root,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(fail)?;
    let device = device_of(top.as_fd()).map_err(fail)?;
    drop(top);
    let shared = Shared {
        options,
        device,
        queue: Mutex::new(vec![Task::Directory {
            path: root.to_vec(),
            depth: 0,
        }]),
        waiting: Condvar::new(),
        pending: AtomicU64::new(1),
        idle: AtomicUsize::new(0),
        queued: AtomicUsize::new(1),
        stop: AtomicBool::new(false),
        names: AtomicU64::new(0),
        directories: AtomicU64::new(0),
        links: (0..64).map(|_| Mutex::new(HashMap::new())).collect(),
        remembered: AtomicUsize::new(0),
        began: Instant::now(),
    };
    let threads = options.threads.max(1);
    let gate = Gate::new(threads);
    let mut totals = Totals::new();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let _leave = gate.worker();
                    Worker::new(&shared).run()
                })
            })
            .collect();
        gate.wait(|| {
            let seen = Progress {
                names: shared.names.load(Relaxed),
                directories: shared.directories.load(Relaxed),
            };
            if !progress(seen) {
                shared.stop.store(true, Relaxed);
                shared.waiting.notify_all();
            }
        });
        for worker in workers {
            match worker.join() {
                Ok(part) => totals.add(&part),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    Ok(totals)
}

fn device_of(fd: BorrowedFd<'_>) -> rustix::io::Result<(u32, u32)> {
    let device = fstat(fd)?.st_dev;
    Ok((rustix::fs::major(device), rustix::fs::minor(device)))
}

struct Worker<'a> {
    shared: &'a Shared<'a>,
    totals: Totals,
    local: Vec<Task>,
    buffer: Vec<MaybeUninit<u8>>,
}

impl<'a> Worker<'a> {
    fn new(shared: &'a Shared<'a>) -> Self {
        Self {
            shared,
            totals: Totals::new(),
            local: Vec::new(),
            buffer: vec![MaybeUninit::uninit(); NAME_BUFFER],
        }
    }

    fn run(mut self) -> Totals {
        while let Some(task) = self.next() {
            match task {
                Task::Directory { path, depth } => self.directory(path, depth),
                Task::Files(chunk) => self.files(&chunk),
            }
            self.share();
            if self.shared.pending.fetch_sub(1, Relaxed) == 1 {
                let _queue = self.lock();
                self.shared.waiting.notify_all();
            }
            self.hold_back();
        }
        self.totals
    }

    fn lock(&self) -> std::sync::MutexGuard<'a, Vec<Task>> {
        self.shared
            .queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&mut self) -> Option<Task> {
        if self.shared.stop.load(Relaxed) {
            return None;
        }
        if let Some(task) = self.local.pop() {
            return Some(task);
        }
        let mut queue = self.lock();
        loop {
            if self.shared.stop.load(Relaxed) || self.shared.pending.load(Relaxed) == 0 {
                return None;
            }
            if let Some(task) = queue.pop() {
                self.shared.queued.store(queue.len(), Relaxed);
                return Some(task);
            }
            self.shared.idle.fetch_add(1, Relaxed);
            queue = self
                .shared
                .waiting
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
            self.shared.idle.fetch_sub(1, Relaxed);
        }
    }

    /// New work; counted before it can be taken.
    fn push(&mut self, task: Task) {
        self.shared.pending.fetch_add(1, Relaxed);
        self.local.push(task);
    }

    /// Gives half of the own work away when others have none.
    fn share(&mut self) {
        let (idle, queued) = (
            self.shared.idle.load(Relaxed),
            self.shared.queued.load(Relaxed),
        );
        if idle == 0 || queued > idle || self.local.is_empty() {
            return;
        }
        let give = self.local.len().div_ceil(2);
        let mut queue = self.lock();
        queue.extend(self.local.drain(..give)); // the oldest: highest in the tree, most below them
        self.shared.queued.store(queue.len(), Relaxed);
        if give > 1 {
            self.shared.waiting.notify_all();
        } else {
            self.shared.waiting.notify_one();
        }
    }

    fn directory(&mut self, path: Vec<u8>, depth: usize) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOATIME;
        let follow = if depth == 0 {
            OFlags::empty()
        } else {
            OFlags::NOFOLLOW
        };
        let opened = openat(CWD, path.as_slice(), flags | follow, Mode::empty()).or_else(|error| {
            if error == rustix::io::Errno::PERM {
                // O_NOATIME is the owner's right only
                openat(
                    CWD,
                    path.as_slice(),
                    (flags | follow) - OFlags::NOATIME,
                    Mode::empty(),
                )
            } else {
                Err(error)
            }
        });
        let fd = match opened {
            Ok(fd) => Arc::new(fd),
            Err(error) => return self.totals.error(&Failure::new(&path, "read", error)),
        };
        if self.shared.options.one_file_system
            && depth > 0
            && device_of(fd.as_fd()).is_ok_and(|d| d != self.shared.device)
        {
            return;
        }
        self.totals.directories += 1;
        self.shared.directories.fetch_add(1, Relaxed);
        let files = self.names(&fd, &path, depth);
        self.totals.depth[depth.min(DEPTHS - 1)] += files;
        self.totals.per_directory[bucket(files)] += 1;
        self.totals.largest_directory = self.totals.largest_directory.max(files);
    }

    /// Reads a directory's names; returns how many files it has.
    fn names(&mut self, fd: &Arc<OwnedFd>, path: &[u8], depth: usize) -> u64 {
        let path: Arc<[u8]> = Arc::from(path);
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut files = 0;
        let mut chunk = Chunk {
            directory: fd.clone(),
            path: path.clone(),
            names: Vec::new(),
            text: Vec::new(),
        };
        let mut entries = RawDir::new(fd.as_fd(), &mut buffer);
        loop {
            if entries.is_buffer_empty()
                && !chunk.names.is_empty()
                && chunk.text.len() > NAME_BUFFER / 8
            {
                // more may follow: others can begin with these, unless they have enough already
                let full = std::mem::replace(
                    &mut chunk,
                    Chunk {
                        directory: fd.clone(),
                        path: path.clone(),
                        names: Vec::new(),
                        text: Vec::new(),
                    },
                );
                self.hand_out(full);
                if self.shared.stop.load(Relaxed) {
                    break;
                }
            }
            let entry = match entries.next() {
                None => break,
                Some(Ok(entry)) => entry,
                Some(Err(error)) => {
                    self.totals.error(&Failure::new(&*path, "read", error));
                    break;
                }
            };
            let name = entry.file_name();
            let text = name.to_bytes();
            if text == b"." || text == b".." {
                continue;
            }
            let mut kind = entry.file_type();
            if kind == FileType::Unknown {
                kind = match statx(fd, name, FLAGS, StatxFlags::TYPE) {
                    Ok(s) => FileType::from_raw_mode(u32::from(s.stx_mode)),
                    Err(_) => FileType::Unknown,
                };
            }
            match kind {
                FileType::Directory => {
                    let mut below = Vec::with_capacity(path.len() + 1 + text.len());
                    below.extend_from_slice(&path);
                    if !path.ends_with(b"/") {
                        below.push(b'/');
                    }
                    below.extend_from_slice(text);
                    self.push(Task::Directory {
                        path: below,
                        depth: depth + 1,
                    });
                    if self.local.len() == 64 {
                        self.share();
                    }
                }
                FileType::RegularFile => {
                    files += 1;
                    if self.wanted(entry.ino()) {
                        chunk.names.push(Name {
                            inode: entry.ino(),
                            start: chunk.text.len() as u32,
                        });
                        chunk.text.extend_from_slice(name.to_bytes_with_nul());
                    }
                }
                FileType::Symlink => self.totals.symlinks += 1,
                _ => self.totals.special += 1,
            }
        }
        self.buffer = buffer;
        self.totals.names += files;
        self.shared.names.fetch_add(files, Relaxed);
        self.files(&chunk);
        files
    }

    /// Whether a file is in the sample: by its inode, so that all its links are or none is.
    fn wanted(&self, inode: u64) -> bool {
        let o = self.shared.options;
        o.sample >= 1.0 || (mix(inode ^ mix(o.seed)) as f64) < o.sample * (u64::MAX as f64)
    }

    fn hand_out(&mut self, chunk: Chunk) {
        let queued = self.shared.queued.load(Relaxed);
        if self.shared.idle.load(Relaxed) == 0 || queued > 2 * self.shared.options.threads {
            return self.files(&chunk);
        }
        self.shared.pending.fetch_add(1, Relaxed);
        let mut queue = self.lock();
        queue.push(Task::Files(chunk));
        self.shared.queued.store(queue.len(), Relaxed);
        self.shared.waiting.notify_one();
    }

    fn files(&mut self, chunk: &Chunk) {
        let mut names = chunk.names.clone();
        names.sort_unstable_by_key(|n| n.inode);
        for name in names {
            let text = &chunk.text[name.start as usize..];
            let Ok(text) = std::ffi::CStr::from_bytes_until_nul(text) else {
                continue;
            };
            match statx(&chunk.directory, text, FLAGS, WANTED) {
                Ok(status) => self.status(&status),
                Err(rustix::io::Errno::NOENT) => self.totals.vanished += 1,
                Err(error) => {
                    let path = [&*chunk.path, b"/", text.to_bytes()].concat();
                    self.totals.error(&Failure::new(path, "stat", error));
                }
            }
        }
    }

    fn status(&mut self, s: &Statx) {
        self.totals.stated += 1;
        if s.stx_nlink > 1 && !self.first_link(s) {
            self.totals.duplicate_links += 1;
            return;
        }
        let age = self.shared.options.now - s.stx_mtime.tv_sec;
        self.totals.file(s.stx_size, s.stx_blocks, age);
    }

    /// Whether this name is the first of its inode. An inode is forgotten when its last link has been seen.
    fn first_link(&mut self, s: &Statx) -> bool {
        let device = (u64::from(s.stx_dev_major) << 32) | u64::from(s.stx_dev_minor);
        let key = mix(s.stx_ino ^ mix(device));
        let mut map = self.shared.links[(key >> 58) as usize]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(left) = map.get_mut(&key) {
            *left -= 1;
            if *left == 0 {
                map.remove(&key);
                self.shared.remembered.fetch_sub(1, Relaxed);
            }
            return false;
        }
        if self.shared.remembered.load(Relaxed) < self.shared.options.remembered_inodes {
            map.insert(key, s.stx_nlink - 1);
            self.shared.remembered.fetch_add(1, Relaxed);
            return true;
        }
        // no room: this name counts with probability 1/n, the same for all scans (an unbiased count)
        self.totals.weighted_links += 1;
        let draw = mix(key ^ self.totals.weighted_links ^ self.shared.options.seed);
        draw % u64::from(s.stx_nlink) == 0
    }

    fn hold_back(&self) {
        let limit = self.shared.options.names_per_second;
        if limit == 0 {
            return;
        }
        let due = Duration::from_secs_f64(self.shared.names.load(Relaxed) as f64 / limit as f64);
        while !self.shared.stop.load(Relaxed) {
            let ahead = due.saturating_sub(self.shared.began.elapsed());
            if ahead.is_zero() {
                break;
            }
            thread::sleep(ahead.min(Duration::from_millis(100)));
        }
    }
}

const FLAGS: AtFlags = AtFlags::SYMLINK_NOFOLLOW.union(AtFlags::STATX_DONT_SYNC);
const WANTED: StatxFlags = StatxFlags::SIZE
    .union(StatxFlags::NLINK)
    .union(StatxFlags::INO)
    .union(StatxFlags::BLOCKS)
    .union(StatxFlags::MTIME);

/// A path without a NUL byte, for callers that hold bytes.
pub fn path_is_valid(path: &[u8]) -> bool {
    CString::new(path).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn options() -> Options {
        Options {
            threads: 4,
            one_file_system: true,
            sample: 1.0,
            seed: 1,
            now: 4_000_000_000,
            names_per_second: 0,
            remembered_inodes: 1000,
        }
    }

    fn tree() -> std::path::PathBuf {
        let root = std::env::temp_dir().join(format!("assay-scan-{:?}", thread::current().id()));
        let _ = fs::remove_dir_all(&root);
        for d in 0..20 {
            let directory = root.join(format!("a/{d}"));
            fs::create_dir_all(&directory).unwrap();
            for f in 0..50 {
                fs::write(directory.join(f.to_string()), vec![1u8; d * f]).unwrap();
            }
        }
        fs::hard_link(root.join("a/1/1"), root.join("link")).unwrap();
        root
    }

    #[test]
    fn buckets_are_half_open() {
        assert_eq!(
            [0, 1, 2, 3, 4, 1023, 1024].map(bucket),
            [0, 1, 2, 2, 3, 10, 11]
        );
        assert_eq!(bucket(u64::MAX), 64);
    }

    #[test]
    fn a_tree_is_counted_exactly_and_links_once() {
        let root = tree();
        let totals = scan(root.as_os_str().as_encoded_bytes(), &options(), |_| true).unwrap();
        fs::remove_dir_all(&root).unwrap();
        let mut counts = [0u64; BUCKETS];
        let mut bytes = 0u128;
        for d in 0..20u64 {
            for f in 0..50u64 {
                counts[bucket(d * f)] += 1;
                bytes += u128::from(d * f);
            }
        }
        assert_eq!(totals.counts, counts);
        assert_eq!(totals.bytes.iter().sum::<u128>(), bytes);
        assert_eq!((totals.names, totals.duplicate_links), (1001, 1));
        assert_eq!((totals.directories, totals.errors), (22, 0));
        assert_eq!(totals.depth[2], 1000);
        assert_eq!(totals.per_directory[bucket(50)], 20);
    }

    #[test]
    fn a_missing_root_is_an_error() {
        let error = scan(b"/nonexistent-assay", &options(), |_| true).unwrap_err();
        assert!(error.to_string().contains("cannot read /nonexistent-assay"));
    }
}
