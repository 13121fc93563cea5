"""What is compared: each candidate joins the two inner networks in its own way.

A candidate knows what it needs (`missing`), how to set itself up between two gateways (`start`), what
its packets look like on the wire (`on_wire`, a pcap filter) and which version it is (`version`).
"""

import json
import os
import pathlib
import re
import secrets
import shutil
import subprocess
import sys

from lab import NET, SIDES, SOCKET_PREFIX, SOCKETS, WIRE, Failed, run, wait_for

BORINGTUN = "cargo install --root target/tools boringtun-cli"
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "interop"))

from harness import site_text  # noqa: E402


def target_dir():
    """The build folder."""
    return pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")


def tool(name):
    """A program that was installed into the build folder, else one of the machine; None if neither."""
    own = target_dir() / "tools" / "bin" / name
    return str(own) if own.exists() else shutil.which(name)


def dpkg_version(package):
    """The version of an installed Debian package."""
    if not shutil.which("dpkg-query"):
        return ""
    done = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


class Candidate:
    """One way through the two gateways."""

    name = ""
    cipher = ""
    program = ""  # whose it is
    variant = ""  # what makes it differ from others of the program
    is_usual = True  # whether it is measured when nobody says what
    queues = 1  # of each end of a link

    def missing(self):
        """What this machine lacks for it; '' if nothing."""
        return ""

    def version(self):
        """What is measured."""
        return ""

    def tiers(self):
        """Convoy's tiers that the processor has, the least first; none if it does not know them."""
        return []

    def start(self, lab):
        """Sets it up; returns the gateway processes."""
        raise NotImplementedError

    def on_wire(self):
        """The pcap filter that each of its packets on the wire passes."""
        raise NotImplementedError

    def protected(self, _lab):
        """Packets that both gateways have protected so far, if no capture sees them; None else."""
        return None

    def confirm(self, lab):
        """Raises if something else was set up than what is to be measured."""


class Plain(Candidate):
    """Routing in the clear: what the hosts, the links and iperf3 can do."""

    name = "plain"
    cipher = "none"
    program = "kernel"
    variant = "routing in the clear"

    def version(self):
        return "kernel routing"

    def start(self, lab):
        for side, peer in SIDES:
            run("ip", "-n", lab.gateway[side], "route", "add", NET[peer], "via", WIRE[peer])
        return []

    def on_wire(self):
        return f"src net {NET['a']} or src net {NET['b']}"


class Convoy(Candidate):
    """Two Convoy gateways with static keys."""

    cipher = "AES-128-GCM"
    program = "convoy"

    def __init__(self, name, encap, binary=None, backend="auto", workers=1):
        self.name = name
        self.encap = encap
        self.backend = backend
        self.workers = workers
        self.is_usual = backend in ("auto", "socket") and "workers" not in name
        self.queues = workers if backend == "af_xdp" else 1
        carried = "ESP in UDP" if encap else "native ESP"
        by = {"socket": "sockets", "auto": "backend auto"}.get(backend, backend)
        self.variant = f"{carried}, {by}, {workers} worker{'s' if workers > 1 else ''}"
        self.binary = pathlib.Path(binary or os.environ.get("CONVOY_BIN") or target_dir() / "release" / "convoy")

    def missing(self):
        if not self.binary.exists():
            return f"no {self.binary} (cargo build --release --locked -p convoy, or --convoy PATH)"
        if "workers" in self.name and self.workers < 2:
            return "several workers need several processors (--workers)"
        asked = subprocess.run([self.binary, "run", "--help"], capture_output=True, check=False)
        return "" if asked.returncode == 0 else f"{self.binary} knows no verb `run`"

    def tiers(self):
        tiers = json.loads(run(self.binary, "crypto", "--json"))["tiers"]
        return [tier["name"] for tier in reversed(tiers) if tier["state"] != "missing"]

    def version(self):
        tiers = json.loads(run(self.binary, "crypto", "--json"))["tiers"]
        in_use = [tier["name"] for tier in tiers if tier["state"] == "in use"]
        return f"{run(self.binary, '--version').strip()}, CPU tier {', '.join(in_use)}"

    def start(self, lab):
        keys = {side: secrets.token_hex(16 + 4) for side in "ab"}
        processes = []
        for side, peer in SIDES:
            site = self.write_site(lab, side, peer, keys)
            log = f"convoy-{side}.log"
            processes.append(lab.start(lab.gateway[side], self.binary, "--log", "warn", "run", site, log=log))
        return processes

    def write_site(self, lab, side, peer, keys):
        state = lab.folder / f"state-{side}"
        state.mkdir(mode=0o700)
        spi = {"a": 0x1001, "b": 0x1002}  # of what each side sends
        common = {"mode": "tunnel", "local": WIRE[side], "remote": WIRE[peer], "algorithm": "aes-128-gcm", "icv": 16}
        if self.encap:
            common["encap"] = {"kind": "udp", "remote_port": 4500}
        text = site_text(
            {"name": f"gw-{side}", "state_dir": state, "control_socket": lab.folder / f"{side}.sock"},
            self.sections(),
            [
                {"name": "out", "direction": "outbound", "spi": spi[side], "key": keys[side], **common},
                {"name": "in", "direction": "inbound", "spi": spi[peer], "key": keys[peer], **common},
            ],
            [
                {
                    "name": "net", "action": "protect", "local": NET[side], "remote": NET[peer],
                    "sa_out": "out", "sa_in": "in",
                }
            ],
        )
        path = lab.folder / f"{side}.toml"
        path.touch(mode=0o600)
        path.write_text(text, encoding="utf-8")
        return path

    def protected(self, lab):
        # 1 and 2 are warnings, such as of packets that were lost.
        asked = [run(self.binary, "status", lab.folder / f"{side}.toml", "--json", good=(0, 1, 2)) for side in "ab"]
        both = [json.loads(said) for said in asked]
        # The program in the driver takes frames before a capture sees them, and the gateway's own go past it.
        if all((status.get("wire") or {}).get("native", self.backend) != "af_xdp" for status in both):
            return None
        return sum(status["outbound"]["packets"] for status in both)

    def sections(self):
        """How packets come in and go out, and how many work on them."""
        sides = {"plain": {"interface": "tun0"}, "wire": {"interface": "wire"}}
        if self.encap:
            sides["wire"]["udp_port"] = 4500
        if self.backend == "socket":
            sides["wire"]["backend"] = self.backend
        elif self.backend != "auto":
            sides["plain"] = {"backend": self.backend, "interface": "lan"}
            sides["wire"]["backend"] = self.backend
        if self.workers == 1:
            return sides
        # The comparison has one SA: the workers that it does not belong to help with its cryptography.
        return {**sides, "workers": {"count": self.workers}, "crypto": {"engine": "workers"}}

    def on_wire(self):
        # Behind 4500, a first word other than 0 is an SPI (RFC 3948 section 2.2).
        return "udp port 4500 and udp[8:4] != 0" if self.encap else "ip proto 50"


