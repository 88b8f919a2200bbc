//! straw2 (upstream `bucket_straw2_choose`): the item with the largest draw, exactly.
//!
//! A draw is `-(2^48 - crush_ln(hash)) / weight`, truncated. The kernels here compute the distance divided by the weight
//! in `f32` for many hashes at once and remember the best and the second best. When these are so close that rounding
//! or truncation could decide otherwise, [`exact`] decides; that is about one choice in a hundred thousand. Where all
//! weights of a bucket are equal, the largest hash wins, and only it and the second largest are turned into draws.

use super::flat::{Flat, Node};
use super::hash::{hash3, mix, SEED, X, Y};
use super::ln::{distance, distances};

/// Choices made side by side in one call of [`choose`].
pub const LANES: usize = 32;
/// Buckets from this size on are searched item-wise, many items of one choice side by side.
pub const LARGE: u32 = 48;

/// Relative error of the `f32` draws: three roundings of 2^-24, with ample room.
const SLACK: f32 = 1e-6;

/// Choices to be made: per lane the input, the replica number, and the bucket's items and weights.
pub struct Choices {
    pub x: [u32; LANES],
    pub r: [u32; LANES],
    pub start: [u32; LANES],
    pub weight_start: [u32; LANES],
    /// At least 1.
    pub size: [u32; LANES],
}

impl Choices {
    pub fn new() -> Self {
        Self {
            x: [0; LANES],
            r: [0; LANES],
            start: [0; LANES],
            weight_start: [0; LANES],
            size: [1; LANES],
        }
    }
}

impl Default for Choices {
    fn default() -> Self {
        Self::new()
    }
}

/// The index of the winner by integer arithmetic alone.
pub fn exact(flat: &Flat, node: Node, weight_start: usize, x: u32, r: u32) -> u32 {
    let (from, size) = (node.start as usize, node.size as usize);
    let mut best = (0, None);
    for i in 0..size {
        let weight = u64::from(flat.weights[weight_start + i]);
        let draw = distance(hash3(x, flat.ids[from + i], r)).checked_div(weight);
        // No draw is the lowest one; the first of equals wins, item 0 if there is no other.
        if let Some(draw) = draw {
            if best.1.is_none_or(|b| draw < b) {
                best = (i as u32, Some(draw));
            }
        }
    }
    best.0
}

/// Whether the best draw is surely better than the second best.
#[inline(always)]
fn clear(best: f32, second: f32) -> bool {
    second - best > 1.0 + SLACK * second
}

type Words = [u32; LANES];

/// One round of the hash in every lane. Going through all lanes round by round, not lane by lane, gives a processor
/// independent work while it waits for the results of the few words of one lane.
#[inline(always)]
fn mix_lanes(a: &mut Words, b: &mut Words, c: &mut Words) {
    for l in 0..LANES {
        (a[l], b[l], c[l]) = mix(a[l], b[l], c[l]);
    }
}

/// The low 16 bits of [`hash3`] in every lane.
#[inline(always)]
fn hash_lanes(x: &Words, id: &Words, r: &Words) -> Words {
    let (mut a, mut b, mut c, mut h) = (*x, *id, *r, [0; LANES]);
    for l in 0..LANES {
        h[l] = SEED ^ a[l] ^ b[l] ^ c[l];
    }
    let (mut x, mut y) = ([X; LANES], [Y; LANES]);
    mix_lanes(&mut a, &mut b, &mut h);
    mix_lanes(&mut c, &mut x, &mut h);
    mix_lanes(&mut y, &mut a, &mut h);
    mix_lanes(&mut b, &mut x, &mut h);
    mix_lanes(&mut y, &mut c, &mut h);
    for word in &mut h {
        *word &= 0xffff;
    }
    h
}

/// Best and second best draw per lane, and whose the best was.
struct Best {
    first: [f32; LANES],
    second: [f32; LANES],
    winner: [u32; LANES],
}

impl Best {
    #[inline(always)]
    fn new() -> Self {
        Self {
            first: [f32::INFINITY; LANES],
            second: [f32::INFINITY; LANES],
            winner: [0; LANES],
        }
    }

    /// Takes in a draw per lane; `index` names the item.
    #[inline(always)]
    fn take(&mut self, draw: &[f32; LANES], index: &[u32; LANES]) {
        for l in 0..LANES {
            let better = draw[l] < self.first[l];
            let loser = if better { self.first[l] } else { draw[l] };
            self.second[l] = if loser < self.second[l] {
                loser
            } else {
                self.second[l]
            };
            self.winner[l] = if better { index[l] } else { self.winner[l] };
            self.first[l] = if better { draw[l] } else { self.first[l] };
        }
    }
}

/// Largest and second largest hash per lane, with the item's index inverted below it: of equals the first is the largest.
struct Largest {
    first: [u32; LANES],
    second: [u32; LANES],
}

