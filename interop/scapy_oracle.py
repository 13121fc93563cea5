#!/usr/bin/env python3
"""scapy's IPsec against Convoy, in both directions, over packets of every mode and size.

Convoy runs without a network: `convoy replay` sends captures of raw IP packets through the real
worker and its pipelines. What Convoy protects, scapy must open; what scapy protects, Convoy must
open; what somebody changed, repeated or made up must be dropped and counted under its reason.

    interop/scapy_oracle.py [--smoke] [--packets N] [--seed S] [--only NAME] [--keep]

--smoke has every mode and every suite, but not every suite in every mode.
"""

import argparse
import dataclasses
import sys

import harness
import scapy_esp
import suites
from scapy_esp import AH, ESP, IP, InvalidTag, IPv6

LARGEST = 1340  # bytes behind the inner IP header: with every header, below 1500 on the wire

BURST = 256  # the most packets that Convoy handles at once

# What is done to packets, and the reason under which Convoy must count them.
REPEATED, OLD, FORGED, STRANGE_SPI = "replayed", "too-old", "bad-icv", "unknown-spi"
SHORT, PADDING, OUTSIDE_POLICY, DUMMY = "esp-length", "bad-padding", "inner-policy-mismatch", "dummy-packet"


@dataclasses.dataclass
class Pair:
    """Two SAs of one peer: out of Convoy and into Convoy."""

    name: str
    local: str
    remote: str
    inside: tuple  # networks behind Convoy and behind the peer
    out: object
    into: object
    sections: list
    policy: dict
    esn: bool


@dataclasses.dataclass
class Group:
    """Everything of one mode: one site file, one run of Convoy for each direction."""

    mode: str
    outer: int
    inner: int
    encap: bool
    protocol: str = "esp"

    @property
    def name(self):
        shape = f"{self.inner}in{self.outer}" if self.mode == "tunnel" else f"IPv{self.outer}"
        return f"{'AH ' if self.protocol == 'ah' else ''}{self.mode} {shape}{' in UDP' if self.encap else ''}"


class Ivs:
    """Every IV that Convoy used: none may come twice under one key."""

    def __init__(self):
        self.seen = set()

    def problem(self, sa, iv, seq):
        if not iv:
            return ""
        if sa.crypt_algo.name not in suites.BLOCKS:
            return "" if iv == seq.to_bytes(8, "big") else f"has the IV {iv.hex()} at sequence number {seq}"
        if (sa.crypt_key, iv) in self.seen:
            return f"repeats the IV {iv.hex()}"
        self.seen.add((sa.crypt_key, iv))
        return ""


IVS = Ivs()


def groups():
    tunnel = [Group("tunnel", outer, inner, encap) for encap in (False, True) for outer in (4, 6) for inner in (4, 6)]
    transport = [Group("transport", version, version, encap) for encap in (False, True) for version in (4, 6)]
    ah = [Group(one.mode, one.outer, one.inner, False, "ah") for one in tunnel + transport if not one.encap]
    return tunnel + transport + ah


def pairs(dice, group, smoke=False):
    """One pair for each suite. Extended sequence numbers take turns, so that over the groups each suite has
    both kinds. A smoke test deals the suites out to the groups of a protocol."""
    made = all_pairs(dice, group)
    if not smoke:
        return made
    alike = [one for one in groups() if one.protocol == group.protocol]
    mine = made[alike.index(group)::len(alike)]
    # Without one of them the wrap of sequence numbers would not be tried.
    return mine if any(one.esn for one in mine) else mine + [next(one for one in made if one.esn)]


def all_pairs(dice, group):
    if group.protocol == "ah":
        macs = [suite for suite in suites.suites() if suite.crypt in ("NULL", "AES-NULL-GMAC")]
        kinds = [(suite, esn) for suite in macs for esn in (False, True)]
        return [pair(dice, group, number, suite, esn) for number, (suite, esn) in enumerate(kinds, 1)]
    turn = groups().index(group)
    return [pair(dice, group, number, suite, (number + turn) % 2 == 0)
            for number, suite in enumerate(suites.suites(), 1)]


