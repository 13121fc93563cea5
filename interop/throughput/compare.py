#!/usr/bin/env python3
"""Throughput of one TCP stream through two gateways: Convoy beside other ways, in one interleaved run.

    sudo interop/throughput/compare.py --install      # what is missing, then the comparison
    sudo interop/throughput/compare.py --rounds 5 --seconds 10
    sudo interop/throughput/compare.py --only convoy-udp,libipsec --both --json

Every sample is taken through four fresh namespaces (lab.py), and all candidates take their turn in
every round, each round beginning with another one. README.md says what the figures mean.

Exit status: 0 all was measured, 1 a candidate failed, 2 wrong arguments, 77 cannot run here.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import sys
import time

import install
import report
from candidates import all_candidates
from lab import HOST, MTU, NET, TICKS, Failed, Lab, cpu_seconds, run, sweep, wait_for

CANNOT_RUN = 77
IPERF_PORT = 5201
WARM_UP = 1  # seconds of each stream that do not count: slow start and path-MTU discovery
CHECK_PINGS = 5


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
    candidates = [candidate for candidate in chosen(options) if is_available(candidate)]
    if not candidates:
        cannot_run("no candidate is available")
    result = report.Result(options, candidates, report.machine())
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
    parser.add_argument("--seconds", type=positive, default=5, metavar="T", help="length of each sample (5)")
    parser.add_argument("--both", action="store_true", help="measure B to A as well, as samples of their own")
    parser.add_argument("--only", metavar="NAMES", help="these candidates, separated by commas")
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


def cannot_run(why):
    print(f"SKIPPED: {why}", file=sys.stderr)
    sys.exit(CANNOT_RUN)


def say(text):
    """Progress and warnings go beside the result."""
    print(text, file=sys.stderr, flush=True)


def chosen(options):
    candidates = all_candidates(options.convoy)
    if not options.only:
        return candidates
    names = options.only.split(",")
    known = [candidate.name for candidate in candidates]
    for name in names:
        if name not in known:
            say(f"compare.py: there is no candidate {name!r}; there are {', '.join(known)}")
            sys.exit(2)
    return [candidate for candidate in candidates if candidate.name in names]


def is_available(candidate):
    why = candidate.missing()
    if why:
        say(f"SKIPPED: {candidate.name}: {why}")
    return not why


def rounds(options, candidates, result):
    """All samples: each round begins with the candidate after the one the last round began with."""
    for number in range(options.rounds):
        first = number % len(candidates)
        for candidate in candidates[first:] + candidates[:first]:
            try:
                for sample in samples(candidate, options):
                    result.add(candidate, number, sample)
                    say(f"round {number + 1}/{options.rounds}  {report.line(candidate, sample)}")
            except Failed as failed:
                result.failures.append({"candidate": candidate.name, "round": number + 1, "why": str(failed)})
                say(f"round {number + 1}/{options.rounds}  FAILED: {candidate.name}: {failed}")


def samples(candidate, options):
    """Sets a candidate up, makes sure that it does what it says, and measures it."""
    with Lab() as lab:
        gateways = candidate.start(lab)
        wait_for(f"first ping through {candidate.name}", lambda: answers(lab, gateways))
        check_wire(lab, candidate)
        candidate.confirm(lab)
        server = lab.start(lab.host["b"], "iperf3", "--server", "--port", IPERF_PORT, log="server.log")
        wait_for("iperf3 server", lambda: listens(server))
        for way in ("a-to-b", "b-to-a") if options.both else ("a-to-b",):
            yield measure(lab, gateways, server, way, options.seconds)


def answers(lab, gateways):
    for gateway in gateways:
        gateway.check()
    try:
        lab.inside(lab.host["a"], "ping", "-c", 1, "-W", 1, HOST["b"])
    except Failed:
        return False
    return True


def listens(server):
    """Whether a socket of the server's namespace waits for connections (state 0A)."""
    server.check()
    tables = [pathlib.Path(f"/proc/{server.pid}/net/{name}") for name in ("tcp", "tcp6")]
    return any(re.search(rf":{IPERF_PORT:04X} \S+ 0A ", table.read_text()) for table in tables if table.exists())


