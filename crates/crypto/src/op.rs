//! Operations: one packet's worth of work each, gathered into bursts.

use std::{fmt, hint::black_box};

use crate::{
    GcmParams, OpError,
    key::{OpenKey, Schedule, SealKey},
};

/// The nonce of one seal operation: 96 bits that must never be used twice with the same key.
///
/// Two packets sealed under one key and nonce give away both plaintexts' difference and the
/// authentication key. So a nonce can be neither cloned nor copied, and an operation consumes it:
///
/// ```compile_fail,E0382
/// # use convoy_crypto::{Nonce, SealKey, SealOp};
/// # fn twice(key: &SealKey, a: &mut [u8], b: &mut [u8], icv_a: &mut [u8], icv_b: &mut [u8]) {
/// let nonce = Nonce::new([0; 12]);
/// let first = SealOp::new(key, nonce, b"", a, icv_a);
/// let second = SealOp::new(key, nonce, b"", b, icv_b); // error: use of moved value
/// # }
/// ```
pub struct Nonce([u8; 12]);

impl Nonce {
    /// The one door by which a nonce comes into being.
    ///
    /// Whoever calls this vouches that these 12 bytes were never used with this key before and
    /// never will be again; for ESP: the salt followed by the explicit IV, made from a sequence
    /// number that was reserved for this packet alone (RFC 4106 sections 3.1 and 4).
    #[must_use]
    pub const fn new(bytes: [u8; 12]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nonce")
    }
}

/// A nonce with room for a counter behind it, so that kernels take it up in one load.
struct CounterBlock([u8; 16]);

impl CounterBlock {
    #[inline(always)]
    fn new(nonce: [u8; 12]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = nonce;
        Self([a, b, c, d, e, f, g, h, i, j, k, l, 0, 0, 0, 0])
    }
}

/// A packet to be encrypted in place and given an ICV.
///
/// Its parts are checked when it is built, so sealing cannot fail. It is sealed by the first
/// [`seal_burst`](crate::seal_burst) it takes part in; further bursts leave it alone, because its
/// nonce is spent.
pub struct SealOp<'a> {
    key: &'a SealKey,
    counter: CounterBlock,
    sealed: bool,
    aad: &'a [u8],
    data: &'a mut [u8],
    icv: &'a mut [u8],
}

impl<'a> SealOp<'a> {
    /// Puts an operation together. `data` is replaced by its ciphertext, `icv` is overwritten.
    ///
    /// # Errors
    ///
    /// [`OpError`] if `icv` does not have the length in the key's parameters, or a part is longer
    /// than GCM allows. The nonce is gone then.
    #[inline(always)]
    pub fn new(
        key: &'a SealKey,
        nonce: Nonce,
        aad: &'a [u8],
        data: &'a mut [u8],
        icv: &'a mut [u8],
    ) -> Result<Self, OpError> {
        check(key.params(), aad.len(), data.len(), icv.len())?;
        Ok(Self { key, counter: CounterBlock::new(nonce.0), sealed: false, aad, data, icv })
    }

    /// Whether the packet has been sealed.
    #[inline]
    #[must_use]
    pub const fn is_sealed(&self) -> bool {
        self.sealed
    }
}

/// How opening a packet ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Not opened yet: `data` is still ciphertext.
    Pending,
    /// Authentic: `data` is the plaintext.
    Authentic,
    /// Not authentic: `data` has been wiped.
    Forged,
}

/// A packet to be verified and decrypted in place.
///
/// Its parts are checked when it is built. It is opened by the first
/// [`open_burst`](crate::open_burst) it takes part in; further bursts leave it alone.
pub struct OpenOp<'a> {
    key: &'a OpenKey,
    counter: CounterBlock,
    verdict: Verdict,
    aad: &'a [u8],
    data: &'a mut [u8],
    icv: &'a [u8],
}

impl<'a> OpenOp<'a> {
    /// Puts an operation together. `data` is replaced by its plaintext, or by zeros if it is not
    /// authentic.
    ///
    /// # Errors
    ///
    /// [`OpError`] if `icv` does not have the length in the key's parameters, or a part is longer
    /// than GCM allows.
    #[inline(always)]
    pub fn new(
        key: &'a OpenKey,
        nonce: [u8; 12],
        aad: &'a [u8],
        data: &'a mut [u8],
        icv: &'a [u8],
    ) -> Result<Self, OpError> {
        check(key.params(), aad.len(), data.len(), icv.len())?;
        Ok(Self {
            key,
            counter: CounterBlock::new(nonce),
            verdict: Verdict::Pending,
            aad,
            data,
            icv,
        })
    }

    /// How it ended.
    #[inline]
    #[must_use]
    pub const fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// The plaintext, if the packet was opened and is authentic.
    #[inline]
    #[must_use]
    pub fn into_plaintext(self) -> Option<&'a mut [u8]> {
        (self.verdict == Verdict::Authentic).then_some(self.data)
    }
}

#[inline(always)]
fn check(params: GcmParams, aad: usize, data: usize, icv: usize) -> Result<(), OpError> {
    let expected = params.icv_len.bytes();
    if icv != expected {
        return Err(OpError::IcvLength { expected, given: icv });
    }
    if data as u64 > GcmParams::MAX_DATA {
        return Err(OpError::DataTooLong { given: data });
    }
    if aad as u64 >= 1 << 61 {
        return Err(OpError::AadTooLong { given: aad });
    }
    Ok(())
}

/// What a kernel needs of an operation while it works on it.
pub(crate) struct Parts<'p> {
    /// The nonce, then four zero bytes where counters go.
    pub(crate) counter: &'p [u8; 16],
    pub(crate) aad: &'p [u8],
    pub(crate) data: &'p mut [u8],
}

