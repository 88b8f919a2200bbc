//! What single calls do to descriptors, positions and sizes, and the events they become.
use super::text::{descriptor, number, quoted, Call, Parsed};
use super::{Open, State};
use crate::model::{Event, File, Op, Tables, Task, UNKNOWN_SIZE};

pub fn forked(
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
    let birth = start.saturating_add(c.duration);
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

pub fn opened(
    e: &mut Event,
    path: &str,
    bits: u64,
    tid: u32,
    state: &mut State,
    tables: &mut Tables,
) {
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

pub fn moved(
    mut e: Event,
    c: &Call,
    tid: u32,
    state: &mut State,
    tables: &mut Tables,
) -> Parsed<bool> {
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
        c.bytes()? as u64
    } else {
        let at = if positioned {
            last.checked_sub(1)
        } else {
            Some(last)
        };
        at.and_then(value).ok_or("the length is no number")? as u64
    };
    let size_of = tables.trace.files[e.file as usize].path;
    let bytes = c.bytes()?;
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

pub fn between(
    mut e: Event,
    c: &Call,
    tid: u32,
    state: &mut State,
    tables: &mut Tables,
) -> Parsed<bool> {
    let (from, to, off_from, off_to, count) = if c.name == "sendfile" {
        (
            c.argument(1)?,
            c.argument(0)?,
            c.argument(2)?,
            "NULL",
            c.argument(3)?,
        )
    } else {
        (
            c.argument(0)?,
            c.argument(2)?,
            c.argument(1)?,
            c.argument(3)?,
            c.argument(4)?,
        )
    };
    e.op = match c.name {
        "sendfile" => Op::Sendfile,
        "splice" => Op::Splice,
        _ => Op::CopyFileRange,
    };
    e.count = number(count).ok_or("the length is no number")? as u64;
    let bytes = c.bytes()?;
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

pub fn named(
    mut e: Event,
    c: &Call,
    tid: u32,
    state: &mut State,
    tables: &mut Tables,
) -> Parsed<bool> {
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
    let cut = "the path is cut off; use strace -s 4096";
    e.op = op;
    if op == Op::Symlink {
        e.path2 = tables.path(&quoted(c.argument(0)?).ok_or(cut)?);
        let (dir, name) = if c.name == "symlinkat" {
            (Some(c.argument(1)?), c.argument(2)?)
        } else {
            (None, c.argument(1)?)
        };
        let path = state.path(tid, dir, name, tables).ok_or(cut)?;
        e.path = tables.path(&path);
        tables.trace.events.push(e);
        return Ok(true);
    }
    let (dir, name) = if at {
        (Some(c.argument(0)?), c.argument(1)?)
    } else {
        (None, c.argument(0)?)
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
            (Some(c.argument(2)?), c.argument(3)?)
        } else {
            (None, c.argument(1)?)
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
        Op::Truncate => e.offset = number(c.argument(1)?).ok_or("the size is no number")?,
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
