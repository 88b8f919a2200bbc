//! What a trace is: operations in the order of their ends, and the tasks, files and paths they refer to by number.
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

macro_rules! operations {
    ($($name:ident = $number:literal $text:literal $class:ident,)*) => {
        /// The kind of a call. The numbers are part of the file format.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Op { $($name = $number,)* }
        impl Op {
            pub const ALL: &'static [Op] = &[$(Op::$name,)*];
            pub fn from_number(n: u8) -> Option<Op> { match n { $($number => Some(Op::$name),)* _ => None } }
            pub fn name(self) -> &'static str { match self { $(Op::$name => $text,)* } }
            pub fn class(self) -> Class { match self { $(Op::$name => Class::$class,)* } }
            pub fn from_name(name: &str) -> Option<Op> { match name { $($text => Some(Op::$name),)* _ => None } }
        }
    };
}

/// The rows of the paper's Table I, with what it calls metadata operations told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    Read,
    Write,
    Seek,
    Sync,
    Metadata,
    Mapped,
    Task,
}

impl Class {
    pub const ALL: [Class; 7] = [
        Class::Read,
        Class::Write,
        Class::Seek,
        Class::Sync,
        Class::Metadata,
        Class::Mapped,
        Class::Task,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Class::Read => "read",
            Class::Write => "write",
            Class::Seek => "lseek",
            Class::Sync => "sync",
            Class::Metadata => "metadata",
            Class::Mapped => "page-in",
            Class::Task => "task",
        }
    }
}

operations! {
    Read = 1 "read" Read,
    Write = 2 "write" Write,
    Pread = 3 "pread" Read,
    Pwrite = 4 "pwrite" Write,
    Readv = 5 "readv" Read,
    Writev = 6 "writev" Write,
    Preadv = 7 "preadv" Read,
    Pwritev = 8 "pwritev" Write,
    Lseek = 9 "lseek" Seek,
    Fsync = 10 "fsync" Sync,
    Fdatasync = 11 "fdatasync" Sync,
    SyncFileRange = 12 "sync_file_range" Sync,
    Ftruncate = 13 "ftruncate" Metadata,
    Fallocate = 14 "fallocate" Metadata,
    Close = 15 "close" Metadata,
    Dup = 16 "dup" Metadata,
    Fstat = 17 "fstat" Metadata,
    Readdir = 18 "readdir" Metadata,
    Open = 19 "open" Metadata,
    Truncate = 20 "truncate" Metadata,
    Rename = 21 "rename" Metadata,
    Unlink = 22 "unlink" Metadata,
    Mkdir = 23 "mkdir" Metadata,
    Rmdir = 24 "rmdir" Metadata,
    Link = 25 "link" Metadata,
    Symlink = 26 "symlink" Metadata,
    CopyFileRange = 27 "copy_file_range" Write,
    Sendfile = 28 "sendfile" Read,
    Splice = 29 "splice" Read,
    Stat = 30 "stat" Metadata,
    Access = 31 "access" Metadata,
    Readlink = 32 "readlink" Metadata,
    AioRead = 33 "aio_read" Read,
    AioWrite = 34 "aio_write" Write,
    AioFsync = 35 "aio_fsync" Sync,
    UringRead = 36 "uring_read" Read,
    UringWrite = 37 "uring_write" Write,
    UringFsync = 38 "uring_fsync" Sync,
    UringOther = 39 "uring_other" Metadata,
    Mmap = 40 "mmap" Metadata,
    PageIn = 41 "page-in" Mapped,
    CloneRange = 42 "clone" Write,
    Wait = 45 "wait" Task,
    Sync = 47 "sync" Sync,
}

/// Bits of `Event::flags` below 16; the bits above are those of the call (open flags, rename flags) shifted by 16.
pub mod flag {
    /// Issued through libaio or io_uring: the thread went on before its end.
    pub const ASYNC: u64 = 1;
    /// The end was not seen; the duration is an upper bound.
    pub const NO_END: u64 = 2;
    pub const SHIFT: u32 = 16;
}

/// One operation. Times in nanoseconds since the trace's start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub start: u64,
    pub duration: u64,
    pub task: u32,
    pub op: Op,
    pub flags: u64,
    /// Open file (see `File`), 0 for none.
    pub file: u32,
    /// Second open file: the destination of a copy.
    pub file2: u32,
    /// Path, 0 for none.
    pub path: u32,
    /// Second path: the new name of a rename, the text of a symbolic link.
    pub path2: u32,
    /// Descriptor number as the program saw it, -1 for none.
    pub fd: i32,
    /// Absolute offset in the file, whatever the call; the new size of a truncate.
    pub offset: i64,
    pub offset2: i64,
    /// Bytes asked for; the whence of a seek.
    pub count: u64,
    /// Bytes moved, new descriptor, 0, or a negative errno.
    pub result: i64,
}

impl Event {
    pub fn new(op: Op, task: u32) -> Event {
        Event {
            start: 0,
            duration: 0,
            task,
            op,
            flags: 0,
            file: 0,
            file2: 0,
            path: 0,
            path2: 0,
            fd: -1,
            offset: 0,
            offset2: 0,
            count: 0,
            result: 0,
        }
    }

    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.duration)
    }

    /// The flags of the call itself.
    pub fn call_flags(&self) -> u64 {
        self.flags >> flag::SHIFT
    }

    /// Bytes of data the call moved.
    pub fn bytes(&self) -> u64 {
        match self.op.class() {
            Class::Read | Class::Write if self.op != Op::CloneRange => self.result.max(0) as u64,
            Class::Mapped => self.count,
            _ => 0,
        }
    }
}

