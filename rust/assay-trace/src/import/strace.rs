//! strace's text (-f -ttt -T, or -tttT with -r; -y makes it exact): calls of several threads, unfinished and resumed.
//!
//! strace knows no offsets, so descriptor tables and file positions are followed as the kernel would: fork copies a table,
//! threads share it, dup shares the position.
use super::{lines, seconds, Notes};
use crate::model::{flag, normalise, Event, File, Op, Tables, Task, UNKNOWN_SIZE};
use crate::Result;
use std::collections::HashMap;

type Parsed<T> = std::result::Result<T, String>;

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

/// A call taken apart.
struct Call<'a> {
    name: &'a str,
    arguments: Vec<&'a str>,
    result: i64,
    result_text: &'a str,
    duration: u64,
    has_duration: bool,
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

fn time_of(text: &str) -> Option<u64> {
    let mut parts = text.split(':');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(s), None, ..) => seconds(s),
        (Some(h), Some(m), Some(s), None) => {
            let minutes = h
                .parse::<u64>()
                .ok()?
                .checked_mul(60)?
                .checked_add(m.parse().ok()?)?;
            minutes
                .checked_mul(60_000_000_000)?
                .checked_add(seconds(s)?)
        }
        _ => None,
    }
}

/// Takes "name(a, b) = r <0.1>" apart; None when a call has no result ("?", exit).
fn take_apart(text: &str) -> Parsed<Option<Call<'_>>> {
    let (name, rest) = text.split_once('(').ok_or("no call")?;
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return Err(format!("{name:?} is no call's name"));
    }
    let (arguments, end) = arguments(rest)?;
    let after = rest[end..].trim_start();
    let after = after
        .strip_prefix('=')
        .ok_or("the result is missing")?
        .trim();
    let (result_text, duration) = match after.rsplit_once('<') {
        Some((r, d)) if d.ends_with('>') && seconds(&d[..d.len() - 1]).is_some() => {
            (r.trim(), seconds(&d[..d.len() - 1]))
        }
        _ => (after, None),
    };
    let word = result_text.split([' ', '<']).next().unwrap_or("");
    if word == "?" {
        return Ok(None);
    }
    let mut result = number(word).ok_or_else(|| format!("{word:?} is no result"))?;
    if result == -1 {
        let errno = result_text.split(' ').nth(1).unwrap_or("");
        result = -errno_number(errno);
    }
    Ok(Some(Call {
        name,
        arguments,
        result,
        result_text,
        duration: duration.unwrap_or(0),
        has_duration: duration.is_some(),
    }))
}

/// Splits at commas outside quotes, brackets and <paths>; the second value is the position after the closing bracket.
fn arguments(text: &str) -> Parsed<(Vec<&str>, usize)> {
    let bytes = text.as_bytes();
    let (mut depth, mut quoted, mut angle) = (0i32, false, false);
    let (mut from, mut out) = (0, Vec::new());
    let mut i = 0;
    while i < bytes.len() {
        let b = bytes[i];
        if quoted {
            match b {
                b'\\' => i += 1,
                b'"' => quoted = false,
                _ => {}
            }
        } else if angle {
            if b == b'>' && bytes.get(i.wrapping_sub(1)) != Some(&b'-') {
                angle = false;
            }
        } else {
            match b {
                b'"' => quoted = true,
                // "3</path>", but not "a<<b"
                b'<' if i > 0
                    && (bytes[i - 1].is_ascii_digit() || text[..i].ends_with("AT_FDCWD")) =>
                {
                    angle = true
                }
                b'(' | b'[' | b'{' => depth += 1,
                b')' if depth == 0 => {
                    if !text[from..i].trim().is_empty() || !out.is_empty() {
                        out.push(text[from..i].trim());
                    }
                    return Ok((out, i + 1));
                }
                b')' | b']' | b'}' => depth -= 1,
                b',' if depth == 0 => {
                    out.push(text[from..i].trim());
                    from = i + 1;
                }
                _ => {}
            }
        }
        i += 1;
    }
    Err("the call has no end".into())
}

