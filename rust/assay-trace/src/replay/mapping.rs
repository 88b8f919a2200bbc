//! Which paths of a trace take part in a replay, and where they go.
use super::plan::parent_of;
use crate::model::{normalise, Event, Op, Trace};

/// Which paths take part, and where they go.
#[derive(Clone, Debug, Default)]
pub struct Mapping {
    /// Only what lies below one of these; empty: everything.
    pub only: Vec<String>,
}

impl Mapping {
    pub fn holds(&self, path: &str) -> bool {
        let special = ["/dev", "/proc", "/sys"];
        if !path.starts_with('/')
            || path.ends_with(" (deleted)")
            || path.split('/').any(|part| part == "..") // a trace from elsewhere must not climb out of the root
            || special
                .iter()
                .any(|s| below(path, s) && !below(path, "/dev/shm"))
        {
            return false;
        }
        self.only.is_empty() || self.only.iter().any(|p| below(path, p))
    }

    /// Where a path of the trace lies in a replay below `root`; None when it takes no part.
    pub fn target(&self, root: &str, path: &str) -> Option<String> {
        self.holds(path)
            .then(|| format!("{root}/{}", self.relative(path)))
    }

    /// The text of a symbolic link at `path`. It never leads out of the root: what is absolute or climbs is made
    /// absolute below it.
    pub fn link_text(&self, root: &str, path: &str, text: &str) -> String {
        if !text.starts_with('/') && !text.split('/').any(|part| part == "..") {
            return text.to_owned();
        }
        let leads_to = normalise(parent_of(path), text);
        format!("{root}/{}", self.relative(&leads_to))
    }

    /// Where a path of the trace lies below the replay's root, without a leading slash. One prefix is left out.
    pub fn relative<'a>(&self, path: &'a str) -> &'a str {
        let rest = match self.only.as_slice() {
            [one] => path.strip_prefix(one.trim_end_matches('/')).unwrap_or(path),
            _ => path,
        };
        rest.trim_start_matches('/')
    }
}

fn below(path: &str, prefix: &str) -> bool {
    let prefix = prefix.trim_end_matches('/');
    path.strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Why an event cannot be replayed; None if it can.
pub(super) fn skipped(trace: &Trace, mapping: &Mapping, e: &Event) -> Option<&'static str> {
    let file_path = |n: u32| trace.path(trace.files[n as usize].path);
    match e.op {
        Op::Wait => return None,
        Op::UringOther => return Some("io_uring operation without data"),
        Op::Sync => return None,
        _ => {}
    }
    let mut paths = Vec::with_capacity(4);
    if e.path != 0 {
        paths.push(trace.path(e.path));
    }
    if e.path2 != 0 && e.op != Op::Symlink {
        paths.push(trace.path(e.path2));
    }
    for n in [e.file, e.file2] {
        if n != 0 {
            paths.push(file_path(n));
        }
    }
    if paths.is_empty() || paths.iter().any(|p| p.is_empty()) {
        return Some("unknown file");
    }
    if e.file != 0 && trace.files[e.file as usize].mode & 0o170_000 == 0o060_000 {
        return Some("block device");
    }
    let is_root = |p: &&str| {
        matches!(e.op, Op::Mkdir | Op::Rmdir | Op::Unlink | Op::Rename)
            && mapping.relative(p).is_empty()
    };
    if !paths.iter().all(|p| mapping.holds(p)) || paths.iter().any(is_root) {
        return Some("outside the replayed directories"); // the replay's own root is not the trace's to make or remove
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_leads_out_of_the_root() {
        let all = Mapping::default();
        assert_eq!(all.target("/r", "/w/a").as_deref(), Some("/r/w/a"));
        for path in [
            "/../etc/passwd",
            "/w/../../etc",
            "relative",
            "/proc/self/root",
        ] {
            assert_eq!(all.target("/r", path), None, "{path}");
        }
        for (text, wanted) in [
            ("b", "b"),
            ("/etc", "/r/etc"),
            ("/proc/self/root", "/r/proc/self/root"),
            ("../b", "/r/w/b"),
            ("../../../../etc", "/r/etc"),
            ("b/../../../..", "/r/"),
        ] {
            assert_eq!(all.link_text("/r", "/w/d/link", text), wanted);
        }
    }
}
