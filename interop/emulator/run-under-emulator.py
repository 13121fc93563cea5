#!/usr/bin/env python3
"""Runs a program on an emulated processor, prints what it prints, and ends with its exit status.

    interop/emulator/run-under-emulator.py [-l LEVEL] [-e NAME=VALUE]... [-f FILE[=GUEST]]... PROGRAM [ARGUMENT]...
    interop/emulator/run-under-emulator.py --prepare      only fetches and builds what is needed

As cargo's runner, for tests on an instruction set that this machine lacks:

    CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="$PWD/interop/emulator/run-under-emulator.py -l avx2-vaes" \\
        cargo test --target x86_64-unknown-linux-gnu -p convoy-crypto --test it kernels::

An instruction that the level lacks ends the program with SIGILL (exit status 132). Ends with 77 where the
emulator cannot be had on this machine, and with 125 where the emulated machine ended without a result.
CONVOY_EMULATOR_CACHE names the folder that outlives a run; without it, one below the user's cache folder.
"""

import argparse
import sys

import machine
from harness import CANNOT_RUN


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-l", "--level", choices=machine.LEVELS, default="avx512-vaes")
    parser.add_argument("-e", "--env", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("-f", "--file", action="append", default=[], metavar="FILE[=GUEST]",
                        help="a file or folder to add, at GUEST or at the same path")
    parser.add_argument("-t", "--timeout", type=float, default=600, metavar="SECONDS")
    parser.add_argument("--prepare", action="store_true")
    parser.add_argument("-v", "--verbose", action="store_true", help="tell the time that it took")
    parser.add_argument("program", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    try:
        if given.prepare:
            machine.prepare()
            return 0
        if not given.program:
            parser.error("which program?")
        variables = [tuple(pair.split("=", 1)) for pair in given.env]
        files = [(name.split("=")[0], name.split("=")[-1]) for name in given.file]
        program, *arguments = given.program
        status, output, seconds = machine.run(given.level, program, arguments, variables, files, given.timeout)
    except machine.Missing as why:
        print(f"SKIPPED: emulator: {why}", file=sys.stderr)
        return CANNOT_RUN
    except machine.NoResult as why:
        print(f"emulator: {why}", file=sys.stderr)
        return machine.NO_RESULT
    print(output, end="")
    if given.verbose:
        print(f"emulator: {given.level}, {seconds:.1f} s", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
