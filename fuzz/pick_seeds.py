#!/usr/bin/env python3
"""Picks the seeds of a target from a corpus that a fuzzer found: those that reach most beyond the ones made by hand
and the kept crashes, few and small. It replaces what it picked before.

    fuzz/pick_seeds.py TARGET CORPUS
"""

import argparse
import pathlib
import shutil
import subprocess
import tempfile

HERE = pathlib.Path(__file__).parent
FILES_MAX = 150
BYTES_MAX = 100 << 10
# Names that are left alone: a hand's work, and what once failed.
KEPT = ("hand-", "crash-")


def coverage(program, folders):
    """What each file reaches, as libFuzzer notes it when it merges: pairs of a file and a set."""
    with tempfile.TemporaryDirectory() as scratch:
        notes = pathlib.Path(scratch, "notes")
        out = pathlib.Path(scratch, "out")
        out.mkdir()
        command = [program, "-merge=1", f"-merge_control_file={notes}", out, *folders]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        lines = notes.read_text().splitlines()
    count = int(lines[0])
    paths, reached = lines[2 : 2 + count], [set() for _ in range(count)]
    for line in lines[2 + count :]:
        kind, index, *numbers = line.split()
        if kind in ("FT", "COV"):
            reached[int(index)].update((kind, number) for number in numbers)
    return list(zip(map(pathlib.Path, paths), reached))


def gain(new):
    """An edge counts for more than how often it was passed."""
    return sum(4 if kind == "COV" else 1 for kind, _ in new)


def pick(found, seen, files, size):
    """The files that add most, one after another."""
    found = [(path, path.stat().st_size, reached - seen) for path, reached in found]
    picked = []
    while files > 0:
        found = [(path, length, new - seen) for path, length, new in found if length <= size]
        found = [one for one in found if one[2]]
        if not found:
            break
        path, length, new = max(found, key=lambda one: (gain(one[2]), -one[1], one[0].name))
        picked.append(path)
        seen |= new
        files, size = files - 1, size - length
    return picked


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target")
    parser.add_argument("corpus", type=pathlib.Path)
    arguments = parser.parse_args()
    seeds = HERE / "seeds" / arguments.target
    seeds.mkdir(parents=True, exist_ok=True)
    for old in seeds.iterdir():
        if not old.name.startswith(KEPT):
            old.unlink()
    kept = list(seeds.iterdir())
    program = next(HERE.glob(f"target/*/release/{arguments.target}"))
    everything = coverage(program, [seeds, arguments.corpus])
    seen = set().union(*(reached for path, reached in everything if path.parent == seeds))
    found = [(path, reached) for path, reached in everything if path.parent != seeds]
    room = BYTES_MAX - sum(path.stat().st_size for path in kept)
    for path in pick(found, seen, FILES_MAX - len(kept), room):
        shutil.copy(path, seeds / path.name[:16])


if __name__ == "__main__":
    main()
