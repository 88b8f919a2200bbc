//! The kernel side, loaded: its programs attached, its rings mapped.
use super::calls;
use crate::{fail, Context, Result};
use aya::maps::{HashMap, Map, MapData, RingBuf};
use aya::programs::{BtfTracePoint, Program, RawTracePoint};
use aya::{Btf, Ebpf, EbpfLoader};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// The objects are needed at their natural alignment.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);
static FAST: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/recorder.o")));
static PORTABLE: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/recorder-raw.o")));

pub const SLOT: usize = 64;
const HEAD: usize = 192;
const MEMORY: usize = 512 << 20;

/// `struct slot` of bpf/recorder.bpf.c.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Slot {
    pub start: u64,
    pub duration_op: u64,
    pub offset: i64,
    pub count: u64,
    pub ino: u64,
    pub file_lap: u64,
    pub tid: u32,
    pub fd: i32,
    pub result: i32,
    pub dev: u32,
}

impl Slot {
    pub fn duration(&self) -> u64 {
        self.duration_op >> 16
    }

    pub fn end(&self) -> u64 {
        self.start + self.duration()
    }
}

/// `struct record` of bpf/recorder.bpf.c; names follow it.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Head {
    pub kind: u8,
    pub op: u8,
    pub flags: u16,
    pub tid: u32,
    pub tgid: u32,
    pub fd: i32,
    pub start: u64,
    pub duration: u64,
    pub file: u64,
    pub ino: u64,
    pub dev: u32,
    pub mode: u32,
    pub size: i64,
    pub offset: i64,
    pub offset2: i64,
    pub result: i64,
    pub count: u64,
    pub flags2: u64,
    pub file2: u64,
    pub ino2: u64,
    pub dev2: u32,
    pub fd2: i32,
    pub lengths: [u32; 4],
}

pub const CALL: u8 = 1;
pub const FORK: u8 = 2;
pub const EXIT: u8 = 3;
pub const EXEC: u8 = 4;

struct Mapping {
    address: *mut u8,
    length: usize,
}

impl Mapping {
    fn new(fd: RawFd, length: usize) -> Result<Mapping> {
        // SAFETY: a fresh shared mapping of a map's memory; the result is checked
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            fail!(
                "cannot map the recorder's rings: {}",
                std::io::Error::last_os_error()
            );
        }
        Ok(Mapping {
            address: address.cast(),
            length,
        })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nobody keeps a pointer into it
        unsafe { libc::munmap(self.address.cast(), self.length) };
    }
}

pub struct Settings {
    pub raw: bool,
    pub with_stat: bool,
    pub with_mmap: bool,
    /// Process whose threads are taken in at their next call.
    pub adopt: Option<u32>,
}

pub struct Kernel {
    ebpf: Ebpf,
    slots: Mapping,
    heads: Mapping,
    rare: RingBuf<MapData>,
    storage: Option<OwnedFd>,
    pub cpus: usize,
    per_cpu: usize,
    pub warnings: Vec<String>,
    raw: bool,
    programs: Vec<OwnedFd>,
}

fn possible_cpus() -> usize {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    text.trim()
        .rsplit(['-', ','])
        .next()
        .and_then(|n| n.parse::<usize>().ok())
        .map_or(1, |n| n + 1)
}

fn raw_bpf(command: libc::c_long, attributes: &mut [u64]) -> std::io::Result<()> {
    // SAFETY: bpf(2) reads and writes what the attributes point to, which the callers keep alive
    let got = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            attributes.as_mut_ptr(),
            std::mem::size_of_val(attributes),
        )
    };
    if got < 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(())
}

