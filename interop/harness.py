"""What the oracles share: counting cases, running convoy, site files, captures of raw IP packets."""

import ipaddress
import json
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile

CANNOT_RUN = 77
ROOT = pathlib.Path(__file__).resolve().parent.parent
LINKTYPE_RAW = 101


class Report:
    """Counts cases; the last line it prints is what `cargo xtask interop` reads."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def check(self, name, problems):
        """One case: passed if `problems` (a list of texts) is empty."""
        if not problems:
            self.passed += 1
            return True
        self.failed += 1
        print(f"FAILED: {name}")
        for problem in problems[:5]:
            print(f"    {problem}")
        if len(problems) > 5:
            print(f"    and {len(problems) - 5} more")
        return False

    def skip(self, name, why):
        self.skipped += 1
        print(f"SKIPPED: {name}: {why}")

    def end(self):
        print(f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped")
        sys.exit(1 if self.failed or not self.passed else 0)


def cannot_run(why):
    print(f"SKIPPED: {why}")
    sys.exit(CANNOT_RUN)


def need_commands(*names):
    """Ends the oracle as skipped where a command is missing."""
    path = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin"
    os.environ["PATH"] = path
    missing = [name for name in names if shutil.which(name) is None]
    if missing:
        cannot_run(f"{', '.join(missing)} not installed (interop/install-deps.sh installs it as root)")


def target_dir():
    """The build folder, where captures of `convoy demo` lie."""
    for name in ("CONVOY_TARGET", "CARGO_TARGET_DIR"):
        if os.environ.get(name):
            return pathlib.Path(os.environ[name])
    return ROOT / "target"


def cache_dir():
    """Where downloads outlive a clone, as interop/cache.sh has it."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.environ.get("HOME", "/nonexistent"), ".cache")
    folder = pathlib.Path(base) / "convoy"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        folder = None
    if folder is None or not os.access(folder, os.W_OK):
        folder = target_dir().resolve() / "tools" / "cache"
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def convoy_binary():
    """The program under test: $CONVOY_BIN, else the debug build, else the release build."""
    if os.environ.get("CONVOY_BIN"):
        return os.environ["CONVOY_BIN"]
    for profile in ("debug", "release"):
        path = target_dir() / profile / "convoy"
        if path.exists():
            return str(path)
    sys.exit("there is no convoy program: cargo build -p convoy, or set CONVOY_BIN")


def run_convoy(*arguments, timeout=120):
    """Runs convoy to its end and returns its standard output; anything but exit status 0 is an error."""
    command = [convoy_binary(), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    if done.returncode != 0:
        raise ConvoyError(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr.strip()[-2000:]}")
    return done.stdout


class ConvoyError(Exception):
    """convoy ended with something else than 0."""


def last_json(text):
    """The JSON object that a verb with --json prints."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        for line in reversed(text.splitlines()):
            if line.startswith("{"):
                return json.loads(line)
        raise


def drops(counters):
    """Packets dropped by reason, summed over everything in the output that has a field `drops`."""
    found = {}

    def walk(node):
        if isinstance(node, dict):
            for key, value in node.items():
                if key == "drops":
                    add(value)
                else:
                    walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    def add(value):
        if isinstance(value, dict):
            rows = value.items()
        else:
            rows = ((row["reason"], row.get("packets", row.get("count", 0))) for row in value)
        for reason, count in rows:
            if count:
                found[reason] = found.get(reason, 0) + count

    walk(counters)
    return found


def write_pcap(path, packets):
    """Writes packets (bytes that begin with an IP header) as a capture of linktype RAW."""
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, LINKTYPE_RAW))
        for number, packet in enumerate(packets):
            file.write(struct.pack("<IIII", number // 1000, number % 1000 * 1000, len(packet), len(packet)))
            file.write(packet)


def read_pcap(path):
    """Reads a capture of linktype RAW, of either byte order and either resolution."""
    data = pathlib.Path(path).read_bytes()
    order = {b"\xd4\xc3\xb2\xa1": "<", b"\x4d\x3c\xb2\xa1": "<", b"\xa1\xb2\xc3\xd4": ">", b"\xa1\xb2\x3c\x4d": ">"}
    if data[:4] not in order:
        raise ValueError(f"{path} is no pcap file")
    order = order[data[:4]]
    linktype = struct.unpack_from(order + "I", data, 20)[0] & 0xFFFF
    if linktype != LINKTYPE_RAW:
        raise ValueError(f"{path} has linktype {linktype}, not {LINKTYPE_RAW}")
    packets, at = [], 24
    while at < len(data):
        captured, length = struct.unpack_from(order + "II", data, at + 8)
        if captured != length:
            raise ValueError(f"{path}: a packet of {length} bytes was cut to {captured}")
        packets.append(data[at + 16 : at + 16 + captured])
        at += 16 + captured
    return packets


def toml(value):
    """A value as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(item)}" for key, item in value.items()) + " }"
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'


