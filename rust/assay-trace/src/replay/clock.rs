//! Waiting to the point: sleep until shortly before, then spin. How shortly is measured when a replay starts.
use std::sync::atomic::{AtomicI32, Ordering};

/// CLOCK_MONOTONIC, ns.
pub fn now() -> u64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes one timespec
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

pub fn sleep_until(at: u64) {
    let t = libc::timespec {
        tv_sec: (at / 1_000_000_000) as libc::time_t,
        tv_nsec: (at % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: reads one timespec; an interrupted sleep is only shorter
    unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &t,
            std::ptr::null_mut(),
        );
    }
}

/// SCHED_FIFO at `priority` for this thread, or SCHED_OTHER for none; where the machine does not permit it, nothing.
fn schedule(priority: Option<i32>) {
    let policy = priority.map_or(libc::SCHED_OTHER, |_| libc::SCHED_FIFO);
    // SAFETY: reads one sched_param, all of whose fields are integers
    unsafe {
        let mut parameter: libc::sched_param = std::mem::zeroed();
        parameter.sched_priority = priority.unwrap_or(0);
        libc::sched_setscheduler(0, policy, &parameter);
    }
}

/// How late this machine wakes a sleeper of this priority, ns: the 99th percentile of a few hundred naps, within
/// [20 us, 200 us], or 50 us for real-time: the kernel stops real-time threads that leave nothing to others for 50 ms of
/// every second, which costs more than a sleeper woken late now and then.
pub fn calibrate(priority: Option<i32>) -> u64 {
    // SAFETY: no memory involved
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    if priority.is_some() {
        schedule(priority);
    }
    let mut late: Vec<u64> = (0..300)
        .map(|_| {
            let at = now() + 100_000;
            sleep_until(at);
            now().saturating_sub(at)
        })
        .collect();
    if priority.is_some() {
        schedule(None);
    }
    late.sort_unstable();
    let most = if priority.is_some() { 50_000 } else { 200_000 };
    late[late.len() * 99 / 100].clamp(20_000, most)
}

/// At most so many threads of a process spin at once; more would only take the processor from each other.
static SPINNERS: AtomicI32 = AtomicI32::new(i32::MIN);

pub struct Waiter {
    spin: u64,
}

impl Waiter {
    /// To be made in the thread that waits. `priority`: SCHED_FIFO, where the machine permits it.
    pub fn new(spin: u64, priority: Option<i32>) -> Waiter {
        // SAFETY: no memory involved
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
        if priority.is_some() {
            schedule(priority);
        }
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as i32);
        let _ = SPINNERS.compare_exchange(
            i32::MIN,
            (cores - 1).max(1),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        Waiter { spin }
    }

    /// Returns the time as it is when `at` has come.
    pub fn until(&mut self, at: u64) -> u64 {
        let mut t = now();
        if t + self.spin < at {
            sleep_until(at - self.spin);
            t = now();
        }
        if t >= at {
            return t;
        }
        if SPINNERS.fetch_sub(1, Ordering::Relaxed) > 0 {
            while t < at {
                t = now();
            }
        } else {
            sleep_until(at);
            t = now();
        }
        SPINNERS.fetch_add(1, Ordering::Relaxed);
        t
    }
}
