//! From the kernel's slots and records to events: pointers become open files, thread ids become tasks.
use super::kernel::{self, Head, Slot};
use crate::model::{flag, normalise, Event, File, Op, Tables, Task, UNKNOWN_SIZE};
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;

/// Slots keep 48 bits of a kernel address: the rest are ones.
const ADDRESS: u64 = 0xffff_ffff_ffff;

/// One record of the ring buffer.
struct Record {
    head: Head,
    data: Box<[u8]>,
}

enum Raw {
    Slot(Slot),
    Record(Box<Record>),
}

impl Raw {
    fn end(&self) -> u64 {
        match self {
            Raw::Slot(s) => s.end(),
            Raw::Record(r) => r.head.start + r.head.duration,
        }
    }
}

#[derive(Default)]
pub struct Collector {
    pub tables: Tables,
    waiting: Vec<Raw>,
    open: HashMap<u64, u32>,
    by_inode: HashMap<(u32, u64), u32>,
    mount: String,
    began: u64,
    last_task: (u32, u32),
    pub alive: i64,
}

impl Collector {
    /// `began`: the clock (CLOCK_MONOTONIC, ns) at the trace's time zero. `mount`: keep only what lies below, "" all.
    pub fn new(began: u64, mount: &str) -> Collector {
        Collector {
            tables: Tables::new(),
            mount: mount.trim_end_matches('/').to_owned(),
            began,
            last_task: (u32::MAX, 0),
            ..Collector::default()
        }
    }

    pub fn push_slots(&mut self, slots: &mut Vec<Slot>) {
        self.waiting.extend(slots.drain(..).map(Raw::Slot));
    }

    pub fn push_record(&mut self, bytes: &[u8]) {
        let size = std::mem::size_of::<Head>();
        if bytes.len() < size {
            return;
        }
        // SAFETY: plain integers of any value, long enough, read without regard to alignment
        let head = unsafe { bytes.as_ptr().cast::<Head>().read_unaligned() };
        self.waiting.push(Raw::Record(Box::new(Record {
            head,
            data: bytes[size..].into(),
        })));
    }

    /// Turns what ended before `horizon` into events, in the order of the ends; the order decides which open file a
    /// reused kernel address means.
    pub fn release(&mut self, horizon: u64, out: &mut Vec<Event>) {
        self.waiting.sort_by_key(Raw::end);
        let ready = self.waiting.partition_point(|r| r.end() <= horizon);
        let rest = self.waiting.split_off(ready);
        for raw in std::mem::replace(&mut self.waiting, rest) {
            let event = match raw {
                Raw::Slot(s) => self.slot(&s),
                Raw::Record(r) => self.record(&r),
            };
            out.extend(event);
        }
    }

    fn time(&self, t: u64) -> u64 {
        t.saturating_sub(self.began)
    }

    fn task(&mut self, tid: u32, pid: Option<u32>, now: u64) -> u32 {
        if self.last_task.0 == tid {
            return self.last_task.1;
        }
        let n = match self.tables.known_task(tid) {
            Some(n) => n,
            None => {
                let pid = pid.unwrap_or_else(|| process_of(tid));
                let now = self.time(now);
                self.tables.task(tid, pid, now)
            }
        };
        self.last_task = (tid, n);
        n
    }

    /// The open file behind a kernel address. Unknown ones were open before, or came from a task that is not traced.
    fn file(&mut self, address: u64, dev: u32, ino: u64, tid: u32, fd: i32) -> u32 {
        let files = &self.tables.trace.files;
        if address != 0 {
            if let Some(&n) = self.open.get(&address) {
                let f = &files[n as usize];
                if f.ino == ino && f.dev == dev {
                    return n;
                }
            }
        } else if let Some(&n) = self.by_inode.get(&(dev, ino)) {
            return n;
        }
        let mut file = File {
            dev,
            ino,
            size: UNKNOWN_SIZE,
            inherited: true,
            ..File::default()
        };
        if let Some(&n) = self.by_inode.get(&(dev, ino)) {
            file.path = files[n as usize].path;
            file.mode = files[n as usize].mode;
        } else if fd >= 0 {
            if let Some((path, size, mode)) = look_up(tid, fd, ino) {
                file.path = self.tables.path(&path);
                file.size = size;
                file.mode = mode;
            }
        }
        let n = self.tables.file(file);
        if address != 0 {
            self.open.insert(address, n);
        }
        self.by_inode.insert((dev, ino), n);
        n
    }

