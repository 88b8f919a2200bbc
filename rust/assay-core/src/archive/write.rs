//! Writes a fileset in parallel: buffered or O_DIRECT, then one sync of the file system, timed apart.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use rustix::fs::{
    fallocate, ftruncate, futimens, mkdirat, openat, syncfs, FallocateFlags, Mode, OFlags,
    Timespec, Timestamps, CWD,
};
use rustix::io::{pwrite, Errno};
use xxhash_rust::xxh3::{xxh3_64, Xxh3};

use super::content::{Filler, ALIGN, BLOCK};
use super::fileset::Fileset;
use super::{Failure, Gate};

/// How to write.
#[derive(Debug, Clone)]
pub struct Options {
    pub threads: usize,
    /// Files of at least this many bytes are written with O_DIRECT; u64::MAX: none.
    pub direct_from: u64,
    /// Keep an XXH3 (64 bit) checksum of each file.
    pub checksums: bool,
    /// fsync every file before it is closed.
    pub fsync: bool,
    /// Sync the file system at the end.
    pub sync: bool,
}

/// What was written, in seconds and bytes.
#[derive(Debug)]
pub struct Written {
    pub directories_seconds: f64,
    pub write_seconds: f64,
    pub sync_seconds: f64,
    pub bytes: u64,
    pub files: u64,
    pub direct_files: u64,
    /// XXH3 of file `order[i]` at i; empty when not asked for.
    pub checksums: Vec<u64>,
    pub stopped: bool,
}

struct Shared<'a> {
    set: &'a Fileset,
    options: &'a Options,
    order: &'a [u64],
    times: &'a [u64],
    root: OwnedFd,
    next: AtomicUsize,
    bytes: AtomicU64,
    files: AtomicU64,
    direct: AtomicU64,
    /// Cleared when the file system refuses O_DIRECT (tmpfs on old kernels): buffered writes go on.
    direct_works: AtomicBool,
    stop: AtomicBool,
    failure: Mutex<Option<Failure>>,
    checksums: Vec<AtomicU64>,
}

/// Writes the files `order` (numbers of files, in this order). `times[i]`, seconds since the epoch, becomes access and
/// modification time of file `order[i]`; empty: now. `progress` gets files and bytes and stops the writing by returning
/// false. The first failure stops all threads.
pub fn write(
    set: &Fileset,
    order: &[u64],
    times: &[u64],
    options: &Options,
    mut progress: impl FnMut(u64, u64) -> bool,
) -> Result<Written, Failure> {
    let root = open_root(&set.root)?;
    let began = Instant::now();
    make_directories(root.as_fd(), &set.directories)?;
    let directories_seconds = began.elapsed().as_secs_f64();
    let kept = if options.checksums { order.len() } else { 0 };
    let shared = Shared {
        set,
        options,
        order,
        times,
        root,
        next: AtomicUsize::new(0),
        bytes: AtomicU64::new(0),
        files: AtomicU64::new(0),
        direct: AtomicU64::new(0),
        direct_works: AtomicBool::new(true),
        stop: AtomicBool::new(false),
        failure: Mutex::new(None),
        checksums: (0..kept).map(|_| AtomicU64::new(0)).collect(),
    };
    let threads = options.threads.max(1);
    let gate = Gate::new(threads);
    let began = Instant::now();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let _leave = gate.worker();
                work(&shared);
            });
        }
        gate.wait(|| {
            if !progress(shared.files.load(Relaxed), shared.bytes.load(Relaxed)) {
                shared.stop.store(true, Relaxed);
            }
        });
    });
    let write_seconds = began.elapsed().as_secs_f64();
    if let Some(failure) = shared
        .failure
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
    {
        return Err(failure);
    }
    let began = Instant::now();
    if options.sync {
        syncfs(&shared.root).map_err(|e| Failure::new(&set.root, "sync", e))?;
    }
    Ok(Written {
        directories_seconds,
        write_seconds,
        sync_seconds: began.elapsed().as_secs_f64(),
        bytes: shared.bytes.into_inner(),
        files: shared.files.into_inner(),
        direct_files: shared.direct.into_inner(),
        checksums: shared
            .checksums
            .into_iter()
            .map(AtomicU64::into_inner)
            .collect(),
        stopped: shared.stop.into_inner(),
    })
}