def check_wire(lab, candidate):
    """Looks at some packets between the gateways: all that belongs to the hosts is as the candidate says."""
    capture = lab.folder / "wire.pcap"
    # Without the immediate mode, the last packets would come a second later.
    command = ["tcpdump", "-n", "-U", "--immediate-mode", "-i", "wire", "-Z", "root", "-w", capture, "ip"]
    recorder = lab.start(lab.gateway["a"], *command, log="tcpdump.log")
    wait_for("tcpdump", lambda: recorder.check() or "listening on" in recorder.tail())
    lab.inside(lab.host["a"], "ping", "-c", CHECK_PINGS, "-i", 0.05, "-W", 1, HOST["b"])
    time.sleep(0.2)
    lab.stop([recorder])
    clear = f"src net {NET['a']} or src net {NET['b']}"
    expected = candidate.on_wire()
    if count(capture, expected) < 2 * CHECK_PINGS:
        raise Failed(f"{candidate.name}: its packets ({expected}) are not on the wire")
    if candidate.name != "plain" and count(capture, clear):
        raise Failed(f"{candidate.name}: packets of the hosts cross the wire in the clear")


def count(capture, pcap_filter):
    listed = run("tcpdump", "-n", "-r", capture, pcap_filter)
    return sum(" IP " in line for line in listed.splitlines())


def measure(lab, gateways, server, way, seconds):
    """One sample: what iperf3 saw, and who used the CPU meanwhile."""
    lengths = ("--time", seconds, "--omit", WARM_UP)
    command = ["iperf3", "--client", HOST["b"], "--port", IPERF_PORT, *lengths, "--json"]
    if way == "b-to-a":
        command.append("--reverse")
    before = usage(gateways, server)
    started = time.monotonic()
    client = lab.start(lab.host["a"], *command, log=f"{way}.json")
    peak = 0.0
    while client.child.poll() is None:
        if time.monotonic() > started + seconds + WARM_UP + 30:
            raise Failed(f"iperf3 did not end; gateways said:\n{tails(gateways)}")
        peak = cpu_seconds(client.pid) or peak
        time.sleep(0.1)
    elapsed = time.monotonic() - started
    after = usage(gateways, server)
    for gateway in gateways:
        gateway.check()
    spent = {key: after[key] - before[key] for key in before}
    return {
        "direction": way,
        **outcome(client, gateways),
        "path_mtu": path_mtu(lab),
        **cpu_figures(spent, peak, elapsed, client, bool(gateways)),
    }


def path_mtu(lab):
    """The largest packet of host A, as it has learnt meanwhile; its peer heeds it by the MSS of TCP."""
    known = run("ip", "-n", lab.host["a"], "route", "get", HOST["b"])
    learnt = re.search(r"\bmtu (\d+)", known)
    return int(learnt[1]) if learnt else MTU


def tails(gateways):
    return "\n".join(gateway.tail() for gateway in gateways)


def usage(gateways, server):
    """CPU seconds so far: of the gateways, of the iperf3 server, of the machine's processes, stolen."""
    first_line = pathlib.Path("/proc/stat").read_text().partition("\n")[0]
    seconds = [int(word) / TICKS for word in first_line.split()[1:]]
    return {
        "gateways": sum(gateway.cpu_seconds() for gateway in gateways),
        "server": server.cpu_seconds(),
        "processes": sum(seconds[:3]),
        "stolen": seconds[7],
    }


def iperf_json(client):
    try:
        said = json.loads(client.log.read_text())
    except json.JSONDecodeError as error:
        raise Failed(f"iperf3 printed no JSON: {client.tail()}") from error
    if "error" in said:
        raise Failed(f"iperf3: {said['error']}")
    return said


def outcome(client, gateways):
    """Goodput as the receiver counted it."""
    said = iperf_json(client)
    bits = said["end"]["sum_received"]["bits_per_second"]
    if bits <= 0:
        raise Failed(f"nothing arrived; gateways said:\n{tails(gateways)}")
    return {
        "bits_per_second": bits,
        "retransmits": said["end"]["sum_sent"].get("retransmits"),
    }


def cpu_figures(spent, client_cpu, elapsed, client, has_gateways):
    """Gateway CPU per gigabyte, and how many cores others than this measurement used."""
    sent = sum(interval["sum"]["bytes"] for interval in iperf_json(client)["intervals"])
    others = spent["processes"] - spent["gateways"] - spent["server"] - client_cpu
    return {
        "gateway_cpu_s_per_gb": spent["gateways"] / (sent / 1e9) if has_gateways and sent else None,
        "others_cores": max(0.0, others / elapsed),
        "stolen_cores": spent["stolen"] / elapsed,
    }


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