def pair(dice, group, number, suite, esn):
    if group.outer == 4:
        local, remote = "192.0.2.1", f"198.51.100.{number}"
    else:
        local, remote = "2001:db8:a::1", f"2001:db8:b::{number:x}"
    if group.mode == "transport":
        width = 32 if group.outer == 4 else 128
        inside = (f"{local}/{width}", f"{remote}/{width}")
    elif group.inner == 4:
        inside = (f"10.1.{number}.0/24", f"10.2.{number}.0/24")
    else:
        inside = (f"2001:db8:1:{number:x}::/64", f"2001:db8:2:{number:x}::/64")
    header = scapy_esp.ip_class(group.outer)
    name = f"{suite.name}{' with ESN' if esn else ''}"
    ends, sections = [], []
    for direction, base, (source, destination) in (
        ("outbound", 0x10000, (local, remote)),
        ("inbound", 0x20000, (remote, local)),
    ):
        keys = suite.keys(dice)
        tunnel = header(src=source, dst=destination) if group.mode == "tunnel" else None
        if group.protocol == "ah":
            ends.append(scapy_esp.ah_association(base + number, suite, keys, esn, tunnel))
        else:
            ends.append(scapy_esp.association(base + number, suite, keys, esn, tunnel, group.encap))
        section = {
            "name": f"{direction}-{number}", "direction": direction, "spi": base + number, "mode": group.mode,
            "local": local, "remote": remote, "esn": esn, **suite.site_entries(keys),
        }
        if group.protocol == "ah":
            section["protocol"] = "ah"
            section.pop("encryption", None)
        if group.encap:
            section["encap"] = {"kind": "udp", "remote_port": 4500}
        sections.append(section)
    policy = {
        "name": f"policy-{number}", "action": "protect", "local": inside[0], "remote": inside[1],
        "sa_out": f"outbound-{number}", "sa_in": f"inbound-{number}",
    }
    return Pair(name, local, remote, inside, ends[0], ends[1], sections, policy, esn)


def write_site(shop, name, made):
    sections = {"plain": {"interface": "convoy0"}, "wire": {"mtu": 1500}}
    return shop.site_with(name, {"legacy": True}, sections, [s for one in made for s in one.sections], [one.policy for one in made])


def inner_packets(dice, group, one, count, outbound):
    near, far = (one.inside[0], one.inside[1]) if outbound else (one.inside[1], one.inside[0])
    def pick(network):
        return harness.address_in(network, 0 if group.mode == "transport" else dice.randint(1, 200))
    return [scapy_esp.random_packet(dice, group.inner, pick(near), pick(far), size)
            for size in scapy_esp.sizes(dice, count, LARGEST)]


def interleave(dice, lists):
    """One stream of all lists in random order, each in its own order."""
    order = [index for index, one in enumerate(lists) for _ in one]
    dice.shuffle(order)
    rest = [iter(one) for one in lists]
    return [next(rest[index]) for index in order]


def replay(shop, site, arriving, leaving, packets):
    """Sends packets through Convoy from one side; returns what leaves the other, and the counters."""
    source, sink = shop.path / "in.pcap", shop.path / "out.pcap"
    sink.unlink(missing_ok=True)
    harness.write_pcap(source, packets)
    text = harness.run_convoy("replay", site, "--json", f"--{arriving}-in", source, f"--{leaving}-out", sink)
    return harness.read_pcap(sink), harness.last_json(text)


def wire_problem(group, one, packet, seq, inner):
    """What is wrong with a packet that Convoy made, beside its ciphertext; '' if nothing."""
    outer = scapy_esp.parse(packet)
    if (outer.src, outer.dst) != (one.local, one.remote):
        return f"goes from {outer.src} to {outer.dst}"
    length = outer.len if group.outer == 4 else outer.plen + 40
    if length != len(packet):
        return f"IP length {length} of a packet of {len(packet)} bytes"
    if group.outer == 4 and harness.checksum(packet[:20]) != 0:
        return "the outer IPv4 header checksum is wrong"
    if group.encap and (problem := harness.outer_udp_problem(packet)):
        return problem
    if group.protocol == "ah":
        return ah_problem(group, one.out, outer, seq) or tunnel_problem(group, outer, inner)
    esp = outer[ESP]
    if esp.seq != seq:
        return f"has sequence number {esp.seq} instead of {seq}"
    if problem := IVS.problem(one.out, esp.data[:one.out.crypt_algo.iv_size], seq):
        return problem
    return tunnel_problem(group, outer, inner)


