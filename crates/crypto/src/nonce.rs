//! Nonces and IVs: one for each packet, and of those to be sealed each but once.

use std::fmt;

/// The nonce or IV of one seal operation: up to 128 bits that must never be used twice with the same
/// key.
///
/// Two packets sealed under one key and nonce give away both plaintexts' difference and, with GCM,
/// GMAC and Poly1305, the authentication key; an IV of CBC must be unpredictable besides (RFC 3602
/// section 3). So a nonce can be neither cloned nor copied, and an operation consumes it:
///
/// ```compile_fail,E0382
/// # use convoy_crypto::{Nonce, SealKey, SealOp};
/// # fn twice(key: &SealKey, a: &mut [u8], b: &mut [u8], icv_a: &mut [u8], icv_b: &mut [u8]) {
/// let nonce = Nonce::new([0; 12]);
/// let first = SealOp::new(key, nonce, b"", a, icv_a);
/// let second = SealOp::new(key, nonce, b"", b, icv_b); // error: use of moved value
/// # }
/// ```
///
/// The exception is [`Self::again`].
pub struct Nonce(pub(crate) NonceBlock);

impl Nonce {
    /// The one door by which a nonce comes into being.
    ///
    /// Whoever calls this vouches that these bytes, at most 16, were never used with this key before
    /// and never will be again; for ESP: the salt followed by the explicit IV, made from a sequence
    /// number that was reserved for this packet alone (RFC 4106 sections 3.1 and 4). The cipher NULL
    /// takes none: `Nonce::new([])`.
    #[inline(always)]
    #[must_use]
    pub fn new<const N: usize>(bytes: [u8; N]) -> Self {
        Self(NonceBlock::new(bytes))
    }

    /// The same with the first `len` of 16 bytes, for callers that serve every suite and know the
    /// length from the key alone. A length that the key does not take is refused with the operation.
    #[inline(always)]
    #[must_use]
    pub fn front(bytes: [u8; 16], len: u8) -> Self {
        Self(NonceBlock::front(bytes, len))
    }

    /// The same nonce, for the same operation once more: a device that was given a packet may vanish, and
    /// software does its work again.
    ///
    /// Whoever calls this vouches that key, text and additional data are those of the first time, byte for
    /// byte, so that the same ciphertext comes out. That is no second use.
    #[inline(always)]
    #[must_use]
    pub const fn again(&self) -> Self {
        Self(self.0)
    }

    /// Its bytes, for engines that have another library or a device do the work. They may begin with a
    /// salt, which is secret.
    #[inline]
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        self.0.expose()
    }
}

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nonce")
    }
}

/// The nonce or IV of a packet to be opened. It comes from the packet, so nothing keeps it from
/// coming twice; arrays of up to 16 bytes convert into it.
#[derive(Clone, Copy)]
pub struct OpenNonce(pub(crate) NonceBlock);

impl OpenNonce {
    /// The first `len` of 16 bytes; see [`Nonce::front`].
    #[inline(always)]
    #[must_use]
    pub fn front(bytes: [u8; 16], len: u8) -> Self {
        Self(NonceBlock::front(bytes, len))
    }

    /// Its bytes; see [`Nonce::expose`].
    #[inline]
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        self.0.expose()
    }
}

impl<const N: usize> From<[u8; N]> for OpenNonce {
    #[inline(always)]
    fn from(bytes: [u8; N]) -> Self {
        Self(NonceBlock::new(bytes))
    }
}

/// Its bytes may begin with a salt, which is secret.
impl fmt::Debug for OpenNonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OpenNonce")
    }
}

/// A nonce with zeros behind it, where counters go, so that kernels take it up in one load. In whole
/// words, so that copies are made in the pieces it was made of.
#[derive(Clone, Copy)]
#[repr(align(8))]
pub(crate) struct NonceBlock {
    pub(crate) bytes: [u8; 16],
    len: u64,
}

