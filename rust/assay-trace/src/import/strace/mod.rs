//! strace's text (-f -ttt -T, or -tttT with -r; -y makes it exact): calls of several threads, unfinished and resumed.
//!
//! strace knows no offsets, so descriptor tables and file positions are followed as the kernel would: fork copies a table,
//! threads share it, dup shares the position.
mod calls;
mod text;

use super::{lines, Notes};
use crate::model::{flag, normalise, Event, File, Op, Tables, UNKNOWN_SIZE};
use crate::Result;
use calls::{between, forked, moved, named, opened};
use std::collections::HashMap;
use text::{descriptor, number, open_flags, quoted, take_apart, time_of, Parsed};

#[derive(Clone, Default)]
struct Open {
    file: u32,
    position: i64,
    append: bool,
}

#[derive(Default)]
struct State {
    /// Open file descriptions; descriptor tables point into it.
    open: Vec<Open>,
    tables: Vec<HashMap<i32, usize>>,
    table_of: HashMap<u32, usize>,
    process_of: HashMap<u32, u32>,
    directory: HashMap<u32, String>,
    sizes: HashMap<u32, i64>,
    unfinished: HashMap<u32, (u64, String)>,
}

pub fn parse(text: &[u8], tables: &mut Tables, notes: &mut Notes) -> Result<()> {
    let mut state = State::default();
    for (number, line) in lines(text) {
        notes.imported.lines += 1;
        match one(&line, &mut state, tables) {
            Ok(true) => {}
            Ok(false) => notes.imported.ignored += 1,
            Err(what) => notes.bad(number, &what)?,
        }
    }
    Ok(())
}

fn one(line: &str, state: &mut State, tables: &mut Tables) -> Parsed<bool> {
    let mut rest = line.trim_start();
    let mut tid = 1;
    if let Some(after) = rest.strip_prefix("[pid") {
        let (number, after) = after.split_once(']').ok_or("[pid without its end")?;
        tid = number
            .trim()
            .parse()
            .map_err(|_| "the thread id is no number")?;
        rest = after.trim_start();
    } else if let Some((first, after)) = rest.split_once(' ') {
        if first.bytes().all(|b| b.is_ascii_digit()) && !first.is_empty() {
            tid = first.parse().map_err(|_| "the thread id is too large")?;
            rest = after.trim_start();
        }
    }
    let (time, rest) = rest.split_once(' ').ok_or("a time and a call are needed")?;
    let start = time_of(time)
        .ok_or_else(|| format!("{time:?} is no time; record with strace -f -ttt -T"))?;
    let rest = rest.trim_start();
    if rest.starts_with("+++") || rest.starts_with("---") {
        if rest.starts_with("+++") {
            if let Some(n) = tables.known_task(tid) {
                tables.trace.tasks[n as usize].end = start;
            }
        }
        return Ok(false);
    }
    if let Some(head) = rest.strip_suffix("<unfinished ...>") {
        state
            .unfinished
            .insert(tid, (start, head.trim_end().to_owned()));
        return Ok(true);
    }
    if let Some(after) = rest.strip_prefix("<... ") {
        let (_, tail) = after.split_once(" resumed>").ok_or("resumed> is missing")?;
        let (began, head) = state
            .unfinished
            .remove(&tid)
            .ok_or("resumed without its beginning")?;
        let whole = format!(
            "{head}{}",
            tail.strip_prefix(' ')
                .map_or(tail, |t| if head.ends_with(' ') { t } else { tail })
        );
        return call(&whole, tid, began, Some(start), state, tables);
    }
    call(rest, tid, start, None, state, tables)
}

impl State {
    fn table(&mut self, tid: u32) -> usize {
        if let Some(&n) = self.table_of.get(&tid) {
            return n;
        }
        self.tables.push(HashMap::new());
        self.table_of.insert(tid, self.tables.len() - 1);
        self.tables.len() - 1
    }

    fn get(&mut self, tid: u32, fd: i32) -> Option<usize> {
        let table = self.table(tid);
        self.tables[table].get(&fd).copied()
    }

    fn set(&mut self, tid: u32, fd: i32, open: usize) {
        let table = self.table(tid);
        self.tables[table].insert(fd, open);
    }

