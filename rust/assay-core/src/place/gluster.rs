//! GlusterFS's hashes: of a name for the distribution layout (upstream `libglusterfs/src/hashfn.c`, `gf_dm_hashfn`), of a
//! gfid for read children (`SuperFastHash` there), and the munging of temporary names (upstream `dht-hashfn.c`).
//! Verified against `gluster_dm_hash.csv` (310 values of the C code on x86-64) and GlusterFS 10.3 volumes.

const DELTA: u32 = 0x9e37_79b9;

/// TEA as a compression function (Davies-Meyer), `rounds` long.
fn tea(rounds: u32, block: [u32; 4], state: (u32, u32)) -> (u32, u32) {
    let (mut a, mut b, mut sum) = (state.0, state.1, 0_u32);
    for _ in 0..rounds {
        sum = sum.wrapping_add(DELTA);
        let word = |v: u32, low: u32, high: u32| {
            (v << 4).wrapping_add(low) ^ v.wrapping_add(sum) ^ (v >> 5).wrapping_add(high)
        };
        a = a.wrapping_add(word(b, block[0], block[1]));
        b = b.wrapping_add(word(a, block[2], block[3]));
    }
    (state.0.wrapping_add(a), state.1.wrapping_add(b))
}

/// The 32-bit hash whose place among the layout ranges decides the subvolume. Bytes from 0x80 on extend their sign in the
/// last block, as on x86-64 where `char` is signed; on machines where it is not, GlusterFS itself hashes such names differently.
pub fn dm_hash(name: &[u8]) -> u32 {
    let n = name.len() as u32;
    let pad = n | n << 8;
    let pad = pad | pad << 16;
    let word = |b: &[u8]| u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
    let mut state = (0x9464_a485, 0x542e_1a94);
    let mut blocks = name.chunks_exact(16);
    for b in &mut blocks {
        state = tea(
            6,
            [word(&b[0..]), word(&b[4..]), word(&b[8..]), word(&b[12..])],
            state,
        );
    }
    let mut last = [pad; 4];
    let mut words = blocks.remainder().chunks_exact(4);
    let mut filled = 0;
    for w in &mut words {
        last[filled] = word(w);
        filled += 1;
    }
    if let Some(slot) = last.get_mut(filled) {
        *slot = words
            .remainder()
            .iter()
            .fold(pad, |v, &c| v << 8 | i32::from(c as i8) as u32);
    }
    let (a, b) = tea(10, last, state);
    a ^ b
}

/// The part of a name that is hashed under the default `rsync-hash-regex` `^\.(.+)\.[^.]+$`: `.file.aXb3Zq` counts as `file`.
pub fn munge(name: &[u8]) -> &[u8] {
    let hidden = name.first() == Some(&b'.');
    match name.iter().rposition(|&c| c == b'.') {
        Some(dot) if hidden && dot >= 2 && dot + 1 < name.len() => &name[1..dot],
        _ => name,
    }
}

/// Paul Hsieh's hash, 1 for anything shorter than two bytes. Reads by AFR and EC start at `hash(gfid) % children`.
pub fn superfast_hash(data: &[u8]) -> u32 {
    if data.len() <= 1 {
        return 1;
    }
    let half = |b: &[u8]| u32::from(u16::from_le_bytes([b[0], b[1]]));
    let signed = |c: u8| i32::from(c as i8) as u32;
    let mut hash = data.len() as u32;
    let mut words = data.chunks_exact(4);
    for w in &mut words {
        hash = hash.wrapping_add(half(w));
        let mixed = half(&w[2..]) << 11 ^ hash;
        hash = hash << 16 ^ mixed;
        hash = hash.wrapping_add(hash >> 11);
    }
    match words.remainder() {
        [a, b, c] => {
            hash = hash.wrapping_add(half(&[*a, *b]));
            hash ^= hash << 16;
            hash ^= signed(*c) << 18;
            hash = hash.wrapping_add(hash >> 11);
        }
        [a, b] => {
            hash = hash.wrapping_add(half(&[*a, *b]));
            hash ^= hash << 11;
            hash = hash.wrapping_add(hash >> 17);
        }
        [a] => {
            hash = hash.wrapping_add(signed(*a));
            hash ^= hash << 10;
            hash = hash.wrapping_add(hash >> 1);
        }
        _ => {}
    }
    hash ^= hash << 3;
    hash = hash.wrapping_add(hash >> 5);
    hash ^= hash << 4;
    hash = hash.wrapping_add(hash >> 17);
    hash ^= hash << 25;
    hash.wrapping_add(hash >> 6)
}
