//! The tree a replay starts from: directories and files of the recorded sizes, filled with seeded random bytes. What is
//! there already and right is kept, so that a second replay on the same target starts soon.
use super::mapping::Mapping;
use super::tree::Initial;
use crate::{Context, Result};
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

#[derive(Debug, Default, Serialize)]
pub struct Prepared {
    pub files: u64,
    pub directories: u64,
    pub bytes: u64,
    pub written_bytes: u64,
    pub removed: u64,
    pub seconds: f64,
}

/// splitmix64: no two 8-byte words of a file alike, nothing for a file system to compress or deduplicate.
pub struct Noise(pub u64);

impl Noise {
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn fill(&mut self, buffer: &mut [u8]) {
        for chunk in buffer.chunks_mut(8) {
            let word = self.word().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

fn seed_of(path: &str, seed: u64) -> u64 {
    path.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, |h, b| {
        (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3)
    })
}

fn walk(directory: &Path, found: &mut Vec<(PathBuf, bool)>) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        let is_directory = entry.file_type().is_ok_and(|t| t.is_dir());
        if is_directory {
            walk(&entry.path(), found);
        }
        found.push((entry.path(), is_directory)); // children first
    }
}

/// Brings `root` into the initial state. Raises an error when the file system does not take it.
pub fn prepare(
    root: &Path,
    tree: &HashMap<String, Initial>,
    mapping: &Mapping,
    seed: u64,
) -> Result<Prepared> {
    let clock = std::time::Instant::now();
    let mut done = Prepared::default();
    fs::create_dir_all(root).context(|| format!("cannot make {}", root.display()))?;
    let wanted: HashMap<PathBuf, (&String, &Initial)> = tree
        .iter()
        .filter(|(path, _)| !mapping.relative(path).is_empty())
        .map(|(path, what)| (root.join(mapping.relative(path)), (path, what)))
        .collect();
    let mut above: HashSet<PathBuf> = HashSet::new();
    for path in wanted.keys() {
        let mut p = path.parent();
        while let Some(q) = p.filter(|q| q.starts_with(root)) {
            if !above.insert(q.to_owned()) {
                break;
            }
            p = q.parent();
        }
    }
    let mut there = Vec::new();
    walk(root, &mut there);
    for (path, is_directory) in there {
        let keep = match wanted.get(&path) {
            Some((_, Initial::Directory)) => is_directory,
            Some((_, Initial::File(_))) => !is_directory && !path.is_symlink(),
            None => is_directory && above.contains(&path),
        };
        if !keep {
            let removed = if is_directory {
                fs::remove_dir_all(&path)
            } else {
                fs::remove_file(&path)
            };
            removed.context(|| format!("cannot remove {}", path.display()))?;
            done.removed += 1;
        }
    }
    let mut directories: Vec<&PathBuf> = above.iter().collect();
    directories.extend(
        wanted
            .iter()
            .filter(|(_, (_, w))| **w == Initial::Directory)
            .map(|(p, _)| p),
    );
    directories.sort();
    for path in directories {
        fs::create_dir_all(path).context(|| format!("cannot make {}", path.display()))?;
        done.directories += 1;
    }
    let mut files: Vec<_> = wanted.iter().collect();
    files.sort();
    let mut buffer = vec![0u8; 1 << 20];
    for (path, (name, what)) in files {
        let Initial::File(size) = **what else {
            continue;
        };
        done.files += 1;
        done.bytes += size;
        let doing = || format!("cannot fill {} with {size} bytes", path.display());
        let has = fs::metadata(path).map(|m| m.len()).ok();
        if has == Some(size) {
            continue;
        }
        if has.is_some_and(|has| has > size) {
            let file = fs::OpenOptions::new()
                .write(true)
                .open(path)
                .context(doing)?;
            file.set_len(size).context(doing)?;
            continue;
        }
        let mut noise = Noise(seed_of(name, seed));
        let mut file = fs::File::create(path).context(doing)?;
        let mut left = size;
        while left > 0 {
            let part = left.min(buffer.len() as u64) as usize;
            noise.fill(&mut buffer[..part]);
            file.write_all(&buffer[..part]).context(doing)?;
            left -= part as u64;
        }
        file.sync_all().context(doing)?;
        done.written_bytes += size;
    }
    done.seconds = clock.elapsed().as_secs_f64();
    Ok(done)
}
