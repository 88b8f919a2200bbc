//! Removes exactly the files of a fileset, then those of its directories that are empty.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread;

use rustix::fs::{unlinkat, AtFlags};
use rustix::io::Errno;

use super::fileset::Fileset;
use super::write::open_root;
use super::{Failure, Gate};

/// What was removed.
#[derive(Debug, Default)]
pub struct Removed {
    pub files: u64,
    pub missing: u64,
    pub directories: u64,
    /// Directories that hold something else and were kept.
    pub kept: Vec<String>,
}

/// Removes the files `order` and then every directory of the fileset that is empty.
pub fn remove(
    set: &Fileset,
    order: &[u64],
    threads: usize,
    mut progress: impl FnMut(u64, u64) -> bool,
) -> Result<Removed, Failure> {
    let root = open_root(&set.root)?;
    let (next, files, missing) = (AtomicUsize::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let stop = AtomicBool::new(false);
    let failure: Mutex<Option<Failure>> = Mutex::new(None);
    let threads = threads.max(1);
    let gate = Gate::new(threads);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let _leave = gate.worker();
                loop {
                    let i = next.fetch_add(1, Relaxed);
                    if i >= order.len() || stop.load(Relaxed) {
                        return;
                    }
                    let name = set.name(order[i] as usize);
                    match unlinkat(&root, name.as_str(), AtFlags::empty()) {
                        Ok(()) => files.fetch_add(1, Relaxed),
                        Err(Errno::NOENT) => missing.fetch_add(1, Relaxed),
                        Err(error) => {
                            stop.store(true, Relaxed);
                            failure
                                .lock()
                                .unwrap_or_else(PoisonError::into_inner)
                                .get_or_insert(Failure::new(name, "remove", error));
                            return;
                        }
                    };
                }
            });
        }
        gate.wait(|| {
            if !progress(files.load(Relaxed), 0) {
                stop.store(true, Relaxed);
            }
        });
    });
    if let Some(failure) = failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(failure);
    }
    let mut removed = Removed {
        files: files.into_inner(),
        missing: missing.into_inner(),
        ..Removed::default()
    };
    if stop.into_inner() {
        return Ok(removed);
    }
    for directory in set.directories.iter().rev().filter(|d| !d.is_empty()) {
        match unlinkat(&root, directory.as_str(), AtFlags::REMOVEDIR) {
            Ok(()) => removed.directories += 1,
            Err(Errno::NOENT) => {}
            Err(Errno::NOTEMPTY | Errno::EXIST) => removed.kept.push(directory.clone()),
            Err(error) => return Err(Failure::new(directory, "remove", error)),
        }
    }
    Ok(removed)
}
