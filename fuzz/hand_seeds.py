#!/usr/bin/env python3
"""Writes the seeds that are made by hand: what random bytes do not become, such as a whole ESP packet with a
valid packet inside. Their names begin with "hand-". Run it after a change of a target's input.

A fuzzer's input is decoded by the crate `arbitrary`: values stand at the front in the order of their
declaration, lengths of byte strings at the back. `Encoder` is the inverse.
"""

import ipaddress
import pathlib
import struct

HERE = pathlib.Path(__file__).parent
RECORDED = HERE.parent / "crates/xfrm/tests/recorded"


class Encoder:
    """Values of one input in the order in which they are read."""

    def __init__(self):
        self.reads = []

    def front(self, form, *values):
        self.reads.append(("front", struct.pack("<" + form, *values)))
        return self

    def variant(self, index, count):
        """Which variant of an enum of so many."""
        return self.front("I", -(-(index << 32) // count))

    def some(self, form, values):
        """An option: none, or a value."""
        return self.front("B", 0) if values is None else self.front("B" + form, 1, *values)

    def string(self, data):
        """A byte string that is not the last field."""
        self.reads.append(("string", bytes(data)))
        return self

    def rest(self, data):
        """A byte string that is the last field."""
        self.reads.append(("front", bytes(data)))
        return self

    def bytes(self):
        fewest = sum(len(data) for _, data in self.reads)
        for total in range(fewest, fewest + 4 * len(self.reads) + 1):
            encoded = self._of_length(total)
            if encoded is not None:
                return encoded
        raise ValueError("no length fits")

    def _of_length(self, total):
        front, back, left = b"", b"", total
        for kind, data in self.reads:
            if kind == "string":
                # A length takes as many bytes as the largest one possible needs.
                width = 1 if left <= 256 else 2
                left -= width
                if left <= 255:
                    length = bytes([len(data) & 0xff]) + bytes(width - 1)
                else:
                    length = struct.pack(">H", len(data))
                back = length + back
            front += data
            left -= len(data)
            if left < 0:
                return None
        return front + back if left == 0 else None


def checksum(data):
    data += bytes(len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return total ^ 0xffff


def ipv4(src, dst, protocol, payload, options=b"", offset=0, more=False, ttl=64):
    src, dst = ipaddress.ip_address(src).packed, ipaddress.ip_address(dst).packed
    words, total = 5 + len(options) // 4, 20 + len(options) + len(payload)
    place = more << 13 | offset // 8
    header = struct.pack(">BBHHHBBH4s4s", 0x40 | words, 0, total, 7, place, ttl, protocol, 0, src, dst) + options
    return header[:10] + struct.pack(">H", checksum(header)) + header[12:] + payload


def ipv6(src, dst, protocol, payload):
    src, dst = ipaddress.ip_address(src).packed, ipaddress.ip_address(dst).packed
    return struct.pack(">IHBB16s16s", 6 << 28, len(payload), protocol, 64, src, dst) + payload


def udp(src, dst, payload):
    return struct.pack(">HHHH", src, dst, 8 + len(payload), 0) + payload


def tcp(src, dst, payload, options=b""):
    words = 5 + len(options) // 4
    return struct.pack(">HHIIBBHHH", src, dst, 1, 2, words << 4, 0x18, 1000, 0, 0) + options + payload


def icmp(kind, code, rest, version=4):
    message = struct.pack(">BBHI", kind, code, 0, 0) + rest
    return message[:2] + struct.pack(">H", checksum(message) if version == 4 else 0) + message[4:]


def esp(payload, spi=0x1000, seq=1):
    return struct.pack(">II", spi, seq) + payload


A4, B4, A6, B6 = "192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2"


def packets():
    """Packets of every kind that a gateway tells apart."""
    ping4 = icmp(8, 0, b"ping" * 4)
    quoted4 = ipv4(A4, B4, 17, udp(1, 2, b"quoted"))
    quoted6 = ipv6(A6, B6, 50, esp(bytes(16)))
    yield "v4-udp", ipv4(A4, B4, 17, udp(500, 53, b"text"))
    yield "v4-tcp", ipv4(A4, B4, 6, tcp(40000, 443, b"text", b"\x02\x04\x05\xb4"))
    yield "v4-ping", ipv4(A4, B4, 1, ping4)
    yield "v4-options", ipv4(A4, B4, 17, udp(1, 2, b""), options=b"\x94\x04\x00\x00\x07\x07\x04\x00\x00\x00\x00\x00")
    yield "v4-first-fragment", ipv4(A4, B4, 17, udp(1, 2, bytes(24)), more=True)
    yield "v4-later-fragment", ipv4(A4, B4, 17, bytes(32), offset=32)
    yield "v4-esp", ipv4(A4, B4, 50, esp(bytes(40)))
    yield "v4-ah", ipv4(A4, B4, 51, struct.pack(">BBHII", 4, 4, 0, 256, 1) + bytes(12) + quoted4)
    yield "v4-esp-in-udp", ipv4(A4, B4, 17, udp(4500, 4500, esp(bytes(40))))
    yield "v4-ike-in-udp", ipv4(A4, B4, 17, udp(4500, 4500, bytes(4) + b"\x01" * 28))
    yield "v4-keepalive", ipv4(A4, B4, 17, udp(4500, 4500, b"\xff"))
    yield "v4-unreachable", ipv4(A4, B4, 1, icmp(3, 4, quoted4))
    yield "v4-in-v4", ipv4(A4, B4, 4, quoted4)
    yield "v6-udp", ipv6(A6, B6, 17, udp(500, 53, b"text"))
    yield "v6-tcp", ipv6(A6, B6, 6, tcp(40000, 443, b"text"))
    yield "v6-ping", ipv6(A6, B6, 58, icmp(128, 0, b"ping", version=6))
    yield "v6-too-big", ipv6(A6, B6, 58, icmp(2, 0, quoted6, version=6))
    yield "v6-extensions", ipv6(A6, B6, 0, b"\x2b\0" + bytes(6) + b"\x3c\0\0\0" + bytes(4) + b"\x11\0" + bytes(6) + udp(1, 2, b""))
    yield "v6-first-fragment", ipv6(A6, B6, 44, b"\x11\0\0\1\0\0\0\7" + udp(1, 2, bytes(24)))
    yield "v6-later-fragment", ipv6(A6, B6, 44, b"\x11\0\0\x20\0\0\0\7" + bytes(16))
    yield "v6-esp", ipv6(A6, B6, 50, esp(bytes(40)))
    yield "v6-none", ipv6(A6, B6, 59, b"")


def wire_parse():
    for name, packet in packets():
        yield name, Encoder().variant(0, 3).rest(packet)
    yield "icmp-message", Encoder().variant(0, 3).rest(icmp(3, 1, ipv4(A4, B4, 17, udp(1, 2, bytes(8)))))
    yield "udp-datagram", Encoder().variant(0, 3).rest(udp(4500, 4500, esp(bytes(8))))
    yield "tcp-segment", Encoder().variant(0, 3).rest(tcp(1, 2, b"text", b"\x01\x01\x04\x02"))
    yield "esp-trailer", Encoder().variant(0, 3).rest(b"text\1\2\2\4")


def trailed(text, next_header):
    """A text with the trailer that ESP wants."""
    pad = -(len(text) + 2) % 4
    return text + bytes(range(1, pad + 1)) + bytes([pad, next_header])


def sealed(encoder, sa, seq, text, flip=None, tos=0):
    """A packet of `inbound_path` that is sealed."""
    encoder.front("B", 1).variant(1, 3).front("BIB", sa, seq, tos).string(text)
    return encoder.some("H", flip)


def inner(sa, ending=1):
    """What a tunnel or a transport of that SA may carry."""
    is_transport, is_v6 = sa // 8, sa // 4 % 2
    if is_transport:
        return trailed(udp(7, 9, b"transport"), 17)
    if is_v6:
        return trailed(ipv6("2001:db8:1::1", f"2001:db8:2::{ending}", 17, udp(7, 9, b"tunnel")), 41)
    return trailed(ipv4("10.1.0.1", f"10.2.0.{ending}", 6, tcp(7, 9, b"tunnel")), 4)


def inbound_path():
    for sa in range(16):
        encoder = Encoder()
        for seq in (1, 2, 200, 150, 2, 10, 0):
            sealed(encoder, sa, seq, inner(sa))
        sealed(encoder, sa, 201, inner(sa), flip=(300,))
        sealed(encoder, sa, 202, inner(sa), tos=3)
        yield f"sa-{sa:02}", encoder.front("B", 0)
        encoder = Encoder()
        for seq, (end, begin, turned) in enumerate(((3, 3, 0), (3, 3, 1), (2, 3, 0), (4, 3, 0), (0, 0, 0)), 1):
            encoder.front("B", 1).variant(2, 3).front("BI", sa, seq).string(inner(sa)).front("BBB", end, begin, turned)
        yield f"fragments-{sa:02}", encoder.front("B", 0)
    odd = {
        "dummy": trailed(b"", 59),
        "wrong-policy": trailed(ipv4("10.1.0.1", "10.3.0.1", 17, udp(1, 2, b"")), 4),
        "wrong-version": trailed(ipv4("10.1.0.1", "10.2.0.1", 17, udp(1, 2, b"")), 41),
        "bad-padding": ipv4("10.1.0.1", "10.2.0.1", 17, udp(1, 2, b"ab")) + b"\7\7\2\4",
        "long-padding": ipv4("10.1.0.1", "10.2.0.1", 17, udp(1, 2, b"ab")) + b"\xff\4",
        "no-ttl": trailed(ipv4("10.1.0.1", "10.2.0.1", 17, udp(1, 2, b""), ttl=1), 4),
        "cut-short": trailed(ipv4("10.1.0.1", "10.2.0.1", 17, udp(1, 2, b"text"))[:-2], 4),
        "flow-padding": trailed(ipv4("10.1.0.1", "10.2.0.1", 17, udp(1, 2, b"")) + bytes(64), 4),
        "inner-fragment": trailed(ipv4("10.1.0.1", "10.2.0.1", 17, udp(1, 2, bytes(16)), more=True), 4),
        "no-text": b"",
    }
    for name, text in odd.items():
        yield name, sealed(sealed(Encoder(), 0, 1, text), 8, 1, text).front("B", 0)
    encoder = Encoder()
    for _, packet in packets():
        encoder.front("B", 1).variant(0, 3).string(packet)
    yield "raw", encoder.front("B", 0)


def xfrm_messages():
    """What IKE daemons say: one message of each kind and length."""
    seen = set()
    for file in ("charon", "pluto"):
        for line in (RECORDED / f"{file}.txt").read_text().splitlines():
            if not line.startswith("> "):
                continue
            datagram = bytes.fromhex(line[2:])
            length, kind = struct.unpack_from("<IH", datagram)
            if (kind, length) not in seen:
                seen.add((kind, length))
                yield f"{file}-{kind:02x}-{length}", Encoder().variant(0, 3).rest(datagram)


def crypto_spec(encoder, suite, mac, icv, text, touch=(7, 0), misfit=None, setup=0):
    encoder.front("BBBBBBBBBHBBBH", 1, suite, mac, icv, 1, 20, setup, 8, 4, text, 5, 2, *touch)
    return encoder.some("HHBB", misfit)


def crypto_suites():
    lengths = (0, 1, 16, 64, 100, 300, 1400)
    for suite in range(5):
        encoder = Encoder()
        for at, text in enumerate(lengths * 3):
            crypto_spec(encoder, suite, 0, at % 9, text, (at % 5, at * 7), (16 * at, 8, 4, 16) if at < 4 else None, at)
        yield f"suite-{suite}", encoder.front("B", 0)
    for mac in range(10):
        encoder = Encoder()
        for at, text in enumerate(lengths * 2):
            crypto_spec(encoder, 5 + 12 * at, mac, 8, text, (at % 5, at * 7), (64, 16, 4, 12) if at < 2 else None, at)
        yield f"mac-{mac}", encoder.front("B", 0)


def job(encoder, cipher, hashed, at, length=96):
    fit, bits, decrypt, hash_first = 1, at % 3, at % 2, at // 2 % 2
    encoder.front("BBBBBBB", fit, cipher, bits, hashed, at % 3, decrypt, hash_first)
    encoder.some("H", (length,) if at % 3 == 0 else None)
    return encoder.front("HHHHHBBBB", length, 8, 64, 0, 80, 16 + at % 2, at, at % 5, 12)


def job_manager():
    for cipher in range(12):
        encoder = Encoder().front("BB", cipher, cipher % 7)
        for at in range(12):
            encoder.front("B", 1).variant(0, 6)
            job(encoder, cipher, at, at, 16 * at + 40)
        for step in (1, 2, 1, 3, 4, 4):
            encoder.front("B", 1).variant(step, 6)
        encoder.front("B", 1).variant(5, 6)
        for at in range(6):
            job(encoder.front("B", 1), cipher, 2 * at, at, 500)
        yield f"cipher-{cipher:02}", encoder.front("B", 0).front("B", 0)


def attribute(kind, *parts):
    """A netlink attribute of bytes, or of others within."""
    data = b"".join(parts)
    return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


def number(kind, value):
    """An attribute of the packet filter: their numbers are big-endian."""
    return attribute(kind, struct.pack(">I", value))


def text(kind, value):
    return attribute(kind, value.encode() + b"\0")


def data(kind, value):
    """A constant of the packet filter."""
    return attribute(kind, attribute(1, value))


def expression(name, *parts):
    return attribute(1, text(1, name), *([attribute(2, *parts)] if parts else []))


def verdict(code, chain=None):
    parts = [number(1, code & 0xffffffff)] + ([text(2, chain)] if chain else [])
    return expression("immediate", number(1, 0), attribute(2, attribute(2, *parts)))


def target(name, revision, info):
    return expression("target", text(1, name), number(2, revision), attribute(3, info))


def rules():
    """Rules that load, change, compare and write marks in every way that is told apart."""
    def mask(value):
        return data(4, struct.pack("=I", value)), data(5, struct.pack("=I", value >> 8))

    bitwise = expression("bitwise", number(1, 1), number(2, 1), number(3, 4), *mask(0xff00))
    compare = expression("cmp", number(1, 1), number(2, 0), data(3, struct.pack("=I", 0x100)))
    load, store = expression("meta", number(2, 3), number(1, 1)), expression("meta", number(2, 3), number(3, 1))
    of_flow, to_flow = expression("ct", number(1, 1), number(2, 3)), expression("ct", number(2, 3), number(4, 1))
    counter = expression("counter", attribute(1, bytes(8)), attribute(2, bytes(7) + b"\5"))
    words = struct.pack("=IIIBBB", 0x10, 0xff, 0xf0, 1, 2, 0)
    yield load, bitwise, compare, counter, verdict(0)
    yield load, bitwise, store, verdict(-3, "other")
    yield of_flow, bitwise, to_flow, verdict(-4, "third")
    yield of_flow, bitwise, store
    yield expression("payload", number(1, 1), number(2, 1), number(3, 12), number(4, 4)), store
    yield expression("lookup", text(1, "far"), number(2, 1)), expression("notrack")
    yield expression("queue", attribute(1, b"\x11\x9e")), expression("fib", number(1, 1), number(2, 3), number(3, 2))
    for name, revision in (("MARK", 2), ("MARK", 1), ("HMARK", 0), ("TPROXY", 1), ("SET", 3), ("SET", 2), ("NOTRACK", 0), ("CT", 2)):
        yield (target(name, revision, words + bytes(4)),)
    for how in range(4):
        yield target("CONNMARK", 1, words[:12] + bytes([how])), target("CONNMARK", 2, words[:13] + bytes([1, how]))


def routes():
    """Kinds, and what is behind the header, of messages about routes."""
    v4, v6 = ipaddress.ip_address(A4).packed, ipaddress.ip_address(A6).packed
    index = struct.pack("=I", 2)
    yield 16, struct.pack("=BBHiII", 0, 0, 1, 2, 0x1043, 0), attribute(3, b"eth0\0"), attribute(1, bytes(6)), attribute(
        4, struct.pack("=I", 1500)), attribute(18, attribute(1, b"veth\0"))
    yield 20, struct.pack("=BBBBI", 2, 24, 0x80, 0, 2), attribute(1, v4), attribute(2, v4), attribute(3, b"eth0\0"), attribute(6, bytes(16))
    yield 20, struct.pack("=BBBBI", 10, 64, 0x80, 0, 2), attribute(1, v6), attribute(8, index)
    yield 24, struct.pack("=BBBBBBBBI", 2, 24, 0, 0, 254, 4, 0, 1, 0), attribute(15, index), attribute(1, v4), attribute(
        4, index), attribute(5, v4), attribute(6, index)
    yield 25, struct.pack("=BBBBBBBBI", 10, 128, 0, 0, 254, 2, 0, 7, 0), attribute(1, v6), attribute(12, bytes(32)), attribute(
        9, struct.pack("=HBBI", 16, 0, 0, 2) + attribute(5, v6))
    yield 28, struct.pack("=BBHiHBB", 2, 0, 0, 2, 2, 0, 1), attribute(1, v4), attribute(2, bytes(6)), attribute(3, bytes(16))
    yield 32, struct.pack("=BBBBBBBBI", 2, 0, 0, 0, 254, 0, 0, 1, 0), attribute(6, index), attribute(15, index), attribute(
        10, index), attribute(16, index), attribute(3, b"eth0\0"), attribute(21, b"\xd0")
    yield 2, struct.pack("=i", -17), struct.pack("=IHHII", 20, 24, 5, 1, 0), attribute(1, b"it exists\0")
    yield 2, struct.pack("=i", 0), bytes(16)
    yield 3, struct.pack("=i", 0)


def said(encoder, variant, form, *values):
    return encoder.front("B", 1).variant(variant, 5).front(form, *values)


def kernel_answers():
    encoder = Encoder()
    for kind, *parts in routes():
        single = said(Encoder(), 1, "BH", kind, 0x200).string(b"".join(parts)).front("B", 0)
        yield f"route-{kind:02}-{len(b''.join(parts))}", single
        said(encoder, 1, "BH", kind, 0x200).string(b"".join(parts))
    yield "routes", encoder.front("B", 0)
    encoder = Encoder()
    for at, rule in enumerate(rules()):
        parts = text(1, "filter"), text(2, "first"), attribute(3, bytes(8)), attribute(4, *rule)
        yield f"rule-{at:02}", said(Encoder(), 3, "BB", 6, 1).string(b"".join(parts)).front("B", 0)
        said(encoder, 3, "BB", 6, 1).string(b"".join(parts))
    for name, jump in (("first", 2), ("other", 4)):
        hook = attribute(4, number(1, jump), number(2, -150 & 0xffffffff))
        said(encoder, 3, "BB", 3, 1).string(text(1, "filter") + attribute(2, bytes(8)) + text(3, name) + hook)
    said(encoder, 3, "BB", 22, 1).string(text(1, "filter") + text(2, "fast"))
    yield "ruleset", encoder.front("B", 0)
    element = attribute(1, data(1, bytes(4)), data(10, b"\xff" * 4)), attribute(1, data(1, b"\1\2\3\4"), number(3, 1))
    parts = text(1, "filter"), text(2, "far"), attribute(3, *element)
    yield "elements", said(Encoder(), 3, "BB", 12, 1).string(b"".join(parts)).front("B", 0)
    header = attribute(1, struct.pack(">IHB", 7, 0x800, 3))
    packet = attribute(10, ipv4(A4, B4, 17, udp(1, 2, b"text")))
    question = bytes(4) + header + number(3, 0x11) + number(5, 2) + packet
    yield "question", said(Encoder(), 2, "").string(question).front("B", 0)
    tuple_ = attribute(1 | 1 << 15, attribute(1 | 1 << 15, attribute(1, bytes(4)), attribute(2, bytes(4))))
    flow = tuple_ + number(8, 0x30) + attribute(18, b"\0\5")
    yield "flow", said(Encoder(), 4, "BI", 2, 0x10).string(flow).front("B", 0)
    yield "event", said(Encoder(), 0, "").string(b"change@/devices/x\0NEW_VMGENID=1\0").front("B", 0)
    log = b"5,339,5140900,-;random: crng reseeded due to virtual machine fork\n"
    yield "log", said(Encoder(), 0, "").string(log).front("B", 0)


def pcap(link, frames, order="<", magic=0xa1b2c3d4):
    head = struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, 65535, link)
    return head + b"".join(struct.pack(order + "IIII", 1, 2, len(f), len(f)) + f for f in frames)


def block(order, kind, body):
    body += bytes(-len(body) % 4)
    length = struct.pack(order + "I", 12 + len(body))
    return struct.pack(order + "I", kind) + length + body + length


def pcapng(order, link, frames):
    section = block(order, 0x0a0d0d0a, struct.pack(order + "IHHq", 0x1a2b3c4d, 1, 0, -1))
    interface = block(order, 1, struct.pack(order + "HHI", link, 0, 65535))
    enhanced = (block(order, 6, struct.pack(order + "IIIII", 0, 0, 1, len(f), len(f)) + f) for f in frames)
    simple = (block(order, 3, struct.pack(order + "I", len(f)) + f) for f in frames)
    return section + interface + b"".join([*enhanced, block(order, 5, bytes(12)), *simple])


def captures():
    plain = [ipv4(A4, B4, 17, udp(1, 2, b"text")), ipv6(A6, B6, 17, udp(1, 2, b"text"))]
    ethernet = [
        bytes(12) + b"\x08\0" + plain[0] + bytes(10),
        bytes(12) + b"\x81\0\0\7\x86\xdd" + plain[1],
        bytes(12) + b"\x88\xa8\0\7\x81\0\0\7\x08\0" + plain[0],
        bytes(12) + b"\x08\6" + bytes(28),
    ]
    links = {"raw": (101, plain), "ethernet": (1, ethernet), "null": (0, [b"\2\0\0\0" + f for f in plain]), "ipv4": (228, plain)}
    for name, (link, frames) in links.items():
        yield f"pcap-{name}", Encoder().rest(pcap(link, frames))
        yield f"pcapng-{name}", Encoder().rest(pcapng("<", link, frames))
    yield "pcap-big-endian", Encoder().rest(pcap(101, plain, ">"))
    yield "pcap-nanoseconds", Encoder().rest(pcap(101, plain, magic=0xa1b23c4d))
    yield "pcapng-big-endian", Encoder().rest(pcapng(">", 101, plain))
    yield "pcapng-two-sections", Encoder().rest(pcapng("<", 101, plain) + pcapng(">", 1, ethernet))
    yield "pcap-torn", Encoder().rest(pcap(101, plain)[:-3])
    yield "pcapng-torn", Encoder().rest(pcapng("<", 101, plain)[:-3])
    yield "other-link", Encoder().rest(pcap(105, plain))


def lease_images():
    def image(version, records, generation=9, boot=bytes(range(16)), flags=1, count=None):
        rows = len(records) + (version == 2) if count is None else count
        head = b"CONVOYLS" + struct.pack("<IIQ", version, rows, generation) + boot + struct.pack("<Q", flags)
        tied = bytes([5]) * 64 if version == 2 else b""
        return head + tied + b"".join(records)

    def record(number, kind, *numbers):
        return bytes([number]) * 32 + struct.pack("<QQQQ", kind, *numbers)

    both = [record(1, 1, 1000, 3000, 0), record(2, 2, 77, 64, 32)]
    seeds = {
        "two-records": image(2, both),
        "none": image(2, []),
        "version-1": image(1, both),
        "a-later-version": image(77, both),
        "spent": image(2, [record(1, 257, 1, 2, 0), record(2, 258, 2**64 - 1, 2**64 - 1, 2**64 - 1)]),
        "unknown-kind": image(2, [record(1, 3, 1, 2, 3)]),
        "boot-unknown": image(2, both, boot=bytes(16), flags=0),
        "no-row-at-all": image(2, [], count=0),
        "more-said-than-there": image(2, both, count=1000),
        "behind-its-end": image(2, both) + bytes(100),
    }
    for name, data in seeds.items():
        yield name, Encoder().front("B", 1).rest(data)
    yield "without-mac", Encoder().front("B", 0).rest(image(2, both) + bytes(32))


def journals():
    def record(kind, number, message=b"", said=None):
        held = struct.pack("<Q", number) + message
        head = struct.pack("<B3xI8x", kind, len(held) if said is None else said)
        return head + held + bytes(-len(held) % 16)

    def journal(*records, version=1):
        return record(1, version, bytes(range(32))) + b"".join(records)

    sa, policy, closed = record(2, 7, b"an SA" * 9), record(3, 1, b"a policy"), record(4, 0)
    seeds = {
        "empty": journal(),
        "some": journal(sa, policy, closed),
        "later-counts": journal(sa, policy, record(2, 7, b"rekeyed"), record(3, 1)),
        "blank": journal(record(0, 7, b"gone"), policy),
        "unknown-kind": journal(sa, record(9, 1, b"of a later form"), policy),
        "other-version": journal(sa, version=2),
        "torn": journal(sa, policy)[:-20],
        "damaged-in-the-middle": journal(sa, record(2, 8, b"x", said=2**31), policy),
        "shorter-than-a-number": journal(record(2, 1, said=4) , policy),
        "no-head": policy + sa,
    }
    for name, data in seeds.items():
        yield name, Encoder().front("B", 1).rest(data)
    yield "without-sums", Encoder().front("B", 0).rest(journal(sa, policy))


def tls_records():
    # Where the changes are, from the end: the padding's length, padding, MAC, text.
    changes = ((), ((0, 255),), ((0, 3), (1, 3)), ((20, 1), (40, 7)), ((300, 9),))
    for at, text in enumerate((0, 1, 11, 12, 43, 44, 50, 51, 107, 108, 250, 300, 1400, 4096, 16384)):
        for shape in range(2):
            made = changes[(at + shape) % 5]
            encoder = Encoder().front("BBBQHHBB", 5 * at + shape, at % 8, 20 + at, at, 0x0301 + at % 3, text, 3 * at, len(made))
            for change in (made + ((0, 0),) * 4)[:4]:
                encoder.front("HB", *change)
            yield f"{text:05}-{shape}", encoder.front("BBB", (at % 3 == 2) * shape, at * shape % 16, at % 9)


def main():
    for target in (wire_parse, inbound_path, xfrm_messages, crypto_suites, job_manager, kernel_answers, captures, lease_images, journals, tls_records):
        folder = HERE / "seeds" / target.__name__
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("hand-*"):
            old.unlink()
        for name, encoder in target():
            (folder / f"hand-{name}").write_bytes(encoder.bytes())


if __name__ == "__main__":
    main()
