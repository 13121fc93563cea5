"""scapy as the peer: security associations, random inner packets, and what a packet must look like."""

import copy
import os
import struct

import harness
import suites

try:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    try:
        from cryptography.hazmat.decrepit.ciphers.algorithms import Camellia
    except ImportError:
        Camellia = algorithms.Camellia
    from scapy.layers import ipsec
    from scapy.layers.inet import ICMP, IP, TCP, UDP
    from scapy.layers.inet6 import ICMPv6EchoRequest, IPv6
    from scapy.layers.ipsec import AH, ESP, SecurityAssociation
    from scapy.packet import Raw
except ImportError as error:
    harness.cannot_run(f"python3 has no scapy with cryptography ({error}); interop/install-deps.sh gets them")

EXPERIMENT = 253  # RFC 3692: a protocol number for experiments


def gcm_class(icv):
    """AES-GCM with an ICV of `icv` bytes, by OpenSSL.

    scapy 2.8 frames packets with any ICV size but always computes 16 bytes, so the cipher is handed in.
    """

    class Gcm:
        def __init__(self, key):
            self.key = key

        def encrypt(self, nonce, text, aad):
            worker = Cipher(algorithms.AES(self.key), modes.GCM(nonce)).encryptor()
            worker.authenticate_additional_data(aad)
            return worker.update(text) + worker.finalize() + worker.tag[:icv]

        def decrypt(self, nonce, text, aad):
            mode = modes.GCM(nonce, text[-icv:], min_tag_length=icv)
            worker = Cipher(algorithms.AES(self.key), mode).decryptor()
            worker.authenticate_additional_data(aad)
            return worker.update(text[:-icv]) + worker.finalize()

    return Gcm


# scapy would list Camellia like this; OpenSSL computes it.
ipsec.CRYPT_ALGOS["CAMELLIA-CBC"] = ipsec.CryptAlgo("CAMELLIA-CBC", cipher=Camellia, mode=modes.CBC)


class Xcbc:
    """AES-XCBC-MAC (RFC 3566) over OpenSSL's AES, with the methods that scapy calls; scapy has none."""

    def __init__(self, key):
        worker = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
        first, self.whole, self.partial = (worker.update(bytes([n] * 16)) for n in (1, 2, 3))
        self.cbc = Cipher(algorithms.AES(first), modes.CBC(bytes(16))).encryptor()
        self.text = b""

    def update(self, text):
        self.text += text

    def finalize(self):
        cut = max(len(self.text) - 1, 0) // 16 * 16
        rest = self.text[cut:]
        mask = self.whole
        if len(rest) < 16:
            rest, mask = (rest + b"\x80").ljust(16, b"\0"), self.partial
        self.cbc.update(self.text[:cut])
        return self.cbc.update(bytes(a ^ b for a, b in zip(rest, mask)))


class XcbcAlgo(ipsec.AuthAlgo):
    """AES-XCBC-MAC-96 as scapy would list it."""

    def __init__(self):
        super().__init__("AES-XCBC-96", mac=Xcbc, digestmod=None, icv_size=12, key_size=(16,))

    def new_mac(self, key):
        return Xcbc(key)


ipsec.AUTH_ALGOS["AES-XCBC-96"] = XcbcAlgo()


class AhGmac(ipsec.AuthAlgo):
    """AES-GMAC in AH (RFC 4543 section 4): the ICV field holds an IV and a tag, both zero in what is covered.

    scapy has none. What is covered is its own idea of AH; the tag is OpenSSL's AES-GCM of an empty text.
    """

    IV = 8
    TAG = 16

    def __init__(self):
        super().__init__("AES-GMAC", mac=None, digestmod=None, icv_size=self.IV + self.TAG, key_size=(20, 28, 36))

    def field(self, key, init, packet, sending, high):
        covered = bytes(ipsec.zero_mutable_fields(packet.copy(), sending=sending)) + high
        worker = Cipher(algorithms.AES(key[:-4]), modes.GCM(key[-4:] + init)).encryptor()
        worker.authenticate_additional_data(covered)
        worker.finalize()
        return init + worker.tag

    def sign(self, pkt, key, esn_en=False, esn=0):
        high = struct.pack(">I", esn) if esn_en else b""
        pkt[AH].icv = self.field(key, os.urandom(self.IV), pkt, True, high)
        return pkt

    def verify(self, pkt, key, esn_en=False, esn=0):
        field, high = pkt[AH].icv, struct.pack(">I", esn) if esn_en else b""
        pkt[AH].icv, pkt[AH].padding = field[: self.icv_size], field[self.icv_size :]
        if pkt[AH].icv != self.field(key, field[: self.IV], pkt, False, high):
            raise ipsec.IPSecIntegrityError("the tag is wrong")


