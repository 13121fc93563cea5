#!/usr/bin/env python3
"""Runs OpenSSL's own tests with Convoy's provider preferred and without it, and compares.

  compare.py --provider LIBRARY --source FOLDER --build FOLDER --version VERSION [RECIPE...]

Fails where a case fails with Convoy that passes without, unless refusals.txt lists it; and where a case that is listed
passes. RECIPE is a name such as test_evp_extra, or a pattern; without one, those of recipes.txt run."""

import argparse
import concurrent.futures
import fnmatch
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.path.insert(0, str(HERE))

import configuration
import harness
import tap

# What a recipe may take. A test that hangs is a failure.
SECONDS = 3600
ITSELF = ("the recipe itself",)
# What the outcome of a case is that the other run does not have.
GONE = "gone"


class Refusal:
    """A line of refusals.txt: cases that fail by design."""

    def __init__(self, line):
        parts = [part.strip() for part in line.split("|")]
        if len(parts) != 5 or not all(parts):
            sys.exit(f"refusals.txt: {line!r}: a line is VERSIONS | RECIPE | CASE | CIPHER | REASON")
        self.versions, self.recipe, self.case, self.cipher, self.reason = parts

    def concerns(self, version, recipe, ciphers):
        is_offered = self.cipher == "-" or self.cipher in ciphers
        return recipe == self.recipe and is_offered and any(fnmatch.fnmatch(version, one) for one in self.versions.split())

    def names(self, path):
        return any(fnmatch.fnmatch(name, self.case) for name in path)

    def __str__(self):
        return f"{self.recipe}: {self.case}"


def lines_of(name):
    for line in (HERE / name).read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            yield line.strip()


class Run:
    """What a recipe came to: its cases, and how many keys Convoy's provider had."""

    def __init__(self, cases, keys=0):
        self.cases, self.keys = cases, keys

    def count(self, outcome):
        return sum(1 for value in self.cases.values() if value == outcome)


