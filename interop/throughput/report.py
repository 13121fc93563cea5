"""The result: samples, medians, ratios, and what they were measured on."""

import os
import pathlib
import platform
import statistics
import subprocess
import time

from candidates import ROOT, dpkg_version

REFERENCES = ("libipsec", "wireguard-go")


def machine():
    """What the figures depend on beside the candidates."""
    return {
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "iperf3": dpkg_version("iperf3") or first_line("iperf3", "--version"),
        "commit": first_line("git", "-C", str(ROOT), "describe", "--always", "--dirty"),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def cpu_model():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def first_line(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip().partition("\n")[0]


def line(candidate, sample):
    """One sample for the progress."""
    return (
        f"{candidate.name:<16} {sample['direction']}  {sample['bits_per_second'] / 1e9:7.3f} Gb/s"
        f"  (others: {sample['others_cores']:.1f} cores)"
    )


class Result:
    """All samples of a run."""

    def __init__(self, options, candidates, machine_facts):
        self.options = options
        self.machine = machine_facts
        self.candidates = candidates
        self.versions = {candidate.name: candidate.version() for candidate in candidates}
        self.samples = {candidate.name: [] for candidate in candidates}
        self.failures = []
        self.interrupted = False

    def add(self, candidate, number, sample):
        self.samples[candidate.name].append({"round": number + 1, **sample})

    def ways(self):
        return ("a-to-b", "b-to-a") if self.options.both else ("a-to-b",)

    def summary(self, candidate, way):
        """Medians and ratios of medians of one candidate; None without samples."""
        mine = [sample for sample in self.samples[candidate.name] if sample["direction"] == way]
        if not mine:
            return None
        rates = [sample["bits_per_second"] for sample in mine]
        row = {
            "name": candidate.name,
            "direction": way,
            "samples": len(mine),
            "median_bps": statistics.median(rates),
            "min_bps": min(rates),
            "max_bps": max(rates),
            "gateway_cpu_s_per_gb": median_of(mine, "gateway_cpu_s_per_gb"),
            "retransmits": median_of(mine, "retransmits"),
            "path_mtu": min(sample["path_mtu"] for sample in mine),
            "others_cores": median_of(mine, "others_cores"),
        }
        for reference in REFERENCES:
            row[f"times_{reference}"] = self.ratio(row["median_bps"], reference, way)
        return row

    def ratio(self, rate, reference, way):
        base = [sample["bits_per_second"] for sample in self.samples.get(reference, []) if sample["direction"] == way]
        return rate / statistics.median(base) if base else None

    def rows(self):
        rows = [self.summary(candidate, way) for way in self.ways() for candidate in self.candidates]
        return [row for row in rows if row]

    def as_json(self):
        return {
            "machine": self.machine,
            "rounds": self.options.rounds,
            "seconds": self.options.seconds,
            "urgent": self.options.urgent,
            "interrupted": self.interrupted,
            "candidates": [
                {"name": candidate.name, "cipher": candidate.cipher, "version": self.versions[candidate.name],
                 "samples": self.samples[candidate.name]}
                for candidate in self.candidates
            ],
            "summary": self.rows(),
            "failures": self.failures,
        }

    def table(self):
        facts = self.machine
        lines = [
            "",
            f"One TCP stream through two gateways, {self.options.rounds} rounds of {self.options.seconds} s,"
            f" interleaved{', before other programs (nice -20)' if self.options.urgent else ''}",
            f"{facts['cpu']}, {facts['cores']} cores, Linux {facts['kernel']}, iperf3 {facts['iperf3']},"
            f" commit {facts['commit']}, {facts['time']}",
            "",
            columns([heading for heading, _, _ in COLUMNS]),
            columns([unit for _, unit, _ in COLUMNS]),
        ]
        lines += [columns(row_texts(row)) for row in self.rows()]
        lines.append("")
        lines += [f"{c.name}: {self.versions[c.name]}, {c.cipher}" for c in self.candidates]
        lines += [f"FAILED: {f['candidate']}, round {f['round']}: {f['why']}" for f in self.failures]
        return "\n".join(lines)


def median_of(samples, key):
    values = [sample[key] for sample in samples if sample[key] is not None]
    return statistics.median(values) if values else None


# Column: heading, its second line, width; the first two are aligned to the left.
COLUMNS = (
    ("candidate", "", 16),
    ("way", "", 6),
    ("median", "Gb/s", 7),
    ("min – max", "Gb/s", 15),
    ("× libipsec", "", 10),
    ("× wireguard-go", "", 14),
    ("CPU s/GB", "gateways", 8),
    ("MTU", "inner", 5),
    ("retr.", "", 6),
    ("others", "cores", 6),
)


def columns(texts):
    """One line of the table."""
    cells = [
        f"{text:<{width}}" if at < 2 else f"{text:>{width}}"
        for at, (text, (_, _, width)) in enumerate(zip(texts, COLUMNS))
    ]
    return "  ".join(cells).rstrip()


def row_texts(row):
    return (
        row["name"],
        row["direction"],
        f"{row['median_bps'] / 1e9:.3f}",
        f"{row['min_bps'] / 1e9:.3f} – {row['max_bps'] / 1e9:.3f}",
        cell(row["times_libipsec"], ".2f"),
        cell(row["times_wireguard-go"], ".2f"),
        cell(row["gateway_cpu_s_per_gb"], ".2f"),
        str(row["path_mtu"]),
        cell(row["retransmits"], ".0f"),
        f"{row['others_cores']:.1f}",
    )


def cell(value, form):
    return "–" if value is None else format(value, form)
