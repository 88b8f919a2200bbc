//! The tree as it was before the first operation, as far as the trace tells.
use super::mapping::{skipped, Mapping};
use super::plan::parent_of;
use crate::model::{Class, Event, Op, Trace, UNKNOWN_SIZE};
use std::collections::{HashMap, HashSet};

/// A path that must be there before the clock starts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Initial {
    Directory,
    /// Bytes.
    File(u64),
}

/// The initial tree while the trace is gone through; `known` are paths whose beginning is settled.
#[derive(Default)]
struct Past {
    tree: HashMap<String, Initial>,
    known: HashSet<String>,
    moved: Vec<(String, String)>,
}

impl Past {
    fn note(&mut self, mapping: &Mapping, path: &str, there: Option<Initial>) {
        if path.is_empty() || !self.known.insert(path.to_owned()) {
            return;
        }
        // below a directory that was renamed, it had its old name at the start
        let mut name = path.to_owned();
        for (old, new) in self.moved.iter().rev() {
            if let Some(rest) = name
                .strip_prefix(new.as_str())
                .filter(|r| r.starts_with('/'))
            {
                name = format!("{old}{rest}");
            }
        }
        if name != path && !self.known.insert(name.clone()) {
            return;
        }
        if let Some(there) = there {
            self.tree.insert(name.clone(), there);
        }
        let mut above = parent_of(&name);
        while above != "/" && mapping.holds(above) && self.known.insert(above.to_owned()) {
            self.tree.insert(above.to_owned(), Initial::Directory);
            above = parent_of(above);
        }
    }
}

/// The tree as it was before the first operation, as far as the trace tells: by path.
pub fn initial_tree(trace: &Trace, mapping: &Mapping) -> HashMap<String, Initial> {
    let mut order: Vec<&Event> = trace
        .events
        .iter()
        .filter(|e| skipped(trace, mapping, e).is_none() && e.op != Op::Wait && e.op != Op::Sync)
        .collect();
    order.sort_by_key(|e| e.start);
    let mut past = Past::default();
    for e in order {
        let absent = e.result == -i64::from(libc::ENOENT);
        let path = trace.path(e.path).to_owned();
        match e.op {
            Op::Open if e.result >= 0 => {
                let f = &trace.files[e.file as usize];
                let there = if f.mode & 0o170_000 == 0o040_000 {
                    Initial::Directory
                } else {
                    Initial::File(if f.size == UNKNOWN_SIZE { 0 } else { f.size })
                };
                past.note(mapping, &path, (!f.created).then_some(there));
            }
            Op::Mkdir if e.result >= 0 => past.note(mapping, &path, None),
            Op::Mkdir if e.result == -i64::from(libc::EEXIST) => {
                past.note(mapping, &path, Some(Initial::Directory))
            }
            Op::Rmdir if e.result >= 0 => past.note(mapping, &path, Some(Initial::Directory)),
            Op::Rename | Op::Link if e.result >= 0 => {
                past.note(mapping, &path, Some(Initial::File(0)));
                past.note(mapping, trace.path(e.path2), None);
                if e.op == Op::Rename {
                    past.moved.push((path, trace.path(e.path2).to_owned()));
                }
            }
            Op::Symlink if e.result >= 0 => past.note(mapping, &path, None),
            Op::Unlink | Op::Truncate | Op::Stat | Op::Access if e.result >= 0 => {
                past.note(mapping, &path, Some(Initial::File(0)));
            }
            _ if e.path != 0 && absent => {
                past.known.insert(path);
            }
            _ => {}
        }
        for n in [e.file, e.file2] {
            let f = &trace.files[n as usize];
            if n == 0 || !f.inherited {
                continue;
            }
            let name = trace.path(f.path).to_owned();
            let size = if f.size == UNKNOWN_SIZE { 0 } else { f.size };
            let there = if f.mode & 0o170_000 == 0o040_000 {
                Initial::Directory
            } else {
                Initial::File(size)
            };
            past.note(mapping, &name, Some(there));
            // the size was not seen: what was read must be there
            if f.size == UNKNOWN_SIZE && matches!(e.op.class(), Class::Read | Class::Mapped) {
                if let Some(Initial::File(size)) = past.tree.get_mut(&name) {
                    *size = (*size).max(e.offset.max(0) as u64 + e.bytes());
                }
            }
        }
    }
    // what has something below it is a directory
    let parents: Vec<String> = past.tree.keys().map(|p| parent_of(p).to_owned()).collect();
    for parent in parents {
        if let Some(entry) = past.tree.get_mut(&parent) {
            *entry = Initial::Directory;
        }
    }
    past.tree
}