fn number(text: &str) -> Option<i64> {
    if let Some(hex) = text.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok().map(|n| n as i64);
    }
    if text.len() > 1 && text.starts_with('0') {
        return i64::from_str_radix(text, 8).ok();
    }
    text.parse().ok()
}

fn errno_number(name: &str) -> i64 {
    (1..134)
        .find(|&n| crate::replay::report::errno_name(n) == name)
        .unwrap_or(match name {
            "EAGAIN" => 11,
            "EINTR" => 4,
            "EFAULT" => 14,
            "ENODEV" => 19,
            "ESPIPE" => 29,
            "ENOSYS" => 38,
            "ENODATA" => 61,
            "ENXIO" => 6,
            _ => i64::from(libc::EIO),
        })
}

/// A quoted string without its quotes and escapes. A string that was cut ("abc"...) is no path.
fn quoted(text: &str) -> Option<String> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    let mut out = Vec::with_capacity(inner.len());
    let mut bytes = inner.bytes().peekable();
    while let Some(b) = bytes.next() {
        if b != b'\\' {
            out.push(b);
            continue;
        }
        match bytes.next()? {
            b'n' => out.push(b'\n'),
            b't' => out.push(b'\t'),
            b'r' => out.push(b'\r'),
            b'v' => out.push(11),
            b'f' => out.push(12),
            d @ b'0'..=b'7' => {
                let mut value = u32::from(d - b'0');
                for _ in 0..2 {
                    if let Some(d @ b'0'..=b'7') = bytes.peek().copied() {
                        value = value * 8 + u32::from(d - b'0');
                        bytes.next();
                    }
                }
                out.push(value as u8);
            }
            other => out.push(other),
        }
    }
    String::from_utf8(out).ok()
}

/// A descriptor, and its path if strace was run with -y.
fn descriptor(text: &str) -> Option<(i32, Option<&str>)> {
    let (number, path) = match text.split_once('<') {
        Some((n, p)) => (n, p.strip_suffix('>')),
        None => (text, None),
    };
    let fd = if number == "AT_FDCWD" {
        -100
    } else {
        number.parse().ok()?
    };
    Some((fd, path.filter(|p| p.starts_with('/'))))
}

