//! Random reads of whole files without replacement: the reading phase of the archival protocol.
//!
//! Bytes are counted per read call: counted per finished file, the rate of the first half would be that of small files.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{openat, Mode, OFlags};
use rustix::io::{pread, Errno};

use super::content::ALIGN;
use super::fileset::Fileset;
use super::write::open_root;
use super::{mix, Failure, Gate};

/// How to read.
#[derive(Debug, Clone)]
pub struct Options {
    pub threads: usize,
    /// Bytes per read call.
    pub call_bytes: usize,
    /// Read with O_DIRECT.
    pub direct: bool,
    /// Go on for at least this time; the set is shuffled anew for each further pass.
    pub minimum_seconds: f64,
    /// Take no new file after this time.
    pub maximum_seconds: f64,
    /// Width of a bin of the series.
    pub bin_seconds: f64,
    /// Seed of the shuffles of further passes.
    pub seed: u64,
}

/// One finished file.
#[derive(Debug, Clone, Copy)]
pub struct FileRead {
    pub file: u64,
    /// When it was opened, since the start.
    pub began_ns: u64,
    /// From before the open to the end of the first read call.
    pub first_byte_ns: u64,
    /// From before the open to the end of the last read call.
    pub service_ns: u64,
    pub bytes: u64,
}

/// All that was measured.
#[derive(Debug)]
pub struct Readings {
    pub files: Vec<FileRead>,
    /// Bytes per bin, counted when each read call returned.
    pub bins: Vec<u64>,
    pub seconds: f64,
    /// When the last new file was taken: after it threads run dry.
    pub drain_from_seconds: f64,
    pub bytes: u64,
    pub passes: u64,
    pub stopped: bool,
}

struct Shared<'a> {
    set: &'a Fileset,
    options: &'a Options,
    root: std::os::fd::OwnedFd,
    order: Mutex<(u64, Arc<Vec<u64>>)>,
    length: usize,
    next: AtomicUsize,
    bytes: AtomicU64,
    done: AtomicU64,
    drain_ns: AtomicU64,
    stop: AtomicBool,
    began: Instant,
    failure: Mutex<Option<Failure>>,
}

/// Reads the files `order` once, and again reshuffled until `minimum_seconds` are over. `progress` gets finished files,
/// bytes and seconds four times a second, and ends the reading by returning false.
pub fn read(
    set: &Fileset,
    order: &[u64],
    options: &Options,
    mut progress: impl FnMut(u64, u64, f64) -> bool,
) -> Result<Readings, Failure> {
    let shared = Shared {
        set,
        options,
        root: open_root(&set.root)?,
        order: Mutex::new((0, Arc::new(order.to_vec()))),
        length: order.len(),
        next: AtomicUsize::new(0),
        bytes: AtomicU64::new(0),
        done: AtomicU64::new(0),
        drain_ns: AtomicU64::new(u64::MAX),
        stop: AtomicBool::new(order.is_empty()),
        began: Instant::now(),
        failure: Mutex::new(None),
    };
    let threads = options.threads.max(1);
    let gate = Gate::new(threads);
    let mut files = Vec::new();
    let mut bins: Vec<u64> = Vec::new();
    let mut stopped = false;
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let _leave = gate.worker();
                    work(&shared)
                })
            })
            .collect();
        gate.wait(|| {
            let seconds = shared.began.elapsed().as_secs_f64();
            let go_on = progress(
                shared.done.load(Relaxed),
                shared.bytes.load(Relaxed),
                seconds,
            );
            if !go_on && !shared.stop.swap(true, Relaxed) {
                stopped = true;
                shared.end_of_taking();
            }
        });
        for worker in workers {
            match worker.join() {
                Ok((part, series)) => {
                    files.extend(part);
                    if bins.len() < series.len() {
                        bins.resize(series.len(), 0);
                    }
                    for (total, n) in bins.iter_mut().zip(series) {
                        *total += n;
                    }
                }
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    let seconds = shared.began.elapsed().as_secs_f64();
    if let Some(failure) = shared
        .failure
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
    {
        return Err(failure);
    }
    let drain = shared.drain_ns.into_inner();
    Ok(Readings {
        files,
        bins,
        seconds,
        drain_from_seconds: if drain == u64::MAX {
            seconds
        } else {
            drain as f64 * 1e-9
        },
        bytes: shared.bytes.into_inner(),
        passes: shared.done.into_inner() / (order.len().max(1) as u64),
        stopped,
    })
}

impl Shared<'_> {
    fn end_of_taking(&self) {
        let now = self.began.elapsed().as_nanos() as u64;
        self.drain_ns.fetch_min(now, Relaxed);
    }

    /// The next file of the permutation, or None when enough was read.
    fn take(&self) -> Option<u64> {
        if self.stop.load(Relaxed) {
            return None;
        }
        let n = self.next.fetch_add(1, Relaxed);
        let pass = (n / self.length) as u64;
        let seconds = self.began.elapsed().as_secs_f64();
        if (pass > 0 && seconds >= self.options.minimum_seconds)
            || seconds >= self.options.maximum_seconds
        {
            self.stop.store(true, Relaxed);
            self.end_of_taking();
            return None;
        }
        Some(self.permutation(pass)[n % self.length])
    }

    fn permutation(&self, pass: u64) -> Arc<Vec<u64>> {
        let mut held = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        if held.0 < pass {
            let mut order = held.1.as_ref().clone();
            let mut state = mix(self.options.seed ^ pass);
            for i in (1..order.len()).rev() {
                state = mix(state);
                // the bias of a modulus of 64 bits is below 2^-32 for any fileset
                order.swap(i, (state % (i as u64 + 1)) as usize);
            }
            *held = (pass, Arc::new(order));
        }
        held.1.clone()
    }
}

