//! Latency histograms as fio's json+ gives them: pairs of a bin's value in nanoseconds and its count.
//!
//! A histogram is two slices of equal length. In canonical form the values ascend strictly and no count is zero;
//! [`merge`] returns this form whatever the form of its inputs.

use std::fmt;

/// Why a histogram cannot be computed with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Error {
    /// There are not as many counts as values.
    Lengths { values: usize, counts: usize },
    /// The value at this index is not above its predecessor.
    NotAscending { index: usize },
    /// Counts do not fit into 64 bits together.
    Overflow,
    /// There is no sample to take a percentile or mean of.
    Empty,
    /// A percentile outside (0, 100], or not a number.
    Percentile(f64),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lengths { values, counts } => {
                write!(f, "{values} values but {counts} counts in a histogram")
            }
            Self::NotAscending { index } => {
                write!(
                    f,
                    "the value at index {index} is not above the one before it"
                )
            }
            Self::Overflow => write!(f, "the counts of the histograms exceed 64 bits"),
            Self::Empty => write!(f, "the histogram holds no samples"),
            Self::Percentile(q) => write!(f, "a percentile lies above 0 and up to 100, not at {q}"),
        }
    }
}

impl std::error::Error for Error {}

/// A borrowed histogram: values in nanoseconds and their counts.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    values: &'a [u64],
    counts: &'a [u64],
}

impl<'a> View<'a> {
    /// A view of two slices of equal length.
    pub fn new(values: &'a [u64], counts: &'a [u64]) -> Result<Self, Error> {
        if values.len() != counts.len() {
            return Err(Error::Lengths {
                values: values.len(),
                counts: counts.len(),
            });
        }
        Ok(Self { values, counts })
    }

    fn pairs(self) -> impl Iterator<Item = (u64, u64)> + 'a {
        self.values.iter().copied().zip(self.counts.iter().copied())
    }

    /// Number of samples.
    pub fn total(self) -> Result<u64, Error> {
        total(self.counts)
    }

    /// The percentiles `qs` (each in (0, 100], any order) by fio's rule, in nanoseconds, in the order of `qs`.
    ///
    /// The rule is that of `calc_clat_percentiles` in fio's `stat.c`: the value of the first bin at which the running
    /// count reaches `q / 100 * total`. fio computes the right side in `long double`, whose width depends on the
    /// machine; here it is exact (see [`Threshold`]), so the answer is the same everywhere.
    pub fn percentiles(self, qs: &[f64]) -> Result<Vec<u64>, Error> {
        if let Some(&bad) = qs.iter().find(|&&q| !(q > 0.0 && q <= 100.0)) {
            return Err(Error::Percentile(bad));
        }
        if let Some(i) = self.values.windows(2).position(|w| w[0] >= w[1]) {
            return Err(Error::NotAscending { index: i + 1 });
        }
        let total = self.total()?;
        if total == 0 {
            return Err(Error::Empty);
        }
        let mut order: Vec<usize> = (0..qs.len()).collect();
        order.sort_by(|&a, &b| qs[a].total_cmp(&qs[b]));

        let mut out = vec![0; qs.len()];
        let mut running = 0;
        let mut next = order.into_iter().peekable();
        for (value, count) in self.pairs() {
            running += count; // cannot overflow: total() did not
            while let Some(&i) = next.peek() {
                if !Threshold::of(qs[i]).reached(running, total) {
                    break;
                }
                out[i] = value;
                next.next();
            }
        }
        Ok(out)
    }

    /// The mean of the bins' values weighted by their counts, in nanoseconds.
    ///
    /// It carries the histogram's rounding (fio's bins are up to 1/64 wide); a tool's exact mean is better if known.
    pub fn mean(self) -> Result<f64, Error> {
        let total = self.total()?;
        if total == 0 {
            return Err(Error::Empty);
        }
        let mut sum: u128 = 0;
        for (value, count) in self.pairs() {
            // At most 2^64 samples (total() did not overflow) below 2^64: the sum stays below 2^128.
            sum += u128::from(value) * u128::from(count);
        }
        Ok(sum as f64 / total as f64)
    }
}

/// `q / 100` kept exact: `q` is `mantissa / 2^shift` as every double is.
#[derive(Clone, Copy)]
struct Threshold {
    mantissa: u128,
    shift: u32,
}

impl Threshold {
    /// From a percentile in (0, 100].
    fn of(q: f64) -> Self {
        let bits = q.to_bits();
        let exponent = (bits >> 52) as u32 & 0x7ff;
        let fraction = u128::from(bits & ((1 << 52) - 1));
        if exponent == 0 {
            Self {
                mantissa: fraction,
                shift: 1074,
            }
        } else {
            // exponent <= 1029 since q <= 100, so the shift is at least 46.
            Self {
                mantissa: fraction | 1 << 52,
                shift: 1075 - exponent,
            }
        }
    }

    /// Whether `running >= q / 100 * total`, that is `running * 100 * 2^shift >= mantissa * total`.
    fn reached(self, running: u64, total: u64) -> bool {
        let right = self.mantissa * u128::from(total); // below 2^53 * 2^64
        let left = u128::from(running) * 100; // below 2^71
                                              // Compare without the shift that could overflow: left >= right / 2^shift, rounded up.
        let ceiling = match right.checked_shr(self.shift) {
            Some(whole) if whole << self.shift == right => whole,
            Some(whole) => whole + 1,
            None => u128::from(right > 0),
        };
        left >= ceiling
    }
}

