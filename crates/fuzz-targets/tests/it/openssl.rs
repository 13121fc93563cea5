//! OpenSSL as the oracle of the bodies. Programs of `fuzz/` include this file too.

#[path = "../../../crypto/tests/it/common/openssl.rs"]
// The bodies ask for less than the tests of `crypto`.
#[allow(dead_code, clippy::unwrap_used)]
mod library;

use convoy_crypto::{KeyBits, MacAlg};
use convoy_fuzz_targets::oracle::{Oracle, Parts};

/// The library, if this machine has it; says so if not.
pub(crate) fn oracle() -> Option<&'static dyn Oracle> {
    library::OpenSsl::find().map(|library| library as &dyn Oracle)
}

impl Oracle for library::OpenSsl {
    fn seal(&self, parts: &mut Parts<'_>, icv_len: usize) -> Vec<u8> {
        let &mut Parts { suite, keys, nonce, header, ref mut text, trailer } = parts;
        self.seal_cut(&mut library::Parts { suite, keys, nonce, header, text, trailer }, icv_len)
    }

    fn mac(&self, alg: MacAlg, key: &[u8], message: &[u8]) -> Vec<u8> {
        self.mac(alg, key, message)
    }

    fn cbc(&self, bits: KeyBits, encrypt: bool, key: &[u8], iv: &[u8], text: &mut [u8]) {
        self.cbc(bits, encrypt, key, iv, text);
    }

    fn ctr(&self, bits: KeyBits, key: &[u8], block: &[u8], text: &mut [u8]) {
        self.ctr(bits, key, block, text);
    }
}