def ah_problem(group, sa, outer, seq):
    """RFC 4302 section 2, RFC 4543 section 4: what is wrong with an AH header, beside its ICV."""
    header = outer[AH]
    if header.seq != seq:
        return f"has sequence number {header.seq} instead of {seq}"
    if header.reserved != 0 or (header.payloadlen + 2) * 4 % (4 if group.outer == 4 else 8):
        return f"AH of {header.payloadlen} words, reserved {header.reserved}"
    if group.outer == 4 and outer.id == 0:
        return "identification 0, which raw sockets rewrite"
    iv = bytes(header.icv[:8])
    if sa.auth_algo.name == "AES-GMAC" and iv != seq.to_bytes(8, "big"):
        return f"has the IV {iv.hex()} at sequence number {seq}"
    return ""


def tunnel_problem(group, outer, inner):
    return outer_header_problem(group, outer, scapy_esp.parse(inner)) if group.mode == "tunnel" else ""


def outer_header_problem(group, outer, inner):
    """RFC 4301 section 5.1.2 and RFC 6040: what the outer header takes from the inner one."""
    limit = outer.ttl if group.outer == 4 else outer.hlim
    if limit != 64:
        return f"outer hop limit {limit}"
    mark = outer.tos if group.outer == 4 else outer.tc
    wanted = inner.tos if group.inner == 4 else inner.tc
    if mark != wanted:
        return f"outer traffic class {mark:#04x}, inner {wanted:#04x}"
    if group.outer == 4 and group.inner == 4 and ("DF" in outer.flags) != ("DF" in inner.flags):
        return f"outer DF is {outer.flags}, inner {inner.flags}"
    return ""


def trailer_problem(plain, inner, group, align):
    """RFC 4303 section 2.4: padding 1, 2, 3 … up to the next multiple of `align` bytes, and not more."""
    if plain.padding != bytes(range(1, plain.padlen + 1)):
        return f"padding {bytes(plain.padding).hex()}"
    if plain.padlen >= align or (len(plain.data) + plain.padlen + 2) % align:
        return f"{plain.padlen} bytes of padding behind {len(plain.data)}"
    expected = inner[9] if group.inner == 4 else inner[6]
    if group.mode == "tunnel":
        expected = 4 if group.inner == 4 else 41
    return "" if plain.nh == expected else f"next header {plain.nh} instead of {expected}"


def check_outbound(report, dice, shop, group, made, count):
    sent = [inner_packets(dice, group, one, count, True) for one in made]
    site = write_site(shop, "outbound", made)
    wire, counters = replay(shop, site, "plain", "wire", interleave(dice, sent))
    by_spi = {}
    for packet in wire:
        at = scapy_esp.esp_offset(packet) + (4 if group.protocol == "ah" else 0)
        by_spi.setdefault(int.from_bytes(packet[at : at + 4], "big"), []).append(packet)
    for one, inners in zip(made, sent):
        packets = by_spi.pop(one.out.spi, [])
        problems = []
        if len(packets) != len(inners):
            problems.append(f"{len(inners)} packets went in, {len(packets)} came out; drops {harness.drops(counters)}")
        for seq, (packet, inner) in enumerate(zip(packets, inners), 1):
            problems += opened_problems(group, one, packet, seq, inner)
        report.check(f"{group.name}, {one.name}, Convoy to scapy", problems)
    strangers = [f"{len(packets)} packets with SPI {spi:#x}" for spi, packets in by_spi.items()]
    report.check(f"{group.name}, nothing else on the wire", strangers)


def opened_problems(group, one, packet, seq, inner):
    """What is wrong with one packet that Convoy made of `inner`."""
    problem = wire_problem(group, one, packet, seq, inner)
    if not problem:
        try:
            opened, plain = scapy_esp.open_packet(one.out, packet)
        except (InvalidTag, scapy_esp.ipsec.IPSecIntegrityError):
            problem = "scapy finds a wrong ICV"
        else:
            problem = scapy_esp.difference(inner, opened)
            if plain and not problem:
                problem = trailer_problem(plain, inner, group, scapy_esp.alignment(one.out))
    return [f"packet {seq}, {len(inner)} bytes inside: {problem}"] if problem else []