    /// The open file of a descriptor argument; with -y an unknown one becomes known by its path.
    fn find(&mut self, tid: u32, text: &str, tables: &mut Tables) -> Option<(i32, usize)> {
        let (fd, path) = descriptor(text)?;
        if let Some(n) = self.get(tid, fd) {
            return Some((fd, n));
        }
        let path = path.filter(|p| !p.starts_with("/dev/") || p.starts_with("/dev/shm"))?;
        let path = tables.path(path);
        let file = tables.file(File {
            path,
            size: UNKNOWN_SIZE,
            inherited: true,
            ..File::default()
        });
        self.open.push(Open {
            file,
            ..Open::default()
        });
        self.set(tid, fd, self.open.len() - 1);
        Some((fd, self.open.len() - 1))
    }

    fn path(&self, tid: u32, dir: Option<&str>, name: &str, tables: &Tables) -> Option<String> {
        let name = quoted(name)?;
        let process = self.process_of.get(&tid).copied().unwrap_or(tid);
        let here = self.directory.get(&process).map_or("/", String::as_str);
        let base = match dir.and_then(descriptor) {
            Some((-100, None)) | None => here.to_owned(),
            Some((_, Some(path))) => path.to_owned(),
            Some((fd, None)) => {
                let table = *self.table_of.get(&tid)?;
                let open = self.open.get(*self.tables[table].get(&fd)?)?;
                tables
                    .trace
                    .path(tables.trace.files[open.file as usize].path)
                    .to_owned()
            }
        };
        Some(normalise(&base, &name))
    }
}