class Tests:
    """OpenSSL's tests, with a build and one of its sources."""

    def __init__(self, source, build, folder):
        self.source, self.build, self.folder = pathlib.Path(source), build, folder
        folder.mkdir()

    def recipes(self):
        """The files of recipes, by their names."""
        paths = (self.source / "test/recipes").glob("*.t")
        return {path.stem.split("-", 1)[1]: path for path in sorted(paths)}

    def with_ciphers_of_their_own(self):
        """Those whose connections go through a proxy that reads records: they replace ciphers by a test's own."""
        return [name for name, path in self.recipes().items() if "use TLSProxy::Proxy;" in path.read_text()]

    def environment(self, recipe):
        # Less what would lead OpenSSL elsewhere than its tests do; what those set is as in test/run_tests.pl.
        dropped = ("OPENSSL_", "SSL_CERT_", "CONVOY_P", "HARNESS_", "MALLOC_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        counts, results = self.folder / f"{recipe}.counts", self.folder / "results"
        return {
            **kept,
            "SRCTOP": f"{self.source}", "BLDTOP": f"{self.build}", "RESULT_D": f"{results}", "PERL": "perl", "LC_ALL": "C",
            "OPENSSL_CONF": f"{self.source}/{configuration.PROGRAM}", "OPENSSL_CONF_INCLUDE": f"{self.build}/test",
            "OPENSSL_MODULES": f"{self.build}/providers", "OPENSSL_ENGINES": f"{self.build}/engines",
            "CTLOG_FILE": f"{self.source}/test/ct/log_list.cnf", "MALLOC_PERTURB_": "128",
            "HARNESS_VERBOSE": "yes", "CONVOY_PROVIDER_STATS": f"{counts}",
        }

    def run(self, recipe):
        command = ["nice", "perl", "-w", "-I", f"{self.source}/util/perl", str(self.recipes()[recipe])]
        logs = [self.folder / f"{recipe}.{kind}" for kind in ("out", "err")]
        with logs[0].open("wb") as output, logs[1].open("wb") as errors:
            # Apart from each other, for together they break lines.
            process = subprocess.Popen(command, env=self.environment(recipe), cwd=self.folder, stdin=subprocess.DEVNULL,
                                       stdout=output, stderr=errors, start_new_session=True)
            try:
                status = process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                status = process.wait()
        # Both runs have a folder of the source of their own, which some names of cases hold.
        texts = [log.read_text(errors="replace").replace(self.source.name, "source") for log in logs]
        cases = tap.cases(*texts)
        if status and tap.FAILED not in cases.values():
            cases[ITSELF] = tap.FAILED
        return Run(cases, keys_in(self.folder / f"{recipe}.counts"))


def keys_in(path):
    """The third counter of each row (docs/tls.md): a file of the provider's begins with a row of its own."""
    data = path.read_bytes() if path.exists() else b""
    rows = range(128, len(data) - 127, 128)
    return sum(struct.unpack_from("<Q", data, row + 16)[0] for row in rows)


def ciphers_of(build, source, provider):
    """What the provider offers on this machine, as the program `openssl` lists it with the configuration that was made."""
    more = {"OPENSSL_CONF": f"{source}/{configuration.PROGRAM}", "LD_LIBRARY_PATH": str(build)}
    command = [f"{build}/apps/openssl", "list", "-cipher-algorithms"]
    output = subprocess.run(command, env={**os.environ, **more}, capture_output=True, text=True)
    names = set()
    for line in output.stdout.splitlines():
        if line.endswith("@ convoy"):
            names.update(name.strip(" {},") for name in line.removesuffix("@ convoy").split())
    if not names:
        sys.exit(f"OpenSSL does not load {provider}: {output.stderr.strip() or 'it offers no cipher'}")
    return names


def run_both(without, with_convoy, recipes):
    """Both runs of all recipes, as many recipes at a time as there are processors."""
    outcomes = {}

    def both(recipe):
        return recipe, without.run(recipe), with_convoy[is_for_contexts(recipe)].run(recipe)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for done, work in enumerate(concurrent.futures.as_completed([pool.submit(both, recipe) for recipe in recipes]), 1):
            recipe, plain, preferred = work.result()
            outcomes[recipe] = plain, preferred
            print(f"[{done}/{len(recipes)}] {row(recipe, plain, preferred)}", flush=True)
    return dict(sorted(outcomes.items()))


def row(recipe, plain, preferred):
    told = [f"{run.count(tap.PASSED):>7} {run.count(tap.FAILED):>6}" for run in (plain, preferred)]
    return f"{recipe:<32}{told[0]}  {told[1]}  {preferred.keys:>8}"


def judge(report, version, outcomes, refusals, ciphers):
    """Counts every case that passes without Convoy: passed, or failed if it fails with Convoy and is not listed."""
    for recipe, (plain, preferred) in outcomes.items():
        listed = [refusal for refusal in refusals if refusal.concerns(version, recipe, ciphers)]
        wrong = {}
        # A case that passes has no parts where vectors that fail are its parts: these are told instead.
        inner = {path[:-1] for path, outcome in preferred.cases.items() if outcome == tap.FAILED}
        for path, outcome in plain.cases.items():
            now = preferred.cases.get(path, GONE)
            if outcome == tap.PASSED and now != tap.PASSED and not (now == GONE and path in inner):
                wrong[path] = now
        # What fails and is not there without Convoy: a program that died, or a single vector.
        wrong.update({path: outcome for path, outcome in preferred.cases.items()
                      if outcome == tap.FAILED and path not in plain.cases})
        report.passed += sum(1 for path, outcome in plain.cases.items()
                             if outcome == tap.PASSED and preferred.cases.get(path) == tap.PASSED)
        for refusal in listed:
            told = {path for path in wrong if refusal.names(path)}
            if told:
                report.skip(f"{version}: {refusal}", refusal.reason)
            else:
                report.check(str(refusal), ["refusals.txt lists it, and nothing of that name fails: take it off the list"])
        tell(report, recipe, {path: outcome for path, outcome in wrong.items()
                              if not any(refusal.names(path) for refusal in listed)})


def tell(report, recipe, wrong):
    """Fails each; those that are gone from one program are told together."""
    gone = {}
    for path, outcome in wrong.items():
        if outcome == GONE:
            gone.setdefault(path[0], []).append(path)
        else:
            report.check(f"{recipe}: {' / '.join(path)}", [f"with Convoy it is {outcome}"])
    for program, paths in gone.items():
        report.check(f"{recipe}: {program}: {len(paths)} cases, the first {' / '.join(paths[0])}", ["with Convoy they do not run"])
        report.failed += len(paths) - 1


def table(version, outcomes):
    print(f"\nOpenSSL {version}              without Convoy   with Convoy")
    print(f"{'':<32}{'passed':>7} {'failed':>6}  {'passed':>7} {'failed':>6}  {'its keys':>8}")
    for recipe, (plain, preferred) in outcomes.items():
        print(row(recipe, plain, preferred))
    sums = [Run({}), Run({}, sum(preferred.keys for _, preferred in outcomes.values()))]
    for recipe, runs in outcomes.items():
        for total, run in zip(sums, runs):
            total.cases.update({(recipe,) + path: outcome for path, outcome in run.cases.items()})
    print(row("in all", *sums))
    for recipe, (plain, _) in outcomes.items():
        for path, outcome in plain.cases.items():
            if outcome == tap.FAILED:
                print(f"fails without Convoy, too, or only so: {recipe}: {' / '.join(path)}")


def is_for_contexts(recipe):
    """Whether the recipe demands that the program's own configuration loads no provider (recipes.txt)."""
    return f"{recipe} contexts" in lines_of("recipes.txt")


def chosen(tests, asked):
    patterns = asked or [line.split()[0] for line in lines_of("recipes.txt")]
    left_out = () if asked else tests.with_ciphers_of_their_own()
    names = [name for name in tests.recipes()
             if name not in left_out and any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]
    if not names:
        sys.exit(f"no recipe is named {' or '.join(patterns)}")
    return names


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--provider", "--source", "--build", "--version"):
        parser.add_argument(name, required=True)
    parser.add_argument("--logs", required=True, help="where what each recipe printed goes")
    parser.add_argument("recipes", nargs="*")
    asked = parser.parse_args()
    refusals = [Refusal(line) for line in lines_of("refusals.txt")]
    report = harness.Report()
    provider, logs = os.path.abspath(asked.provider), pathlib.Path(asked.logs)
    # Beside the source, for the copies of that are made of hard links.
    with tempfile.TemporaryDirectory(dir=pathlib.Path(asked.source).parent, prefix="copies") as folder:
        both, contexts = pathlib.Path(folder, "preferring"), pathlib.Path(folder, "contexts")
        for copy in (both, contexts):
            copy.mkdir()
            changed = configuration.copy(asked.source, copy, provider, with_program=copy is both)
            print(f"OpenSSL {asked.version}, {copy.name}: Convoy is preferred in {', '.join(changed)}")
        ciphers = ciphers_of(asked.build, both, provider)
        without = Tests(asked.source, asked.build, logs / "without")
        with_convoy = [Tests(copy, asked.build, logs / copy.name) for copy in (both, contexts)]
        outcomes = run_both(without, with_convoy, chosen(without, asked.recipes))
    print()
    judge(report, asked.version, outcomes, refusals, ciphers)
    table(asked.version, outcomes)
    if not any(preferred.keys for _, preferred in outcomes.values()):
        report.check(asked.version, ["Convoy's provider was given no key: it was not used at all"])
    report.end()


if __name__ == "__main__":
    main()