/// Indices must fit below a 16-bit hash.
const MOST_KEYED: u32 = 0x1_0000;

impl Largest {
    #[inline(always)]
    fn new() -> Self {
        Self {
            first: [0; LANES],
            second: [0; LANES],
        }
    }

    #[inline(always)]
    fn take(&mut self, hash: &[u32; LANES], index: &[u32; LANES], held: &[u32; LANES]) {
        for l in 0..LANES {
            let key = (hash[l] << 16 | (0xffff - index[l])) & held[l];
            self.second[l] = self.second[l].max(self.first[l].min(key));
            self.first[l] = self.first[l].max(key);
        }
    }
}

/// The winner among equal weights given the two largest keys, unless [`exact`] must decide.
#[inline(always)]
fn settle_equal(first: u32, second: u32, inverse: f32) -> Option<u32> {
    let table = distances();
    let (hash, mut next) = (first >> 16, second >> 16);
    if hash == 0xffff || hash == 0 {
        return None; // crush_ln falls between its last two arguments
    }
    if next == hash {
        next = hash - 1; // equal hashes draw equally and the first wins, if no smaller hash draws as much
    }
    let draw = |hash: u32| table[hash as usize] * inverse;
    clear(draw(hash), draw(next)).then_some(0xffff - (first & 0xffff))
}

#[inline(always)]
fn choose_equal_body(flat: &Flat, c: &Choices, out: &mut [u32; LANES]) {
    let ids = flat.ids.as_slice();
    let (x, r) = (c.x, c.r);
    let mut largest = Largest::new();
    let most = c.size.iter().copied().max().unwrap_or(0);
    let (start, size) = (c.start[0], c.size[0]);
    if c.start.iter().all(|&s| s == start) && c.size.iter().all(|&s| s == size) {
        // All lanes are in one bucket, as they are at the root.
        for (i, &id) in ids[start as usize..(start + size) as usize]
            .iter()
            .enumerate()
        {
            largest.take(
                &hash_lanes(&x, &[id; LANES], &r),
                &[i as u32; LANES],
                &[u32::MAX; LANES],
            );
        }
        finish_equal(flat, c, &largest, out);
        return;
    }
    for i in 0..most {
        let mut id = [0_u32; LANES];
        let mut held = [0_u32; LANES];
        for l in 0..LANES {
            let inside = i < c.size[l];
            id[l] = if inside {
                ids[(c.start[l] + i) as usize]
            } else {
                0
            };
            held[l] = if inside { u32::MAX } else { 0 };
        }
        largest.take(&hash_lanes(&x, &id, &r), &[i; LANES], &held);
    }
    finish_equal(flat, c, &largest, out);
}

#[inline(always)]
fn finish_equal(flat: &Flat, c: &Choices, largest: &Largest, out: &mut [u32; LANES]) {
    for (l, winner) in out.iter_mut().enumerate() {
        let inverse = flat.inverse[c.weight_start[l] as usize];
        *winner = settle_equal(largest.first[l], largest.second[l], inverse).unwrap_or(u32::MAX);
    }
}

#[inline(always)]
fn search_equal_body(flat: &Flat, node: Node, weight_start: usize, x: u32, r: u32) -> Option<u32> {
    let ids = &flat.ids[node.start as usize..][..node.size as usize];
    let mut largest = Largest::new();
    let mut index = [0_u32; LANES];
    for (l, slot) in index.iter_mut().enumerate() {
        *slot = l as u32;
    }
    for ids in ids.chunks(LANES) {
        let mut id = [0_u32; LANES];
        let mut held = [0_u32; LANES];
        id[..ids.len()].copy_from_slice(ids);
        held[..ids.len()].fill(u32::MAX);
        largest.take(&hash_lanes(&[x; LANES], &id, &[r; LANES]), &index, &held);
        for slot in &mut index {
            *slot += LANES as u32;
        }
    }
    let (mut first, mut second) = (0, 0);
    for l in 0..LANES {
        second = second
            .max(largest.second[l])
            .max(first.min(largest.first[l]));
        first = first.max(largest.first[l]);
    }
    settle_equal(first, second, flat.inverse[weight_start])
}

#[inline(always)]
fn choose_body(flat: &Flat, c: &Choices, out: &mut [u32; LANES]) {
    let table = distances();
    let (ids, inverse) = (flat.ids.as_slice(), flat.inverse.as_slice());
    let (x, r) = (c.x, c.r);
    let mut best = Best::new();
    let most = c.size.iter().copied().max().unwrap_or(0);
    for i in 0..most {
        let mut id = [0_u32; LANES];
        let mut w = [0_f32; LANES];
        for l in 0..LANES {
            // Lanes whose bucket has no item `i` draw infinity.
            let (at, weight_at) = ((c.start[l] + i) as usize, (c.weight_start[l] + i) as usize);
            let inside = i < c.size[l];
            id[l] = if inside { ids[at] } else { 0 };
            w[l] = if inside {
                inverse[weight_at]
            } else {
                f32::INFINITY
            };
        }
        let hash = hash_lanes(&x, &id, &r);
        let mut draw = [0_f32; LANES];
        for l in 0..LANES {
            draw[l] = table[(hash[l] & 0xffff) as usize] * w[l];
        }
        best.take(&draw, &[i; LANES]);
    }
    for (l, winner) in out.iter_mut().enumerate() {
        *winner = if clear(best.first[l], best.second[l]) {
            best.winner[l]
        } else {
            u32::MAX
        };
    }
}