def site_text(top, sections, sas, policies):
    """A whole site file."""
    lines = [f"{key} = {toml(value)}" for key, value in top.items()]
    for name, table in sections.items():
        lines += ["", f"[{name}]"] + [f"{key} = {toml(value)}" for key, value in table.items()]
    for name, tables in (("sa", sas), ("policy", policies)):
        for table in tables:
            lines += ["", f"[[{name}]]"] + [f"{key} = {toml(value)}" for key, value in table.items()]
    return "\n".join(lines) + "\n"


class Workshop:
    """A folder for one oracle; removed at the end unless it failed or --keep was given."""

    def __init__(self, name, keep=False):
        self.path = pathlib.Path(tempfile.mkdtemp(prefix=f"convoy-{name}-"))
        self.keep = keep

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        failed = kind is not None and not (kind is SystemExit and value.code in (0, CANNOT_RUN, None))
        if self.keep or failed:
            print(f"files are left in {self.path}")
        else:
            shutil.rmtree(self.path, ignore_errors=True)

    def site(self, name, sections, sas, policies):
        """Writes a site file with a fresh state folder, and returns its path."""
        state = self.path / f"{name}-state"
        if state.exists():
            shutil.rmtree(state)
        state.mkdir(mode=0o700)
        top = {"name": name, "state_dir": state, "control_socket": self.path / f"{name}.sock"}
        path = self.path / f"{name}.toml"
        path.touch(mode=0o600)
        path.write_text(site_text(top, sections, sas, policies), encoding="utf-8")
        return path

    def site_with(self, name, top, sections, sas, policies):
        """As `site`, with more keys at the top level."""
        path = self.site(name, sections, sas, policies)
        text = "".join(f"{key} = {toml(value)}\n" for key, value in top.items())
        path.write_text(text + path.read_text(encoding="utf-8"), encoding="utf-8")
        return path


class Dice(random.Random):
    """The oracle's only source of chance."""

    def octets(self, count):
        return self.randbytes(count)


def checksum(data):
    """The Internet checksum of RFC 1071."""
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def outer_udp_problem(packet):
    """What is wrong with lengths and checksum of the UDP header that encapsulates; '' if nothing."""
    if packet[0] >> 4 == 4:
        header, addresses = (packet[0] & 15) * 4, packet[12:20]
    else:
        header, addresses = 40, packet[8:40]
    datagram = packet[header:]
    length, found = struct.unpack_from(">HH", datagram, 4)
    if length != len(datagram):
        return f"UDP length {length} of a datagram of {len(datagram)}"
    if found == 0:
        return ""
    pseudo = addresses + struct.pack(">HH" if len(addresses) == 8 else ">IHBB", *(
        (17, length) if len(addresses) == 8 else (length, 0, 0, 17)))
    return "" if checksum(pseudo + datagram) == 0 else f"UDP checksum {found:#06x} is wrong"


def address_in(network, number):
    """The number-th address of a network."""
    return str(ipaddress.ip_network(network)[number])