def owner(made, packet):
    """The pair whose networks hold the source of a packet that came out on the plain side."""
    source = scapy_esp.ipsec.socket.inet_ntop(*(
        (scapy_esp.ipsec.socket.AF_INET, packet[12:16]) if packet[0] >> 4 == 4
        else (scapy_esp.ipsec.socket.AF_INET6, packet[8:24])))
    address = harness.ipaddress.ip_address(source)
    return next((i for i, one in enumerate(made) if address in harness.ipaddress.ip_network(one.inside[1])), None)


def delivered(made, packets):
    """Packets of the plain side by the index of their pair; strangers under None."""
    found = {}
    for packet in packets:
        found.setdefault(owner(made, packet), []).append(packet)
    return found


def check_inbound(report, dice, shop, group, made, count):
    inners = [inner_packets(dice, group, one, count, False) for one in made]
    wire = [[scapy_esp.protect(one.into, inner, seq) for seq, inner in enumerate(mine, 1)]
            for one, mine in zip(made, inners)]
    site = write_site(shop, "inbound", made)
    plain, counters = replay(shop, site, "wire", "plain", interleave(dice, wire))
    found = delivered(made, plain)
    for index, (one, mine) in enumerate(zip(made, inners)):
        got = found.pop(index, [])
        problems = []
        if len(got) != len(mine):
            problems.append(f"{len(mine)} packets went in, {len(got)} came out; drops {harness.drops(counters)}")
        for seq, (inner, packet) in enumerate(zip(mine, got), 1):
            if problem := scapy_esp.difference(inner, packet):
                problems.append(f"packet {seq}: {problem}")
        report.check(f"{group.name}, {one.name}, scapy to Convoy", problems)
    report.check(f"{group.name}, nothing else on the plain side", [f"{len(v)} packets" for v in found.values()])


def flip(dice, packet, first, last):
    """One bit changed in bytes [first, last) of what follows the outer headers."""
    data, at = bytearray(packet), scapy_esp.esp_offset(packet)
    last = len(packet) - at + last if last <= 0 else last
    data[at + dice.randrange(first, last)] ^= 1 << dice.randrange(8)
    return scapy_esp.finish(bytes(data))


def cut(packet, length):
    """The packet with only `length` bytes of ESP, and lengths that say so."""
    parsed = scapy_esp.parse(packet[: scapy_esp.esp_offset(packet) + length])
    data = bytearray(bytes(parsed))
    if data[0] >> 4 == 4:
        data[2:4] = len(data).to_bytes(2, "big")
        data[10:12] = b"\0\0"
        data[10:12] = harness.checksum(bytes(data[:20])).to_bytes(2, "big")
        header, protocol = 20, data[9]
    else:
        data[4:6] = (len(data) - 40).to_bytes(2, "big")
        header, protocol = 40, data[6]
    if protocol == 17:
        data[header + 4 : header + 6] = (len(data) - header).to_bytes(2, "big")
        data[header + 6 : header + 8] = b"\0\0"
    return scapy_esp.finish(bytes(data))


