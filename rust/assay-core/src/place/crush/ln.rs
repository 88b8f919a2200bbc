//! The logarithm of straw2 (upstream `src/crush/mapper.c` and `crush_ln_table.h`): `2^44 * log2(u + 1)` in fixed point
//! with the upstream tables' errors, which decide who wins. The tables are rebuilt from the formulas they follow and
//! the entries that do not follow them; SHA-256 over all 65,536 values equals that of the C function.

use std::sync::LazyLock;

/// `2^48`, what `crush_ln` tends to: draws are the distance to it.
const TOP: u64 = 1 << 48;

/// Entries of the low table that lack the offset all others have.
const LOW_PLAIN: [u8; 21] = [
    0, 1, 203, 216, 222, 233, 237, 238, 239, 243, 244, 245, 246, 248, 249, 250, 251, 252, 253, 254,
    255,
];
const LOW_OFFSET: u64 = 0x1_4770_0000;
/// Entries of the low table with an offset of their own.
const LOW_OWN: [(u8, u64); 23] = [
    (56, 5_349_423_536),
    (127, 978_272_901),
    (134, 3_588_789_669),
    (181, 4_007_963_589),
    (184, 5_423_282_367),
    (188, 2_201_924_427),
    (193, 3_829_329_171),
    (198, 2_511_158_322),
    (199, 2_670_353_280),
    (200, 3_807_665_765),
    (207, 5_045_407_031),
    (210, 4_635_559_696),
    (212, 3_670_382_108),
    (225, 3_209_098_745),
    (227, 1_514_328_394),
    (228, 2_662_093_655),
    (229, 561_838_844),
    (231, 3_537_203_772),
    (235, 4_861_921_003),
    (236, 5_281_046_906),
    (240, 2_650_193_885),
    (241, 4_203_558_265),
    (247, 362_109_528),
];

/// `atanh(a / b)` in units of 2^-63 for `a / b <= 1/3`, by its series in integers: the same on every machine.
fn atanh(a: u64, b: u64) -> u128 {
    const ONE: u128 = 1 << 63;
    let t = ONE * u128::from(a) / u128::from(b);
    let square = (t * t) >> 63;
    let (mut power, mut sum, mut n) = (t, 0, 1);
    while power > 0 {
        sum += power / n;
        power = (power * square) >> 63;
        n += 2;
    }
    // Every step rounded down; no value of the tables is so close below a whole number that this much matters.
    sum + if a > 0 { 8 } else { 0 }
}

/// `floor(2^48 * log2(1 + a / b))` for `a <= b`.
fn log2_48(a: u64, b: u64) -> u64 {
    ((atanh(a, 2 * b + a) << 48) / atanh(1, 3)) as u64
}

fn build() -> Box<[u64]> {
    let reciprocal: Vec<u64> = (0..=128).map(|k| (1_u64 << 55).div_ceil(128 + k)).collect();
    let mut high: Vec<u64> = (0..128).map(|k| log2_48(k, 128)).collect();
    high.push(0xffff_0000_0000);
    let mut low: Vec<u64> = (0..256).map(|k| log2_48(k, 1 << 15) + LOW_OFFSET).collect();
    for k in LOW_PLAIN {
        low[usize::from(k)] -= LOW_OFFSET;
    }
    for (k, own) in LOW_OWN {
        low[usize::from(k)] = low[usize::from(k)] - LOW_OFFSET + own;
    }
    (0..65_536_u64)
        .map(|u| {
            let mut x = u + 1;
            let mut exponent = 15;
            if x & 0x18000 == 0 {
                let shift = (x as u32).leading_zeros() - 16;
                x <<= shift;
                exponent -= u64::from(shift);
            }
            let k = (x >> 8) as usize - 128;
            let rest = (x.wrapping_mul(reciprocal[k]) >> 48) & 0xff;
            (exponent << 44) + ((high[k] + low[rest as usize]) >> 4)
        })
        .collect()
}

static LN: LazyLock<Box<[u64]>> = LazyLock::new(build);

/// All of `2^48 - crush_ln(u)` as `f32`, for screening candidates.
static DISTANCE: LazyLock<Box<[f32; 65_536]>> = LazyLock::new(|| {
    let mut out = vec![0.0; 65_536].into_boxed_slice();
    for (d, ln) in out.iter_mut().zip(LN.iter()) {
        *d = (TOP - ln) as f32;
    }
    // The length is right by construction; an empty table would be a defect found by every test.
    out.try_into().unwrap_or_else(|_| Box::new([0.0; 65_536]))
});

/// `crush_ln(u)` for the low 16 bits of `u`.
pub fn crush_ln(u: u32) -> u64 {
    LN[(u & 0xffff) as usize]
}

/// How far `crush_ln(u)` is below its limit, exactly. A straw2 draw is minus this divided by the weight, truncated.
#[inline]
pub fn distance(u: u32) -> u64 {
    TOP - crush_ln(u)
}

/// [`distance`] for every `u`, rounded to `f32`.
pub fn distances() -> &'static [f32; 65_536] {
    &DISTANCE
}