    /// A file known to be open at the start, so that its path is known whatever happens to it.
    pub fn inherit(&mut self, path: &str, dev: u32, ino: u64, size: u64, mode: u32) {
        let path = self.tables.path(path);
        if let Some(&n) = self.by_inode.get(&(dev, ino)) {
            // a program's first pages are read before its exec is reported
            let known = &mut self.tables.trace.files[n as usize];
            if known.path == 0 {
                (known.path, known.size, known.mode) = (path, size, mode);
            }
            return;
        }
        let n = self.tables.file(File {
            dev,
            ino,
            path,
            size,
            mode,
            inherited: true,
            ..File::default()
        });
        self.by_inode.insert((dev, ino), n);
    }

    fn below_mount(&self, path: u32) -> bool {
        let Some(rest) = self.tables.trace.path(path).strip_prefix(&self.mount) else {
            return false;
        };
        self.mount.is_empty() || rest.is_empty() || rest.starts_with('/')
    }

    fn kept(&self, e: &Event) -> bool {
        if self.mount.is_empty() || e.op == Op::Wait {
            return true;
        }
        let file = |n: u32| {
            self.tables
                .trace
                .files
                .get(n as usize)
                .map_or(0, |f| f.path)
        };
        [e.path, e.path2, file(e.file), file(e.file2)]
            .into_iter()
            .any(|p| p != 0 && self.below_mount(p))
    }

    fn slot(&mut self, s: &Slot) -> Option<Event> {
        let op = Op::from_number(s.duration_op as u8)?;
        if op == Op::Wait && s.result <= 0 {
            return None;
        }
        let task = self.task(s.tid, None, s.start);
        let mut e = Event::new(op, task);
        e.start = self.time(s.start);
        e.duration = s.duration();
        e.flags = s.duration_op >> 8 & 0xff;
        e.fd = s.fd;
        e.offset = s.offset;
        e.count = s.count;
        e.result = i64::from(s.result);
        if !matches!(op, Op::Wait | Op::Sync | Op::UringOther) || s.file_lap >> 16 != 0 {
            e.file = self.file(s.file_lap >> 16, s.dev, s.ino, s.tid, s.fd);
        }
        match op {
            Op::Fallocate if s.result >= 0 => {
                e.flags |= (s.result as u64) << flag::SHIFT;
                e.result = 0;
            }
            // What a page-in took is not known: the call returned when the page was there
            Op::PageIn => e.result = e.count as i64,
            _ => {}
        }
        self.kept(&e).then_some(e)
    }

    fn record(&mut self, r: &Record) -> Option<Event> {
        let h = &r.head;
        match h.kind {
            kernel::FORK => {
                let parent = self.task(h.tid, Some(h.tgid), h.start);
                self.last_task.0 = u32::MAX;
                let birth = self.time(h.start);
                let name = self.tables.trace.tasks[parent as usize].name.clone();
                self.alive += 1;
                self.tables.new_task(Task {
                    tid: h.fd as u32,
                    pid: h.fd2 as u32,
                    parent: parent + 1,
                    birth,
                    end: u64::MAX,
                    name,
                });
                None
            }
            kernel::EXIT => {
                let task = self.task(h.tid, Some(h.tgid), h.start);
                self.alive -= 1;
                self.tables.trace.tasks[task as usize].end = self.time(h.start);
                None
            }
            kernel::EXEC => {
                let task = self.task(h.tid, Some(h.tgid), h.start);
                self.alive += i64::from(h.op);
                let (name, program) = r.data.split_at_checked(16).unwrap_or((&r.data, &[]));
                self.tables.trace.tasks[task as usize].name = text(name).into();
                if !program.is_empty() {
                    self.inherit(
                        &directory(program),
                        h.dev,
                        h.ino,
                        h.size.max(0) as u64,
                        h.mode,
                    );
                }
                None
            }
            kernel::CALL => self.call(r),
            _ => None,
        }
    }

