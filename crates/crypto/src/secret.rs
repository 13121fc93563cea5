//! Key material at rest in memory.

use std::fmt;

use zeroize::{Zeroize, optimization_barrier, zeroize_stack};

/// Secret bytes: a key, or a part of one.
///
/// The type is deliberately poor. It cannot be cloned, compared, printed or serialised, and its
/// memory is wiped when it is dropped. [`SealKey`](crate::SealKey) and [`OpenKey`](crate::OpenKey)
/// consume it.
pub struct SecretBytes(Box<[u8]>);

impl SecretBytes {
    /// Takes the bytes out of `source` and wipes `source`.
    ///
    /// Use this to lift a key straight out of the buffer it arrived in.
    #[must_use]
    pub fn take(source: &mut [u8]) -> Self {
        let secret = Self(Box::from(&*source));
        source.zeroize();
        secret
    }

    /// Copies the bytes; wiping the original stays with the caller.
    #[must_use]
    pub fn copy_from(source: &[u8]) -> Self {
        Self(Box::from(source))
    }

    /// Number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there are no bytes at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bytes themselves. Every caller of this is a place to review.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for SecretBytes {
    /// Takes over the vector; spare capacity behind its length is wiped and given back.
    fn from(mut bytes: Vec<u8>) -> Self {
        if bytes.len() == bytes.capacity() {
            return Self(bytes.into_boxed_slice());
        }
        let secret = Self::copy_from(&bytes);
        bytes.zeroize();
        secret
    }
}

impl Drop for SecretBytes {
    fn drop(&mut self) {
        wipe(&mut self.0, 0);
    }
}

impl fmt::Debug for SecretBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretBytes({} bytes)", self.0.len())
    }
}

/// Wipes what needs no drop, in stores as wide as there are.
#[inline(always)]
pub(crate) fn wipe<T: Copy>(secret: &mut [T], nothing: T) {
    // Core's `fill` is not always inlined.
    for place in secret.iter_mut() {
        *place = nothing;
    }
    optimization_barrier(secret);
}

/// Secrets on the stack while a burst is worked on; wiped on drop, in stores as wide as there are.
pub(crate) struct Scratch<T: Copy + Default, const N: usize>(pub(crate) [T; N]);

impl<T: Copy + Default, const N: usize> Drop for Scratch<T, N> {
    #[inline(always)]
    fn drop(&mut self) {
        wipe(&mut self.0, T::default());
    }
}

/// Bytes of stack below the frame that wipes them, by what worked there. The stack of a program may be small
/// (a job of OpenSSL's has 32 KiB, with the heap below it), so none is much more than what is used: tests
/// paint the stack and look (`tests/it/stack.rs`, the programs `entries.c` of the provider and the C library).
pub(crate) mod depth {
    /// A key of AES-GCM or GMAC for a kernel: its tables, its round keys, and what kernels spill.
    pub(crate) const GCM_KEY: usize = 2 << 10;
    /// A key of ChaCha20-Poly1305, which is copied and nothing else.
    pub(crate) const CHACHA_KEY: usize = 1 << 10;
    /// Any other key for a kernel; what comes from RustCrypto's crates among it are block functions of hashes.
    pub(crate) const KEY: usize = 4 << 10;
    /// A key of the portable tier, with what RustCrypto's crates put behind it.
    pub(crate) const PORTABLE_KEY: usize = 6 << 10;
    /// A message by itself, or a record: by a kernel.
    pub(crate) const MESSAGE: usize = 5 << 10;
    /// The same by the portable tier.
    pub(crate) const PORTABLE_MESSAGE: usize = 6 << 10;
    /// A burst of AES-GCM.
    pub(crate) const GCM_BURST: usize = 14 << 10;
    /// A burst of any suite.
    pub(crate) const BURST: usize = 48 << 10;
    /// Jobs of a manager: by kernels.
    pub(crate) const JOBS: usize = 70 << 10;
    /// The same by the portable tier.
    pub(crate) const PORTABLE_JOBS: usize = 40 << 10;
}

/// Does what needs no speed and leaves secrets on the stack, such as copies of a key, and wipes them.
pub(crate) fn scrubbed<R>(work: impl FnOnce() -> R) -> R {
    scrubbed_to::<{ depth::PORTABLE_KEY }, R>(work)
}

/// The same for work that reaches no deeper than `N` bytes.
#[inline]
pub(crate) fn scrubbed_to<const N: usize, R>(work: impl FnOnce() -> R) -> R {
    /// Of its own frame, so that what it leaves is below the caller's.
    #[inline(never)]
    fn apart<R>(work: impl FnOnce() -> R) -> R {
        work()
    }
    let done = apart(work);
    wipe_below::<N>();
    done
}

/// Wipes as many bytes of stack below the caller's frame as a message by itself leaves secrets in.
pub(crate) fn wipe_message(is_portable: bool) {
    if is_portable {
        wipe_below::<{ depth::PORTABLE_MESSAGE }>();
    } else {
        wipe_below::<{ depth::MESSAGE }>();
    }
}

/// Wipes so many bytes of stack below the caller's frame.
#[inline(always)]
pub(crate) fn wipe_below<const N: usize>() {
    zeroize_stack::<N>();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn take_wipes_the_source() {
        let mut source = [7u8; 20];
        let secret = SecretBytes::take(&mut source);
        assert_eq!(source, [0u8; 20]);
        assert_eq!(secret.expose(), [7u8; 20]);
    }

    #[test]
    fn debug_shows_no_content() {
        assert_eq!(format!("{:?}", SecretBytes::copy_from(&[0xab; 16])), "SecretBytes(16 bytes)");
    }

    #[test]
    fn vectors_with_spare_capacity_keep_their_bytes() {
        let mut bytes = Vec::with_capacity(64);
        bytes.extend_from_slice(&[1, 2, 3]);
        let secret = SecretBytes::from(bytes);
        assert_eq!(
            (secret.len(), secret.is_empty(), secret.expose()),
            (3, false, &[1u8, 2, 3][..])
        );
    }
}
