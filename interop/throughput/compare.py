#!/usr/bin/env python3
"""Throughput of TCP and UDP through two gateways: Convoy beside other ways, in one interleaved run.

    sudo interop/throughput/compare.py --install      # what is missing, then the comparison
    sudo interop/throughput/compare.py --rounds 5 --seconds 10
    sudo interop/throughput/compare.py --only convoy-udp,libipsec --both --json
    sudo interop/throughput/compare.py --load all --only all --json > gateways.json     # for convoy bench report --with

Every sample is taken through four fresh namespaces (lab.py), and all candidates take their turn in
every round, each round beginning with another one. Under the table stand goals, met or missed, of what was measured; they
change no exit status. README.md says what the figures mean.

Exit status: 0 all was measured, 1 a candidate failed, 2 wrong arguments, 77 cannot run here.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import time

import install
import loads
import report
from candidates import all_candidates
from lab import HOST, NET, Failed, Lab, run, sweep, wait_for
from traffic import Traffic

CANNOT_RUN = 77
CHECK_PINGS = 5
USUAL_LOADS = "tcp1"


def main():
    options = arguments()
    os.environ["PATH"] = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin"
    if os.geteuid() != 0:
        cannot_run("namespaces and tunnel interfaces need root: run it with sudo")
    # Explicitly, because a shell starts background programs with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    if options.install:
        install.everything()
    for command in ("ip", "iperf3", "ping", "tcpdump"):
        if not shutil.which(command):
            cannot_run(f"{command} is not installed (--install)")
    for name in sweep():
        say(f"removed {name}, which a killed run had left")
    if options.urgent:
        os.setpriority(os.PRIO_PROCESS, 0, -20)
    wanted = chosen(options)
    reasons = {candidate.name: candidate.missing() for candidate in wanted}
    for name, why in reasons.items():
        if why:
            say(f"SKIPPED: {name}: {why}")
    candidates = [candidate for candidate in wanted if not reasons[candidate.name]]
    if not candidates:
        cannot_run("no candidate is available")
    result = report.Result(options, candidates, report.machine(candidates))
    result.skipped = [{"candidate": name, "why": why} for name, why in reasons.items() if why]
    try:
        rounds(options, candidates, result)
    except KeyboardInterrupt:
        say("interrupted; what was measured so far:")
        result.interrupted = True
    finally:
        sweep()
    print(json.dumps(result.as_json(), indent=2) if options.json else result.table())
    return 130 if result.interrupted else 1 if result.failures else 0


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=positive, default=3, metavar="N", help="samples of each candidate (3)")
    parser.add_argument("--seconds", type=positive, default=5, metavar="T", help="length of each TCP sample (5)")
    parser.add_argument("--step", type=positive, default=1, metavar="T", help="length of each step of UDP rates (1)")
    parser.add_argument("--load", type=loads_named, default=USUAL_LOADS, metavar="NAMES",
                        help=f"{', '.join(load.name for load in loads.ALL)} or all ({USUAL_LOADS})")
    parser.add_argument("--both", action="store_true", help="measure B to A as well, as samples of their own")
    parser.add_argument("--only", metavar="NAMES", help="these candidates, separated by commas, or all")
    parser.add_argument("--workers", type=positive, default=processors(), metavar="N",
                        help="workers of candidates that have several (as many as processors)")
    parser.add_argument("--convoy", metavar="PATH", help="the convoy program ($CONVOY_BIN, else the release build)")
    parser.add_argument("--install", action="store_true", help="first install what is missing: apt-get, go install")
    parser.add_argument("--urgent", action="store_true", help="go before other programs of this machine (nice -20)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    return parser.parse_args()


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is less than 1")
    return value


def loads_named(text):
    """Loads, separated by commas."""
    if text == "all":
        return loads.ALL
    known = {load.name: load for load in loads.ALL}
    for name in text.split(","):
        if name not in known:
            raise argparse.ArgumentTypeError(f"there is no load {name!r}; there are {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(text.split(","))]


def processors():
    """How many there are for this process."""
    return len(os.sched_getaffinity(0))


def cannot_run(why):
    print(f"SKIPPED: {why}", file=sys.stderr)
    sys.exit(CANNOT_RUN)


def say(text):
    """Progress and warnings go beside the result."""
    print(text, file=sys.stderr, flush=True)


def chosen(options):
    """The candidates asked for, else the usual ones."""
    candidates = all_candidates(options.convoy, options.workers)
    if options.only == "all":
        return candidates
    if not options.only:
        return [candidate for candidate in candidates if candidate.is_usual]
    names = options.only.split(",")
    known = [candidate.name for candidate in candidates]
    for name in names:
        if name not in known:
            say(f"there is no candidate {name!r}; there are {', '.join(known)}")
            sys.exit(2)
    return [candidate for candidate in candidates if candidate.name in names]


def rounds(options, candidates, result):
    """All samples: each round begins with the candidate after the one the last round began with."""
    for number in range(options.rounds):
        first = number % len(candidates)
        for load in options.load:
            for candidate in candidates[first:] + candidates[:first]:
                turn(options, candidate, load, number, result)


def turn(options, candidate, load, number, result):
    """One candidate's samples of a load in a round."""
    progress = f"round {number + 1}/{options.rounds}"
    try:
        for sample in samples(candidate, load, options):
            result.add(candidate, number, sample)
            say(f"{progress}  {report.line(candidate, load, sample)}")
    except Failed as failed:
        facts = {"candidate": candidate.name, "round": number + 1, "load": load.name, "why": str(failed)}
        result.failures.append(facts)
        say(f"{progress}  FAILED: {candidate.name}, {load.name}: {failed}")