fn call(
    text: &str,
    tid: u32,
    start: u64,
    resumed: Option<u64>,
    state: &mut State,
    tables: &mut Tables,
) -> Parsed<bool> {
    let Some(mut c) = take_apart(text)? else {
        return Ok(false);
    };
    if let Some(at) = resumed.filter(|_| !c.has_duration) {
        c.duration = at.saturating_sub(start);
    }
    let process = *state.process_of.entry(tid).or_insert(tid);
    let task = tables.task(tid, process, start);
    let mut e = Event::new(Op::Read, task);
    e.start = start;
    e.duration = c.duration;
    e.result = c.result;
    match c.name {
        "fork" | "vfork" | "clone" | "clone3" => {
            return forked(&c, tid, start, task, state, tables)
        }
        "chdir" if c.result >= 0 => {
            if let Some(path) = state.path(tid, None, c.argument(0)?, tables) {
                state.directory.insert(process, path);
            }
            return Ok(false);
        }
        "wait4" if c.result > 0 => e.op = Op::Wait,
        "open" | "openat" | "creat" => {
            let at = usize::from(c.name == "openat");
            let dir = if at == 1 { Some(c.argument(0)?) } else { None };
            e.op = Op::Open;
            let bits = if c.name == "creat" {
                0o1101
            } else {
                open_flags(c.argument(at + 1)?)
            };
            e.flags = bits << flag::SHIFT;
            let shown = c
                .result_text
                .split_once('<')
                .and_then(|(_, p)| p.strip_suffix('>'))
                .map(str::to_owned);
            let name = c.argument(at)?;
            let path = shown
                .or_else(|| state.path(tid, dir, name, tables))
                .ok_or("the path is cut off; use strace -s 4096")?;
            opened(&mut e, &path, bits, tid, state, tables);
        }
        "read" | "write" | "pread64" | "pwrite64" | "readv" | "writev" | "preadv" | "pwritev"
        | "preadv2" | "pwritev2" => {
            return moved(e, &c, tid, state, tables);
        }
        "lseek" | "_llseek" => {
            let Some((fd, n)) = state.find(tid, c.argument(0)?, tables) else {
                return Ok(false);
            };
            e.op = Op::Lseek;
            (e.fd, e.file) = (fd, state.open[n].file);
            e.count = match c.argument(2)? {
                "SEEK_CUR" => 1,
                "SEEK_END" => 2,
                "SEEK_DATA" => 3,
                "SEEK_HOLE" => 4,
                _ => 0,
            };
            if c.result >= 0 {
                state.open[n].position = c.result;
                e.offset = c.result;
                e.result = 0;
            }
        }
        "close" | "fsync" | "fdatasync" | "ftruncate" | "fallocate" | "sync_file_range"
        | "getdents64" | "fstat" | "syncfs" => {
            let Some((fd, n)) = state.find(tid, c.argument(0)?, tables) else {
                return Ok(false);
            };
            (e.fd, e.file) = (fd, state.open[n].file);
            e.op = match c.name {
                "close" => Op::Close,
                "fsync" => Op::Fsync,
                "fdatasync" => Op::Fdatasync,
                "ftruncate" => Op::Ftruncate,
                "fallocate" => Op::Fallocate,
                "sync_file_range" => Op::SyncFileRange,
                "getdents64" => Op::Readdir,
                "syncfs" => Op::Sync,
                _ => Op::Fstat,
            };
            let value = |n: usize| {
                c.argument(n)
                    .and_then(|a| number(a).ok_or_else(|| format!("{a:?} is no number")))
            };
            match e.op {
                Op::Ftruncate => e.offset = value(1)?,
                Op::Fallocate => {
                    e.flags = (value(1).unwrap_or(i64::from(c.argument(1)?.contains("KEEP_SIZE")))
                        as u64)
                        << flag::SHIFT;
                    (e.offset, e.count) = (value(2)?, value(3)? as u64);
                }
                Op::SyncFileRange => (e.offset, e.count) = (value(1)?, value(2)? as u64),
                Op::Readdir => e.count = value(2).unwrap_or(32_768) as u64,
                Op::Close => {
                    let table = state.table(tid);
                    state.tables[table].remove(&fd);
                }
                _ => {}
            }
        }
        "dup" | "dup2" | "dup3" | "fcntl" => {
            let duplicates = c.name != "fcntl" || c.argument(1)?.starts_with("F_DUPFD");
            let Some((fd, n)) = state
                .find(tid, c.argument(0)?, tables)
                .filter(|_| duplicates)
            else {
                if let (true, Ok(new)) = (duplicates, i32::try_from(c.result)) {
                    let table = state.table(tid);
                    state.tables[table].remove(&new); // a pipe or terminal has taken the number
                }
                return Ok(false);
            };
            e.op = Op::Dup;
            (e.fd, e.file) = (fd, state.open[n].file);
            if let Ok(new) = i32::try_from(c.result) {
                if new >= 0 {
                    state.set(tid, new, n);
                }
            }
        }
        "copy_file_range" | "sendfile" | "splice" => return between(e, &c, tid, state, tables),
        _ => return named(e, &c, tid, state, tables),
    }
    tables.trace.events.push(e);
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::super::import;
    use super::*;

    #[test]
    fn positions_follow_descriptors_through_dup_and_fork() {
        let text = r#"10 100.000001 openat(AT_FDCWD</w>, "a", O_RDWR|O_CREAT, 0644) = 3</w/a> <0.000010>
10 100.000020 write(3</w/a>, "x, y) = 3", 9) = 9 <0.000002>
10 100.000030 dup(3</w/a>) = 4</w/a> <0.000001>
10 100.000040 clone(child_stack=NULL, flags=CLONE_CHILD_CLEARTID|SIGCHLD, child_tidptr=0x7f) = 11 <0.0001>
11 100.000050 write(4</w/a>, "zz", 2 <unfinished ...>
10 100.000060 pread64(3</w/a>, "x", 1, 4) = 1 <0.000002>
11 100.000070 <... write resumed>) = 2 <0.000020>
10 100.000080 lseek(3</w/a>, 0, SEEK_CUR) = 11 <0.000001>
10 100.000085 wait4(-1, NULL, 0, NULL) = 11 <0.000001>
10 100.000090 read(9, "", 1) = 0 <0.000001>
10 100.000100 rename("/w/a", "/w/b") = 0 <0.000001>
10 100.000110 unlink("/w/none") = -1 ENOENT (No such file or directory) <0.000001>
10 100.000120 +++ exited with 0 +++
"#;
        let (t, notes) = import("strace", text.as_bytes(), true).unwrap();
        let shown: Vec<(Op, i64, i64)> = t
            .events
            .iter()
            .map(|e| (e.op, e.offset, e.result))
            .collect();
        assert_eq!(
            shown,
            [
                (Op::Open, 0, 3),
                (Op::Write, 0, 9),
                (Op::Dup, 0, 4),
                (Op::Pread, 4, 1),
                (Op::Write, 9, 2),
                (Op::Lseek, 11, 0),
                (Op::Wait, 0, 11),
                (Op::Rename, 0, 0),
                (Op::Unlink, 0, -2),
            ]
        );
        assert_eq!(t.events[4].duration, 20_000);
        assert_eq!(t.tasks[1].parent, 1);
        assert_eq!(notes.skipped, 0);
    }

    #[test]
    fn malformed_lines_are_numbered() {
        let text = "1 5.0 read(3, \"\n1 5.1 mkdir(\"/d\", 0755) = 0 <0.1>\nnonsense\n";
        let (t, notes) = import("strace", text.as_bytes(), false).unwrap();
        assert_eq!(t.events.len(), 1);
        assert_eq!(
            notes.problems.iter().map(|p| p.0).collect::<Vec<_>>(),
            [1, 3]
        );
        assert!(import("strace", text.as_bytes(), true).is_err());
    }
}
