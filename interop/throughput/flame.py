#!/usr/bin/env python3
"""Where the time goes while one TCP stream passes two gateways: a table, and a flame graph.

    sudo interop/throughput/flame.py                                       # three ways of Convoy, five seconds each
    sudo interop/throughput/flame.py --only convoy-esp --svg esp.svg       # and draws it
    sudo interop/throughput/flame.py --only plain,wireguard-go --json      # any candidates of compare.py

For each candidate, hosts, gateways and links are set up as compare.py does, and `perf record -a -g -e cpu-clock` looks at all
processors of the machine while the stream runs. Everything counts: both gateways, both hosts, iperf3, and what is idle.

The table has shares of all processor time. The innermost frame of a stack that has a place in the table decides. So what a
soft interrupt does inside a system call that sends counts as the soft interrupt's, and a look-up of a route inside that as routing.
Each column adds up to 100 %.

The flame graph has the innermost frame on top; its width is its share. Point at a frame to read its name. Frames narrower than
0.15 % are left out. Several candidates make several files: flame.svg becomes flame-convoy-udp.svg, and so on.

What to know when reading it:
  * Stacks of the kernel are right. Release builds keep no frame pointers, so of a program's own code only the function that ran
    is known, and not what called it. The graph puts it above its crate or library.
  * A function that the compiler put into another one counts as that one.
  * cpu-clock is a timer: code that runs with interrupts off shows where it turns them on again (_raw_spin_unlock_irqrestore).
  * A soft interrupt is charged to whichever process it interrupts, not to the one that it works for.
  * The gateways are slower while they are watched; measure speed with compare.py.

Needs root, perf (Debian: linux-perf) and iperf3. Ends with 0, 1 if a candidate failed, 2 for wrong arguments, or 77 where it
cannot run.
"""

import argparse
import html
import json
import os
import pathlib
import shlex
import shutil
import sys

import report
import stacks
from compare import answers, cannot_run, chosen, positive, processors, say
from lab import Failed, Lab, run, sweep, wait_for
from loads import ALL
from traffic import Traffic

USUAL = "convoy-udp,convoy-esp,convoy-sockets"
FREQUENCY = 1999  # samples a second of each processor; not a multiple of the kernel's ticks
MOST_OTHERS = 0.05  # share of other programs that makes a profile doubtful
SCHEMA, SCHEMA_VERSION = "convoy-flame", 1