fn open_flags(text: &str) -> u64 {
    let names: [(&str, libc::c_int); 13] = [
        ("O_WRONLY", libc::O_WRONLY),
        ("O_RDWR", libc::O_RDWR),
        ("O_CREAT", libc::O_CREAT),
        ("O_EXCL", libc::O_EXCL),
        ("O_TRUNC", libc::O_TRUNC),
        ("O_APPEND", libc::O_APPEND),
        ("O_SYNC", libc::O_SYNC),
        ("O_DSYNC", libc::O_DSYNC),
        ("O_DIRECT", libc::O_DIRECT),
        ("O_DIRECTORY", libc::O_DIRECTORY),
        ("O_NOFOLLOW", libc::O_NOFOLLOW),
        ("O_CLOEXEC", libc::O_CLOEXEC),
        ("O_NONBLOCK", libc::O_NONBLOCK),
    ];
    text.split('|')
        .filter_map(|w| names.iter().find(|(n, _)| *n == w))
        .fold(0, |f, (_, v)| f | *v as u64)
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
    let argument = |n: usize| {
        c.arguments
            .get(n)
            .copied()
            .ok_or_else(|| format!("{} has too few arguments", c.name))
    };
    match c.name {
        "fork" | "vfork" | "clone" | "clone3" => {
            return forked(&c, tid, start, task, state, tables)
        }
        "chdir" if c.result >= 0 => {
            if let Some(path) = state.path(tid, None, argument(0)?, tables) {
                state.directory.insert(process, path);
            }
            return Ok(false);
        }
        "wait4" if c.result > 0 => e.op = Op::Wait,
        "open" | "openat" | "creat" => {
            let at = usize::from(c.name == "openat");
            let dir = if at == 1 { Some(argument(0)?) } else { None };
            e.op = Op::Open;
            let bits = if c.name == "creat" {
                0o1101
            } else {
                open_flags(argument(at + 1)?)
            };
            e.flags = bits << flag::SHIFT;
            let shown = c
                .result_text
                .split_once('<')
                .and_then(|(_, p)| p.strip_suffix('>'))
                .map(str::to_owned);
            let path = shown
                .or_else(|| state.path(tid, dir, c.arguments[at], tables))
                .ok_or("the path is cut off; use strace -s 4096")?;
            opened(&mut e, &path, bits, tid, state, tables);
        }
        "read" | "write" | "pread64" | "pwrite64" | "readv" | "writev" | "preadv" | "pwritev"
        | "preadv2" | "pwritev2" => {
            return moved(e, &c, tid, state, tables);
        }
        "lseek" | "_llseek" => {
            let Some((fd, n)) = state.find(tid, argument(0)?, tables) else {
                return Ok(false);
            };
            e.op = Op::Lseek;
            (e.fd, e.file) = (fd, state.open[n].file);
            e.count = match argument(2)? {
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
            let Some((fd, n)) = state.find(tid, argument(0)?, tables) else {
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
                argument(n).and_then(|a| number(a).ok_or_else(|| format!("{a:?} is no number")))
            };
            match e.op {
                Op::Ftruncate => e.offset = value(1)?,
                Op::Fallocate => {
                    e.flags = (value(1).unwrap_or(i64::from(argument(1)?.contains("KEEP_SIZE")))
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
            let duplicates = c.name != "fcntl" || argument(1)?.starts_with("F_DUPFD");
            let Some((fd, n)) = state.find(tid, argument(0)?, tables).filter(|_| duplicates) else {
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

fn forked(
    c: &Call,
    tid: u32,
    start: u64,
    task: u32,
    state: &mut State,
    tables: &mut Tables,
) -> Parsed<bool> {
    let Ok(child) = u32::try_from(c.result) else {
        return Ok(false);
    };
    if child == 0 {
        return Ok(false);
    }
    let flags = c.arguments.join(" ");
    let table = state.table(tid);
    let shared = flags.contains("CLONE_FILES");
    let child_table = if shared {
        table
    } else {
        let copy = state.tables[table].clone();
        state.tables.push(copy);
        state.tables.len() - 1
    };
    // the child may have been seen before its parent's call was shown as done
    if !state.table_of.contains_key(&child) || shared {
        state.table_of.insert(child, child_table);
    }
    let process = state.process_of.get(&tid).copied().unwrap_or(tid);
    let pid = if flags.contains("CLONE_THREAD") {
        process
    } else {
        child
    };
    state.process_of.insert(child, pid);
    if let Some(here) = state.directory.get(&process).cloned() {
        state.directory.entry(pid).or_insert(here);
    }
    let birth = start + c.duration;
    match tables.known_task(child) {
        Some(n) => {
            let t = &mut tables.trace.tasks[n as usize];
            (t.parent, t.pid) = (task + 1, pid);
            t.birth = t.birth.min(birth);
        }
        None => {
            tables.new_task(Task {
                tid: child,
                pid,
                parent: task + 1,
                birth,
                end: u64::MAX,
                name: String::new(),
            });
        }
    }
    Ok(false)
}

fn opened(e: &mut Event, path: &str, bits: u64, tid: u32, state: &mut State, tables: &mut Tables) {
    e.path = tables.path(path);
    let Some(fd) = i32::try_from(e.result).ok().filter(|&fd| fd >= 0) else {
        return;
    };
    e.fd = fd;
    let truncated = bits & libc::O_TRUNC as u64 != 0;
    if truncated {
        state.sizes.insert(e.path, 0);
    }
    // strace does not tell whether O_CREAT made it; a size is known only where the trace itself wrote it
    let exclusive =
        bits & libc::O_EXCL as u64 != 0 || (truncated && bits & libc::O_CREAT as u64 != 0);
    e.file = tables.file(File {
        path: e.path,
        size: match state.sizes.get(&e.path) {
            Some(&n) => n as u64,
            None if exclusive => 0,
            None => UNKNOWN_SIZE,
        },
        flags: bits as u32,
        mode: if bits & libc::O_DIRECTORY as u64 != 0 {
            0o040_755
        } else {
            0
        },
        created: exclusive,
        ..File::default()
    });
    state.open.push(Open {
        file: e.file,
        position: 0,
        append: bits & libc::O_APPEND as u64 != 0,
    });
    state.set(tid, fd, state.open.len() - 1);
}

fn moved(mut e: Event, c: &Call, tid: u32, state: &mut State, tables: &mut Tables) -> Parsed<bool> {
    let first = c.arguments.first().ok_or("no descriptor")?;
    let Some((fd, n)) = state.find(tid, first, tables) else {
        return Ok(false);
    };
    (e.fd, e.file) = (fd, state.open[n].file);
    let (op, vector, positioned) = match c.name {
        "read" => (Op::Read, false, false),
        "write" => (Op::Write, false, false),
        "pread64" => (Op::Pread, false, true),
        "pwrite64" => (Op::Pwrite, false, true),
        "readv" => (Op::Readv, true, false),
        "writev" => (Op::Writev, true, false),
        "preadv" | "preadv2" => (Op::Preadv, true, true),
        _ => (Op::Pwritev, true, true),
    };
    e.op = op;
    let last = c.arguments.len() - 1;
    let value = |at: usize| c.arguments.get(at).and_then(|a| number(a));
    // the data may hold anything: the numbers are counted from the end
    e.count = if vector {
        c.result.max(0) as u64
    } else {
        let at = if positioned {
            last.checked_sub(1)
        } else {
            Some(last)
        };
        at.and_then(value).ok_or("the length is no number")? as u64
    };
    let size_of = tables.trace.files[e.file as usize].path;
    let bytes = c.result.max(0);
    let given = if c.name.ends_with("v2") {
        last.checked_sub(1)
    } else {
        Some(last)
    };
    let at = if positioned {
        given.and_then(value).ok_or("the offset is no number")?
    } else {
        -1
    };
    let writes = matches!(op, Op::Write | Op::Writev | Op::Pwrite | Op::Pwritev);
    if at >= 0 {
        e.offset = at;
    } else {
        let o = &mut state.open[n];
        if o.append && writes {
            o.position = state.sizes.get(&size_of).copied().unwrap_or(o.position);
        }
        e.offset = o.position;
        o.position = o.position.saturating_add(bytes);
    }
    let end = e.offset.saturating_add(bytes);
    if writes {
        let size = state.sizes.entry(size_of).or_insert(0);
        *size = (*size).max(end);
    } else if !state.sizes.contains_key(&size_of) {
        let f = &mut tables.trace.files[e.file as usize];
        if !f.created {
            f.size = if f.size == UNKNOWN_SIZE {
                end as u64
            } else {
                f.size.max(end as u64)
            };
        }
    }
    tables.trace.events.push(e);
    Ok(true)
}

fn between(
    mut e: Event,
    c: &Call,
    tid: u32,
    state: &mut State,
    tables: &mut Tables,
) -> Parsed<bool> {
    let argument = |n: usize| {
        c.arguments
            .get(n)
            .copied()
            .ok_or_else(|| format!("{} has too few arguments", c.name))
    };
    let (from, to, off_from, off_to, count) = if c.name == "sendfile" {
        (
            argument(1)?,
            argument(0)?,
            argument(2)?,
            "NULL",
            argument(3)?,
        )
    } else {
        (
            argument(0)?,
            argument(2)?,
            argument(1)?,
            argument(3)?,
            argument(4)?,
        )
    };
    e.op = match c.name {
        "sendfile" => Op::Sendfile,
        "splice" => Op::Splice,
        _ => Op::CopyFileRange,
    };
    e.count = number(count).ok_or("the length is no number")? as u64;
    let bytes = c.result.max(0);
    let mut side = |text: &str, offset: &str, state: &mut State| -> (u32, i64) {
        let Some((_, n)) = state.find(tid, text, tables) else {
            return (0, 0);
        };
        let given = offset
            .trim_matches(['[', ']'])
            .split(' ')
            .next()
            .and_then(number);
        let o = &mut state.open[n];
        let at = given.unwrap_or(o.position);
        if given.is_none() {
            o.position = o.position.saturating_add(bytes);
        }
        (o.file, at)
    };
    (e.file, e.offset) = side(from, off_from, state);
    (e.file2, e.offset2) = side(to, off_to, state);
    e.fd = descriptor(from).map_or(-1, |(fd, _)| fd);
    if e.file == 0 && e.file2 == 0 {
        return Ok(false);
    }
    tables.trace.events.push(e);
    Ok(true)
}

fn named(mut e: Event, c: &Call, tid: u32, state: &mut State, tables: &mut Tables) -> Parsed<bool> {
    // operation, does it take directories, second path
    let (op, at, two) = match c.name {
        "unlink" => (Op::Unlink, false, false),
        "unlinkat" => (Op::Unlink, true, false),
        "mkdir" => (Op::Mkdir, false, false),
        "mkdirat" => (Op::Mkdir, true, false),
        "rmdir" => (Op::Rmdir, false, false),
        "rename" => (Op::Rename, false, true),
        "renameat" | "renameat2" => (Op::Rename, true, true),
        "link" => (Op::Link, false, true),
        "linkat" => (Op::Link, true, true),
        "truncate" => (Op::Truncate, false, false),
        "symlink" | "symlinkat" => (Op::Symlink, false, false),
        "stat" | "lstat" => (Op::Stat, false, false),
        "newfstatat" | "statx" => (Op::Stat, true, false),
        "access" => (Op::Access, false, false),
        "faccessat" | "faccessat2" => (Op::Access, true, false),
        "readlink" => (Op::Readlink, false, false),
        "readlinkat" => (Op::Readlink, true, false),
        _ => return Ok(false),
    };
    let argument = |n: usize| {
        c.arguments
            .get(n)
            .copied()
            .ok_or_else(|| format!("{} has too few arguments", c.name))
    };
    let cut = "the path is cut off; use strace -s 4096";
    e.op = op;
    if op == Op::Symlink {
        e.path2 = tables.path(&quoted(argument(0)?).ok_or(cut)?);
        let (dir, name) = if c.name == "symlinkat" {
            (Some(argument(1)?), argument(2)?)
        } else {
            (None, argument(1)?)
        };
        let path = state.path(tid, dir, name, tables).ok_or(cut)?;
        e.path = tables.path(&path);
        tables.trace.events.push(e);
        return Ok(true);
    }
    let (dir, name) = if at {
        (Some(argument(0)?), argument(1)?)
    } else {
        (None, argument(0)?)
    };
    if op == Op::Stat && name == "\"\"" {
        let Some((fd, n)) = dir.and_then(|d| state.find(tid, d, tables)) else {
            return Ok(false);
        };
        (e.op, e.fd, e.file) = (Op::Fstat, fd, state.open[n].file);
        tables.trace.events.push(e);
        return Ok(true);
    }
    let path = state.path(tid, dir, name, tables).ok_or(cut)?;
    e.path = tables.path(&path);
    if two {
        let (dir, name) = if at {
            (Some(argument(2)?), argument(3)?)
        } else {
            (None, argument(1)?)
        };
        let path = state.path(tid, dir, name, tables).ok_or(cut)?;
        e.path2 = tables.path(&path);
        if op == Op::Rename && c.result >= 0 {
            if let Some(size) = state.sizes.remove(&e.path) {
                state.sizes.insert(e.path2, size);
            }
        }
    }
    match op {
        Op::Truncate => e.offset = number(argument(1)?).ok_or("the size is no number")?,
        Op::Unlink
            if c.arguments
                .last()
                .is_some_and(|a| a.contains("AT_REMOVEDIR")) =>
        {
            e.op = Op::Rmdir
        }
        _ => {}
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