fn work(shared: &Shared<'_>) -> (Vec<FileRead>, Vec<u64>) {
    let call = shared.options.call_bytes.max(ALIGN).next_multiple_of(ALIGN);
    let mut memory = vec![0u8; call + ALIGN];
    let start = memory.as_ptr().align_offset(ALIGN);
    let buffer = &mut memory[start..start + call];
    let mut files = Vec::new();
    let mut bins = Vec::new();
    while let Some(file) = shared.take() {
        match one_file(shared, file, buffer, &mut bins) {
            Ok(reading) => {
                shared.done.fetch_add(1, Relaxed);
                files.push(reading);
            }
            Err(failure) => {
                shared.stop.store(true, Relaxed);
                shared
                    .failure
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .get_or_insert(failure);
                break;
            }
        }
    }
    (files, bins)
}

fn one_file(
    shared: &Shared<'_>,
    file: u64,
    buffer: &mut [u8],
    bins: &mut Vec<u64>,
) -> Result<FileRead, Failure> {
    let name = shared.set.name(file as usize);
    let size = shared.set.sizes[file as usize];
    let began = Instant::now();
    let began_ns = (began - shared.began).as_nanos() as u64;
    let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOATIME;
    if shared.options.direct {
        flags |= OFlags::DIRECT;
    }
    let fd = openat(&shared.root, name.as_str(), flags, Mode::empty())
        .or_else(|e| match e {
            Errno::PERM => openat(
                &shared.root,
                name.as_str(),
                flags - OFlags::NOATIME,
                Mode::empty(),
            ),
            e => Err(e),
        })
        .map_err(|e| Failure::new(&name, "open", e))?;
    let (mut offset, mut first_byte) = (0u64, None);
    loop {
        let n = match pread(&fd, &mut *buffer, offset) {
            Ok(n) => n,
            Err(Errno::INTR) => continue,
            Err(error) => return Err(Failure::new(&name, "read", error)),
        };
        first_byte.get_or_insert_with(|| began.elapsed());
        if n == 0 {
            break;
        }
        offset += n as u64;
        shared.bytes.fetch_add(n as u64, Relaxed);
        let bin = (shared.began.elapsed().as_secs_f64() / shared.options.bin_seconds) as usize;
        if bins.len() <= bin {
            bins.resize(bin + 1, 0);
        }
        bins[bin] += n as u64;
        if offset >= size {
            break;
        }
    }
    let service = began.elapsed();
    if offset != size {
        let error = std::io::Error::other(format!("{offset} bytes instead of {size}"));
        return Err(Failure::new(&name, "read all of", error));
    }
    Ok(FileRead {
        file,
        began_ns,
        first_byte_ns: first_byte.unwrap_or(Duration::ZERO).as_nanos() as u64,
        service_ns: service.as_nanos() as u64,
        bytes: offset,
    })
}