def main():
    options = arguments()
    os.environ["PATH"] = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin"
    if os.geteuid() != 0:
        cannot_run("namespaces and perf need root: run it with sudo")
    for command, package in (("perf", "linux-perf"), ("iperf3", "iperf3"), ("ip", "iproute2"), ("ping", "iputils-ping")):
        if not shutil.which(command):
            cannot_run(f"{command} is not installed (Debian: {package})")
    try:
        run("perf", "stat", "-a", "-e", "cpu-clock", "true")
    except Failed as failed:
        cannot_run(f"perf may not look at all processors: {failed}")
    sweep()
    wanted = chosen(options)
    skipped = {candidate.name: why for candidate in wanted if (why := candidate.missing())}
    for name, why in skipped.items():
        say(f"SKIPPED: {name}: {why}")
    candidates = [candidate for candidate in wanted if candidate.name not in skipped]
    if not candidates:
        cannot_run("no candidate is available")
    profiles, failures = [], {}
    for candidate in candidates:
        try:
            profiles.append(Profile(candidate, options.seconds))
            say(profiles[-1].title)
        except Failed as failed:
            failures[candidate.name] = str(failed)
            say(f"FAILED: {candidate.name}: {failed}")
    for profile in profiles if options.svg else []:
        draw(profile, file_of(options.svg, profile, len(candidates)))
    if options.json:
        print(json.dumps(as_json(options, candidates, profiles, skipped, failures), indent=2))
    elif profiles:
        print(table(profiles))
    return 1 if failures else 0


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="NAMES", default=USUAL, help=f"candidates of compare.py, separated by commas ({USUAL})")
    parser.add_argument("--seconds", type=positive, default=5, metavar="T", help="how long perf looks at each (5)")
    parser.add_argument("--svg", type=pathlib.Path, metavar="FILE", help="write flame graphs")
    parser.add_argument("--workers", type=positive, default=processors(), metavar="N",
                        help="workers of candidates that have several (as many as processors)")
    parser.add_argument("--convoy", metavar="PATH", help="the convoy program ($CONVOY_BIN, else the release build)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    return parser.parse_args()


class Profile:
    """One candidate under one TCP stream, as perf saw it."""

    def __init__(self, candidate, seconds):
        self.candidate = candidate
        load = next(load for load in ALL if load.name == "tcp1")
        with Lab(candidate.queues) as lab:
            gateways = candidate.start(lab)
            wait_for(f"first ping through {candidate.name}", lambda: answers(lab, gateways))
            candidate.confirm(lab)
            traffic = Traffic(lab, gateways, seconds + 2)
            recorded = lab.folder / "perf.data"
            perf = ["perf", "record", "-a", "-g", "-e", "cpu-clock", "-F", FREQUENCY, "-o", recorded, "--", "sleep", seconds]
            watcher = lab.start(
                lab.host["a"], "sh", "-c", f"sleep {traffic.WARM_UP + 0.5}; exec {shlex.join(map(str, perf))}", log="perf.log"
            )
            self.bits_per_second = load.measure(traffic)["bits_per_second"]
            if watcher.child.wait():
                raise Failed(f"perf record: {watcher.tail()}")
            programs = {gateway.pid: candidate.program for gateway in gateways}
            self.sides = {gateway.pid: f"gateway {side.upper()}" for gateway, side in zip(gateways, "ab")}
            self.sides[traffic.server.pid] = "host B"
            text = run("perf", "script", "-i", recorded, "-F", "comm,pid,ip,sym,dso", "--no-inline", timeout=120)
        self.samples = list(stacks.parse(text.splitlines()))
        if not self.samples:
            raise Failed("perf saw nothing")
        self.shares = stacks.shares(self.samples, programs)
        others = self.shares.get(stacks.OTHERS, 0) / len(self.samples)
        if others > MOST_OTHERS:
            say(f"{candidate.name}: other programs took {100 * others:.0f} % of the time; measure again on a quiet machine")

    @property
    def title(self):
        return f"{self.candidate.name}: one TCP stream at {self.bits_per_second / 1e9:.2f} Gb/s, {len(self.samples):,} samples"

    def seconds_per_gb(self):
        """Time of all processors for 10⁹ bytes of the stream."""
        return os.cpu_count() / (self.bits_per_second / 8e9)

    def label(self, sample):
        """A name for the process of a sample: where it belongs, and its thread."""
        if sample.command.startswith("iperf3"):
            return f"{self.sides.get(sample.pid, 'host A')}: iperf3"
        if sample.command.startswith("swapper"):
            return "no process (idle, or interrupted in it)"
        side = self.sides.get(sample.pid)
        return f"{side}: {sample.command}" if side else "other processes"


def table(profiles):
    """Shares of all processor time, a column for each candidate."""
    width = max(map(len, stacks.CATEGORIES))
    columns = [stacks.rounded(profile.shares) for profile in profiles]
    rows = [(name, [column.get(name, 0) for column in columns]) for name in stacks.CATEGORIES]
    lines = [f"{'share of all processor time, %':<{width}}" + "".join(f"{p.candidate.name:>17}" for p in profiles)]

    def add(name, numbers):
        lines.append(f"{name:<{width}}" + "".join(f"{number:17}" if isinstance(number, str) else f"{number / 10:17.1f}"
                                                  for number in numbers))
    for name, numbers in rows:
        if any(numbers):
            add(name, numbers)
    add("sum", [sum(column.values()) for column in columns])
    lines.append("")
    for owner in ("Convoy", "kernel"):
        add(f"{owner}, all rows", [sum(n for name, n in column.items() if name.startswith(f"{owner}:")) for column in columns])
    add("Gb/s while watched", [f"{profile.bits_per_second / 1e9:17.2f}" for profile in profiles])
    add("time of all processors, s/GB", [f"{profile.seconds_per_gb():17.2f}" for profile in profiles])
    return "\n".join(lines)


def as_json(options, candidates, profiles, skipped, failures):
    def way(profile):
        total = len(profile.samples)
        return {
            "candidate": profile.candidate.name, "version": profile.candidate.version(), "bits_per_second": profile.bits_per_second,
            "all_processors_s_per_gb": profile.seconds_per_gb(), "samples": total,
            "shares": [{"what": what, "samples": count, "share": count / total} for what, count in profile.shares.items()],
        }
    return {
        "schema": SCHEMA, "schema_version": SCHEMA_VERSION, "command": shlex.join(sys.argv), "machine": report.machine(candidates),
        "seconds": options.seconds, "ways": [way(profile) for profile in profiles],
        "skipped": [{"candidate": name, "why": why} for name, why in skipped.items()],
        "failures": [{"candidate": name, "why": why} for name, why in failures.items()],
    }


def file_of(path, profile, candidates):
    return path if candidates == 1 else path.with_name(f"{path.stem}-{profile.candidate.name}{path.suffix}")


LEAST = 0.0015  # share of a frame that is drawn
WIDTH, MARGIN, ROW = 1200, 10, 16  # of the picture, around it, and of a frame, in pixels
TOP = 56  # pixels above the frames
LETTER = 6.1  # pixels, about
NARROWEST = 4  # letters that are worth being written
LEGEND = (("user", "code of programs"), ("kernel", "Linux"), ("process", "processes and threads"))
STYLE = """
text{font:11px sans-serif;fill:#111}.t{fill:#222}.h{font-size:14px}.b{fill:#fff}
.user{fill:#f2a65a}.kernel{fill:#8fbbe8}.process{fill:#b9c4b0}
@media(prefers-color-scheme:dark){.b{fill:#16191d}.t{fill:#ddd}.user{fill:#d98e43}.kernel{fill:#7aa5d2}.process{fill:#98a58d}}
"""


def draw(profile, path):
    """Writes the flame graph of a candidate."""
    tree = stacks.fold(profile.samples, profile.label)
    least = LEAST * tree.count
    height = TOP + ROW * tree.depth(least) + MARGIN
    about = f"Width: share of all processor time; both gateways, both hosts. {profile.candidate.variant}. {report.cpu_model()}."
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">',
        f"<style>{STYLE}</style>",
        f'<rect class="b" width="{WIDTH}" height="{height}"/>',
        f'<text class="t h" x="{MARGIN}" y="20">{html.escape(profile.title)}</text>',
        f'<text class="t" x="{MARGIN}" y="38">{html.escape(about)}</text>',
    ]
    for number, (kind, what) in enumerate(LEGEND):
        x = WIDTH - 150
        parts.append(f'<rect class="{kind}" x="{x}" y="{6 + ROW * number}" width="12" height="12"/>'
                     f'<text class="t" x="{x + 18}" y="{16 + ROW * number}">{what}</text>')
    parts += frames(tree, (WIDTH - 2 * MARGIN) / tree.count, tree.count, least, MARGIN, height - MARGIN)
    path.write_text("\n".join((*parts, "</svg>", "")), encoding="utf-8")
    say(f"wrote {path}")


def frames(node, scale, total, least, x, bottom):
    """Boxes of all that a node called: the widest to the left, each with what it called above it."""
    for (kind, name), call in sorted(node.calls.items(), key=lambda item: (-item[1].count, item[0])):
        if call.count >= least:
            yield box(kind, name, call.count / total, x, bottom - ROW, call.count * scale)
            yield from frames(call, scale, total, least, x, bottom - ROW)
            x += call.count * scale


def box(kind, name, share, x, y, width):
    """A frame with its name, as far as there is room: what is outside of an inner <svg> is not shown."""
    width = max(0.5, width - 0.5)
    room = int((width - 4) / LETTER)
    shown = name if len(name) <= room else f"{name[:room - 1]}…"
    text = f'<text x="2" y="11">{html.escape(shown)}</text>' if room >= NARROWEST else ""
    size = f'width="{width:.1f}" height="{ROW - 1}"'
    title = f"<title>{html.escape(name)} {100 * share:.2f} %</title>"
    return f'<svg x="{x:.1f}" y="{y}" {size}>{title}<rect class="{kind}" {size}/>{text}</svg>'


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