/// Opens the root directory.
pub(crate) fn open_root(root: &[u8]) -> Result<OwnedFd, Failure> {
    openat(
        CWD,
        root,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(|e| Failure::new(root, "open", e))
}

fn make_directories(root: BorrowedFd<'_>, directories: &[String]) -> Result<(), Failure> {
    for directory in directories.iter().filter(|d| !d.is_empty()) {
        match mkdirat(root, directory.as_str(), Mode::from_raw_mode(0o777)) {
            // another client of a shared fileset may have been first
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(Failure::new(directory, "make directory", error)),
        }
    }
    Ok(())
}

fn work(shared: &Shared<'_>) {
    let mut filler = Filler::new(shared.set.content, shared.set.seed);
    loop {
        let i = shared.next.fetch_add(1, Relaxed);
        if i >= shared.order.len() || shared.stop.load(Relaxed) {
            return;
        }
        match one_file(shared, i, &mut filler) {
            Ok(()) => {
                shared.files.fetch_add(1, Relaxed);
            }
            Err(failure) => {
                shared.stop.store(true, Relaxed);
                shared
                    .failure
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .get_or_insert(failure);
                return;
            }
        }
    }
}

fn one_file(shared: &Shared<'_>, i: usize, filler: &mut Filler) -> Result<(), Failure> {
    let file = shared.order[i] as usize;
    let size = shared.set.sizes[file];
    let name = shared.set.name(file);
    let fail = |action| {
        let name = &name;
        move |error: Errno| Failure::new(name, action, error)
    };
    let (fd, direct) = create(shared, &name, size).map_err(fail("create"))?;
    if direct && size > BLOCK as u64 {
        // one extent instead of one per write; a file system without it simply goes on
        let _ = fallocate(&fd, FallocateFlags::empty(), 0, size);
    }
    // the streaming state is half a kilobyte: a file of one block does without
    let mut hash = (shared.options.checksums && size > BLOCK as u64).then(Xxh3::new);
    let mut digest = xxh3_64(&[]);
    let mut offset = 0u64;
    while offset < size {
        let length = (size - offset).min(BLOCK as u64) as usize;
        let data = filler.block(file as u64, offset / BLOCK as u64, length);
        match &mut hash {
            Some(hash) => hash.update(data),
            None if shared.options.checksums => digest = xxh3_64(data),
            None => {}
        }
        let padded = if direct {
            length.next_multiple_of(ALIGN)
        } else {
            length
        };
        write_all(&fd, &filler.buffer()[..padded], offset).map_err(fail("write"))?;
        shared.bytes.fetch_add(length as u64, Relaxed);
        offset += length as u64;
    }
    if direct && size % ALIGN as u64 != 0 {
        ftruncate(&fd, size).map_err(fail("truncate"))?;
    }
    if let Some(&seconds) = shared.times.get(i) {
        let time = Timespec {
            tv_sec: seconds as i64,
            tv_nsec: 0,
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        futimens(&fd, &times).map_err(fail("set the times of"))?;
    }
    if shared.options.fsync {
        rustix::fs::fsync(&fd).map_err(fail("fsync"))?;
    }
    if shared.options.checksums {
        shared.checksums[i].store(hash.map_or(digest, |h| h.digest()), Relaxed);
    }
    Ok(())
}

/// The new file, and whether it is open with O_DIRECT.
fn create(shared: &Shared<'_>, name: &str, size: u64) -> rustix::io::Result<(OwnedFd, bool)> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o666);
    let direct = size >= shared.options.direct_from && shared.direct_works.load(Relaxed);
    if direct {
        match openat(&shared.root, name, flags | OFlags::DIRECT, mode) {
            Ok(fd) => {
                shared.direct.fetch_add(1, Relaxed);
                return Ok((fd, true));
            }
            Err(Errno::INVAL) => {
                // some kernels have created the file before they refuse
                shared.direct_works.store(false, Relaxed);
                let again = flags - OFlags::EXCL;
                return openat(&shared.root, name, again, mode).map(|fd| (fd, false));
            }
            Err(error) => return Err(error),
        }
    }
    openat(&shared.root, name, flags, mode).map(|fd| (fd, false))
}

fn write_all(fd: &OwnedFd, mut data: &[u8], mut offset: u64) -> rustix::io::Result<()> {
    while !data.is_empty() {
        match pwrite(fd, data, offset) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(n) => {
                data = &data[n..];
                offset += n as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
