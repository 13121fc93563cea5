"""The result: samples, medians, ratios, and what they were measured on."""

import os
import pathlib
import platform
import shlex
import statistics
import subprocess
import sys
import time

import goals
from candidates import ROOT, dpkg_version

REFERENCES = ("libipsec", "wireguard-go")
SCHEMA = "convoy-gateways"  # what a file of this form calls itself
SCHEMA_VERSION = 1


def machine(candidates):
    """What the figures depend on beside the candidates."""
    return {
        "cpu": cpu_model(),
        "class": None,  # of processors; no candidate tells it
        "cores": len(os.sched_getaffinity(0)),
        "processors": sorted(os.sched_getaffinity(0)),
        "tiers": next((found for found in (candidate.tiers() for candidate in candidates) if found), []),
        "load_before": list(os.getloadavg()),
        "kernel": platform.release(),
        "iperf3": dpkg_version("iperf3") or first_line("iperf3", "--version"),
        "commit": first_line("git", "-C", str(ROOT), "describe", "--always", "--dirty"),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def cpu_model():
    """Name of the processor, and family, model and stepping as numbers."""
    pairs = (line.partition(":") for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines())
    facts = {}
    for name, _, value in pairs:
        facts.setdefault(name.strip(), value.strip())
    if "model name" not in facts:
        return platform.machine()
    numbers = " ".join(f"{word} {facts.get(key, '?')}" for word, key in (
        ("family", "cpu family"), ("model", "model"), ("stepping", "stepping"),
    ))
    return f"{facts['model name']} ({facts.get('vendor_id', '?')} {numbers})"


def first_line(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip().partition("\n")[0]


def line(candidate, load, sample):
    """One sample for the progress."""
    name, size = load.unit
    return (
        f"{candidate.name:<18} {load.name:<7} {sample['direction']}  {sample[load.figure] / size:8.3f} {name:<4}"
        f"  (others: {sample['others_cores']:.1f} cores, withheld: {sample['stolen_cores']:.1f})"
    )


class Result:
    """All samples of a run."""

    def __init__(self, options, candidates, machine_facts):
        self.options = options
        self.machine = machine_facts
        self.candidates = candidates
        self.versions = {candidate.name: candidate.version() for candidate in candidates}
        self.samples = {candidate.name: [] for candidate in candidates}
        self.skipped = []
        self.failures = []
        self.interrupted = False

    def add(self, candidate, number, sample):
        self.samples[candidate.name].append({"round": number + 1, **sample})

    def ways(self):
        return ("a-to-b", "b-to-a") if self.options.both else ("a-to-b",)

    def of(self, name, load, way):
        """Samples of a candidate, of one load and direction."""
        wanted = (load.name, way)
        return [sample for sample in self.samples.get(name, []) if (sample["load"], sample["direction"]) == wanted]

    def summary(self, candidate, load, way):
        """Medians and ratios of medians of one candidate; None without samples."""
        mine = self.of(candidate.name, load, way)
        if not mine:
            return None
        figures = [sample[load.figure] for sample in mine]
        row = {
            "name": candidate.name,
            "load": load.name,
            "direction": way,
            "samples": len(mine),
            "quantity": load.figure,
            "median": statistics.median(figures),
            "min": min(figures),
            "max": max(figures),
            "median_bps": median_of(mine, "bits_per_second"),
            "min_bps": min(sample["bits_per_second"] for sample in mine),
            "max_bps": max(sample["bits_per_second"] for sample in mine),
            "gateway_cpu_s_per_gb": median_of(mine, "gateway_cpu_s_per_gb"),
            "retransmits": median_of(mine, "retransmits"),
            "ended_by": " ".join(sorted({sample["ended_by"] for sample in mine if "ended_by" in sample})) or None,
            "path_mtu": min(sample["path_mtu"] for sample in mine),
            "others_cores": median_of(mine, "others_cores"),
            "stolen_cores": median_of(mine, "stolen_cores"),
        }
        for reference in REFERENCES:
            row[f"times_{reference}"] = self.ratio(row["median"], reference, load, way)
        return row

    def median(self, name, load, way, key):
        """Median of a number of a candidate's samples; None without samples that have it."""
        return median_of(self.of(name, load, way), key)

    def ratio(self, figure, reference, load, way):
        base = [sample[load.figure] for sample in self.of(reference, load, way)]
        return figure / statistics.median(base) if base else None

    def rows(self):
        return [row for load in self.options.load for row in self.rows_of(load)]

    def rows_of(self, load):
        rows = [self.summary(candidate, load, way) for way in self.ways() for candidate in self.candidates]
        return [row for row in rows if row]

    def as_json(self):
        return {
            "schema": SCHEMA,
            "schema_version": SCHEMA_VERSION,
            "command": shlex.join(sys.argv),
            "machine": {**self.machine, "load_after": list(os.getloadavg())},
            "rounds": self.options.rounds,
            "seconds": self.options.seconds,
            "step_seconds": self.options.step,
            "loads": [load.name for load in self.options.load],
            "urgent": self.options.urgent,
            "interrupted": self.interrupted,
            "candidates": [
                {"name": candidate.name, "program": candidate.program, "variant": candidate.variant,
                 "cipher": candidate.cipher, "version": self.versions[candidate.name],
                 "samples": self.samples[candidate.name]}
                for candidate in self.candidates
            ],
            "summary": self.rows(),
            "goals": goals.judged(self),
            "skipped": self.skipped,
            "failures": self.failures,
        }

    def table(self):
        facts = self.machine
        lines = [
            "",
            f"Two gateways, {self.options.rounds} rounds, interleaved"
            f"{', before other programs (nice -20)' if self.options.urgent else ''}",
            f"{facts['cpu']}, {facts['cores']} cores, Linux {facts['kernel']}, iperf3 {facts['iperf3']},"
            f" commit {facts['commit']}, {facts['time']}",
        ]
        for load in self.options.load:
            headings = headings_of(load)
            lines += ["", f"{load.title} ({load.name})", *(columns([row[at] for row in headings]) for at in (0, 1))]
            lines += [columns(row_texts(load, row)) for row in self.rows_of(load)]
        lines += goals.lines(goals.judged(self))
        lines.append("")
        lines += [f"{c.name}: {self.versions[c.name]}, {c.cipher}; {c.variant}" for c in self.candidates]
        lines += [f"SKIPPED: {s['candidate']}: {s['why']}" for s in self.skipped]
        lines += [f"FAILED: {f['candidate']}, {f['load']}, round {f['round']}: {f['why']}" for f in self.failures]
        return "\n".join(lines)


def median_of(samples, key):
    values = [sample[key] for sample in samples if sample.get(key) is not None]
    return statistics.median(values) if values else None


# Widths of columns; the first two are aligned to the left.
WIDTHS = (18, 6, 8, 17, 10, 14, 8, 5, 6, 6)


def headings_of(load):
    """Names of the columns, each with a second line."""
    unit, _ = load.unit
    last = ("retr.", "") if load.figure == "bits_per_second" else ("ended", "by")
    return (
        ("candidate", ""), ("way", ""), ("median", unit), ("min – max", unit), ("× libipsec", ""),
        ("× wireguard-go", ""), ("CPU s/GB", "gateways"), ("MTU", "inner"), last, ("others", "cores"),
    )


def columns(texts):
    """One line of the table."""
    cells = [
        f"{text:<{width}}" if at < 2 else f"{text:>{width}}" for at, (text, width) in enumerate(zip(texts, WIDTHS))
    ]
    return "  ".join(cells).rstrip()


def row_texts(load, row):
    _, size = load.unit
    last = cell(row["retransmits"], ".0f") if load.figure == "bits_per_second" else row["ended_by"]
    return (
        row["name"],
        row["direction"],
        f"{row['median'] / size:.3f}",
        f"{row['min'] / size:.3f} – {row['max'] / size:.3f}",
        cell(row["times_libipsec"], ".2f"),
        cell(row["times_wireguard-go"], ".2f"),
        cell(row["gateway_cpu_s_per_gb"], ".2f"),
        str(row["path_mtu"]),
        last,
        f"{row['others_cores']:.1f}",
    )


def cell(value, form):
    return "–" if value is None else format(value, form)
