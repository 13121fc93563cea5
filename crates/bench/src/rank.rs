//! Test of whether two lists of samples come from one distribution, whatever that is.

/// The probability that two lists of one distribution differ in their ranks as much as these do: the test of Mann and
/// Whitney, both sides, by the normal approximation with corrections for ties and for continuity. 1 for an
/// empty list.
#[must_use]
pub fn mann_whitney(one: &[f64], other: &[f64]) -> f64 {
    let (n, m) = (one.len() as f64, other.len() as f64);
    let all = n + m;
    let (ranks, ties) = ranks(one, other);
    let u = ranks - n * (n + 1.0) / 2.0;
    let variance = n * m / 12.0 * (all + 1.0 - ties / (all * (all - 1.0)));
    // Nothing varies, or nothing is there.
    if variance.is_nan() || variance <= 0.0 {
        return 1.0;
    }
    let away = ((u - n * m / 2.0).abs() - 0.5).max(0.0) / variance.sqrt();
    erfc(away / std::f64::consts::SQRT_2)
}

/// Sum of the ranks of `one` among both, equal samples having the mean of their ranks; and what ties take from the
/// variance: for each group of t equal samples t³ − t.
fn ranks(one: &[f64], other: &[f64]) -> (f64, f64) {
    let marked = one.iter().map(|value| (*value, true));
    let mut all: Vec<_> = marked.chain(other.iter().map(|value| (*value, false))).collect();
    all.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let (mut sum, mut ties, mut before) = (0.0, 0.0, 0.0);
    for group in all.chunk_by(|(a, _), (b, _)| a == b) {
        let count = group.len() as f64;
        let of_one = group.iter().filter(|(_, is_one)| *is_one).count() as f64;
        sum += of_one * (before + (count + 1.0) / 2.0);
        ties += count * count * count - count;
        before += count;
    }
    (sum, ties)
}

/// Probabilities of many tests, each made so much larger that among all of them there is one below α by chance with
/// a probability of α at most: Holm's correction. They come out in their places.
#[must_use]
pub fn holm(probabilities: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..probabilities.len()).collect();
    order.sort_by(|a, b| probabilities[*a].total_cmp(&probabilities[*b]));
    let (mut corrected, mut least) = (vec![1.0; probabilities.len()], 0.0_f64);
    for (before, place) in order.into_iter().enumerate() {
        let left = (probabilities.len() - before) as f64;
        least = least.max((left * probabilities[place]).min(1.0));
        corrected[place] = least;
    }
    corrected
}

/// The complementary error function of `x`, which is not negative, within 1.2 × 10⁻⁷ of its size: a Chebyshev
/// approximation (Press et al., Numerical Recipes in C, second edition, section 6.2).
fn erfc(x: f64) -> f64 {
    /// Coefficients from the highest power of t down.
    const OF_T: [f64; 10] = [
        0.170_872_77,
        -0.822_152_23,
        1.488_515_87,
        -1.135_203_98,
        0.278_868_07,
        -0.186_288_06,
        0.096_784_18,
        0.374_091_96,
        1.000_023_68,
        -1.265_512_23,
    ];
    let t = 1.0 / (1.0 + 0.5 * x);
    let sum = OF_T.iter().fold(0.0, |sum, coefficient| sum * t + coefficient);
    t * (sum - x * x).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_of_the_normal_distribution_are_right() {
        for (x, right) in [
            (0.0, 1.0),
            (0.5, 0.479_500_122_186_953_5),
            (1.0, 0.157_299_207_050_285_13),
            (2.0, 0.004_677_734_981_047_266),
            (4.0, 1.541_725_790_028_002e-8),
            (6.0, 2.151_973_671_249_891_3e-17),
        ] {
            assert!((erfc(x) / right - 1.0).abs() < 2e-7, "{x}: {}", erfc(x));
        }
    }

    /// Values of scipy.stats.mannwhitneyu(..., method="asymptotic").
    #[test]
    fn probabilities_are_those_of_a_second_implementation() {
        let near = |p: f64, right: f64| assert!((p - right).abs() < 1e-6, "{p}, not {right}");
        let one = [1.1, 2.2, 3.3, 4.4, 5.5, 6.6];
        near(mann_whitney(&one, &[2.0, 3.0, 7.0, 8.0, 9.0]), RIGHT[0]);
        near(mann_whitney(&one, &[10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0]), RIGHT[1]);
        let (tied, other) = ([1.0, 1.0, 2.0, 2.0, 2.0, 3.0], [2.0, 2.0, 3.0, 3.0, 4.0]);
        near(mann_whitney(&tied, &other), RIGHT[2]);
        assert_eq!(mann_whitney(&other, &tied), mann_whitney(&tied, &other));
        for (one, other) in [(&[1.0][..], &[][..]), (&[], &[]), (&[1.0, 1.0], &[1.0])] {
            assert_eq!(mann_whitney(one, other), 1.0);
        }
    }

    const RIGHT: [f64; 3] = [0.315_302_452_081_745, 0.003_405_235_821_294, 0.099_278_612_116_260];

    #[test]
    fn many_tests_are_corrected_step_by_step() {
        assert!(holm(&[]).is_empty());
        assert_eq!(holm(&[0.03, 0.01, 0.04]), [0.06, 0.03, 0.06]);
        assert_eq!(holm(&[0.5, 0.9, 0.001, 0.9]), [1.0, 1.0, 0.004, 1.0]);
    }
}