/// A thread. `parent` is the creating task's number plus one, 0 for none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    pub tid: u32,
    pub pid: u32,
    pub parent: u32,
    pub birth: u64,
    /// `u64::MAX` while it lives.
    pub end: u64,
    pub name: String,
}

/// An open file: one row per open call, shared by dup, fork and descriptor passing as the kernel shares it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    pub dev: u32,
    pub ino: u64,
    pub path: u32,
    /// Size in bytes when it was first seen; `u64::MAX` unknown.
    pub size: u64,
    /// Flags of open(2).
    pub flags: u32,
    /// st_mode; 0 unknown.
    pub mode: u32,
    /// The open created it.
    pub created: bool,
    /// Open before the trace began, or opened by a task that was not traced.
    pub inherited: bool,
}

pub const UNKNOWN_SIZE: u64 = u64::MAX;
/// More than one call moves: Linux stops at 0x7ffff000 bytes (read(2)). What claims more is damaged or made up.
pub const MOST_BYTES: u64 = 1 << 31;

/// What is known of the recording as a whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    #[serde(default)]
    pub backend: String,
    #[serde(default)]
    pub command: Vec<String>,
    #[serde(default)]
    pub machine: String,
    #[serde(default)]
    pub kernel: String,
    /// Unix time of time zero, seconds.
    #[serde(default)]
    pub started_at: f64,
    #[serde(default)]
    pub mount: String,
    #[serde(default)]
    pub note: String,
    #[serde(default)]
    pub anonymised: bool,
}

/// Written last; its absence means the recorder did not end by itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub events: u64,
    pub dropped: u64,
    /// Recorded but not on disk: the disk was full.
    #[serde(default)]
    pub unwritten: u64,
    pub duration: u64,
    #[serde(default)]
    pub exit_code: Option<i32>,
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// A whole trace in memory. Row 0 of `files` and `paths` is the empty one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    pub meta: Meta,
    pub summary: Option<Summary>,
    pub tasks: Vec<Task>,
    pub files: Vec<File>,
    pub paths: Vec<String>,
    pub events: Vec<Event>,
    /// Bytes of the file that could not be read: it was cut off or damaged.
    pub unreadable_bytes: u64,
}

impl Trace {
    pub fn new() -> Trace {
        Trace {
            files: vec![File::default()],
            paths: vec![String::new()],
            ..Trace::default()
        }
    }

    pub fn path(&self, index: u32) -> &str {
        self.paths.get(index as usize).map_or("", String::as_str)
    }

    /// The path an event is about: its own, or its open file's.
    pub fn path_of<'a>(&'a self, event: &Event) -> &'a str {
        if event.path != 0 {
            return self.path(event.path);
        }
        self.files
            .get(event.file as usize)
            .map_or("", |f| self.path(f.path))
    }

    pub fn duration(&self) -> u64 {
        let last = self.events.iter().map(Event::end).max().unwrap_or(0);
        self.summary.as_ref().map_or(last, |s| s.duration.max(last))
    }

    /// Orders events by end, as files keep them.
    pub fn sort(&mut self) {
        self.events.sort_by_key(|e| (e.end(), e.start));
    }
}

/// Numbers for paths, tasks and files as they turn up; used by the recorder and by all imports.
#[derive(Default)]
pub struct Tables {
    paths: HashMap<String, u32>,
    tasks: HashMap<u32, u32>,
    pub trace: Trace,
}

impl Tables {
    pub fn new() -> Tables {
        Tables {
            trace: Trace::new(),
            ..Tables::default()
        }
    }

    pub fn path(&mut self, path: &str) -> u32 {
        if path.is_empty() {
            return 0;
        }
        if let Some(&n) = self.paths.get(path) {
            return n;
        }
        let n = self.trace.paths.len() as u32;
        self.trace.paths.push(path.to_owned());
        self.paths.insert(path.to_owned(), n);
        n
    }

    pub fn known_task(&self, tid: u32) -> Option<u32> {
        self.tasks.get(&tid).copied()
    }

    /// The task of a thread id, made (born now) if it is unknown.
    pub fn task(&mut self, tid: u32, pid: u32, now: u64) -> u32 {
        if let Some(&n) = self.tasks.get(&tid) {
            return n;
        }
        self.new_task(Task {
            tid,
            pid,
            birth: now,
            end: u64::MAX,
            ..Task::default()
        })
    }

    /// A new task, also when the thread id was used before.
    pub fn new_task(&mut self, task: Task) -> u32 {
        let n = self.trace.tasks.len() as u32;
        self.tasks.insert(task.tid, n);
        self.trace.tasks.push(task);
        n
    }

    pub fn file(&mut self, file: File) -> u32 {
        let n = self.trace.files.len() as u32;
        self.trace.files.push(file);
        n
    }
}

/// An absolute path without `.`, `..` and double slashes; not resolved further.
pub fn normalise(base: &str, name: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    let whole = if name.starts_with('/') { "" } else { base };
    for part in whole.split('/').chain(name.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    let mut out = String::with_capacity(whole.len() + name.len() + 2);
    for part in parts {
        out.push('/');
        out.push_str(part);
    }
    if out.is_empty() {
        out.push('/');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_lead_back() {
        for &op in Op::ALL {
            assert_eq!(Op::from_number(op as u8), Some(op));
            assert_eq!(Op::from_name(op.name()), Some(op));
        }
        assert_eq!(Op::from_number(0), None);
    }

    #[test]
    fn paths_are_normalised() {
        assert_eq!(normalise("/a/b", "../c//d/."), "/a/c/d");
        assert_eq!(normalise("/a", "/x"), "/x");
        assert_eq!(normalise("/", ".."), "/");
    }
}