def samples(candidate, load, options):
    """Sets a candidate up, makes sure that it does what it says, and measures it."""
    with Lab(candidate.queues) as lab:
        gateways = candidate.start(lab)
        wait_for(f"first ping through {candidate.name}", lambda: answers(lab, gateways))
        check_wire(lab, candidate)
        candidate.confirm(lab)
        traffic = Traffic(lab, gateways, options.seconds if load.name.startswith("tcp") else options.step)
        for traffic.way in ("a-to-b", "b-to-a") if options.both else ("a-to-b",):
            yield {"load": load.name, "direction": traffic.way, **load.measure(traffic)}


def answers(lab, gateways):
    for gateway in gateways:
        gateway.check()
    try:
        lab.inside(lab.host["a"], "ping", "-c", 1, "-W", 1, HOST["b"])
    except Failed:
        return False
    return True


def check_wire(lab, candidate):
    """Looks at some packets between the gateways: all that belongs to the hosts is as the candidate says.

    A candidate whose packets no capture sees counts them itself.
    """
    capture = lab.folder / "wire.pcap"
    # Without the immediate mode, the last packets would come a second later.
    command = ["tcpdump", "-n", "-U", "--immediate-mode", "-i", "wire", "-Z", "root", "-w", capture, "ip"]
    counted = candidate.protected(lab)
    recorder = lab.start(lab.gateway["a"], *command, log="tcpdump.log")
    wait_for("tcpdump", lambda: recorder.check() or "listening on" in recorder.tail())
    lab.inside(lab.host["a"], "ping", "-c", CHECK_PINGS, "-i", 0.05, "-W", 1, HOST["b"])
    time.sleep(0.2)
    lab.stop([recorder])
    clear = f"src net {NET['a']} or src net {NET['b']}"
    expected = candidate.on_wire()
    seen = count(capture, expected) if counted is None else candidate.protected(lab) - counted
    if seen < 2 * CHECK_PINGS:
        raise Failed(f"{candidate.name}: its packets ({expected}) are not on the wire")
    if candidate.name != "plain" and count(capture, clear):
        raise Failed(f"{candidate.name}: packets of the hosts cross the wire in the clear")


def count(capture, pcap_filter):
    listed = run("tcpdump", "-n", "-r", capture, pcap_filter)
    return sum(" IP " in line for line in listed.splitlines())


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