ipsec.AUTH_ALGOS["AES-GMAC"] = AhGmac()


def association(spi, suite, keys, esn, tunnel=None, encap=False):
    """A scapy SA; `tunnel` is the outer header (None: transport mode)."""
    sa = SecurityAssociation(
        ESP,
        spi=spi,
        seq_num=1,
        crypt_algo=suite.crypt,
        crypt_key=keys[0] or None,
        crypt_icv_size=suite.icv,
        auth_algo=suite.auth,
        auth_key=keys[1] or None,
        tunnel_header=tunnel,
        nat_t_header=UDP(sport=4500, dport=4500) if encap else None,
        esn_en=esn,
    )
    if suite.crypt == "AES-GCM" and hasattr(sa.crypt_algo, "ciphers_aead_api"):
        sa.crypt_algo = copy.copy(sa.crypt_algo)
        sa.crypt_algo.cipher = gcm_class(suite.icv)
        sa.crypt_algo.ciphers_aead_api = True
    return sa


def ah_association(spi, suite, keys, esn, tunnel=None):
    """The same for AH, which takes the MAC of the suite alone, or AES-GMAC."""
    name, key = (suite.auth, keys[1]) if suite.auth else ("AES-GMAC", keys[0])
    return SecurityAssociation(AH, spi=spi, seq_num=1, auth_algo=name, auth_key=key,
                               tunnel_header=tunnel, esn_en=esn)


def alignment(sa):
    """What the ciphertext is a multiple of."""
    return suites.BLOCKS.get(sa.crypt_algo.name, 4)


def shortest(sa):
    """Bytes of the shortest ESP packet."""
    return 8 + sa.crypt_algo.iv_size + alignment(sa) + sa.crypt_icv_size


def ip_class(version):
    return IP if version == 4 else IPv6


def parse(packet):
    return ip_class(packet[0] >> 4)(packet)


def finish(packet):
    """Bytes of a packet that scapy protected, fit for a real wire.

    scapy leaves the UDP checksum 0, which receivers drop over IPv6 (RFC 8200 section 8.1).
    """
    data = bytearray(bytes(packet))
    if data[0] >> 4 == 6 and data[6] == 17:
        length = struct.pack(">IHBB", len(data) - 40, 0, 0, 17)
        value = harness.checksum(bytes(data[8:40]) + length + bytes(data[40:])) or 0xFFFF
        struct.pack_into(">H", data, 46, value)
    return bytes(data)


def protect(sa, inner, seq, high=0):
    """ESP as scapy makes it, with a random IV."""
    sealed = sa.encrypt(parse(inner), seq_num=seq, esn_en=sa.esn_en, esn=high)
    return finish(sealed)


def protect_plain(sa, next_header, payload, padding, seq):
    """A tunnel-mode packet with any payload, next header and padding."""
    esp = ipsec._ESPPlain(  # pylint: disable=protected-access
        spi=sa.spi, seq=seq, iv=sa.crypt_algo.generate_iv(), data=payload,
        padding=padding, padlen=len(padding), nh=next_header)
    esp = sa.crypt_algo.encrypt(sa, esp, sa.crypt_key, sa.crypt_icv_size, esn_en=sa.esn_en, esn=0)
    sa.auth_algo.sign(esp, sa.auth_key, esn_en=sa.esn_en, esn=0)
    outer = sa.tunnel_header.copy()
    body = sa.nat_t_header.copy() / esp if sa.nat_t_header else esp
    if sa.nat_t_header:
        body.chksum = 0
    if outer.version == 4:
        outer.proto = 17 if sa.nat_t_header else 50
    else:
        outer.nh = 17 if sa.nat_t_header else 50
    return finish(outer / body)


