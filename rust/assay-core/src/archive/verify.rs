//! Reads a fileset back and compares every byte with what was written: content is made again from the seed.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread;

use rustix::fs::{fstat, openat, Mode, OFlags};
use rustix::io::{pread, Errno};
use xxhash_rust::xxh3::Xxh3;

use super::content::{Filler, BLOCK};
use super::fileset::Fileset;
use super::write::open_root;
use super::{Failure, Gate};

/// What is wrong with a file.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    Missing,
    Size {
        found: u64,
    },
    /// First byte that differs from the content made again.
    Content {
        offset: u64,
    },
    /// Content is as made, but the manifest's checksum is another: the manifest is damaged or of another fileset.
    Checksum {
        found: u64,
    },
    Unreadable {
        message: String,
    },
}

/// Outcome of a verification.
#[derive(Debug)]
pub struct Verified {
    pub files: u64,
    pub bytes: u64,
    pub faulty: u64,
    /// The first faults found, by file number; at most as many as asked for.
    pub faults: Vec<(u64, Fault)>,
    pub stopped: bool,
}

/// Verifies the files `order`; `checksums[i]` is the XXH3 of file `order[i]`, or the list is empty.
pub fn verify(
    set: &Fileset,
    order: &[u64],
    checksums: &[u64],
    threads: usize,
    keep: usize,
    mut progress: impl FnMut(u64, u64) -> bool,
) -> Result<Verified, Failure> {
    let root = open_root(&set.root)?;
    let (next, files, bytes, faulty) = (
        AtomicUsize::new(0),
        AtomicU64::new(0),
        AtomicU64::new(0),
        AtomicU64::new(0),
    );
    let stop = AtomicBool::new(false);
    let faults = Mutex::new(Vec::new());
    let threads = threads.max(1);
    let gate = Gate::new(threads);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let _leave = gate.worker();
                let mut filler = Filler::new(set.content, set.seed);
                let mut buffer = vec![0u8; BLOCK];
                loop {
                    let i = next.fetch_add(1, Relaxed);
                    if i >= order.len() || stop.load(Relaxed) {
                        return;
                    }
                    let expected = checksums.get(i).copied();
                    let file = order[i];
                    let found =
                        one_file(set, &root, file, expected, &mut filler, &mut buffer, &bytes);
                    files.fetch_add(1, Relaxed);
                    if let Some(fault) = found {
                        faulty.fetch_add(1, Relaxed);
                        let mut list = faults.lock().unwrap_or_else(PoisonError::into_inner);
                        if list.len() < keep {
                            list.push((file, fault));
                        }
                    }
                }
            });
        }
        gate.wait(|| {
            if !progress(files.load(Relaxed), bytes.load(Relaxed)) {
                stop.store(true, Relaxed);
            }
        });
    });
    let mut faults = faults.into_inner().unwrap_or_else(PoisonError::into_inner);
    faults.sort_by_key(|(file, _)| *file);
    Ok(Verified {
        files: files.into_inner(),
        bytes: bytes.into_inner(),
        faulty: faulty.into_inner(),
        faults,
        stopped: stop.into_inner(),
    })
}

fn one_file(
    set: &Fileset,
    root: &OwnedFd,
    file: u64,
    checksum: Option<u64>,
    filler: &mut Filler,
    buffer: &mut [u8],
    bytes: &AtomicU64,
) -> Option<Fault> {
    let name = set.name(file as usize);
    let size = set.sizes[file as usize];
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let fd = match openat(root, name.as_str(), flags, Mode::empty()) {
        Ok(fd) => fd,
        Err(Errno::NOENT) => return Some(Fault::Missing),
        Err(error) => return Some(unreadable(error)),
    };
    match fstat(&fd) {
        Ok(s) if s.st_size as u64 == size => {}
        Ok(s) => {
            return Some(Fault::Size {
                found: s.st_size as u64,
            })
        }
        Err(error) => return Some(unreadable(error)),
    }
    let mut hash = Xxh3::new();
    let mut offset = 0u64;
    while offset < size {
        let length = (size - offset).min(BLOCK as u64) as usize;
        match read_all(&fd, &mut buffer[..length], offset) {
            Ok(n) if n == length => {}
            Ok(n) => {
                return Some(Fault::Size {
                    found: offset + n as u64,
                })
            }
            Err(error) => return Some(unreadable(error)),
        }
        let made = filler.block(file, offset / BLOCK as u64, length);
        if made != &buffer[..length] {
            let at = made.iter().zip(&buffer[..length]).position(|(a, b)| a != b);
            return Some(Fault::Content {
                offset: offset + at.unwrap_or(0) as u64,
            });
        }
        if checksum.is_some() {
            hash.update(made);
        }
        bytes.fetch_add(length as u64, Relaxed);
        offset += length as u64;
    }
    let found = hash.digest();
    match checksum {
        Some(expected) if expected != found => Some(Fault::Checksum { found }),
        _ => None,
    }
}

fn unreadable(error: Errno) -> Fault {
    Fault::Unreadable {
        message: std::io::Error::from(error).to_string(),
    }
}

/// Reads until the buffer is full or the file ends; returns the bytes read.
pub(crate) fn read_all(fd: &OwnedFd, buffer: &mut [u8], offset: u64) -> rustix::io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match pread(fd, &mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
