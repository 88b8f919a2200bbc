//! What a scan counts: histograms of sizes, directories, depth and age in power-of-two buckets.

use super::Failure;

/// Buckets of sizes: 0 holds 0, k holds [2^(k-1), 2^k).
pub const BUCKETS: usize = 65;
/// Depths above this are counted here.
pub const DEPTHS: usize = 128;
/// Age buckets in days: 0 holds [0, 1), k holds [2^(k-1), 2^k).
pub const AGES: usize = 17;
const EXAMPLES: usize = 5;
const SECONDS_PER_DAY: i64 = 86_400;

/// Counts and bytes per bucket.
#[derive(Debug, Clone)]
pub struct Totals {
    pub names: u64,
    pub stated: u64,
    pub directories: u64,
    pub symlinks: u64,
    pub special: u64,
    pub duplicate_links: u64,
    /// Files with several links that were weighted because too many were open; counts in 1/2^20.
    pub weighted_links: u64,
    pub vanished: u64,
    pub errors: u64,
    pub examples: Vec<String>,
    pub counts: [u64; BUCKETS],
    pub bytes: [u128; BUCKETS],
    pub squares: [f64; BUCKETS],
    pub allocated: u128,
    pub largest: u64,
    pub per_directory: [u64; BUCKETS],
    pub largest_directory: u64,
    pub depth: [u64; DEPTHS],
    pub age_counts: [u64; AGES],
    pub age_bytes: [u128; AGES],
}

impl Totals {
    pub(super) fn new() -> Self {
        Self {
            names: 0,
            stated: 0,
            directories: 0,
            symlinks: 0,
            special: 0,
            duplicate_links: 0,
            weighted_links: 0,
            vanished: 0,
            errors: 0,
            examples: Vec::new(),
            counts: [0; BUCKETS],
            bytes: [0; BUCKETS],
            squares: [0.0; BUCKETS],
            allocated: 0,
            largest: 0,
            per_directory: [0; BUCKETS],
            largest_directory: 0,
            depth: [0; DEPTHS],
            age_counts: [0; AGES],
            age_bytes: [0; AGES],
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.names += other.names;
        self.stated += other.stated;
        self.directories += other.directories;
        self.symlinks += other.symlinks;
        self.special += other.special;
        self.duplicate_links += other.duplicate_links;
        self.weighted_links += other.weighted_links;
        self.vanished += other.vanished;
        self.errors += other.errors;
        for example in &other.examples {
            if self.examples.len() < EXAMPLES {
                self.examples.push(example.clone());
            }
        }
        self.allocated += other.allocated;
        self.largest = self.largest.max(other.largest);
        self.largest_directory = self.largest_directory.max(other.largest_directory);
        add_all(&mut self.counts, &other.counts);
        add_all(&mut self.bytes, &other.bytes);
        add_all(&mut self.squares, &other.squares);
        add_all(&mut self.per_directory, &other.per_directory);
        add_all(&mut self.depth, &other.depth);
        add_all(&mut self.age_counts, &other.age_counts);
        add_all(&mut self.age_bytes, &other.age_bytes);
    }

    pub(super) fn error(&mut self, failure: &Failure) {
        self.errors += 1;
        if self.examples.len() < EXAMPLES {
            self.examples.push(failure.to_string());
        }
    }

    pub(super) fn file(&mut self, size: u64, blocks: u64, age_seconds: i64) {
        let k = bucket(size);
        self.counts[k] += 1;
        self.bytes[k] += u128::from(size);
        self.squares[k] += (size as f64) * (size as f64);
        self.allocated += u128::from(blocks) * 512;
        self.largest = self.largest.max(size);
        let days = u64::try_from(age_seconds / SECONDS_PER_DAY).unwrap_or(0);
        let a = bucket(days).min(AGES - 1);
        self.age_counts[a] += 1;
        self.age_bytes[a] += u128::from(size);
    }
}

fn add_all<T: Copy + std::ops::AddAssign>(a: &mut [T], b: &[T]) {
    for (x, y) in a.iter_mut().zip(b) {
        *x += *y;
    }
}

/// 0 for 0, else k with 2^(k-1) <= size < 2^k.
pub fn bucket(size: u64) -> usize {
    (u64::BITS - size.leading_zeros()) as usize
}
