//! Robert Jenkins' 32-bit mix as CRUSH uses it (upstream `src/crush/hash.c`) and Ceph's string hash
//! (upstream `src/common/ceph_hash.cc`). Verified against `ceph_crush_hash_ln.json` (600 values of the C functions) and,
//! through the mapper, against crushtool 16.2.15.

pub(super) const SEED: u32 = 1_315_423_911;
pub(super) const X: u32 = 231_232;
pub(super) const Y: u32 = 1232;

/// One round over three words.
#[inline(always)]
pub(super) fn mix(mut a: u32, mut b: u32, mut c: u32) -> (u32, u32, u32) {
    a = a.wrapping_sub(b).wrapping_sub(c) ^ (c >> 13);
    b = b.wrapping_sub(c).wrapping_sub(a) ^ (a << 8);
    c = c.wrapping_sub(a).wrapping_sub(b) ^ (b >> 13);
    a = a.wrapping_sub(b).wrapping_sub(c) ^ (c >> 12);
    b = b.wrapping_sub(c).wrapping_sub(a) ^ (a << 16);
    c = c.wrapping_sub(a).wrapping_sub(b) ^ (b >> 5);
    a = a.wrapping_sub(b).wrapping_sub(c) ^ (c >> 3);
    b = b.wrapping_sub(c).wrapping_sub(a) ^ (a << 10);
    c = c.wrapping_sub(a).wrapping_sub(b) ^ (b >> 15);
    (a, b, c)
}

/// Hash of one word.
pub fn hash1(a: u32) -> u32 {
    let (_, _, h) = mix(a, X, SEED ^ a);
    mix(Y, a, h).2
}

/// Hash of two words.
#[inline(always)]
pub fn hash2(a: u32, b: u32) -> u32 {
    let h = SEED ^ a ^ b;
    let (a, b, h) = mix(a, b, h);
    let (_, _, h) = mix(X, a, h);
    mix(b, Y, h).2
}

/// Hash of three words: the one straw2 draws with.
#[inline(always)]
pub fn hash3(a: u32, b: u32, c: u32) -> u32 {
    let h = SEED ^ a ^ b ^ c;
    let (a, b, h) = mix(a, b, h);
    let (c, x, h) = mix(c, X, h);
    let (y, _, h) = mix(Y, a, h);
    let (_, _, h) = mix(b, x, h);
    mix(y, c, h).2
}

/// Hash of four words.
pub fn hash4(a: u32, b: u32, c: u32, d: u32) -> u32 {
    let h = SEED ^ a ^ b ^ c ^ d;
    let (a, b, h) = mix(a, b, h);
    let (c, d, h) = mix(c, d, h);
    let (_, x, h) = mix(a, X, h);
    let (y, _, h) = mix(Y, b, h);
    let (_, _, h) = mix(c, x, h);
    mix(y, d, h).2
}

/// Hash of five words.
pub fn hash5(a: u32, b: u32, c: u32, d: u32, e: u32) -> u32 {
    let h = SEED ^ a ^ b ^ c ^ d ^ e;
    let (a, b, h) = mix(a, b, h);
    let (c, d, h) = mix(c, d, h);
    let (e, x, h) = mix(e, X, h);
    let (y, _, h) = mix(Y, a, h);
    let (_, x, h) = mix(b, x, h);
    let (y, _, h) = mix(y, c, h);
    let (_, _, h) = mix(d, x, h);
    mix(y, e, h).2
}

/// Jenkins' hash of a byte string: what an object's name (or locator key) becomes before it is reduced to a placement group.
pub fn hash_string(key: &[u8]) -> u32 {
    const GOLDEN: u32 = 0x9e37_79b9;
    let (mut a, mut b, mut c) = (GOLDEN, GOLDEN, 0_u32);
    let word = |s: &[u8]| s.iter().rev().fold(0_u32, |w, &v| w << 8 | u32::from(v));
    let mut blocks = key.chunks_exact(12);
    for block in &mut blocks {
        a = a.wrapping_add(word(&block[0..4]));
        b = b.wrapping_add(word(&block[4..8]));
        c = c.wrapping_add(word(&block[8..12]));
        (a, b, c) = mix(a, b, c);
    }
    let tail = blocks.remainder();
    let part = |from: usize, to: usize| word(&tail[from.min(tail.len())..to.min(tail.len())]);
    c = c.wrapping_add(key.len() as u32);
    a = a.wrapping_add(part(0, 4));
    b = b.wrapping_add(part(4, 8));
    c = c.wrapping_add(part(8, 11) << 8); // the lowest byte holds the length
    mix(a, b, c).2
}