class Libipsec(Candidate):
    """Two unmodified strongSwan daemons with the userspace ESP of their plugin kernel-libipsec.

    It carries ESP in UDP only (until 5.9.11, and by default after it). Its AES-GCM comes from the first
    plugin that has it: `aesni` as strongSwan orders them, which also needs less CPU than the others.
    """

    cipher = "AES-128-GCM"
    program = "strongswan"
    daemon = "/usr/sbin/charon-systemd"
    plugins = pathlib.Path("/usr/lib/ipsec/plugins")
    identity = {"a": "a.test", "b": "b.test"}

    def __init__(self, name, gcm):
        self.name = name
        self.gcm = gcm if self.plugin(gcm).exists() else "openssl"  # aesni is of x86-64 only
        self.variant = f"kernel-libipsec, plugin {self.gcm}"

    def plugin(self, name):
        return self.plugins / f"libstrongswan-{name}.so"

    def missing(self):
        if not pathlib.Path(self.daemon).exists() or not shutil.which("swanctl"):
            return "charon-systemd and strongswan-swanctl are not installed (--install)"
        absent = [name for name in ("kernel-libipsec", "openssl") if not self.plugin(name).exists()]
        return f"strongSwan's plugin {absent[0]} is not installed (--install)" if absent else ""

    def version(self):
        version = dpkg_version("strongswan-libcharon") or "of unknown version"
        return f"strongSwan {version}, plugin {self.gcm}"

    def start(self, lab):
        secret = secrets.token_hex(16)
        processes = []
        for side, peer in SIDES:
            self.configure(lab, side, peer, secret)
            log, env = f"charon-{side}.out", self.env(lab, side)
            processes.append(lab.start(lab.gateway[side], self.daemon, log=log, env=env))
        for side in "ab":
            wait_for(f"socket of charon {side}", lambda at=lab.folder / f"vici-{side}": self.is_up(processes, at))
            self.swanctl(lab, side, "--load-all", "--noprompt", "--file", lab.folder / f"swanctl-{side}.conf")
        self.swanctl(lab, "a", "--initiate", "--child", "net", "--timeout", "15")
        return processes

    @staticmethod
    def is_up(processes, socket):
        for process in processes:
            process.check()
        return socket.is_socket()

    @staticmethod
    def env(lab, side):
        return {**os.environ, "STRONGSWAN_CONF": str(lab.folder / f"strongswan-{side}.conf")}

    def swanctl(self, lab, side, *arguments):
        return run("swanctl", *arguments, env=self.env(lab, side))

    def configure(self, lab, side, peer, secret):
        socket = f"vici {{ socket = unix://{lab.folder}/vici-{side} }}"
        order = dict.fromkeys((self.gcm, "openssl"))
        plugins = f"random nonce {' '.join(order)} kdf kernel-libipsec kernel-netlink socket-default vici updown"
        (lab.folder / f"strongswan-{side}.conf").write_text(f"""
charon-systemd {{
  load = {plugins}
  filelog {{ log {{
    path = {lab.folder}/charon-{side}.log
    default = 1
    flush_line = yes
  }} }}
  syslog {{ daemon {{ default = -1 }} }}
  plugins {{ {socket} }}
}}
swanctl {{
  load = random
  plugins {{ {socket} }}
}}
""")
        me, other = self.identity[side], self.identity[peer]
        (lab.folder / f"swanctl-{side}.conf").write_text(f"""
connections {{ tunnel {{
  version = 2
  local_addrs = {WIRE[side]}
  remote_addrs = {WIRE[peer]}
  proposals = aes128-sha256-x25519
  local {{
    auth = psk
    id = {me}
  }}
  remote {{
    auth = psk
    id = {other}
  }}
  children {{ net {{
    local_ts = {NET[side]}
    remote_ts = {NET[peer]}
    esp_proposals = aes128gcm16
    updown = /bin/true
  }} }}
}} }}
secrets {{ ike-tunnel {{
  id-a = {me}
  id-b = {other}
  secret = "{secret}"
}} }}
""")

    def on_wire(self):
        return "udp port 4500 and udp[8:4] != 0"

    def confirm(self, lab):
        listed = self.swanctl(lab, "a", "--list-sas")
        if "AES_GCM_16-128" not in listed:
            raise Failed(f"something else than AES-128-GCM was agreed on\n{listed}")