impl Kernel {
    /// Loads and attaches. Raises an error that says what is missing: root, BTF, a kernel new enough.
    pub fn load(settings: &Settings) -> Result<Kernel> {
        // SAFETY: geteuid cannot fail
        if unsafe { libc::geteuid() } != 0 {
            fail!(
                "recording with eBPF needs root; without it: assay trace record --backend strace"
            );
        }
        let btf = Btf::from_sys_fs().context(|| {
            "the kernel has no BTF (/sys/kernel/btf/vmlinux); use --backend strace".into()
        })?;
        let cpus = possible_cpus();
        let per_cpu = (MEMORY / SLOT / cpus)
            .next_power_of_two()
            .clamp(1 << 14, 1 << 18);
        let table = calls::table(settings.with_stat);
        let adopt = u32::from(settings.adopt.is_some());
        let object: &[u8] = if settings.raw { &PORTABLE.0 } else { &FAST.0 };
        let mut ebpf = EbpfLoader::new()
            .btf(Some(&btf))
            .allow_unsupported_maps()
            .set_max_entries("slots", (cpus * per_cpu) as u32)
            .set_max_entries("heads", cpus as u32)
            .set_global("calls", table.as_slice(), true)
            .set_global("slots_per_cpu", &(per_cpu as u32), true)
            .set_global("adopt", &adopt, true)
            .load(object)
            .context(|| {
                "the kernel does not take the recorder (use --backend raw or strace)".into()
            })?;
        let storage = match ebpf.map("traced") {
            Some(Map::Unsupported(data)) => Some(
                data.fd()
                    .as_fd()
                    .try_clone_to_owned()
                    .context(|| "cannot keep a map".into())?,
            ),
            Some(Map::HashMap(data)) => Some(
                data.fd()
                    .as_fd()
                    .try_clone_to_owned()
                    .context(|| "cannot keep a map".into())?,
            ),
            _ => None,
        };
        let fd = |ebpf: &Ebpf, name: &str| match ebpf.map(name) {
            Some(Map::Array(data)) => Ok(data.fd().as_fd().as_raw_fd()),
            _ => Err(crate::Error(format!("the recorder has no map {name}"))),
        };
        let page = 4096;
        let slots = Mapping::new(fd(&ebpf, "slots")?, cpus * per_cpu * SLOT)?;
        let heads = Mapping::new(fd(&ebpf, "heads")?, (cpus * HEAD).div_ceil(page) * page)?;
        let Some(rare) = ebpf.take_map("rare") else {
            fail!("the recorder has no ring buffer");
        };
        let rare = RingBuf::try_from(rare).context(|| "the recorder's ring buffer".into())?;
        if let Some(pid) = settings.adopt {
            let Some(map) = ebpf.map_mut("adopted") else {
                fail!("the recorder cannot attach to processes");
            };
            let mut adopted: HashMap<_, u32, u8> =
                HashMap::try_from(map).context(|| "adopted".into())?;
            adopted
                .insert(pid, 1, 0)
                .context(|| "cannot attach to the process".into())?;
        }
        let mut kernel = Kernel {
            ebpf,
            slots,
            heads,
            rare,
            storage,
            cpus,
            per_cpu,
            warnings: Vec::new(),
            raw: settings.raw,
            programs: Vec::new(),
        };
        // tasks before calls, so that no child is missed
        for (program, hook) in [
            ("on_fork", "sched_process_fork"),
            ("on_exit_task", "sched_process_exit"),
            ("on_exec", "sched_process_exec"),
            ("leave", "sys_exit"),
            ("enter", "sys_enter"),
        ] {
            kernel.attach(program, hook, &btf)?;
        }
        let mut optional = vec![
            ("uring_submit", "io_uring_submit_req", "io_uring"),
            ("uring_complete", "io_uring_complete", "io_uring"),
        ];
        if settings.with_mmap {
            optional.push(("page_fault", "mm_filemap_fault", "mapped files"));
            optional.push(("page_map", "mm_filemap_map_pages", "mapped files"));
        }
        for (program, hook, what) in optional {
            if let Err(error) = kernel.attach(program, hook, &btf) {
                kernel
                    .warnings
                    .push(format!("{what} cannot be seen on this kernel: {error}"));
            }
        }
        Ok(kernel)
    }

    fn attach(&mut self, name: &str, hook: &str, btf: &Btf) -> Result<()> {
        let Some(program) = self.ebpf.program_mut(name) else {
            fail!("the recorder has no program {name}");
        };
        let doing = || format!("cannot attach to {hook}");
        if self.raw {
            let program: &mut RawTracePoint = program.try_into().context(doing)?;
            program.load().context(doing)?;
            program.attach(hook).context(doing)?;
        } else {
            let program: &mut BtfTracePoint = program.try_into().context(doing)?;
            program.load(hook, btf).context(doing)?;
            program.attach().context(doing)?;
        }
        let fd = self
            .ebpf
            .program(name)
            .and_then(|p: &Program| p.fd().ok().map(|fd| fd.as_fd().try_clone_to_owned()));
        if let Some(Ok(fd)) = fd {
            self.programs.push(fd);
        }
        Ok(())
    }

