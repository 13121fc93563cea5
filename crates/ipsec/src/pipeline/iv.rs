//! IVs that nobody can predict, for CBC (RFC 3602 section 3).

use std::fmt;

use convoy_crypto::{Cipher, Cpu, Integrity, KeyBits, KeyMaterial, Nonce};
use convoy_crypto::{SealKey, SealOp, SecretBytes, Suite, seal_burst};

use crate::suite::EspSuite;

/// Bytes of an IV: a block of AES. A shorter one is the front of it.
pub(super) const IV_BYTES: usize = 16;
/// IVs made at a time.
const BATCH: usize = 256;

/// Cipher that makes the IVs: AES in counter mode over zeros, whose blocks are the IVs. Two blocks
/// of one key never agree, and without the key the next cannot be told from the last.
const GENERATOR: Suite =
    Suite::Pair { cipher: Cipher::AesCtr(KeyBits::Aes256), integrity: Integrity::NULL };

/// The IVs of one worker.
pub(super) struct IvSource {
    /// Random and this worker's alone; none until the first SA needs it.
    key: Option<SealKey>,
    /// Batches made so far: the nonce of the next.
    batches: u64,
    batch: Box<[[u8; IV_BYTES]; BATCH]>,
    /// Position of the next IV in `batch`.
    next: usize,
}

impl IvSource {
    pub(super) fn new() -> Self {
        Self { key: None, batches: 0, batch: Box::new([[0; IV_BYTES]; BATCH]), next: BATCH }
    }

    /// Makes sure that there are IVs where packets of this suite need them; says whether.
    pub(super) fn serve(&mut self, suite: Suite) -> bool {
        let random = EspSuite::new(suite).is_ok_and(|suite| suite.iv().is_random());
        !random || self.seed()
    }

    /// Takes a key from the system's random numbers, unless there is one. Says whether there is.
    fn seed(&mut self) -> bool {
        if self.key.is_none() {
            self.key = random_key();
        }
        self.key.is_some()
    }

    /// An IV that was never given out before; `None` without a key.
    #[inline]
    pub(super) fn next(&mut self) -> Option<[u8; IV_BYTES]> {
        if self.next >= BATCH {
            self.refill()?;
        }
        let iv = self.batch.get(self.next).copied();
        self.next += 1;
        iv
    }

    #[cold]
    #[inline(never)]
    fn refill(&mut self) -> Option<()> {
        let key = self.key.as_ref()?;
        let [a, b, c, d, e, f, g, h] = self.batches.to_be_bytes();
        // The block counter takes the other four bytes, and a batch has far fewer than 2^32 blocks.
        let nonce = Nonce::new([a, b, c, d, e, f, g, h, 0, 0, 0, 0]);
        self.batches = self.batches.checked_add(1)?;
        let bytes = self.batch.as_flattened_mut();
        bytes.fill(0);
        let op = SealOp::framed(key, nonce, bytes, 0, &[], &mut []).ok()?;
        seal_burst(&mut [op]);
        self.next = 0;
        Some(())
    }
}

/// As for keys: shows nothing of what will be given out.
impl fmt::Debug for IvSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IvSource").field("batches", &self.batches).finish_non_exhaustive()
    }
}

fn random_key() -> Option<SealKey> {
    let mut secret = vec![0; GENERATOR.key_bytes()];
    getrandom::fill(&mut secret).ok()?;
    let material =
        KeyMaterial { cipher: SecretBytes::from(secret), integrity: SecretBytes::copy_from(&[]) };
    SealKey::new(&Cpu::detect().ok()?, GENERATOR, material).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_iv_comes_twice_and_every_bit_of_them_varies() {
        let (mut seen, mut ones, mut zeros) = (HashSet::new(), 0_u128, 0_u128);
        // Two workers, or one before and after a restart.
        for _ in 0..2 {
            let mut source = IvSource::new();
            assert!(source.next().is_none(), "nothing without a key");
            assert!(source.seed() && source.seed());
            for _ in 0..10 * BATCH + 7 {
                let iv = source.next().unwrap();
                assert!(seen.insert(iv));
                ones |= u128::from_be_bytes(iv);
                zeros |= !u128::from_be_bytes(iv);
            }
        }
        assert_eq!((ones, zeros), (u128::MAX, u128::MAX));
    }

    #[test]
    fn printing_shows_no_iv_to_come() {
        let mut source = IvSource::new();
        source.seed();
        source.next();
        assert_eq!(format!("{source:?}"), "IvSource { batches: 1, .. }");
    }
}