/// Number of samples, or [`Error::Overflow`].
pub fn total(counts: &[u64]) -> Result<u64, Error> {
    counts
        .iter()
        .try_fold(0_u64, |sum, &count| sum.checked_add(count))
        .ok_or(Error::Overflow)
}

/// All histograms as one, in canonical form: values ascend strictly, equal values are added up, empty bins are dropped.
pub fn merge(histograms: &[View<'_>]) -> Result<(Vec<u64>, Vec<u64>), Error> {
    let length = histograms.iter().map(|h| h.values.len()).sum();
    let mut pairs: Vec<(u64, u64)> = Vec::with_capacity(length);
    let mut samples: u64 = 0;
    for histogram in histograms {
        samples = samples
            .checked_add(histogram.total()?)
            .ok_or(Error::Overflow)?;
        pairs.extend(histogram.pairs().filter(|&(_, count)| count > 0));
    }
    // The stable sort finds the ascending runs that the inputs are, which makes this an n log k merge.
    pairs.sort_by_key(|&(value, _)| value);

    let mut values: Vec<u64> = Vec::new();
    let mut counts: Vec<u64> = Vec::new();
    for (value, count) in pairs {
        match (values.last(), counts.last_mut()) {
            (Some(&last), Some(sum)) if last == value => *sum += count, // bounded by `samples`
            _ => {
                values.push(value);
                counts.push(count);
            }
        }
    }
    Ok((values, counts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn view<'a>(values: &'a [u64], counts: &'a [u64]) -> View<'a> {
        View::new(values, counts).unwrap()
    }

    /// A small deterministic generator, so that the tests need no further crate.
    fn random(state: &mut u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state
    }

    #[test]
    fn merge_of_nothing_is_empty() {
        assert_eq!(merge(&[]).unwrap(), (vec![], vec![]));
        assert_eq!(merge(&[view(&[], &[])]).unwrap(), (vec![], vec![]));
    }

    #[test]
    fn merge_is_canonical() {
        let merged = merge(&[view(&[30, 10, 10], &[1, 2, 3]), view(&[20, 30], &[0, 7])]).unwrap();
        assert_eq!(merged, (vec![10, 30], vec![5, 8]));
    }

    #[test]
    fn merge_equals_a_tree_map() {
        let mut state = 42;
        for _ in 0..200 {
            let mut expected: BTreeMap<u64, u64> = BTreeMap::new();
            let mut inputs = Vec::new();
            for _ in 0..random(&mut state) % 6 {
                let n = random(&mut state) % 20;
                let values: Vec<u64> = (0..n).map(|_| random(&mut state) % 50).collect();
                let counts: Vec<u64> = (0..n).map(|_| random(&mut state) % 4).collect();
                for (&v, &c) in values.iter().zip(&counts) {
                    *expected.entry(v).or_default() += c;
                }
                inputs.push((values, counts));
            }
            expected.retain(|_, c| *c > 0);
            let views: Vec<_> = inputs.iter().map(|(v, c)| view(v, c)).collect();
            let merged = merge(&views).unwrap();
            assert_eq!(merged, expected.into_iter().unzip());
        }
    }

    #[test]
    fn overflow_is_an_error() {
        assert_eq!(
            merge(&[view(&[1], &[u64::MAX]), view(&[2], &[1])]),
            Err(Error::Overflow)
        );
        assert_eq!(view(&[1, 2], &[u64::MAX, 1]).mean(), Err(Error::Overflow));
        assert_eq!(
            view(&[1, 2], &[u64::MAX, 1]).percentiles(&[50.0]),
            Err(Error::Overflow)
        );
    }

    #[test]
    fn bad_input_is_an_error() {
        assert_eq!(
            View::new(&[1], &[]).map(|_| ()),
            Err(Error::Lengths {
                values: 1,
                counts: 0
            })
        );
        assert_eq!(
            view(&[2, 2], &[1, 1]).percentiles(&[50.0]),
            Err(Error::NotAscending { index: 1 })
        );
        assert_eq!(view(&[], &[]).percentiles(&[50.0]), Err(Error::Empty));
        assert_eq!(view(&[5], &[0]).mean(), Err(Error::Empty));
        for q in [0.0, -1.0, 100.1, f64::NAN, f64::INFINITY] {
            assert!(matches!(
                view(&[1], &[1]).percentiles(&[q]),
                Err(Error::Percentile(_))
            ));
        }
    }

    #[test]
    fn percentiles_take_the_first_bin_that_reaches_the_share() {
        let values: Vec<u64> = (1..=100).collect();
        let counts = vec![1; 100];
        let h = view(&values, &counts);
        assert_eq!(
            h.percentiles(&[99.0, 50.0, 1.0, 100.0, 1e-300, 50.1])
                .unwrap(),
            [99, 50, 1, 100, 1, 51]
        );
        // 99.9 as a double is a little above 99.9: the 999th of 1000 samples does not reach it, as in fio.
        let values: Vec<u64> = (1..=1000).collect();
        let counts = vec![1; 1000];
        assert_eq!(view(&values, &counts).percentiles(&[99.9]).unwrap(), [1000]);
    }

    #[test]
    fn percentiles_of_huge_counts_do_not_overflow() {
        let h = ([1, 2], [u64::MAX / 2, u64::MAX / 2 + 1]);
        let h = view(&h.0, &h.1);
        assert_eq!(h.percentiles(&[50.0, 99.99, 5e-324]).unwrap(), [2, 2, 1]);
        assert_eq!(h.mean().unwrap(), 1.5);
    }

    #[test]
    fn mean_of_the_largest_values() {
        assert_eq!(
            view(&[u64::MAX], &[u64::MAX]).mean().unwrap(),
            u64::MAX as f64
        );
    }
}
