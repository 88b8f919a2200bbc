//! Archives: scanning a tree into histograms, writing, verifying and reading exact filesets.
//!
//! The one part of this crate that does I/O: it must be parallel and free of Python's lock. All system calls go through
//! `rustix`, which has safe interfaces. Every function reports progress to a callback that may ask it to stop.

pub mod content;
pub mod fileset;
pub mod read;
pub mod remove;
pub mod scan;
mod totals;
pub mod verify;
pub mod write;

use std::fmt;
use std::io;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// A system call that failed, and on what.
#[derive(Debug)]
pub struct Failure {
    /// The path, relative to the fileset's root or as it was given.
    pub path: String,
    /// What was tried.
    pub action: &'static str,
    /// What the kernel said.
    pub error: io::Error,
}

impl Failure {
    pub(crate) fn new(
        path: impl AsRef<[u8]>,
        action: &'static str,
        error: impl Into<io::Error>,
    ) -> Self {
        Self {
            path: String::from_utf8_lossy(path.as_ref()).into_owned(),
            action,
            error: error.into(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {}: {}", self.action, self.path, self.error)
    }
}

impl std::error::Error for Failure {}

/// How often a callback is asked.
pub const TICK: Duration = Duration::from_millis(250);

/// Lets the calling thread sleep until all workers are done, waking it every [`TICK`].
pub(crate) struct Gate {
    left: Mutex<usize>,
    changed: Condvar,
}

impl Gate {
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            left: Mutex::new(workers),
            changed: Condvar::new(),
        }
    }

    /// Called by a worker when it ends; also on a panic, through [`Leave`].
    fn leave(&self) {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        *left -= 1;
        self.changed.notify_all();
    }

    pub(crate) fn worker(&self) -> Leave<'_> {
        Leave(self)
    }

    /// Calls `tick` until every worker has left.
    pub(crate) fn wait(&self, mut tick: impl FnMut()) {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        while *left > 0 {
            let (guard, timeout) = self
                .changed
                .wait_timeout(left, TICK)
                .unwrap_or_else(PoisonError::into_inner);
            left = guard;
            if timeout.timed_out() && *left > 0 {
                drop(left);
                tick();
                left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

pub(crate) struct Leave<'a>(&'a Gate);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// SplitMix64's finaliser: a bijection whose output bits all depend on all input bits (Steele et al., OOPSLA 2014).
pub fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