def hostile(dice, group, one, inners):
    """A stream of good packets with bad ones between, what must come out, and what must be counted."""
    sa, stream, good, bad = one.into, [], [], {}
    shortest, align, text = scapy_esp.shortest(sa), scapy_esp.alignment(sa), 8 + sa.crypt_algo.iv_size
    number = 0

    def drop(reason, packet):
        stream.append(packet)
        bad[reason] = bad.get(reason, 0) + 1

    for inner in inners:
        number += 1
        sealed = scapy_esp.protect(sa, inner, number)
        drop(FORGED, flip(dice, sealed, -sa.crypt_icv_size + len(sealed) - scapy_esp.esp_offset(sealed), 0))
        if text > 8:
            drop(FORGED, flip(dice, sealed, 8, text))
        drop(FORGED, flip(dice, sealed, text, -sa.crypt_icv_size))
        drop(STRANGE_SPI, flip(dice, sealed, 1, 2))
        less = len(sealed) - scapy_esp.esp_offset(sealed) - align
        drop(SHORT if less < shortest else FORGED, cut(sealed, less))
        # The forgeries above must not have moved the window: the true packet still passes.
        stream.append(sealed)
        good.append(inner)
        drop(REPEATED, sealed)
    for length in (8, 12, 16, shortest - 2, shortest + 2):
        if length < len(sealed) - scapy_esp.esp_offset(sealed):
            drop(SHORT, cut(sealed, length))
    if group.mode == "tunnel":
        number += 1
        drop(PADDING, scapy_esp.protect_plain(sa, *odd_padding(group, inners[0], align), number))
        number += 1
        drop(DUMMY, scapy_esp.protect_plain(sa, 59, dice.octets(62), b"", number))
        number += 1
        stranger = stranger_packet(dice, group)
        drop(OUTSIDE_POLICY, scapy_esp.protect(sa, stranger, number))
        number += 1
        stream.append(scapy_esp.protect_plain(sa, *traffic_flow_padding(group, inners[0], align), number))
        good.append(inners[0])
    # Leaps ahead, then comes back from beyond the window of 1024.
    far = number + 5000
    stream.append(scapy_esp.protect(sa, inners[0], far))
    good.append(inners[0])
    if not one.esn:
        drop(OLD, scapy_esp.protect(sa, inners[0], far - 1024))
    stream.append(scapy_esp.protect(sa, inners[0], far - 1023))
    good.append(inners[0])
    return stream, good, bad


def hostile_ah(dice, group, one, inners):
    """The same for AH."""
    sa, stream, good, bad = one.into, [], [], {}

    def drop(reason, packet):
        stream.append(packet)
        bad[reason] = bad.get(reason, 0) + 1

    for number, inner in enumerate(inners, 1):
        sealed = scapy_esp.protect(sa, inner, number)
        drop(FORGED, flip(dice, sealed, 12, 12 + sa.auth_algo.icv_size))
        if len(inner) > 60:
            drop(FORGED, flip(dice, sealed, -20 + len(sealed) - scapy_esp.esp_offset(sealed), 0))
        drop(STRANGE_SPI, flip(dice, sealed, 5, 6))
        stream.append(sealed)
        good.append(inner)
        drop(REPEATED, sealed)
    for length in (8, 11, 12, 12 + sa.auth_algo.icv_size - 1):
        drop("ah-length", cut(sealed, length))
    if group.mode == "tunnel":
        drop(OUTSIDE_POLICY, scapy_esp.protect(sa, stranger_packet(dice, group), len(inners) + 1))
    return stream, good, bad


def odd_padding(group, inner, align):
    """Next header, payload and padding whose bytes are not 1, 2, 3 …"""
    need = -(len(inner) + 2) % align + align
    return (4 if group.inner == 4 else 41), inner, bytes([9] * need)


def traffic_flow_padding(group, inner, align):
    """The same with zeros behind the inner packet (RFC 4303 section 2.7), which the receiver cuts off."""
    payload = inner + bytes(33)
    need = -(len(payload) + 2) % align
    return (4 if group.inner == 4 else 41), payload, bytes(range(1, need + 1))


def stranger_packet(dice, group):
    """An inner packet between networks that the policy of this SA does not hold."""
    if group.inner == 4:
        return scapy_esp.random_packet(dice, 4, "10.9.9.9", "10.8.8.8", 40)
    return scapy_esp.random_packet(dice, 6, "2001:db8:9::9", "2001:db8:8::8", 40)


def reason_problems(counters, expected):
    """Compares the counted reasons with what was done to packets."""
    counted = harness.drops(counters)
    return [f"{kind}: {expected.get(kind, 0)} packets were made, {counted.get(kind, 0)} counted"
            for kind in sorted({*expected, *counted}) if expected.get(kind, 0) != counted.get(kind, 0)]


