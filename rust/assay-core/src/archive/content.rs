//! What files hold: a function of the fileset's seed, the file's number and the position, so that it can be made again.
//!
//! Content is made in blocks of [`BLOCK`] bytes, each from its own seed: any part of any file can be verified alone.

use super::mix;

/// Bytes made at a time.
pub const BLOCK: usize = 1 << 20;
/// O_DIRECT wants memory and lengths in multiples of the device's sectors; a page suits every device.
pub const ALIGN: usize = 4096;
const LANES: usize = 8;

/// Kinds of content.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Content {
    /// Random bytes, different in every file: neither compressible nor a duplicate.
    Random,
    /// One random block for all files, with 24 unique bytes in every 4 KiB: defeats compression and fixed-block
    /// deduplication, not delta or sub-4-KiB deduplication; nearly free to make.
    Tagged,
    /// Of every 4 KiB this many of 4096 bytes are zero, the others random and unique; of a last part the same share.
    Compressible(u16),
    /// Zeros: useless on anything that compresses.
    Zero,
}

/// Makes content in a buffer of its own, aligned for O_DIRECT.
pub struct Filler {
    content: Content,
    fileset_seed: u64,
    memory: Vec<u8>,
    start: usize,
}

impl Filler {
    /// A filler for one thread.
    pub fn new(content: Content, fileset_seed: u64) -> Self {
        let memory = vec![0u8; BLOCK + ALIGN];
        let start = memory.as_ptr().align_offset(ALIGN);
        let mut filler = Self {
            content,
            fileset_seed,
            memory,
            start,
        };
        if content == Content::Tagged {
            random(mix(fileset_seed), &mut filler.memory[start..start + BLOCK]);
        }
        filler
    }

    /// The whole buffer as the last call left it; beyond the file's end it holds what it happens to hold.
    pub fn buffer(&self) -> &[u8] {
        &self.memory[self.start..self.start + BLOCK]
    }

    /// Makes block `block` (of [`BLOCK`] bytes) of file `file`, its first `length` bytes.
    pub fn block(&mut self, file: u64, block: u64, length: usize) -> &[u8] {
        let length = length.min(BLOCK);
        let seed = file_seed(self.fileset_seed, file);
        let out = &mut self.memory[self.start..self.start + BLOCK];
        match self.content {
            Content::Random => random(
                mix(seed ^ block.rotate_left(32)),
                &mut out[..length.next_multiple_of(64)],
            ),
            Content::Tagged => {
                for (i, page) in out[..length.next_multiple_of(ALIGN)]
                    .chunks_exact_mut(ALIGN)
                    .enumerate()
                {
                    let number = block * (BLOCK / ALIGN) as u64 + i as u64;
                    page[..8].copy_from_slice(&seed.to_le_bytes());
                    page[8..16].copy_from_slice(&mix(seed ^ number).to_le_bytes());
                    page[16..24].copy_from_slice(&self.fileset_seed.to_le_bytes());
                }
            }
            Content::Compressible(zeros) => {
                random(
                    mix(seed ^ block.rotate_left(32)),
                    &mut out[..length.next_multiple_of(64)],
                );
                for page in out[..length].chunks_mut(ALIGN) {
                    let first = page.len() - page.len() * usize::from(zeros) / ALIGN;
                    page[first..].fill(0);
                }
            }
            Content::Zero => {}
        }
        &out[..length]
    }
}

/// The seed of one file's content.
pub fn file_seed(fileset_seed: u64, file: u64) -> u64 {
    mix(mix(fileset_seed) ^ file)
}

/// Fills `out`, a multiple of 64 bytes, by eight interleaved xorshift128+ generators (Vigna 2017; shifts 23, 18, 5).
fn random(seed: u64, out: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2, which is all that this function needs beyond `lanes`.
        return unsafe { lanes_avx2(seed, out) };
    }
    lanes(seed, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn lanes_avx2(seed: u64, out: &mut [u8]) {
    lanes(seed, out);
}

#[inline(always)]
fn lanes(seed: u64, out: &mut [u8]) {
    let mut a: [u64; LANES] = std::array::from_fn(|i| mix(seed.wrapping_add(2 * i as u64)));
    let mut b: [u64; LANES] = std::array::from_fn(|i| mix(seed.wrapping_add(2 * i as u64 + 1)) | 1);
    for chunk in out.chunks_exact_mut(LANES * 8) {
        for i in 0..LANES {
            let mut x = a[i];
            let y = b[i];
            let word = x.wrapping_add(y);
            a[i] = y;
            x ^= x << 23;
            b[i] = x ^ y ^ (x >> 18) ^ (y >> 5);
            chunk[i * 8..i * 8 + 8].copy_from_slice(&word.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_a_function_of_seed_file_and_position() {
        for content in [
            Content::Random,
            Content::Tagged,
            Content::Compressible(1024),
        ] {
            let mut a = Filler::new(content, 7);
            let mut b = Filler::new(content, 7);
            let whole = a.block(3, 2, BLOCK).to_vec();
            b.block(9, 0, BLOCK); // what came before must not matter
                                  // whole pages: a compressible file's last part has the share of zeros too
            assert_eq!(b.block(3, 2, 8192), &whole[..8192]);
            assert_ne!(b.block(4, 2, 8192), &whole[..8192]);
            assert_ne!(b.block(3, 1, 8192), &whole[..8192]);
            assert_ne!(Filler::new(content, 8).block(3, 2, BLOCK), whole);
        }
    }

    #[test]
    fn no_two_pages_of_tagged_files_are_equal() {
        let mut filler = Filler::new(Content::Tagged, 1);
        let mut seen = std::collections::HashSet::new();
        for file in 0..20 {
            for block in 0..3 {
                for page in filler.block(file, block, BLOCK).chunks(ALIGN) {
                    assert!(seen.insert(page[..24].to_vec()));
                }
            }
        }
    }

    #[test]
    fn compressible_content_has_its_share_of_zeros() {
        let mut filler = Filler::new(Content::Compressible(2048), 1);
        let zeros = filler
            .block(0, 0, BLOCK)
            .iter()
            .filter(|&&b| b == 0)
            .count();
        let share = zeros as f64 / BLOCK as f64;
        assert!((share - 0.502).abs() < 0.002, "{share}");
    }

    #[test]
    fn random_bytes_are_uniform() {
        let mut filler = Filler::new(Content::Random, 5);
        let mut counts = [0f64; 256];
        for &byte in filler.block(0, 0, BLOCK) {
            counts[usize::from(byte)] += 1.0;
        }
        let expected = BLOCK as f64 / 256.0;
        let chi2: f64 = counts
            .iter()
            .map(|c| (c - expected).powi(2) / expected)
            .sum();
        assert!((170.0..360.0).contains(&chi2), "{chi2}"); // 255 degrees of freedom, sd 22.6
    }
}
