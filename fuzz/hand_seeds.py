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


def main():
    for target in (wire_parse, inbound_path, xfrm_messages, crypto_suites, job_manager):
        folder = HERE / "seeds" / target.__name__
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("hand-*"):
            old.unlink()
        for name, encoder in target():
            (folder / f"hand-{name}").write_bytes(encoder.bytes())


if __name__ == "__main__":
    main()