def open_packet(sa, packet, high=0):
    """The packet inside, and scapy's view of the ESP trailer (None: AH); raises where the ICV is wrong."""
    if sa.proto is AH:
        return bytes(sa.decrypt(parse(packet), esn_en=sa.esn_en, esn=high)), None
    esp = parse(packet)[ESP]
    plain = sa.crypt_algo.decrypt(sa, esp, sa.crypt_key, sa.crypt_icv_size, esn_en=sa.esn_en, esn=high)
    inner = sa.decrypt(parse(packet), esn_en=sa.esn_en, esn=high)
    return bytes(inner), plain


def esp_offset(packet):
    """Where the ESP or AH header begins in a packet without options or extension headers."""
    protocol, length = (packet[9], 20) if packet[0] >> 4 == 4 else (packet[6], 40)
    return length + 8 if protocol == 17 else length


def random_packet(dice, version, source, destination, size):
    """An inner packet of `size` bytes behind its IP header, of one of several protocols."""
    kinds = ["raw"] + ["udp"] * (size >= 8) + ["icmp"] * (size >= 8) + ["tcp"] * (size >= 20)
    kind = dice.choice(kinds)
    if kind == "udp":
        body = UDP(sport=dice.randint(1, 4000), dport=dice.randint(1, 4000)) / Raw(dice.octets(size - 8))
    elif kind == "tcp":
        body = TCP(sport=dice.randint(1, 65535), dport=dice.randint(1, 65535), seq=dice.getrandbits(32),
                   ack=dice.getrandbits(32), flags="PA") / Raw(dice.octets(size - 20))
    elif kind == "icmp" and version == 4:
        body = ICMP(type=8, id=dice.getrandbits(16), seq=dice.getrandbits(16)) / Raw(dice.octets(size - 8))
    elif kind == "icmp":
        body = ICMPv6EchoRequest(id=dice.getrandbits(16), seq=dice.getrandbits(16), data=dice.octets(size - 8))
    else:
        body = Raw(dice.octets(size))
    # No congestion-experienced mark: RFC 6040 lets a tunnel end change how it travels.
    traffic_class = dice.getrandbits(6) << 2 | dice.choice((0, 1, 2))
    if version == 4:
        head = IP(src=source, dst=destination, id=dice.randint(1, 65535), ttl=dice.randint(2, 255),
                  tos=traffic_class, flags=dice.choice(("", "DF")))
        if kind == "raw":
            head.proto = EXPERIMENT
    else:
        head = IPv6(src=source, dst=destination, fl=dice.getrandbits(20), hlim=dice.randint(2, 255), tc=traffic_class)
        if kind == "raw":
            head.nh = EXPERIMENT
    return bytes(head / body) if size else bytes(head)


def sizes(dice, count, largest):
    """`count` sizes of payload: the short ones, the longest ones (so every padding), then any."""
    fixed = [*range(0, 13), *range(largest - 4, largest + 1)]
    chosen = fixed[:count] if count < len(fixed) else fixed + [dice.randint(0, largest) for _ in range(count - len(fixed))]
    dice.shuffle(chosen)
    return chosen


def difference(sent, got, forwarded=True):
    """How a packet changed on its way; '' if only as forwarding may change it (TTL or hop limit)."""
    if len(sent) != len(got):
        return f"{len(sent)} bytes became {len(got)}"
    sent, got = bytearray(sent), bytearray(got)
    at, floor = (8, sent[8] - 1) if sent[0] >> 4 == 4 else (7, sent[7] - 1)
    if got[0] >> 4 == 4 and harness.checksum(bytes(got[:20])) != 0:
        return "the IPv4 header checksum is wrong"
    if forwarded and got[at] == floor:
        got[at] = sent[at]
        if sent[0] >> 4 == 4:
            got[10:12] = sent[10:12]
    if sent == got:
        return ""
    first = next(i for i in range(len(sent)) if sent[i] != got[i])
    return f"byte {first} of {len(sent)} changed from {sent[first]:#04x} to {got[first]:#04x}"
