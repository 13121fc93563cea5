"""iperf3 from host to host, and the processor time that it took."""

import json
import pathlib
import re
import time

from lab import HOST, MTU, TICKS, Failed, cpu_seconds, run, wait_for

IPERF_PORT = 5201
BUFFER = 8 << 20  # bytes that a socket is to hold, as far as the machine allows
TIMEOUT = 30  # seconds beyond its length that a run of iperf3 may take


class Traffic:
    """The two hosts' iperf3, through gateways that are set up."""

    WARM_UP = 1  # seconds of TCP that do not count: slow start and path-MTU discovery

    def __init__(self, lab, gateways, seconds):
        self.lab = lab
        self.gateways = gateways
        self.seconds = seconds
        self.way = "a-to-b"
        self.server = lab.start(lab.host["b"], "iperf3", "--server", "--port", IPERF_PORT, log="server.log")
        wait_for("iperf3 server", self.listens)

    def listens(self):
        """Whether a socket of the server's namespace waits for connections (state 0A)."""
        self.server.check()
        tables = [pathlib.Path(f"/proc/{self.server.pid}/net/{name}") for name in ("tcp", "tcp6")]
        return any(re.search(rf":{IPERF_PORT:04X} \S+ 0A ", table.read_text()) for table in tables if table.exists())

    @staticmethod
    def buffer():
        """Bytes that a socket may hold on this machine, at most BUFFER: iperf3 gives up if it gets less than it asks for."""
        folder = pathlib.Path("/proc/sys/net/core")
        return min(BUFFER, *(int((folder / name).read_text()) for name in ("rmem_max", "wmem_max")))

    def run(self, *arguments):
        """Sends for as long as a sample takes; returns what iperf3 said, and who used the processors meanwhile."""
        wait_for("iperf3 server", self.listens)
        command = ["iperf3", "--client", HOST["b"], "--port", IPERF_PORT, "--time", self.seconds, "--json", *arguments]
        if self.way == "b-to-a":
            command.append("--reverse")
        before = self.usage()
        started = time.monotonic()
        client = self.lab.start(self.lab.host["a"], *command, log=f"{self.way}.json")
        peak = 0.0
        while client.child.poll() is None:
            if time.monotonic() > started + self.seconds + self.WARM_UP + TIMEOUT:
                raise Failed(f"iperf3 did not end; gateways said:\n{self.tails()}")
            peak = cpu_seconds(client.pid) or peak
            time.sleep(0.1)
        elapsed = time.monotonic() - started
        after = self.usage()
        for gateway in self.gateways:
            gateway.check()
        said = self.said(client)
        spent = {key: after[key] - before[key] for key in before}
        return said, {"path_mtu": self.path_mtu(), **self.cpu_figures(said, spent, peak, elapsed)}

    def tails(self):
        """The last that the gateways said."""
        return "\n".join(gateway.tail() for gateway in self.gateways)

    def usage(self):
        """CPU seconds so far: of the gateways, of the iperf3 server, of the machine's processes, stolen."""
        first_line = pathlib.Path("/proc/stat").read_text().partition("\n")[0]
        seconds = [int(word) / TICKS for word in first_line.split()[1:]]
        return {
            "gateways": sum(gateway.cpu_seconds() for gateway in self.gateways),
            "server": self.server.cpu_seconds(),
            "processes": sum(seconds[:3]),
            "stolen": seconds[7],
        }

    def said(self, client):
        """What iperf3 printed."""
        try:
            said = json.loads(client.log.read_text())
        except json.JSONDecodeError as error:
            raise Failed(f"iperf3 printed no JSON: {client.tail()}") from error
        if "error" in said:
            raise Failed(f"iperf3: {said['error']}; gateways said:\n{self.tails()}")
        return said

    def path_mtu(self):
        """The largest packet of host A, as it has learnt meanwhile; its peer heeds it by the MSS of TCP."""
        known = run("ip", "-n", self.lab.host["a"], "route", "get", HOST["b"])
        learnt = re.search(r"\bmtu (\d+)", known)
        return int(learnt[1]) if learnt else MTU

    def cpu_figures(self, said, spent, client_cpu, elapsed):
        """Gateway CPU per gigabyte, and how many cores others than this measurement used."""
        carried = sum(interval["sum"]["bytes"] for interval in said["intervals"])
        others = spent["processes"] - spent["gateways"] - spent["server"] - client_cpu
        return {
            "gateway_cpu_s_per_gb": spent["gateways"] / (carried / 1e9) if self.gateways and carried else None,
            "others_cores": max(0.0, others / elapsed),
            "stolen_cores": spent["stolen"] / elapsed,
        }
