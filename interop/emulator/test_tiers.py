#!/usr/bin/env python3
"""Runs the crypto crate's tests on an emulated processor of every level.

    interop/emulator/test_tiers.py [--level LEVEL]... [--program NAME]... [--smoke]

At each level the tiers must be those that the level has. A kernel that uses an instruction above its tier
ends its program there with SIGILL; and tiers that the machine at hand lacks are tested at all. --smoke
tries some levels with two groups of tests.

Ends with 0, 1 where something failed, or 77 where the emulator cannot be had.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import machine
from harness import ROOT, Report, cannot_run, target_dir

# The level, and what `Cpu` must find there: the tiers, and `sha-ni`.
TIERS = {
    "sse": "portable,aesni",
    "avx": "portable,aesni,avx",
    "avx2": "portable,aesni,avx,avx2",
    "avx2-sha": "portable,aesni,avx,avx2,sha-ni",
    "avx512": "portable,aesni,avx,avx2,avx512",
    "avx2-vaes": "portable,aesni,avx,avx2,vaes256,sha-ni",
    "avx512-vaes": "portable,aesni,avx,avx2,avx512,vaes256,vaes512,sha-ni",
}
# Groups of tests: `lib` are those inside the crate, the rest are modules of the
# program `it`. Tests with the words behind it in their names are left out, for an emulator takes minutes for
# what the machine at hand does in a second, and the same kernels run in what stays.
PROGRAMS = {
    "expect_tiers": [],
    "lib": ["random_bursts"],
    "kernels": [],
    "wycheproof": [],
    "kat": [],
    "cross_tier": ["random_bursts", "one_burst_may_mix", "nothing_outside", "counters_carry"],
    "heap": [],
    "stack": ["bursts_leave"],
}
# The first two are not what developers have, so a kernel that uses too much would pass elsewhere.
SMOKE_LEVELS, SMOKE_PROGRAMS = ("sse", "avx2-vaes", "avx512-vaes"), ("expect_tiers", "wycheproof")
# Most for one program, in seconds.
LIMIT = 1500


def build():
    """Builds the tests; yields the path of a program, and how to choose its tests, for each group of tests."""
    # As the gate builds them, lest they are built once more.
    command = ["cargo", "test", "--workspace", "--tests", "--no-run", "--locked",
               "--message-format=json"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit("test_tiers: the tests do not build")
    found = {}
    for line in done.stdout.splitlines():
        message = json.loads(line)
        if message.get("reason") != "compiler-artifact" or not message["executable"]:
            continue
        target = message["target"]
        if message["profile"]["test"] and pathlib.Path(target["src_path"]).is_relative_to(ROOT / "crates/crypto"):
            found["lib" if "lib" in target["kind"] else target["name"]] = message["executable"]
    groups = {name: (program, []) for name, program in found.items() if name != "it"}
    listed = subprocess.run([found["it"], "--list"], stdout=subprocess.PIPE, text=True, check=True).stdout
    modules = {line.partition("::")[0] for line in listed.splitlines() if line.endswith(": test")}
    return groups | {name: (found["it"], [f"{name}::"]) for name in modules}


def vectors():
    """NIST's vectors, as files for the guest."""
    folder = os.environ.get("CONVOY_VECTORS")
    folder = folder or (target_dir() / "vectors" if (target_dir() / "vectors").exists() else ROOT / "target/vectors")
    return [(str(folder), "/vectors")] if os.path.isdir(folder) else []


def run_one(report, level, name, program, chosen, files):
    """One group of tests at one level."""
    case = f"{level}: {name}"
    skips = [word for skipped in PROGRAMS.get(name, []) for word in ("--skip", skipped)]
    variables = [("CONVOY_EXPECT_TIERS", TIERS[level]), ("CONVOY_VECTORS", "/vectors"), ("RUST_BACKTRACE", "0")]
    try:
        status, output, seconds = machine.run(
            level, program, ["--show-output", *chosen, *skips], variables, files, LIMIT)
    except machine.NoResult as why:
        report.check(case, str(why).splitlines())
        return
    lines = output.splitlines()
    for line in lines:
        # What is skipped in part is skipped, and told, on the machine at hand too.
        if line.startswith("SKIPPED: "):
            report.skip(case, line.partition(":")[2].strip())
    results = [line for line in lines if line.startswith("test result: ")]
    problems = [] if status == 0 and results else [f"exit status {status}{' (SIGILL)' * (status == 132)}", *lines[-25:]]
    if not problems and " 0 passed" in results[0]:
        problems = ["no test ran"]
    if report.check(case, problems):
        print(f"{case}: {results[0].removeprefix('test result: ok. ').split(';')[0]}, {seconds:.1f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--level", action="append", choices=TIERS)
    parser.add_argument("--program", action="append")
    parser.add_argument("--smoke", action="store_true")
    given = parser.parse_args()
    try:
        machine.prepare()
    except machine.Missing as why:
        cannot_run(f"tiers on emulated processors: {why}")
    levels = given.level or (SMOKE_LEVELS if given.smoke else list(TIERS))
    names = given.program or (list(SMOKE_PROGRAMS) if given.smoke else list(PROGRAMS))
    programs, report = build(), Report()
    for name in sorted(set(programs) - set(PROGRAMS)):
        if not given.smoke and not given.program:
            print(f"{name} is not in the list and runs like the others", flush=True)
            names.append(name)
    with tempfile.TemporaryDirectory(prefix="convoy-tiers-") as folder:
        for name in names:
            if name not in programs:
                report.check(name, ["there is no such group of tests; is the list of groups stale?"])
                continue
            program, chosen = programs[name]
            # Without what debuggers want, there is less to unpack in the guest.
            lean = os.path.join(folder, os.path.basename(program))
            if not os.path.exists(lean) and (
                    shutil.which("strip") is None or subprocess.run(["strip", "-o", lean, program]).returncode):
                lean = program
            files = vectors() if name not in ("expect_tiers", "lib", "kernels", "heap", "stack") else []
            for level in levels:
                run_one(report, level, name, lean, chosen, files)
    report.end()


if __name__ == "__main__":
    main()
