#!/usr/bin/env python3
"""tshark decrypts what Convoy sent, with the key file that `convoy keys` writes, and finds no bad ICV.

    interop/tshark_oracle.py [--smoke] [--keep]

Captures come from `convoy replay`, over tunnel and transport mode, IPv4 and IPv6, native ESP and ESP
in UDP, every key and ICV length; and from `convoy demo`.
"""

import argparse
import functools
import re
import subprocess
import sys

import harness

# The last two columns of Wireshark's table `esp_sa`: length of the sequence number and its upper
# half. Versions before 4.4 do not have them and so cannot authenticate extended sequence numbers.
ESN_COLUMNS = ('"64-bit","0x00000000"', '"64-bit","00000000"', '"64-bit","0"')
PACKETS = 24
UDP = 17


@functools.cache
def no_guessing():
    """Options that keep tshark from guessing what random payloads are: where it takes one for a broken
    packet of some protocol, it gives the frame up before it judges the ICV."""
    listed = subprocess.run(["tshark", "-G", "heuristic-decodes"], capture_output=True, text=True, check=False).stdout
    rows = [line.split("\t") for line in listed.splitlines()]
    return [part for row in rows if row[0] in ("tcp", "udp") for part in ("--disable-protocol", row[1])]


def tshark(capture, key_file, folder):
    """Frames of a capture as tshark sees them with this key file, and what it said about the file."""
    config = folder / "wireshark"
    config.mkdir(exist_ok=True)
    (config / "esp_sa").write_text(key_file, encoding="utf-8")
    fields = ["esp.spi", "esp.icv_good", "esp.icv_bad", "esp.protocol", "ip.dst", "ipv6.dst"]
    command = ["tshark", "-r", capture, "-n", *no_guessing(), "-T", "fields", "-E", "separator=|", "-E", "aggregator=;",
               "-o", "esp.enable_encryption_decode:TRUE", "-o", "esp.enable_authentication_check:TRUE", "-Y", "esp"]
    for field in fields:
        command += ["-e", field]
    environment = {**harness.os.environ, "WIRESHARK_CONFIG_DIR": str(config)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600, check=False)
    if done.returncode != 0:
        raise harness.ConvoyError(f"tshark: exit status {done.returncode}\n{done.stderr[-2000:]}")
    frames = []
    for line in done.stdout.splitlines():
        spi, good, bad, protocol, dst4, dst6 = line.split("|")
        # A capture of the plain side may show ESP in ESP; the first value is the outer one.
        frames.append({"spi": int(spi.split(";")[0], 16), "good": good.startswith("1"), "bad": bad.startswith("1"),
                       "protocol": protocol, "destinations": [a for a in f"{dst4};{dst6}".split(";") if a]})
    return frames, done.stderr


def takes_esn(capture, lines, folder):
    """The two columns for extended sequence numbers in the form that this tshark takes; '' if none."""
    for columns in ESN_COLUMNS:
        _, said = tshark(capture, "".join(f"{line},{columns}\n" for line in lines), folder)
        if "esp_sa" not in said:
            return columns
    return ""


