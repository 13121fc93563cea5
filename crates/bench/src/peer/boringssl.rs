//! BoringSSL as a contender: `EVP_AEAD`. It is linked in, with the feature `peer-boringssl`.

use std::ptr::{NonNull, null};

use boring_sys::{
    BORINGSSL_API_VERSION, EVP_AEAD, EVP_AEAD_CTX, EVP_AEAD_CTX_free, EVP_AEAD_CTX_new,
    EVP_AEAD_CTX_open_gather, EVP_AEAD_CTX_seal_scatter, EVP_aead_aes_128_gcm,
    EVP_aead_aes_192_gcm, EVP_aead_aes_256_gcm, EVP_aead_chacha20_poly1305,
};
use convoy_crypto::{GcmParams, IcvLen, KeyBits, Suite};

use crate::contender::Contender;
use crate::suite::{Layout as _, aad_bytes};
use crate::workload::{Arena, Workload};

/// Bytes of nonces: BoringSSL's AEADs here have no other.
const NONCE: usize = 12;

/// The library's version. It has no releases, and counts changes of its interface.
pub(super) fn version() -> String {
    format!("API {BORINGSSL_API_VERSION}")
}

/// A contender; none if BoringSSL lacks the suite.
pub(super) fn contenders(work: &Workload) -> Vec<Box<dyn Contender>> {
    let aead = Aead::new(work);
    aead.into_iter().map(|aead| Box::new(aead) as Box<dyn Contender>).collect()
}

type Algorithm = unsafe extern "C" fn() -> *const EVP_AEAD;

fn algorithm(suite: Suite) -> Option<Algorithm> {
    match suite {
        Suite::Gcm(GcmParams { key_bits, icv_len: IcvLen::Icv16 }) => Some(match key_bits {
            KeyBits::Aes128 => EVP_aead_aes_128_gcm,
            KeyBits::Aes192 => EVP_aead_aes_192_gcm,
            KeyBits::Aes256 => EVP_aead_aes_256_gcm,
        }),
        Suite::ChaCha20Poly1305 => Some(EVP_aead_chacha20_poly1305),
        _ => None,
    }
}

/// An AEAD under one key, for both directions.
struct Context(NonNull<EVP_AEAD_CTX>);

impl Context {
    fn new(algorithm: Algorithm, key: &[u8], icv: usize) -> Option<Self> {
        // SAFETY: it takes nothing, and returns what lives as long as the program.
        let aead = unsafe { algorithm() };
        // SAFETY: the key has the length it is told, and the context copies it.
        let context = unsafe { EVP_AEAD_CTX_new(aead, key.as_ptr(), key.len(), icv) };
        NonNull::new(context).map(Self)
    }

    /// Encrypts `text` in place and fills `icv`.
    #[inline(always)]
    fn seal(&self, nonce: &[u8; NONCE], aad: &[u8], text: &mut [u8], icv: &mut [u8]) -> bool {
        let (data, mut written) = (text.as_mut_ptr(), 0);
        // SAFETY: the context is alive; lengths are those of the slices, which do not overlap but for text,
        // input and output at once, as it may be.
        let good = unsafe {
            EVP_AEAD_CTX_seal_scatter(
                self.0.as_ptr(),
                data,
                icv.as_mut_ptr(),
                &raw mut written,
                icv.len(),
                nonce.as_ptr(),
                nonce.len(),
                data,
                text.len(),
                null(),
                0,
                aad.as_ptr(),
                aad.len(),
            )
        };
        good == 1
    }

    /// True if `icv` fits. Decrypts `text` in place.
    #[inline(always)]
    fn open(&self, nonce: &[u8; NONCE], aad: &[u8], text: &mut [u8], icv: &[u8]) -> bool {
        let data = text.as_mut_ptr();
        // SAFETY: the context is alive; lengths are those of the slices, which do not overlap but for text,
        // input and output at once, as it may be.
        let good = unsafe {
            EVP_AEAD_CTX_open_gather(
                self.0.as_ptr(),
                data,
                nonce.as_ptr(),
                nonce.len(),
                data,
                text.len(),
                icv.as_ptr(),
                icv.len(),
                aad.as_ptr(),
                aad.len(),
            )
        };
        good == 1
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: made by EVP_AEAD_CTX_new, and nobody else has it.
        unsafe { EVP_AEAD_CTX_free(self.0.as_ptr()) };
    }
}

/// The keys of a workload.
struct Aead {
    contexts: Vec<Context>,
}

impl Aead {
    fn new(work: &Workload) -> Option<Self> {
        let algorithm = algorithm(work.suite)?;
        let icv = work.suite.icv_bytes();
        let keys = work.keys.iter();
        let contexts = keys.map(|keys| Context::new(algorithm, &keys.cipher, icv));
        Some(Self { contexts: contexts.collect::<Option<_>>()? })
    }

    /// Hands context, nonce, additional data, text and ICV of every packet to `each`, and counts what went well.
    #[inline(always)]
    fn count(
        &self,
        work: &Workload,
        arena: &mut Arena,
        each: impl Fn(&Context, &[u8; NONCE], &[u8], &mut [u8], &mut [u8]) -> bool,
    ) -> usize {
        let (header, aad, icv) =
            (work.suite.header_bytes(), aad_bytes(work.suite), work.suite.icv_bytes());
        let bytes = arena.bytes_mut();
        let mut good = 0;
        for packet in &work.packets {
            let frame = &mut bytes[packet.start..][..header + packet.text + icv];
            let (front, rest) = frame.split_at_mut(header);
            let (text, icv) = rest.split_at_mut(packet.text);
            let Some(nonce) = packet.nonce.first_chunk() else { continue };
            good += usize::from(each(&self.contexts[packet.key], nonce, &front[..aad], text, icv));
        }
        good
    }
}

impl Contender for Aead {
    fn who(&self) -> &'static str {
        "boringssl"
    }

    fn api(&self) -> &str {
        "evp-aead"
    }

    fn seal(&mut self, work: &Workload, arena: &mut Arena) {
        // Failure leaves wrong bytes, which the comparison before the measurement finds.
        let _ = self.count(work, arena, |context, nonce, aad, text, icv| {
            context.seal(nonce, aad, text, icv)
        });
    }

    fn open(&mut self, work: &Workload, arena: &mut Arena) -> usize {
        self.count(work, arena, |context, nonce, aad, text, icv| {
            context.open(nonce, aad, text, icv)
        })
    }
}
