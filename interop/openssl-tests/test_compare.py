"""Tests of what compare.py reads and judges; run.sh runs them first."""

import contextlib
import io
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import compare
import configuration
import tap

OUTPUT = """\
1..2
    # Subtest: ../../b/test/aes_test
    1..3
    ok 1 - test_good
        # Subtest: test_many
        1..2
        ok 1 - iteration 1
        not ok 2 - iteration 2
    not ok 2 - test_many
    ok 3 - test_other # skipped: not today
../../b/util/wrap.pl ../../b/test/aes_test => 1
not ok 1 - running aes_test
    ok 1 - test_before_it_died
not ok 2 - running ../../b/test/dying_test
"""


def refusal(text="* | test_aes | test_many | AES-128-GCM | it is refused"):
    return compare.Refusal(text)


def judged(plain, preferred, refusals=()):
    """The counts, and what was printed."""
    report, printed = compare.harness.Report(), io.StringIO()
    runs = compare.Run(plain), compare.Run(preferred)
    with contextlib.redirect_stdout(printed):
        compare.judge(report, "3.0.20-1", {"test_aes": runs}, refusals, {"AES-128-GCM"})
    return (report.passed, report.failed, report.skipped), printed.getvalue()


class Reading(unittest.TestCase):
    def test_innermost_cases_have_their_names_and_outcomes(self):
        self.assertEqual(tap.cases(OUTPUT), {
            ("running aes_test", "test_good"): tap.PASSED,
            ("running aes_test", "test_many", "iteration 1"): tap.PASSED,
            ("running aes_test", "test_many", "iteration 2"): tap.FAILED,
            ("running aes_test", "test_other"): tap.SKIPPED,
            ("running dying_test", "test_before_it_died"): tap.PASSED,
            ("running dying_test",): tap.FAILED,
        })

    def test_cases_of_one_name_stay_apart(self):
        self.assertEqual(list(tap.cases("ok\nok 1 - same\nnot ok 2 - same\n")), [("same",), ("same (2)",)])

    def test_output_of_newer_releases_is_read_alike(self):
        newer = "".join(f"# {line}\n" if line.startswith("    ") else f"{line}\n" for line in OUTPUT.splitlines())
        self.assertEqual(tap.cases(newer), tap.cases(OUTPUT))

    def test_vectors_that_fail_are_told_by_line(self):
        output = "    not ok 1 - iteration 1\nnot ok 1 - running x/aes.txt\n    not ok 1 - one\nnot ok 2 - running des.txt\n"
        errors = "# ../x/aes.txt:86: Source of above error (in-place)\n# ../x/aes.txt:99: Source of above error\n"
        self.assertEqual(tap.cases(output, errors), {
            ("running aes.txt", "iteration 1", "aes.txt:86"): tap.FAILED,
            ("running aes.txt", "iteration 1", "aes.txt:99"): tap.FAILED,
            ("running des.txt", "one"): tap.FAILED,
        })

    def test_expected_failure_is_none(self):
        self.assertEqual(tap.cases("not ok 1 - a # todo some day\n"), {("a",): tap.SKIPPED})


class Judging(unittest.TestCase):
    good, bad = {("r", "test_many"): tap.PASSED}, {("r", "test_many"): tap.FAILED}

    def test_failure_with_convoy_alone_fails(self):
        self.assertEqual(judged(self.good, self.bad)[0], (0, 1, 0))
        self.assertEqual(judged(self.good, self.good)[0], (1, 0, 0))

    def test_failure_without_convoy_is_not_convoys(self):
        self.assertEqual(judged(self.bad, self.bad)[0], (0, 0, 0))

    def test_case_that_is_gone_or_new_and_failed_fails(self):
        self.assertEqual(judged(self.good, {})[0], (0, 1, 0))
        self.assertEqual(judged({}, {("r",): tap.FAILED})[0], (0, 1, 0))

    def test_listed_failure_is_told_with_its_reason(self):
        counts, printed = judged(self.good, self.bad, [refusal()])
        self.assertEqual(counts, (0, 0, 1))
        self.assertIn("it is refused", printed)

    def test_vector_that_fails_stands_for_its_file(self):
        preferred = {("r", "test_many", "aes.txt:86"): tap.FAILED}
        self.assertEqual(judged(self.good, preferred)[0], (0, 1, 0))
        self.assertEqual(judged(self.good, preferred, [refusal("* | test_aes | aes.txt:86 | - | x")])[0], (0, 0, 1))

    def test_list_that_is_not_true_any_more_fails(self):
        counts, printed = judged(self.good, self.good, [refusal()])
        self.assertEqual(counts, (1, 1, 0))
        self.assertIn("take it off the list", printed)

    def test_list_holds_for_its_recipe_version_case_and_cipher_alone(self):
        for other in ("* | test_des | test_many | - | x", "4.* | test_aes | test_many | - | x",
                      "* | test_aes | test_many | AES-512 | x"):
            self.assertEqual(judged(self.good, self.bad, [refusal(other)])[0], (0, 1, 0), other)
        self.assertEqual(judged(self.good, self.bad, [refusal("* | test_aes | test_few | - | x")])[0], (0, 2, 0))

    def test_dead_program_is_one_failure_with_its_count(self):
        many = {("r", f"test_{number}"): tap.PASSED for number in range(50)}
        counts, printed = judged(many, {("r",): tap.FAILED})
        self.assertEqual(counts, (0, 51, 0))
        self.assertIn("50 cases", printed)
        self.assertLess(printed.count("\n"), 10)


class Configuring(unittest.TestCase):
    start = "openssl_conf = openssl_init\n[openssl_init]\n"

    def test_files_with_the_default_provider_are_found(self):
        default = self.start + "providers = provider_sect\n[provider_sect]\ndefault = default_sect\n[default_sect]\nactivate = {}\n"
        none = default.replace("activate = {}", "# activate = 1")
        for text in (self.start, none, default.format(1), default.format("true")):
            self.assertTrue(configuration.activates_default(text), text)
        other = default.replace("activate = {}", "[null_sect]\nactivate = 1")
        for text in ("", self.start + "providers = p\n[p]\nnull = n\n[n]\nactivate = 1\n", other):
            self.assertFalse(configuration.activates_default(text), text)

    def test_provider_is_added_once_and_own_properties_stay_alone(self):
        text = configuration.preferring_convoy(self.start, "/p.so")
        self.assertIn("default_properties = ?provider=convoy\n", text)
        self.assertIn("module = /p.so\n", text)
        self.assertIn("providers = provider_sect\n", text)
        self.assertEqual(configuration.preferring_convoy(text, "/p.so").count("providers = provider_sect"), 1)
        self.assertFalse(configuration.activates_default(text))


if __name__ == "__main__":
    unittest.main()