def key_lines(text):
    """The lines of a key file without comments, each cut to the eight columns that every version has."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    for line in lines:
        if not re.fullmatch(r'("[^"]*",){7}"[^"]*"(,"[^"]*","[^"]*")?', line):
            raise harness.ConvoyError("convoy keys wrote a line that is none of Wireshark's table esp_sa")
    return [first_columns(line, 8) for line in lines]


def first_columns(line, count):
    return ",".join(f'"{value}"' for value in re.findall(r'"([^"]*)"', line)[:count])


def spi_of(line):
    return int(re.findall(r'"([^"]*)"', line)[3], 16)


def plans(dice):
    """One outbound SA for each mode, family and encapsulation, with every key and ICV length among them."""
    made = []
    for mode, outer, inner in (("tunnel", 4, 4), ("tunnel", 4, 6), ("tunnel", 6, 4), ("tunnel", 6, 6),
                               ("transport", 4, 4), ("transport", 6, 6)):
        for encap in (False, True):
            for icv in (16, 12, 8):
                for esn in (False, True):
                    bits = (128, 192, 256)[len(made) // 2 % 3]
                    made.append(plan(dice, len(made) + 1, mode, outer, inner, encap, icv, esn, bits))
    return made


def plan(dice, number, mode, outer, inner, encap, icv, esn, bits):
    local, remote = (("192.0.2.1", f"198.51.100.{number}") if outer == 4
                     else ("2001:db8:a::1", f"2001:db8:b::{number:x}"))
    if mode == "transport":
        width = 32 if outer == 4 else 128
        near, far = f"{local}/{width}", f"{remote}/{width}"
    elif inner == 4:
        near, far = f"10.1.{number}.0/24", f"10.2.{number}.0/24"
    else:
        near, far = f"2001:db8:1:{number:x}::/64", f"2001:db8:2:{number:x}::/64"
    sa = {"name": f"out-{number}", "direction": "outbound", "spi": 0x1000 + number, "mode": mode, "local": local,
          "remote": remote, "algorithm": f"aes-{bits}-gcm", "icv": icv, "key": dice.octets(bits // 8 + 4).hex(),
          "esn": esn}
    if encap:
        sa["encap"] = {"kind": "udp", "remote_port": 4500}
    name = f"{mode} {inner}in{outer}{' in UDP' if encap else ''}, aes-{bits}-gcm-{icv}{'-esn' if esn else ''}"
    policy = {"name": f"policy-{number}", "action": "protect", "local": near, "remote": far, "sa_out": sa["name"]}
    first = 0 if mode == "transport" else 1
    ends = harness.address_in(near, first), harness.address_in(far, first)
    return {"name": name, "sa": sa, "policy": policy, "ends": ends, "inner": inner, "mode": mode, "esn": esn}


def inner_packet(dice, version, source, destination, size):
    """A UDP datagram without checksum, by hand: this oracle does without scapy."""
    address = harness.ipaddress.ip_address
    ends = address(source).packed + address(destination).packed
    body = b"\x10\x00\x20\x00" + (8 + size).to_bytes(2, "big") + b"\0\0" + dice.octets(size)
    if version == 6:
        return bytes([0x60, 0, 0, 0]) + len(body).to_bytes(2, "big") + bytes([17, 64]) + ends + body
    head = b"\x45\0" + (20 + len(body)).to_bytes(2, "big") + b"\0\1\0\0\x40\x11\0\0" + ends
    return head[:10] + harness.checksum(head).to_bytes(2, "big") + head[12:] + body


def judge(plan_, frames, esn_known):
    """What tshark holds against the frames of one SA."""
    problems = []
    if len(frames) != PACKETS:
        problems.append(f"{PACKETS} packets were sent, {len(frames)} are in the capture")
    if esn_known or not plan_["esn"]:
        problems += [f"frame {n}: bad ICV" for n, frame in enumerate(frames, 1) if frame["bad"]]
        problems += [f"frame {n}: no good ICV" for n, frame in enumerate(frames, 1) if not frame["good"]]
    if plan_["mode"] == "tunnel":
        inside = plan_["ends"][1]
        problems += [f"frame {n}: {inside} is not inside" for n, frame in enumerate(frames, 1)
                     if inside not in frame["destinations"]]
    else:
        problems += [f"frame {n}: next header {frame['protocol']!r}" for n, frame in enumerate(frames, 1)
                     if int(frame["protocol"] or "0", 0) != UDP]
    return problems


def check_replay(report, shop, smoke):
    dice = harness.Dice(4106)
    # Five and the numbers of modes, ICVs and kinds of sequence number have no divisor in common.
    made = plans(dice)[::5 if smoke else 1]
    sections = {"plain": {"interface": "convoy0"}, "wire": {"mtu": 1500}}
    site = shop.site("tshark", sections, [one["sa"] for one in made], [one["policy"] for one in made])
    plain, wire = shop.path / "plain.pcap", shop.path / "wire.pcap"
    harness.write_pcap(plain, [inner_packet(dice, one["inner"], *one["ends"], dice.randint(0, 1300))
                               for _ in range(PACKETS) for one in made])
    harness.run_convoy("replay", site, "--plain-in", plain, "--wire-out", wire)
    text = harness.run_convoy("keys", "--from-site", site)
    _, said = tshark(wire, text, shop.path)
    complaints = [line for line in said.splitlines() if "esp_sa" in line and "More fields than required" not in line]
    report.check("tshark takes the key file as convoy keys writes it", complaints)
    lines = key_lines(text)
    columns = takes_esn(wire, lines, shop.path)
    esn = {one["sa"]["spi"]: one["esn"] for one in made}
    if columns:
        short = columns.replace("64", "32")
        lines = [f"{line},{columns if esn.get(spi_of(line)) else short}" for line in lines]
    frames, _ = tshark(wire, "".join(line + "\n" for line in lines), shop.path)
    for one in made:
        mine = [frame for frame in frames if frame["spi"] == one["sa"]["spi"]]
        report.check(one["name"], judge(one, mine, bool(columns)))
    if not columns:
        version = subprocess.run(["tshark", "--version"], capture_output=True, text=True, check=False).stdout.split("\n")[0]
        report.skip("ICVs of extended sequence numbers", f"{version} cannot authenticate them (decryption was checked)")


def check_demo(report, shop, smoke):
    """What `convoy demo` leaves for a newcomer: capture and key file must fit, frame by frame."""
    for number, options in enumerate([["--v6", "--udp-encap"]] if smoke else [[], ["--v6", "--udp-encap"]]):
        name = " ".join(["convoy demo", *options])
        folder = shop.path / f"demo-{number}"
        harness.run_convoy("demo", "--seconds", "2", "--json", "--out", folder, *options, timeout=180)
        key_file = (folder / "wireshark" / "esp_sa").read_text(encoding="utf-8")
        known = {spi_of(line) for line in key_lines(key_file)}
        frames, _ = tshark(folder / "wire.pcap", key_file, shop.path)
        mine = [frame for frame in frames if frame["spi"] in known]
        bad = sum(frame["bad"] or not frame["good"] for frame in mine)
        problems = [f"{bad} of {len(mine)} frames without a good ICV"] * (bad > 0)
        if {frame["spi"] for frame in mine} != known:
            problems.append("the capture does not hold ESP of every SA in the key file")
        report.check(f"{name}: {len(mine)} frames of its capture", problems)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="a fifth of the SAs, and one demonstration")
    parser.add_argument("--keep", action="store_true", help="leave site file, captures and key file")
    options = parser.parse_args()
    harness.need_commands("tshark")
    report = harness.Report()
    with harness.Workshop("tshark", options.keep) as shop:
        for check in (check_replay, check_demo):
            try:
                check(report, shop, options.smoke)
            except (harness.ConvoyError, subprocess.TimeoutExpired, OSError, ValueError) as error:
                report.check(check.__name__, [str(error)])
        report.end()


if __name__ == "__main__":
    sys.exit(main())
