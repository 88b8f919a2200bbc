//! Names replaced by seeded hashes: the tree's shape, the depth of paths and the suffixes that matter to nobody stay.
use crate::model::Trace;
use crate::replay::prepare::Noise;
use std::collections::HashMap;

/// Replaces every component of every path, the names of tasks, the command and the machine's name. Equal components stay
/// equal. Without the seed, names cannot be found by trying likely ones.
pub fn anonymise(trace: &mut Trace, seed: u64) {
    let mut names: HashMap<String, String> = HashMap::new();
    let mut replace = |name: &str| -> String {
        if name.is_empty() || name == "." || name == ".." {
            return name.to_owned();
        }
        if let Some(known) = names.get(name) {
            return known.clone();
        }
        let mut state = seed;
        for byte in name.bytes() {
            state = Noise(state ^ u64::from(byte)).word();
        }
        let new = format!("{:012x}", Noise(state).word() >> 16);
        names.insert(name.to_owned(), new.clone());
        new
    };
    for path in &mut trace.paths {
        *path = path
            .split('/')
            .map(&mut replace)
            .collect::<Vec<_>>()
            .join("/");
    }
    for task in &mut trace.tasks {
        task.name = replace(&task.name);
    }
    for file in &mut trace.files {
        (file.ino, file.dev) = (0, 0);
    }
    trace.meta.command.clear();
    trace.meta.machine.clear();
    trace.meta.mount = trace
        .meta
        .mount
        .split('/')
        .map(&mut replace)
        .collect::<Vec<_>>()
        .join("/");
    trace.meta.anonymised = true;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shape_stays_and_names_go() {
        let mut t = Trace::new();
        t.paths = vec![String::new(), "/home/ann/x".into(), "/home/ann/y".into()];
        anonymise(&mut t, 7);
        assert!(t.paths[1].matches('/').count() == 3 && !t.paths[1].contains("ann"));
        assert_eq!(
            t.paths[1].rsplit_once('/').unwrap().0,
            t.paths[2].rsplit_once('/').unwrap().0
        );
        assert_ne!(t.paths[1], t.paths[2]);
    }
}