impl NonceBlock {
    #[inline(always)]
    pub(crate) fn new<const N: usize>(nonce: [u8; N]) -> Self {
        const { assert!(N <= 16, "no suite has nonces of more than 16 bytes") };
        // In words: bytes would go through memory, and be waited for.
        let (words, rest) = nonce.as_chunks::<4>();
        let mut block = 0;
        for (i, word) in words.iter().enumerate() {
            block |= u128::from(u32::from_le_bytes(*word)) << (32 * i);
        }
        for (i, byte) in rest.iter().enumerate() {
            block |= u128::from(*byte) << (8 * (words.len() * 4 + i));
        }
        Self { bytes: block.to_le_bytes(), len: N as u64 }
    }

    /// One of twelve bytes, with four zeros behind it already.
    #[inline(always)]
    pub(crate) fn of_gcm(bytes: &[u8; 16]) -> Self {
        Self { bytes: *bytes, len: 12 }
    }

    #[inline(always)]
    fn front(bytes: [u8; 16], len: u8) -> Self {
        let behind = u128::MAX.checked_shr(u32::from(len) * 8).unwrap_or(0);
        let bytes = (u128::from_be_bytes(bytes) & !behind).to_be_bytes();
        Self { bytes, len: len.into() }
    }

    /// Number of bytes that count, as far as that was told.
    #[inline(always)]
    pub(crate) const fn len(&self) -> u8 {
        self.len as u8
    }

    /// The bytes that count; all of them where more were told.
    fn expose(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len())).unwrap_or(&self.bytes)
    }

    /// With the first block's number in the last byte.
    #[inline(always)]
    pub(crate) fn with_counter(self, counter: u8) -> Self {
        // As a word: to change one byte would take the block apart wherever it is copied.
        let bytes = u128::from_be_bytes(self.bytes) | u128::from(counter);
        Self { bytes: bytes.to_be_bytes(), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_front_of_a_nonce_is_what_an_array_of_that_length_makes() {
        let bytes: [u8; 16] = std::array::from_fn(|i| i as u8 + 1);
        let same =
            |a: NonceBlock, b: NonceBlock| assert_eq!((a.bytes, a.len()), (b.bytes, b.len()));
        same(NonceBlock::front(bytes, 0), NonceBlock::new([]));
        same(NonceBlock::front(bytes, 11), NonceBlock::new(*bytes.first_chunk::<11>().unwrap()));
        same(NonceBlock::front(bytes, 12), NonceBlock::new(*bytes.first_chunk::<12>().unwrap()));
        same(NonceBlock::front(bytes, 16), NonceBlock::new(bytes));
        assert_eq!(NonceBlock::front(bytes, 200).len(), 200, "to be refused with the operation");
    }

    #[test]
    fn a_nonce_shows_the_bytes_that_count() {
        assert_eq!(Nonce::new([7; 12]).expose(), [7; 12]);
        assert_eq!(OpenNonce::front([9; 16], 11).expose(), [9; 11]);
        assert_eq!(
            (Nonce::new([]).expose().len(), Nonce::front([9; 16], 200).expose().len()),
            (0, 16)
        );
    }

    #[test]
    fn a_nonce_again_is_the_same() {
        let bytes: [u8; 12] = std::array::from_fn(|i| i as u8 + 1);
        let (nonce, front) = (Nonce::new(bytes), Nonce::front([9; 16], 5));
        for (once, again) in [(&nonce, nonce.again()), (&front, front.again())] {
            assert_eq!((once.0.bytes, once.0.len()), (again.0.bytes, again.0.len()));
        }
    }

    #[test]
    fn a_first_counter_goes_into_the_last_byte() {
        let block = NonceBlock::new([7; 12]).with_counter(1);
        assert_eq!(block.bytes, [7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 0, 0, 0, 1]);
        assert_eq!(block.len(), 12);
        assert_eq!(NonceBlock::new([7; 16]).with_counter(0).bytes, [7; 16]);
    }
}