/// Item-wise search of one bucket: `None` when the two best are too close to call.
#[inline(always)]
fn search_body(flat: &Flat, node: Node, weight_start: usize, x: u32, r: u32) -> Option<u32> {
    let table = distances();
    let size = node.size as usize;
    let ids = &flat.ids[node.start as usize..][..size];
    let inverse = &flat.inverse[weight_start..][..size];
    let mut best = Best::new();
    let mut index = [0_u32; LANES];
    for (l, slot) in index.iter_mut().enumerate() {
        *slot = l as u32;
    }
    for (ids, inverse) in ids.chunks(LANES).zip(inverse.chunks(LANES)) {
        let mut id = [0_u32; LANES];
        let mut w = [f32::INFINITY; LANES];
        id[..ids.len()].copy_from_slice(ids);
        w[..ids.len()].copy_from_slice(inverse);
        let hash = hash_lanes(&[x; LANES], &id, &[r; LANES]);
        let mut draw = [0_f32; LANES];
        for l in 0..LANES {
            draw[l] = table[(hash[l] & 0xffff) as usize] * w[l];
        }
        best.take(&draw, &index);
        for slot in &mut index {
            *slot += LANES as u32;
        }
    }
    let (mut first, mut second, mut winner) = (f32::INFINITY, f32::INFINITY, 0);
    for l in 0..LANES {
        let draw = best.first[l];
        second = second
            .min(best.second[l])
            .min(if draw < first { first } else { draw });
        if draw < first {
            (first, winner) = (draw, best.winner[l]);
        }
    }
    clear(first, second).then_some(winner)
}

/// The kernels compiled for vectors of 256 bits.
#[cfg(target_arch = "x86_64")]
mod wide {
    use super::{Choices, Flat, Node, LANES};

    /// # Safety
    /// The processor must have AVX2.
    #[target_feature(enable = "avx2")]
    pub unsafe fn choose(flat: &Flat, c: &Choices, equal: bool, out: &mut [u32; LANES]) {
        super::choose_any(flat, c, equal, out);
    }

    /// # Safety
    /// The processor must have AVX2.
    #[target_feature(enable = "avx2")]
    pub unsafe fn search(
        flat: &Flat,
        node: Node,
        weight_start: usize,
        x: u32,
        r: u32,
    ) -> Option<u32> {
        super::search_any(flat, node, weight_start, x, r)
    }
}

#[inline(always)]
fn choose_any(flat: &Flat, c: &Choices, equal: bool, out: &mut [u32; LANES]) {
    if equal {
        choose_equal_body(flat, c, out);
    } else {
        choose_body(flat, c, out);
    }
}

#[inline(always)]
fn search_any(flat: &Flat, node: Node, weight_start: usize, x: u32, r: u32) -> Option<u32> {
    if node.equal && node.size <= MOST_KEYED {
        search_equal_body(flat, node, weight_start, x, r)
    } else {
        search_body(flat, node, weight_start, x, r)
    }
}

/// The winners' indices of many choices; `u32::MAX` where [`exact`] must decide. `equal` says that the weights of every
/// bucket here are equal within it; no bucket may have [`LARGE`] items or more.
pub fn choose(flat: &Flat, c: &Choices, equal: bool, out: &mut [u32; LANES]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: this processor has AVX2, as was just found.
        unsafe { wide::choose(flat, c, equal, out) };
        return;
    }
    choose_any(flat, c, equal, out);
}

/// The winner's index in one bucket, which may be of any size but not empty.
pub fn search(flat: &Flat, node: Node, position: usize, x: u32, r: u32) -> u32 {
    let weight_start = flat.weight_start(node, position);
    if node.size == 1 {
        return 0;
    }
    if node.size < 4 {
        return exact(flat, node, weight_start, x, r);
    }
    #[cfg(target_arch = "x86_64")]
    let found = if is_x86_feature_detected!("avx2") {
        // SAFETY: this processor has AVX2, as was just found.
        unsafe { wide::search(flat, node, weight_start, x, r) }
    } else {
        search_any(flat, node, weight_start, x, r)
    };
    #[cfg(not(target_arch = "x86_64"))]
    let found = search_any(flat, node, weight_start, x, r);
    found.unwrap_or_else(|| exact(flat, node, weight_start, x, r))
}
