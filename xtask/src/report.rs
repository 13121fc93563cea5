//! Reports of cases that passed, failed or were left out, and the reasons.

use std::fmt;

use crate::tree::Finding;

/// Counts of cases, with a word on each that did not pass.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
    /// One line for each failure.
    pub(crate) failures: Vec<String>,
    /// One line for each thing that did not run, or ran in part.
    pub(crate) skips: Vec<String>,
}

impl Tally {
    pub(crate) fn pass() -> Self {
        Self { passed: 1, ..Self::default() }
    }

    pub(crate) fn fail(why: impl Into<String>) -> Self {
        Self { failed: 1, failures: vec![why.into()], ..Self::default() }
    }

    pub(crate) fn skip(why: impl Into<String>) -> Self {
        Self { skipped: 1, skips: vec![why.into()], ..Self::default() }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.failures.extend(other.failures);
        self.skips.extend(other.skips);
    }

    /// Reads the plain line that [`Tally`] displays.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut numbers = ["passed", "failed", "skipped"].iter().zip(line.trim().split(", ")).map(
            |(word, part)| {
                let (number, found) = part.split_once(' ')?;
                (found == *word).then(|| number.parse().ok()).flatten()
            },
        );
        let mut next = || numbers.next().flatten();
        let tally = Self { passed: next()?, failed: next()?, skipped: next()?, ..Self::default() };
        (line.trim() == tally.to_string()).then_some(tally)
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// Prints what a check found, and counts it.
pub(crate) fn tell(name: &str, findings: &[Finding]) -> Tally {
    if findings.is_empty() {
        println!("{name}: good");
        return Tally::pass();
    }
    findings.iter().for_each(|finding| println!("{finding}"));
    Tally::fail(format!("{name}: {} findings", findings.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_of_a_tally_is_read_back() {
        let tally = Tally { passed: 12, failed: 1, skipped: 3, ..Tally::default() };
        assert_eq!(tally.to_string(), "12 passed, 1 failed, 3 skipped");
        assert_eq!(Tally::parse(&tally.to_string()), Some(tally));
    }

    #[test]
    fn other_lines_are_no_tally() {
        for line in [
            "",
            "12 passed",
            "1 passed, 2 failed, 3 skipped, 4 more",
            "a passed, b failed, c skipped",
            "1 failed, 1 passed, 1 skipped",
        ] {
            assert_eq!(Tally::parse(line), None, "{line}");
        }
    }

    #[test]
    fn sum_keeps_every_reason() {
        let mut sum = Tally::pass();
        sum.add(Tally::fail("a"));
        sum.add(Tally::skip("b"));
        assert_eq!(sum.to_string(), "1 passed, 1 failed, 1 skipped");
        assert_eq!((sum.failures, sum.skips), (vec!["a".to_owned()], vec!["b".to_owned()]));
    }
}