class Wireguard(Candidate):
    """Two WireGuard daemons that are configured with `wg`: whichever program follows that interface."""

    cipher = "ChaCha20-Poly1305"
    port = 51820
    mtu = 1420  # as wg-quick sets it; not every program does by itself

    def __init__(self, name, program, arguments, install):
        self.name = self.program = name
        self.variant = self.cipher
        self.binary = program
        self.arguments = arguments
        self.install = install

    def missing(self):
        if not tool(self.binary):
            return f"{self.binary} is not installed ({self.install})"
        return "" if shutil.which("wg") else "wireguard-tools is not installed (--install)"

    def version(self):
        program = tool(self.binary)
        # What Go's linker recorded is exact; the program's own idea of its version is years old.
        recorded = re.search(rb"\nmod\tgolang\.zx2c4\.com/wireguard\t(\S+)", pathlib.Path(program).read_bytes())
        if recorded:
            return f"{self.name} {recorded[1].decode()}"
        return run(program, "--version").splitlines()[0]

    def start(self, lab):
        private = {side: run("wg", "genkey").strip() for side in "ab"}
        # Sockets of all namespaces lie in one folder, so the interfaces need names of their own.
        links = {side: f"{SOCKET_PREFIX}{os.getpid()}{side}" for side in "ab"}
        sockets = {side: SOCKETS / f"{link}.sock" for side, link in links.items()}
        lab.leftovers += sockets.values()
        processes = []
        for side, _ in SIDES:
            command = [tool(self.binary), *self.arguments, links[side]]
            env = {**os.environ, "LOG_LEVEL": "error", "WG_LOG_LEVEL": "error"}
            processes.append(lab.start(lab.gateway[side], *command, log=f"{self.name}-{side}.log", env=env))
        for (side, peer), process in zip(SIDES, processes):
            wait_for(f"socket of {self.name} {side}", lambda s=sockets[side], p=process: p.check() or s.is_socket())
            self.configure(lab, side, peer, links[side], private)
        return processes

    def configure(self, lab, side, peer, link, private):
        key = lab.folder / f"key-{side}"
        key.touch(mode=0o600)
        key.write_text(private[side])
        public = subprocess.run(
            ["wg", "pubkey"], input=private[peer], capture_output=True, text=True, check=True
        ).stdout.strip()
        namespace = lab.gateway[side]
        lab.inside(
            namespace, "wg", "set", link, "private-key", key, "listen-port", self.port,
            "peer", public, "endpoint", f"{WIRE[peer]}:{self.port}", "allowed-ips", NET[peer],
        )
        run("ip", "-n", namespace, "link", "set", link, "mtu", self.mtu, "up")
        run("ip", "-n", namespace, "route", "add", NET[peer], "dev", link)

    def on_wire(self):
        return f"udp port {self.port}"


def all_candidates(convoy=None, workers=2):
    """Every candidate, in the order of the table."""
    ways = (
        ("udp", True, "auto"), ("esp", False, "auto"), ("sockets", False, "socket"),
        ("packet", False, "af_packet"), ("xdp", False, "af_xdp"),
    )
    return [
        Plain(),
        *(Convoy(f"convoy-{kind}", encap, convoy, backend) for kind, encap, backend in ways),
        *(Convoy(f"convoy-{kind}-workers", encap, convoy, backend, workers) for kind, encap, backend in ways),
        Libipsec("libipsec", gcm="aesni"),
        Libipsec("libipsec-openssl", gcm="openssl"),
        Wireguard("wireguard-go", "wireguard-go", ["-f"], "--install, with Go on the machine"),
        Wireguard("boringtun", "boringtun-cli", ["-f", "--disable-drop-privileges"], BORINGTUN),
    ]