    fn call(&mut self, r: &Record) -> Option<Event> {
        let h = &r.head;
        let op = Op::from_number(h.op).or(Some(Op::Open).filter(|_| h.op == 0))?;
        let task = self.task(h.tid, Some(h.tgid), h.start);
        let mut e = Event::new(op, task);
        e.start = self.time(h.start);
        e.duration = h.duration;
        e.flags = h.flags2 << flag::SHIFT;
        e.fd = h.fd;
        e.offset = h.offset;
        e.offset2 = h.offset2;
        e.count = h.count;
        e.result = h.result;
        let mut sections = r.data.as_ref();
        let mut parts: [&[u8]; 4] = [&[]; 4];
        for (part, &length) in parts.iter_mut().zip(&h.lengths) {
            (*part, sections) = sections.split_at_checked(length as usize)?;
        }
        match op {
            Op::Open if h.result >= 0 => {
                e.path = self.tables.path(&directory(parts[0]));
                let n = self.tables.file(File {
                    dev: h.dev,
                    ino: h.ino,
                    path: e.path,
                    size: h.size.max(0) as u64,
                    flags: h.flags2 as u32,
                    mode: h.mode,
                    created: h.flags & 1 != 0,
                    inherited: false,
                });
                self.open.insert(h.file & ADDRESS, n);
                self.by_inode.insert((h.dev, h.ino), n);
                e.file = n;
            }
            Op::CopyFileRange | Op::Sendfile | Op::Splice | Op::CloneRange => {
                if h.file != 0 {
                    e.file = self.file(h.file & ADDRESS, h.dev, h.ino, h.tid, h.fd);
                }
                if h.file2 != 0 {
                    e.file2 = self.file(h.file2 & ADDRESS, h.dev2, h.ino2, h.tid, h.fd2);
                }
            }
            _ => {
                e.path = self
                    .tables
                    .path(&normalise(&directory(parts[0]), text(parts[1])));
                match op {
                    Op::Symlink => e.path2 = self.tables.path(text(parts[3])),
                    Op::Rename | Op::Link => {
                        e.path2 = self
                            .tables
                            .path(&normalise(&directory(parts[2]), text(parts[3])));
                    }
                    Op::Unlink if h.flags2 & libc::AT_REMOVEDIR as u64 != 0 => e.op = Op::Rmdir,
                    Op::Truncate => {
                        e.offset = h.flags2 as i64;
                        e.flags = 0;
                    }
                    // an empty name with AT_EMPTY_PATH is the directory descriptor's own file
                    Op::Stat if text(parts[1]).is_empty() => {
                        e.path = self.tables.path(&directory(parts[0]))
                    }
                    _ => {}
                }
            }
        }
        self.kept(&e).then_some(e)
    }
}

fn text(bytes: &[u8]) -> &str {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    std::str::from_utf8(&bytes[..end]).unwrap_or("(not UTF-8)")
}

/// A path from its components, leaf first, each ended by a zero.
fn directory(bytes: &[u8]) -> String {
    let mut parts: Vec<&[u8]> = bytes.split(|&b| b == 0).filter(|p| !p.is_empty()).collect();
    parts.reverse();
    let mut out = String::new();
    for part in parts {
        out.push('/');
        out.push_str(&String::from_utf8_lossy(part));
    }
    if out.is_empty() {
        out.push('/');
    }
    out
}

fn process_of(tid: u32) -> u32 {
    std::fs::read_to_string(format!("/proc/{tid}/status"))
        .ok()
        .and_then(|s| {
            s.lines()
                .find_map(|l| l.strip_prefix("Tgid:")?.trim().parse().ok())
        })
        .unwrap_or(tid)
}

/// The kernel's device number of what stat(2) reports.
pub fn device(st_dev: u64) -> u32 {
    libc::major(st_dev) << 20 | libc::minor(st_dev)
}

fn look_up(tid: u32, fd: i32, ino: u64) -> Option<(String, u64, u32)> {
    let link = format!("/proc/{tid}/fd/{fd}");
    let status = std::fs::metadata(&link).ok()?;
    let path = std::fs::read_link(&link).ok()?;
    (status.ino() == ino).then(|| {
        (
            path.to_string_lossy().into_owned(),
            status.len(),
            status.mode(),
        )
    })
}
