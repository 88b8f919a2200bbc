//! Traces for other tools.
use crate::model::{Class, Event, Op, Trace};
use std::fmt::Write;

/// fio's iolog, version 3 (times in microseconds). Only what it knows: open, close, read, write, sync, datasync, trim.
/// The second value counts the operations left out. fio replays one stream: threads are merged by time.
pub fn iolog(trace: &Trace) -> (String, u64) {
    let mut order: Vec<&Event> = trace.events.iter().collect();
    order.sort_by_key(|e| e.start);
    let mut out = String::from("fio version 3 iolog\n");
    let mut left_out = 0;
    let mut open: std::collections::HashMap<&str, u32> = std::collections::HashMap::new();
    let mut added: std::collections::HashSet<&str> = std::collections::HashSet::new();
    for e in order {
        let path = trace.path_of(e);
        let at = e.start / 1000;
        let data = matches!(e.op.class(), Class::Read | Class::Write | Class::Mapped)
            && e.op != Op::CloneRange
            && e.file2 == 0;
        let trims = e.op == Op::Fallocate && e.call_flags() & 2 != 0;
        let syncs = matches!(
            e.op,
            Op::Fsync | Op::Fdatasync | Op::AioFsync | Op::UringFsync
        );
        let usable = e.result >= 0
            && !path.is_empty()
            && !path.contains(char::is_whitespace)
            && path.len() <= 256
            && (data && e.bytes() > 0 || trims || syncs || matches!(e.op, Op::Open | Op::Close));
        if !usable {
            left_out += 1;
            continue;
        }
        if added.insert(path) {
            let _ = writeln!(out, "{at} {path} add");
        }
        let users = open.entry(path).or_insert(0);
        match e.op {
            Op::Open => {
                *users += 1;
                if *users == 1 {
                    let _ = writeln!(out, "{at} {path} open");
                }
                continue;
            }
            Op::Close => {
                if *users == 1 {
                    let _ = writeln!(out, "{at} {path} close");
                }
                *users = users.saturating_sub(1);
                continue;
            }
            _ => {}
        }
        if *users == 0 {
            *users = 1;
            let _ = writeln!(out, "{at} {path} open");
        }
        let _ = match e.op.class() {
            Class::Read | Class::Mapped => {
                writeln!(out, "{at} {path} read {} {}", e.offset, e.bytes())
            }
            Class::Write => writeln!(out, "{at} {path} write {} {}", e.offset, e.bytes()),
            Class::Sync if e.op == Op::Fdatasync => writeln!(out, "{at} {path} datasync"),
            Class::Sync => writeln!(out, "{at} {path} sync"),
            _ => writeln!(out, "{at} {path} trim {} {}", e.offset, e.count),
        };
    }
    (out, left_out)
}

/// One line per operation; times in ns since the trace's start.
pub fn csv(trace: &Trace) -> String {
    let mut out = String::from(
        "start_ns,duration_ns,pid,tid,operation,fd,path,path2,offset,offset2,count,result,flags\n",
    );
    let cell = |text: &str| {
        if text.contains([',', '"', '\n']) {
            format!("\"{}\"", text.replace('"', "\"\""))
        } else {
            text.to_owned()
        }
    };
    for e in &trace.events {
        let t = &trace.tasks[e.task as usize];
        let second = if e.path2 != 0 {
            trace.path(e.path2)
        } else {
            trace.path(trace.files[e.file2 as usize].path)
        };
        let _ = writeln!(
            out,
            "{},{},{},{},{},{},{},{},{},{},{},{},{}",
            e.start,
            e.duration,
            t.pid,
            t.tid,
            e.op.name(),
            e.fd,
            cell(trace.path_of(e)),
            cell(second),
            e.offset,
            e.offset2,
            e.count,
            e.result,
            e.flags
        );
    }
    out
}