def check_hostile(report, dice, shop, group, made):
    for one in dice.sample(made, min(8, len(made))):
        inners = inner_packets(dice, group, one, 13, False)
        stream, good, bad = (hostile_ah if group.protocol == "ah" else hostile)(dice, group, one, inners)
        site = write_site(shop, "hostile", [one])
        plain, counters = replay(shop, site, "wire", "plain", stream)
        problems = reason_problems(counters, bad)
        if len(plain) != len(good):
            problems.append(f"{len(good)} good packets went in, {len(plain)} came out")
        for number, (inner, packet) in enumerate(zip(good, plain), 1):
            if problem := scapy_esp.difference(inner, packet):
                problems.append(f"good packet {number}: {problem}")
        report.check(f"{group.name}, {one.name}, hostile packets", problems)


def check_esn_wrap(report, dice, shop, group, made):
    """The upper half of an extended sequence number is guessed right over the wrap of the lower half."""
    extended = [one for one in made if one.esn]
    for one in dice.sample(extended, min(4, len(extended))):
        check_wrap(report, dice, shop, group, one)


def check_wrap(report, dice, shop, group, one):
    inner = inner_packets(dice, group, one, 1, False)[0]
    wrap = 1 << 32

    def sealed(*numbers):
        return [scapy_esp.protect(one.into, inner, number % wrap, number // wrap) for number in numbers]

    # The upper half is guessed from where the window stood at the beginning of a burst, so each leap comes
    # in a burst of its own, behind as many packets of a strange SPI as a burst holds.
    leaps = [sealed(1, 2, 3), sealed(1 << 31), sealed(wrap - 3, wrap - 1), sealed(wrap + 1, wrap + 9, wrap - 2, wrap + 5)]
    repeated = sealed(wrap - 1, wrap + 9)
    wrong = [scapy_esp.protect(one.into, inner, 20, 0), scapy_esp.protect(one.into, inner, 21, 2)]
    spi = 4 if group.protocol == "ah" else 0
    between = [flip(dice, leaps[0][0], spi + 1, spi + 2)] * BURST
    stream = [packet for leap in [*leaps, repeated + wrong] for packet in [*leap, *between]]
    site = write_site(shop, "wrap", [one])
    plain, counters = replay(shop, site, "wire", "plain", stream)
    problems = reason_problems(counters, {REPEATED: 2, FORGED: 2, STRANGE_SPI: BURST * (len(leaps) + 1)})
    if len(plain) != sum(map(len, leaps)):
        problems.append(f"{sum(map(len, leaps))} good packets went in, {len(plain)} came out")
    report.check(f"{group.name}, {one.name}, over the wrap of the lower half", problems)


def run_group(report, dice, shop, group, count, smoke):
    made = pairs(dice, group, smoke)
    for check in (
        lambda: check_outbound(report, dice, shop, group, made, count),
        lambda: check_inbound(report, dice, shop, group, made, count),
        lambda: check_hostile(report, dice, shop, group, made),
        lambda: check_esn_wrap(report, dice, shop, group, made),
    ):
        try:
            check()
        except (harness.ConvoyError, harness.subprocess.TimeoutExpired, OSError, ValueError) as error:
            report.check(group.name, [str(error)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="every suite in one mode, not in each")
    parser.add_argument("--packets", type=int, default=20, help="packets for each SA and direction")
    parser.add_argument("--seed", type=int, default=4303)
    parser.add_argument("--only", default="", help="groups whose name holds this")
    parser.add_argument("--keep", action="store_true", help="leave site files and captures")
    options = parser.parse_args()
    print(f"seed {options.seed}, {options.packets} packets for each SA and direction")
    print("AES-GCM with ICVs of 12 and 8 bytes, AES-XCBC, and AES-GMAC in AH: framing by scapy, tag by OpenSSL's AES")
    report = harness.Report()
    with harness.Workshop("scapy", options.keep) as shop:
        for group in groups():
            if options.only in group.name:
                before = report.passed, report.failed
                run_group(report, harness.Dice(f"{options.seed} {group.name}"), shop, group, options.packets,
                          options.smoke)
                print(f"{group.name}: {report.passed - before[0]} passed, {report.failed - before[1]} failed", flush=True)
        report.end()


if __name__ == "__main__":
    sys.exit(main())
