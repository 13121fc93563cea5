//! Reads what `cargo test … -- --show-output` prints: counts, failures, and tests that skipped themselves.
//!
//! A test that cannot run here prints a line `SKIPPED: why` and returns; it is counted as skipped, not as
//! passed. One that ran in part prints `SKIPPED in part: why`; it stays passed and the reason is listed.

use std::collections::BTreeSet;

use crate::report::Tally;

const SKIPPED: &str = "SKIPPED: ";
const IN_PART: &str = "SKIPPED in part: ";

/// Eats the output line by line.
#[derive(Debug, Default)]
pub(crate) struct TestOutput {
    tally: Tally,
    /// Tests that libtest marks as ignored.
    ignored: u64,
    section: Section,
    /// The test whose output is being read.
    current: Option<String>,
    skipped_tests: BTreeSet<String>,
    /// Tests that said it past the harness, on standard error, so that their names are not known.
    nameless_skips: u64,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Section {
    #[default]
    Running,
    Successes,
    Failures,
}

impl TestOutput {
    /// Takes one line and says whether a person should see it.
    pub(crate) fn feed(&mut self, line: &str) -> bool {
        if let Some(rest) = line.strip_prefix("test result: ") {
            return self.result(rest);
        }
        if let Some(heading) =
            line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" ----"))
        {
            self.current = heading.strip_suffix(" stdout").map(str::to_owned);
            return self.section == Section::Failures;
        }
        match line {
            "successes:" => self.section = Section::Successes,
            "failures:" => self.section = Section::Failures,
            _ => self.skip(line),
        }
        self.section == Section::Failures || line.starts_with("SKIPPED")
    }

    fn skip(&mut self, line: &str) {
        let name = self.current.clone().unwrap_or_default();
        if let Some(why) = line.trim_start().strip_prefix(SKIPPED) {
            // A failed test is no skipped one, whatever it printed.
            if self.section != Section::Failures && self.skipped_tests.insert(name.clone()) {
                self.tally.skips.push(format!("{name}: {why}"));
            }
        } else if let Some(why) = line.trim_start().strip_prefix(IN_PART) {
            self.tally.skips.push(format!("in part: {why}"));
        }
    }

    /// Takes a line of standard error: some tests say there that they skip, past the harness, which keeps
    /// their standard output to itself.
    pub(crate) fn feed_error(&mut self, line: &str) {
        if let Some(why) = line.strip_prefix(SKIPPED) {
            self.nameless_skips += 1;
            self.tally.skips.push(why.to_owned());
        } else if let Some(why) = line.strip_prefix(IN_PART) {
            self.tally.skips.push(format!("in part: {why}"));
        }
    }

    fn result(&mut self, rest: &str) -> bool {
        let number = |word: &str| -> u64 {
            rest.split(['.', ';'])
                .filter_map(|part| part.trim().strip_suffix(word))
                .find_map(|number| number.trim().parse().ok())
                .unwrap_or(0)
        };
        let (passed, failed, ignored) = (number("passed"), number("failed"), number("ignored"));
        let skipped = (self.skipped_tests.len() as u64).min(passed);
        self.tally.passed += passed - skipped;
        self.tally.skipped += skipped;
        self.tally.failed += failed;
        self.ignored += ignored;
        self.section = Section::Running;
        self.current = None;
        self.skipped_tests.clear();
        passed + failed + ignored > 0
    }

    /// Notes the name of a failed test, as libtest prints it while running.
    pub(crate) fn note_failure(&mut self, line: &str) {
        if let Some(name) =
            line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED"))
        {
            self.tally.failures.push(name.to_owned());
        }
    }

    pub(crate) fn into_tally(mut self) -> Tally {
        let nameless = self.nameless_skips.min(self.tally.passed);
        self.tally.passed -= nameless;
        self.tally.skipped += nameless + self.ignored;
        if self.ignored > 0 {
            let why = "marked as ignored; a test says itself why it cannot run";
            self.tally.skips.push(format!("{} tests: {why}", self.ignored));
        }
        self.tally
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (TestOutput, Vec<&str>) {
        let mut output = TestOutput::default();
        let mut shown = Vec::new();
        for line in text.lines() {
            output.note_failure(line);
            if output.feed(line) {
                shown.push(line);
            }
        }
        (output, shown)
    }

    const GOOD: &str = "\nrunning 3 tests\ntest a ... ok\ntest b ... ok\ntest c ... ok\n\
        \nsuccesses:\n\n---- a stdout ----\nchatter\n\n---- b stdout ----\nSKIPPED: no network namespaces\n\
        SKIPPED: no network namespaces\n\n---- c stdout ----\nSKIPPED in part: no avx512\n\nsuccesses:\n    a\n    b\n    c\n\n\
        test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n";

    #[test]
    fn test_that_nobody_runs_is_not_forgotten() {
        let (output, _) = read(
            "test result: ok. 3 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.00s\n",
        );
        let tally = output.into_tally();
        assert_eq!(tally.to_string(), "3 passed, 0 failed, 2 skipped");
        assert!(tally.skips[0].starts_with("2 tests: marked as ignored"));
    }

    #[test]
    fn test_that_says_skipped_is_not_counted_as_passed() {
        let (output, shown) = read(GOOD);
        let tally = output.into_tally();
        assert_eq!(tally.to_string(), "2 passed, 0 failed, 1 skipped");
        assert_eq!(tally.skips, ["b: no network namespaces", "in part: no avx512"]);
        assert!(shown.contains(&"SKIPPED: no network namespaces"));
        assert!(!shown.contains(&"chatter"));
    }

    #[test]
    fn failures_are_counted_named_and_shown() {
        let (output, shown) = read(
            "running 2 tests\ntest a ... ok\ntest b ... FAILED\n\nfailures:\n\n---- b stdout ----\n\
             SKIPPED: then died\nthread panicked\n\nfailures:\n    b\n\n\
             test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s\n",
        );
        assert!(shown.contains(&"thread panicked"));
        let tally = output.into_tally();
        assert_eq!(tally.to_string(), "1 passed, 1 failed, 0 skipped");
        assert_eq!(tally.failures, ["b"]);
    }

    #[test]
    fn results_of_several_programs_add_up() {
        let twice = format!("{GOOD}{GOOD}");
        assert_eq!(read(&twice).0.into_tally().to_string(), "4 passed, 0 failed, 2 skipped");
    }

    #[test]
    fn skip_past_the_harness_is_counted_too() {
        let (mut output, _) = read(GOOD);
        output.feed_error("   Compiling convoy");
        output.feed_error("SKIPPED: no namespaces");
        let tally = output.into_tally();
        assert_eq!(tally.to_string(), "1 passed, 0 failed, 2 skipped");
        assert_eq!(tally.skips.last().map(String::as_str), Some("no namespaces"));
    }

    #[test]
    fn empty_program_is_not_shown() {
        let (_, shown) = read(
            "running 0 tests\n\ntest result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n",
        );
        assert_eq!(shown, Vec::<&str>::new());
    }
}
