//! Names replaced by seeded hashes: the tree's shape, the depth of paths and the suffixes that matter to nobody stay.
use crate::model::Trace;
use crate::replay::prepare::Noise;
use siphasher::sip::SipHasher24;
use std::collections::HashMap;

/// Replaces every component of every path, the names of tasks, the command and the machine's name. Equal components stay
/// equal. SipHash is keyed by the seed (Aumasson and Bernstein, INDOCRYPT 2012): who does not have it cannot try likely
/// names, and does not find it from names that are known.
pub fn anonymise(trace: &mut Trace, seed: u64) {
    let mut key = Noise(seed);
    let (k0, k1) = (key.word(), key.word());
    let mut names: HashMap<String, String> = HashMap::new();
    let mut replace = |name: &str| -> String {
        if name.is_empty() || name == "." || name == ".." {
            return name.to_owned();
        }
        if let Some(known) = names.get(name) {
            return known.clone();
        }
        let new = format!(
            "{:016x}",
            SipHasher24::new_with_keys(k0, k1).hash(name.as_bytes())
        );
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
    trace.meta.note.clear();
    if let Some(summary) = &mut trace.summary {
        summary.warnings.retain(|w| !w.contains('/')); // a path may stand in it
    }
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
