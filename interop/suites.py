"""Every suite of ESP: how site files, scapy and the Linux kernel call it, and what keys it takes."""

import dataclasses

ICV_SIZES = (16, 12, 8)
KEY_BITS = (128, 192, 256)

# Site file; scapy; kernel; bytes of key, of salt, of ICV.
AEADS = [
    *((f"aes-{bits}-gcm", "AES-GCM", "rfc4106(gcm(aes))", bits // 8, 4, icv) for bits in KEY_BITS for icv in ICV_SIZES),
    *((f"aes-{bits}-ccm", "AES-CCM", "rfc4309(ccm(aes))", bits // 8, 3, icv) for bits in KEY_BITS for icv in ICV_SIZES),
    *((f"aes-{bits}-gmac", "AES-NULL-GMAC", "rfc4543(gcm(aes))", bits // 8, 4, 16) for bits in KEY_BITS),
    ("chacha20-poly1305", "CHACHA20-POLY1305", "rfc7539esp(chacha20,poly1305)", 32, 4, 16),
]
# Site file; scapy; kernel; bytes of key, of salt.
CIPHERS = [
    *((f"aes-{bits}-cbc", "AES-CBC", "cbc(aes)", bits // 8, 0) for bits in KEY_BITS),
    *((f"aes-{bits}-ctr", "AES-CTR", "rfc3686(ctr(aes))", bits // 8, 4) for bits in KEY_BITS),
    ("null", "NULL", "ecb(cipher_null)", 0, 0),
    ("3des-cbc", "3DES", "cbc(des3_ede)", 24, 0),
    *((f"camellia-{bits}-cbc", "CAMELLIA-CBC", "cbc(camellia)", bits // 8, 0) for bits in KEY_BITS),
]
# scapy's names of ciphers in CBC mode, and the bytes of their blocks.
BLOCKS = {"AES-CBC": 16, "3DES": 8, "CAMELLIA-CBC": 16}
# Site file; scapy; kernel; bytes of key, of ICV.
MACS = [
    ("hmac-md5-96", "HMAC-MD5-96", "hmac(md5)", 16, 12),
    ("hmac-sha1-96", "HMAC-SHA1-96", "hmac(sha1)", 20, 12),
    ("hmac-sha256-128", "SHA2-256-128", "hmac(sha256)", 32, 16),
    ("hmac-sha384-192", "SHA2-384-192", "hmac(sha384)", 48, 24),
    ("hmac-sha512-256", "SHA2-512-256", "hmac(sha512)", 64, 32),
    ("aes-xcbc-96", "AES-XCBC-96", "xcbc(aes)", 16, 12),
    ("aes-cmac-96", "AES-CMAC-96", "cmac(aes)", 16, 12),
]


@dataclasses.dataclass
class Suite:
    """An AEAD, or a cipher with a MAC."""

    name: str
    crypt: str  # scapy's name
    kernel: str
    key: int  # bytes, salt included
    icv: int
    site: dict  # how a site file names it
    auth: str = None  # scapy's name of the MAC
    auth_kernel: str = None
    auth_key: int = 0

    def keys(self, dice):
        """Fresh keys: the cipher's with salt, the MAC's."""
        return dice.octets(self.key), dice.octets(self.auth_key)

    def site_entries(self, keys):
        """The entries of a site file that name algorithms and keys."""
        entries = dict(self.site)
        entries.update((name, key.hex()) for name, key in zip(("key", "integrity_key"), keys) if key)
        return entries

    def kernel_arguments(self, keys):
        """The same for `ip xfrm state add`."""
        crypt = f"0x{keys[0].hex()}" if keys[0] else "''"
        if not self.auth:
            return f"aead '{self.kernel}' {crypt} {self.icv * 8}"
        return f"auth-trunc '{self.auth_kernel}' 0x{keys[1].hex()} {self.icv * 8} enc '{self.kernel}' {crypt}"


def suites():
    """All of them."""
    made = []
    for name, crypt, kernel, key, salt, icv in AEADS:
        site = {"algorithm": name}
        if crypt in ("AES-GCM", "AES-CCM"):
            site["icv"] = icv
        made.append(Suite(f"{name}-{icv}", crypt, kernel, key + salt, icv, site))
    for cipher, crypt, kernel, key, salt in CIPHERS:
        for mac, auth, auth_kernel, auth_key, icv in MACS:
            site = {"encryption": cipher, "integrity": mac}
            made.append(Suite(f"{cipher}+{mac}", crypt, kernel, key + salt, icv, site, auth, auth_kernel, auth_key))
    return made


def named(name):
    """The suite of this name."""
    return next(suite for suite in suites() if suite.name == name)
