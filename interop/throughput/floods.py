#!/usr/bin/env python3
"""TCP through two gateways while one of them is flooded from the wire.

    sudo interop/throughput/floods.py                      # three rounds of five seconds
    sudo interop/throughput/floods.py --rate 50000 --only convoy-esp,convoy-sockets

Anybody on the way between two gateways can send these to one of them:

    too-big    ICMP messages that say that a packet of the tunnel did not fit, with sequence numbers that were never sent
    replayed   ESP of the tunnel's SA with a sequence number that is long past
    random     ESP of the tunnel's SA with a number ahead, and an ICV that is wrong
    unknown    ESP of SPIs that nobody has
    other      packets of a protocol that nobody has (254): what the flood costs the kernel and the processors anyhow

Each round measures TCP without a flood and with each, in fresh namespaces. The flooder shares the processors with everything
else, so the figure that tells of the gateway is the ratio to `other`. Needs root and iperf3. Ends with 0, 1 if a figure
is below the goal, 2 if something failed, or 77 where it cannot run.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import socket
import statistics
import struct
import sys
import time

from candidates import all_candidates
from compare import CANNOT_RUN, answers, say
from lab import WIRE, Failed, Lab, sweep, wait_for
from loads import ALL
from traffic import Traffic

KINDS = ("too-big", "replayed", "random", "unknown", "other")
GOAL = 0.8
SPI_TO_A = 0x1002  # of what gateway B sends: candidates.Convoy
SPI_TO_B = 0x1001
ESP, UDP, ICMP, NOBODYS = 50, 17, 1, 254
PORT = 4500
PAYLOAD = 100  # bytes of a flooding packet behind its ESP header
DIFFERENT = 512  # packets that are made beforehand
BATCH = 32  # packets between two looks at the clock


def checksum(data):
    """The Internet checksum (RFC 1071)."""
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ip_packet(source, destination, protocol, payload):
    """An IPv4 packet."""
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(payload), 0, 0x4000, 64, protocol, 0)
    ends = socket.inet_aton(source) + socket.inet_aton(destination)
    head = head[:10] + struct.pack("!H", checksum(head + ends))
    return head + ends + payload


def carried(source, destination, esp, in_udp):
    """ESP as the tunnel has it."""
    if not in_udp:
        return ip_packet(source, destination, ESP, esp)
    return ip_packet(source, destination, UDP, struct.pack("!HHHH", PORT, PORT, 8 + len(esp), 0) + esp)


def packet(kind, in_udp, dice):
    """A packet of a flood, to gateway A."""
    a, b = WIRE["a"], WIRE["b"]
    noise = dice.randbytes(PAYLOAD)
    if kind == "other":
        return ip_packet(b, a, NOBODYS, noise)
    if kind == "too-big":
        quoted = carried(a, b, struct.pack("!II", SPI_TO_B, dice.getrandbits(32)) + noise[:20], in_udp)
        message = struct.pack("!BBHHH", 3, 4, 0, 0, 1300) + quoted[:36]
        message = message[:2] + struct.pack("!H", checksum(message)) + message[4:]
        return ip_packet(b, a, ICMP, message)
    spi, number = {
        "replayed": (SPI_TO_A, 1),
        "random": (SPI_TO_A, dice.randrange(1 << 30, 1 << 31)),
        "unknown": (dice.randrange(0x10000, 1 << 31), 1),
    }[kind]
    return carried(b, a, struct.pack("!II", spi, number) + noise, in_udp)


def flood(kind, in_udp, rate, mac, report):
    """Sends until it is killed; writes how many packets a second there were."""
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    wire.bind(("wire", 0))
    own = wire.getsockname()[4]
    dice = random.Random(1)
    frames = [bytes.fromhex(mac) + own + b"\x08\x00" + packet(kind, in_udp, dice) for _ in range(DIFFERENT)]
    begun, sent = time.monotonic(), 0
    while True:
        for number in range(BATCH):
            try:
                wire.send(frames[(sent + number) % DIFFERENT])
            except OSError:
                pass  # its queue is full
        sent += BATCH
        elapsed = time.monotonic() - begun
        if sent % (64 * BATCH) == 0:
            fresh = report.with_suffix(".new")
            fresh.write_text(f"{sent / elapsed:.0f}")
            fresh.replace(report)
        if sent / rate > elapsed:
            time.sleep(sent / rate - elapsed)


def measure(candidate, kind, options):
    """Goodput under a flood, or without one, and the packets of the flood a second."""
    load = next(load for load in ALL if load.name == "tcp1")
    with Lab() as lab:
        gateways = candidate.start(lab)
        wait_for(f"first ping through {candidate.name}", lambda: answers(lab, gateways))
        report = lab.folder / "flood"
        flooder = None
        if kind:
            link = json.loads(lab.inside(lab.gateway["a"], "ip", "-j", "link", "show", "wire"))[0]
            flooder = lab.start(
                lab.gateway["b"], sys.executable, pathlib.Path(__file__).resolve(), "--flood", kind,
                "--in-udp" if candidate.encap else "--native", "--rate", options.rate,
                "--mac", link["address"].replace(":", ""), "--report", report, log="flooder.log",
            )
            wait_for("the flood", lambda: flooder.check() or report.exists())
        figures = load.measure(Traffic(lab, gateways, options.seconds))
        if flooder:
            flooder.check()
        return figures["bits_per_second"], float(report.read_text()) if kind else 0.0


def run_all(options):
    """Figures of all rounds by candidate and kind."""
    figures = {}
    wanted = options.only.split(",")
    candidates = [one for one in all_candidates(options.convoy) if one.name in wanted]
    for candidate in candidates:
        if why := candidate.missing():
            say(f"SKIPPED: {candidate.name}: {why}")
    candidates = [one for one in candidates if not one.missing()]
    for number in range(options.rounds):
        for candidate in candidates:
            for kind in (None, *KINDS):
                try:
                    goodput, rate = measure(candidate, kind, options)
                except Failed as failed:
                    say(f"FAILED: {candidate.name}, {kind}: {failed}")
                    continue
                figures.setdefault(candidate.name, {}).setdefault(kind, []).append((goodput, rate))
                say(f"round {number + 1}/{options.rounds}  {candidate.name:<16} {kind or 'none':<9} {goodput / 1e9:6.3f} Gb/s"
                    f"  ({rate:,.0f} packets a second)")
    return figures


def tell(figures):
    """Prints the table; returns the exit status."""
    print(f"\n{'candidate':<16} {'flood':<9} {'Gb/s':>7} {'packets/s':>10} {'of none':>8} {'of other':>9}")
    status = 0 if figures else 2
    for name, kinds in figures.items():
        middle = {kind: statistics.median(goodput for goodput, _ in samples) for kind, samples in kinds.items()}
        if {None, *KINDS} - set(middle):
            status = 2
        for kind, goodput in middle.items():
            rate = statistics.median(rate for _, rate in kinds[kind])
            shares = [goodput / middle[base] if middle.get(base) else float("nan") for base in (None, "other")]
            is_low = kind not in (None, "other") and not shares[1] >= GOAL
            status = max(status, int(is_low))
            print(f"{name:<16} {kind or 'none':<9} {goodput / 1e9:7.3f} {rate:10,.0f} {shares[0]:8.2f} {shares[1]:9.2f}"
                  f"{f'  missed: {GOAL}' if is_low else ''}")
    return status


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=5, help="of TCP a figure")
    parser.add_argument("--rate", type=float, default=100_000, help="packets a second of a flood, at most")
    parser.add_argument("--only", default="convoy-udp,convoy-esp,convoy-sockets", help="candidates of compare.py")
    parser.add_argument("--convoy", help="another build of Convoy")
    for name in ("--flood", "--mac", "--report"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    parser.add_argument("--in-udp", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--native", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.flood:
        return flood(options.flood, options.in_udp, options.rate, options.mac, pathlib.Path(options.report))
    if os.geteuid() != 0:
        say("SKIPPED: network namespaces need root")
        return CANNOT_RUN
    if not shutil.which("iperf3"):
        say("SKIPPED: no iperf3 (compare.py --install)")
        return CANNOT_RUN
    sweep()
    return tell(run_all(options))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
