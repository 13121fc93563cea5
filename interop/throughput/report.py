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
        "commit": first_line("git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"),
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
            f"One TCP stream through two gateways, {self.options.rounds} rounds of {self.options.seconds} s, interleaved",
            f"{facts['cpu']}, {facts['cores']} cores, Linux {facts['kernel']}, iperf3 {facts['iperf3']},"
            f" commit {facts['commit']}, {facts['time']}",
            "",
            f"{'candidate':<16} {'way':<7} {'median':>8} {'min – max':>15} {'× libipsec':>11} {'× wireguard-go':>15}"
            f" {'CPU s/GB':>9} {'retr.':>6} {'others':>7}",
            f"{'':<16} {'':<7} {'Gb/s':>8} {'Gb/s':>15} {'':>11} {'':>15} {'gateways':>9} {'':>6} {'cores':>7}",
        ]
        lines += [row_text(row) for row in self.rows()]
        lines.append("")
        lines += [f"{c.name}: {self.versions[c.name]}, {c.cipher}" for c in self.candidates]
        lines += [f"FAILED: {f['candidate']}, round {f['round']}: {f['why']}" for f in self.failures]
        return "\n".join(lines)


def median_of(samples, key):
    values = [sample[key] for sample in samples if sample[key] is not None]
    return statistics.median(values) if values else None


def row_text(row):
    spread = f"{row['min_bps'] / 1e9:.3f} – {row['max_bps'] / 1e9:.3f}"
    return (
        f"{row['name']:<16} {row['direction']:<7} {row['median_bps'] / 1e9:8.3f} {spread:>15}"
        f" {cell(row['times_libipsec'], '.2f'):>11} {cell(row['times_wireguard-go'], '.2f'):>15}"
        f" {cell(row['gateway_cpu_s_per_gb'], '.2f'):>9} {cell(row['retransmits'], '.0f'):>6}"
        f" {row['others_cores']:7.1f}"
    )


def cell(value, form):
    return "–" if value is None else format(value, form)