/// What the scheduler and the kernels see: seal and open differ in direction and in what becomes of
/// the tag.
pub(crate) trait Op<'a> {
    /// Whether the data goes from plaintext to ciphertext.
    const SEAL: bool;

    /// The key's tables.
    fn schedule(&self) -> &'a Schedule;

    /// Whether the operation still has to run.
    fn is_due(&self) -> bool;

    /// Payload bytes.
    fn data_len(&self) -> usize;

    /// Nonce, additional data and payload.
    fn parts(&mut self) -> Parts<'_>;

    /// Ends the operation: the payload has been transformed and `tag` is the full GCM tag.
    fn finish(&mut self, tag: [u8; 16]);
}

impl<'a> Op<'a> for SealOp<'a> {
    const SEAL: bool = true;

    #[inline(always)]
    fn schedule(&self) -> &'a Schedule {
        self.key.schedule()
    }

    #[inline(always)]
    fn is_due(&self) -> bool {
        !self.sealed
    }

    #[inline(always)]
    fn data_len(&self) -> usize {
        self.data.len()
    }

    #[inline(always)]
    fn parts(&mut self) -> Parts<'_> {
        Parts { counter: &self.counter.0, aad: self.aad, data: self.data }
    }

    #[inline(always)]
    fn finish(&mut self, tag: [u8; 16]) {
        self.sealed = true;
        // Fixed lengths, so that each is one or two plain stores.
        if let Some(icv) = self.icv.first_chunk_mut::<16>() {
            *icv = tag;
        } else if let (Some(icv), [t @ .., _, _, _, _]) = (self.icv.first_chunk_mut::<12>(), &tag) {
            *icv = *t;
        } else if let (Some(icv), Some(t)) = (self.icv.first_chunk_mut::<8>(), tag.first_chunk()) {
            *icv = *t;
        }
    }
}

impl<'a> Op<'a> for OpenOp<'a> {
    const SEAL: bool = false;

    #[inline(always)]
    fn schedule(&self) -> &'a Schedule {
        self.key.schedule()
    }

    #[inline(always)]
    fn is_due(&self) -> bool {
        self.verdict == Verdict::Pending
    }

    #[inline(always)]
    fn data_len(&self) -> usize {
        self.data.len()
    }

    #[inline(always)]
    fn parts(&mut self) -> Parts<'_> {
        Parts { counter: &self.counter.0, aad: self.aad, data: self.data }
    }

    #[inline(always)]
    fn finish(&mut self, tag: [u8; 16]) {
        if icv_matches(&tag, self.icv) {
            self.verdict = Verdict::Authentic;
        } else {
            self.verdict = Verdict::Forged;
            self.data.fill(0);
        }
    }
}

/// Compares the front of `tag` with `icv` (8, 12 or 16 bytes). The time taken depends on the length
/// alone: every byte is gathered into one difference, and only that is tested.
#[inline(always)]
fn icv_matches(tag: &[u8; 16], icv: &[u8]) -> bool {
    let (Some(&tag_lo), Some(&icv_lo)) = (tag.first_chunk::<8>(), icv.first_chunk::<8>()) else {
        return false;
    };
    let head = u64::from_le_bytes(tag_lo) ^ u64::from_le_bytes(icv_lo);
    let (Some(&tag_hi), [_, _, _, _, _, _, _, _, tail @ ..]) = (tag.last_chunk::<8>(), icv) else {
        return false;
    };
    let tag_hi = u64::from_le_bytes(tag_hi);
    let rest = if let Some(&icv_hi) = tail.first_chunk::<8>() {
        tag_hi ^ u64::from_le_bytes(icv_hi)
    } else if let Some(&icv_hi) = tail.first_chunk::<4>() {
        (tag_hi & u64::from(u32::MAX)) ^ u64::from(u32::from_le_bytes(icv_hi))
    } else {
        0
    };
    // The black box keeps the compiler from testing the two halves one after the other.
    black_box(head | rest) == 0
}

impl fmt::Debug for SealOp<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealOp")
            .field("key", self.key)
            .field("data_len", &self.data.len())
            .field("sealed", &self.sealed)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for OpenOp<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenOp")
            .field("key", self.key)
            .field("data_len", &self.data.len())
            .field("verdict", &self.verdict)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_flipped_bit_anywhere_in_the_icv_is_noticed() {
        let tag: [u8; 16] = std::array::from_fn(|i| i as u8 * 13 + 3);
        for len in [8, 12, 16] {
            assert!(icv_matches(&tag, &tag[..len]));
            for bit in 0..len * 8 {
                let mut icv = tag;
                icv[bit / 8] ^= 1 << (bit % 8);
                assert!(!icv_matches(&tag, &icv[..len]), "bit {bit} of {len} bytes");
            }
        }
    }

    #[test]
    fn lengths_beyond_gcm_are_refused() {
        let params = GcmParams::new(crate::KeyBits::Aes128, crate::IcvLen::Icv16);
        let most = GcmParams::MAX_DATA as usize;
        assert_eq!(check(params, 0, most, 16), Ok(()));
        assert_eq!(check(params, 0, most + 1, 16), Err(OpError::DataTooLong { given: most + 1 }));
        let aad = 1usize << 61;
        assert_eq!(check(params, aad, 0, 16), Err(OpError::AadTooLong { given: aad }));
        for icv in [0, 8, 12, 15, 17] {
            assert_eq!(
                check(params, 0, 0, icv),
                Err(OpError::IcvLength { expected: 16, given: icv })
            );
        }
    }
}
