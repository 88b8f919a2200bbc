//! Operations on the names of empty files, each timed by itself: every thread works in a directory of its own.
//! Does I/O: this is a load generator.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use rustix::time::{clock_gettime, ClockId};

/// Listings of its directory by each thread; one listing of few files would be over too soon to be timed.
pub const LISTINGS: usize = 100;

/// What is done to every file once, or, for listings, to the directory [`LISTINGS`] times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Create,
    Stat,
    Rename,
    Readdir,
    Unlink,
}

impl Operation {
    /// The operation of that name.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "create" => Self::Create,
            "stat" => Self::Stat,
            "rename" => Self::Rename,
            "readdir" => Self::Readdir,
            "unlink" => Self::Unlink,
            _ => return None,
        })
    }
}

/// What one thread has done.
#[derive(Debug)]
pub struct Outcome {
    /// From the common start to its last operation's end.
    pub seconds: f64,
    /// CPU time over that, user and system together.
    pub cpu_seconds: f64,
    /// Of the operations that succeeded, in their order.
    pub latencies_ns: Vec<u64>,
    /// errno of the operation that failed; the thread ended there.
    pub error: Option<i32>,
}

fn name(directory: &Path, number: usize, renamed: bool) -> PathBuf {
    directory.join(format!("{}{number:08}", if renamed { 'r' } else { 'f' }))
}

fn create(path: &Path) -> io::Result<()> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)
        .map(drop)
}

/// Make each thread's directory below `directory`, empty but for the files that the operation needs.
pub fn stage(
    directory: &Path,
    operation: Operation,
    threads: usize,
    files: usize,
) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => fs::create_dir(directory)?,
    }
    for thread in 0..threads {
        let own = directory.join(format!("t{thread}"));
        fs::create_dir(&own)?;
        if operation != Operation::Create {
            (0..files).try_for_each(|number| create(&name(&own, number, false)))?;
        }
    }
    Ok(())
}

/// Carry the operation out with all threads at once, on what [`stage`] has made. Threads stop at `limit`.
pub fn run(
    directory: &Path,
    operation: Operation,
    threads: usize,
    files: usize,
    limit: Duration,
) -> Vec<Outcome> {
    let start = Barrier::new(threads);
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|thread| {
                let (own, start) = (directory.join(format!("t{thread}")), &start);
                scope.spawn(move || work(&own, operation, files, limit, start))
            })
            .collect();
        running
            .into_iter()
            .map(|thread| match thread.join() {
                Ok(outcome) => outcome,
                Err(panic) => std::panic::resume_unwind(panic),
            })
            .collect()
    })
}

fn work(
    own: &Path,
    operation: Operation,
    files: usize,
    limit: Duration,
    start: &Barrier,
) -> Outcome {
    let count = if operation == Operation::Readdir {
        LISTINGS
    } else {
        files
    };
    let mut latencies_ns = Vec::with_capacity(count);
    let mut error = None;
    start.wait();
    let (began, cpu) = (Instant::now(), cpu_seconds());
    for number in 0..count {
        // names are made outside of the time of an operation
        let (first, second) = (name(own, number, false), name(own, number, true));
        let at = Instant::now();
        let done = match operation {
            Operation::Create => create(&first),
            Operation::Stat => fs::symlink_metadata(&first).map(drop),
            Operation::Rename => fs::rename(&first, &second),
            Operation::Readdir => list(own, files),
            Operation::Unlink => fs::remove_file(&first),
        };
        let nanoseconds = at.elapsed().as_nanos();
        if let Err(problem) = done {
            error = Some(problem.raw_os_error().unwrap_or(5)); // EIO: what has no number of its own
            break;
        }
        latencies_ns.push(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
        if began.elapsed() >= limit {
            error = Some(62); // ETIME
            break;
        }
    }
    Outcome {
        seconds: began.elapsed().as_secs_f64(),
        cpu_seconds: cpu_seconds() - cpu,
        latencies_ns,
        error,
    }
}

/// A listing that does not name every file is an error of the file system: EIO.
fn list(own: &Path, files: usize) -> io::Result<()> {
    let mut found = 0;
    for entry in fs::read_dir(own)? {
        entry?;
        found += 1;
    }
    if found == files {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(5))
    }
}

#[allow(clippy::cast_precision_loss)] // seconds of CPU time since a thread began
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(test: &str) -> PathBuf {
        std::env::temp_dir().join(format!("assay-metadata-{test}-{}", std::process::id()))
    }

    #[test]
    fn every_operation_does_what_it_says() {
        let root = place("all");
        for (operation, left) in [
            (Operation::Create, 'f'),
            (Operation::Stat, 'f'),
            (Operation::Rename, 'r'),
            (Operation::Readdir, 'f'),
            (Operation::Unlink, ' '),
        ] {
            stage(&root, operation, 3, 50).unwrap();
            let done = run(&root, operation, 3, 50, Duration::from_secs(60));
            for (thread, outcome) in done.iter().enumerate() {
                assert_eq!(outcome.error, None);
                let expected = if operation == Operation::Readdir {
                    LISTINGS
                } else {
                    50
                };
                assert_eq!(outcome.latencies_ns.len(), expected);
                assert!(outcome.latencies_ns.iter().sum::<u64>() as f64 <= outcome.seconds * 1e9);
                let names: Vec<_> = fs::read_dir(root.join(format!("t{thread}")))
                    .unwrap()
                    .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                    .collect();
                assert_eq!(names.len(), if left == ' ' { 0 } else { 50 });
                assert!(names.iter().all(|name| name.starts_with(left)));
            }
        }
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn what_fails_is_told_with_its_number() {
        let root = place("fails");
        stage(&root, Operation::Stat, 1, 10).unwrap();
        fs::remove_file(name(&root.join("t0"), 4, false)).unwrap();
        let done = run(&root, Operation::Stat, 1, 10, Duration::from_secs(60));
        assert_eq!((done[0].error, done[0].latencies_ns.len()), (Some(2), 4));
        let listed = run(&root, Operation::Readdir, 1, 10, Duration::from_secs(60));
        assert_eq!(
            listed[0].error,
            Some(5),
            "a name is missing from the listing"
        );
        fs::remove_dir_all(&root).unwrap();
    }
}