    /// Marks a process of one thread as traced; its children will be, too.
    pub fn trace(&self, pid: u32) -> Result<()> {
        let Some(map) = &self.storage else {
            fail!("the recorder has no task map");
        };
        let value = [0u64; 8];
        let key: u32;
        let _pidfd: Option<OwnedFd>;
        if self.raw {
            key = pid;
            _pidfd = None;
        } else {
            // SAFETY: pidfd_open has no memory arguments; the result is checked and then owned
            let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as RawFd;
            if fd < 0 {
                fail!("process {pid}: {}", std::io::Error::last_os_error());
            }
            // SAFETY: the descriptor is fresh and ours
            _pidfd = Some(unsafe { OwnedFd::from_raw_fd(fd) });
            key = fd as u32;
        }
        const MAP_UPDATE: libc::c_long = 2;
        let mut attributes = [
            map.as_raw_fd() as u64,
            &raw const key as u64,
            value.as_ptr() as u64,
            0,
        ];
        raw_bpf(MAP_UPDATE, &mut attributes).context(|| format!("cannot trace process {pid}"))
    }

    fn counter(&self, cpu: usize, at: usize) -> &AtomicU64 {
        // SAFETY: inside the mapping, aligned, and shared with the kernel as plain 64-bit words
        unsafe { &*self.heads.address.add(cpu * HEAD + at).cast::<AtomicU64>() }
    }

    /// Moves what the rings hold into `slots` and hands each record with names to `rare`.
    pub fn drain(&mut self, slots: &mut Vec<Slot>, mut rare: impl FnMut(&[u8])) {
        let heads: Vec<u64> = (0..self.cpus)
            .map(|cpu| self.counter(cpu, 0).load(Ordering::Acquire))
            .collect();
        while let Some(item) = self.rare.next() {
            rare(&item);
        }
        for (cpu, &head) in heads.iter().enumerate() {
            let mut at = self.counter(cpu, 64).load(Ordering::Relaxed);
            while at < head {
                let index = cpu * self.per_cpu + (at as usize & (self.per_cpu - 1));
                // SAFETY: inside the mapping; the lap, written last, tells whether the slot is whole
                let slot = unsafe { self.slots.address.add(index * SLOT).cast::<Slot>() };
                let lap = unsafe { (&raw const (*slot).file_lap).read_volatile() };
                if lap & 0xffff != (at / self.per_cpu as u64 + 1) & 0xffff {
                    break; // reserved, not written yet
                }
                std::sync::atomic::fence(Ordering::Acquire);
                slots.push(unsafe { slot.read_volatile() });
                at += 1;
            }
            self.counter(cpu, 64).store(at, Ordering::Release);
        }
    }

    /// Calls that were lost: rings full, or a program interrupted by itself.
    pub fn drops(&self) -> u64 {
        let rings: u64 = (0..self.cpus)
            .map(|cpu| {
                self.counter(cpu, 128).load(Ordering::Relaxed)
                    + self.counter(cpu, 136).load(Ordering::Relaxed)
            })
            .sum();
        rings + self.programs.iter().map(missed).sum::<u64>()
    }
}

/// `bpf_prog_info.recursion_misses`: runs the kernel skipped because the program was running on that CPU already.
fn missed(program: &OwnedFd) -> u64 {
    const OBJ_GET_INFO_BY_FD: libc::c_long = 15;
    const AT: usize = 208 / 8;
    let mut info = [0u64; 32];
    let length = std::mem::size_of_val(&info) as u64;
    let mut attributes = [
        program.as_raw_fd() as u64 | length << 32,
        info.as_mut_ptr() as u64,
    ];
    match raw_bpf(OBJ_GET_INFO_BY_FD, &mut attributes) {
        Ok(()) => info[AT],
        Err(_) => 0,
    }
}
