//! Keys of ciphers and MACs as jobs take them: expanded once, in plain memory, the same for every
//! tier.
//!
//! Each type is made of integers alone, in C's layout, so memory of its size and alignment may be
//! looked at as one of them whatever it holds. A mark tells keys from everything else: a job whose
//! key lacks it is invalid.

mod expanded;

use std::fmt;

pub use expanded::round_key_bytes;
use zeroize::{Zeroize, Zeroizing};

use crate::{
    Cpu, HashAlg, KeyBits, KeyError, MacAlg, SecretBytes,
    block::{CbcMacKey, HmacKey, RoundKeys},
    isa::Kernel,
    pass::{self, Hasher},
    secret::{depth, scrubbed, scrubbed_to},
};

/// Type of the key in a piece of memory, behind the key itself.
#[derive(Clone, Copy, Zeroize)]
#[repr(C)]
struct Label {
    /// Mark of the type: one of those below.
    mark: u32,
    /// Bits of an AES key; an HMAC's hash by its place in [`HashAlg::ALL`].
    kind: u32,
    unused: [u32; 2],
}

impl Label {
    /// Words that memory does not hold by chance.
    const ENCRYPT: u32 = 0x4165_7345;
    const DECRYPT: u32 = 0x4165_7344;
    const XCBC: u32 = 0x5843_4243;
    const CMAC: u32 = 0x434d_4143;
    const HMAC: u32 = 0x484d_4143;

    const NONE: Self = Self { mark: 0, kind: 0, unused: [0; 2] };

    const fn new(mark: u32, kind: u32) -> Self {
        Self { mark, kind, unused: [0; 2] }
    }

    /// The key size, if this is the label of such a key.
    #[inline(always)]
    fn bits(self, mark: u32) -> Option<KeyBits> {
        if self.mark != mark { None } else { KeyBits::from_bits(self.kind as usize) }
    }
}

fn bits_of(key: &[u8]) -> Result<KeyBits, KeyError> {
    let bits = KeyBits::from_bits(key.len().saturating_mul(8));
    bits.ok_or(KeyError::Length { expected: 16, given: key.len() })
}

/// Works with the best kernel that there is, and wipes registers and stack behind it.
fn with_kernel(cpu: &Cpu, work: impl FnOnce(Option<Kernel>)) {
    let kernel = cpu.proofs().kernel(cpu.best());
    let Some(kernel) = kernel else { return scrubbed(|| work(None)) };
    scrubbed_to::<{ depth::KEY }, _>(|| work(Some(kernel)));
    kernel.wipe_registers();
}

/// Methods of all key types.
macro_rules! common {
    ($name:ident, $bytes:literal, $empty:expr, $text:literal) => {
        impl $name {
            /// Room for a key; jobs with this one are invalid.
            #[must_use]
            pub const fn empty() -> Self {
                $empty
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::empty()
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                self.label.zeroize();
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(concat!(stringify!($name), " (", $text, ")"))
            }
        }

        const _: () = assert!(size_of::<$name>() == $bytes);
    };
}

/// A type for what an AES key is expanded to.
macro_rules! aes_key {
    (
        $(#[$doc:meta])*
        $name:ident { $body:ty, $bytes:literal, $mark:expr, $text:literal }
    ) => {
        $(#[$doc])*
        #[repr(C, align(16))]
        pub struct $name {
            body: $body,
            label: Label,
        }

        common!($name, $bytes, Self { body: <$body>::zeroed(), label: Label::NONE }, $text);

        impl $name {
            /// The key's size, if a key is held.
            #[inline(always)]
            #[must_use]
            pub fn bits(&self) -> Option<KeyBits> {
                self.label.bits($mark)
            }

            #[inline(always)]
            pub(super) fn body(&self) -> &$body {
                &self.body
            }

            /// Puts another key in place of the one held.
            fn replace(
                &mut self,
                cpu: &Cpu,
                bits: KeyBits,
                expand: impl FnOnce(Option<Kernel>, &mut $body),
            ) {
                self.label = Label::NONE;
                self.body.zeroize();
                with_kernel(cpu, |kernel| expand(kernel, &mut self.body));
                self.label = Label::new($mark, bits.bits() as u32);
            }
        }
    };
}

/// Ways to make one of them from a secret.
macro_rules! from_secret {
    ($name:ident, $sizes:literal, $bits_of:expr, $expand:expr) => {
        impl $name {
            #[doc = concat!("Sets a key up from a secret of ", $sizes, " bytes.")]
            ///
            /// # Errors
            ///
            /// [`KeyError::Length`] for any other length.
            pub fn new(cpu: &Cpu, key: &SecretBytes) -> Result<Box<Self>, KeyError> {
                let mut this = Box::new(Self::empty());
                this.set(cpu, key.expose())?;
                Ok(this)
            }

            #[doc = concat!("Sets a key up from a secret of ", $sizes, " bytes, in place of the one held.")]
            ///
            /// # Errors
            ///
            /// [`KeyError::Length`] for any other length; then nothing is changed.
            pub fn set(&mut self, cpu: &Cpu, key: &[u8]) -> Result<(), KeyError> {
                let bits = $bits_of(key)?;
                self.replace(cpu, bits, |kernel, body| $expand(kernel, bits, key, body));
                Ok(())
            }
        }
    };
}

aes_key! {
    /// Round keys of AES for encryption: for CBC encryption, and for CTR and CCM in both directions.
    AesEncryptKey { RoundKeys, 256, Label::ENCRYPT, "AES round keys for encryption" }
}

from_secret!(AesEncryptKey, "16, 24 or 32", bits_of, pass::aes::expand_encrypt);

aes_key! {
    /// Round keys of AES for decryption, those of the equivalent inverse cipher (FIPS 197 section
    /// 5.3.5): for CBC decryption.
    AesDecryptKey { RoundKeys, 256, Label::DECRYPT, "AES round keys for decryption" }
}

impl AesDecryptKey {
    /// Sets a key up from a secret of 16, 24 or 32 bytes.
    ///
    /// # Errors
    ///
    /// [`KeyError::Length`] for any other length.
    pub fn new(cpu: &Cpu, key: &SecretBytes) -> Result<Box<Self>, KeyError> {
        let forward = AesEncryptKey::new(cpu, key)?;
        let mut this = Box::new(Self::empty());
        this.set(cpu, &forward);
        Ok(this)
    }

    /// Takes the key that is expanded in `forward`; an empty one makes an empty one.
    pub fn set(&mut self, cpu: &Cpu, forward: &AesEncryptKey) {
        let Some(bits) = forward.bits() else {
            self.body.zeroize();
            self.label = Label::NONE;
            return;
        };
        self.replace(cpu, bits, |kernel, body| {
            pass::aes::expand_decrypt(kernel, bits, &forward.body, body);
        });
    }
}

aes_key! {
    /// The key of AES-XCBC-MAC (RFC 3566 section 4): the round keys of K1, then K2 and K3.
    XcbcKey { CbcMacKey, 288, Label::XCBC, "K1, K2 and K3 of AES-XCBC" }
}

from_secret!(
    XcbcKey,
    "16",
    |key: &[u8]| match key.len() {
        16 => Ok(KeyBits::Aes128),
        given => Err(KeyError::Length { expected: 16, given }),
    },
    |kernel, _, key, body| pass::aes::expand_cbc_mac(kernel, MacAlg::AesXcbc, key, body)
);

impl XcbcKey {
    /// True if a key is held.
    #[inline(always)]
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.bits() == Some(KeyBits::Aes128)
    }
}

aes_key! {
    /// The key of AES-CMAC (NIST SP 800-38B section 6.1): round keys, then the subkeys K1 and K2.
    CmacKey { CbcMacKey, 288, Label::CMAC, "round keys and subkeys of AES-CMAC" }
}

from_secret!(CmacKey, "16, 24 or 32", bits_of, |kernel, bits, key, body| {
    pass::aes::expand_cbc_mac(kernel, MacAlg::AesCmac(bits), key, body);
});

/// The key of an HMAC (RFC 2104): the hash's chaining values after the one block of inner and of
/// outer padding, each at the front of 64 bytes.
#[repr(C, align(64))]
pub struct HmacKeys {
    body: HmacKey,
    label: Label,
    unused: [u32; 12],
}

common!(
    HmacKeys,
    192,
    Self { body: HmacKey::zeroed(), label: Label::NONE, unused: [0; 12] },
    "chaining values of an HMAC"
);

impl HmacKeys {
    /// Derives both chaining values from a key of any length; one longer than a block is hashed
    /// first.
    #[must_use]
    pub fn new(cpu: &Cpu, alg: HashAlg, key: &SecretBytes) -> Box<Self> {
        let mut this = Box::new(Self::empty());
        this.set(cpu, alg, key.expose());
        this
    }

    /// Derives both chaining values from a key of any length, in place of those held.
    pub fn set(&mut self, cpu: &Cpu, alg: HashAlg, key: &[u8]) {
        self.body.zeroize();
        expand(cpu, alg, key, &mut self.body);
        self.label = Label::new(Label::HMAC, alg as u32);
    }

    /// Takes chaining values that were derived before, as [`one_block`] makes them.
    ///
    /// # Errors
    ///
    /// [`KeyError::Length`] if one of them does not have [`chaining_bytes`]; then nothing is
    /// changed.
    pub fn set_chaining(
        &mut self,
        alg: HashAlg,
        inner: &[u8],
        outer: &[u8],
    ) -> Result<(), KeyError> {
        let expected = chaining_bytes(alg);
        for value in [inner, outer] {
            if value.len() != expected {
                return Err(KeyError::Length { expected, given: value.len() });
            }
        }
        self.body.zeroize();
        self.body.inner[..expected].copy_from_slice(inner);
        self.body.outer[..expected].copy_from_slice(outer);
        self.label = Label::new(Label::HMAC, alg as u32);
        Ok(())
    }

    /// The hash, if a key is held.
    #[inline(always)]
    #[must_use]
    pub fn alg(&self) -> Option<HashAlg> {
        if self.label.mark == Label::HMAC {
            HashAlg::ALL.get(self.label.kind as usize).copied()
        } else {
            None
        }
    }

    /// Both chaining values, inner and outer, [`chaining_bytes`] each; none if no key is held.
    /// Every caller of this is a place to review.
    #[must_use]
    pub fn expose(&self) -> Option<(&[u8], &[u8])> {
        let bytes = chaining_bytes(self.alg()?);
        Some((&self.body.inner[..bytes], &self.body.outer[..bytes]))
    }

    #[inline(always)]
    pub(super) fn body(&self) -> &HmacKey {
        &self.body
    }
}

/// Bytes of a hash's chaining value: 16, 20, 32, 32, 64 and 64. That of SHA-224 and SHA-384 is longer
/// than their digest.
#[must_use]
pub const fn chaining_bytes(alg: HashAlg) -> usize {
    match alg {
        HashAlg::Md5 => 16,
        HashAlg::Sha1 => 20,
        HashAlg::Sha224 | HashAlg::Sha256 => 32,
        HashAlg::Sha384 | HashAlg::Sha512 => 64,
    }
}

/// The chaining value of a hash after one block, its words in the machine's byte order: what an HMAC
/// keeps of its key. `block` has the hash's [`block_bytes`](HashAlg::block_bytes), `out` its
/// [`chaining_bytes`].
///
/// # Errors
///
/// [`KeyError::Length`] if one of them does not have its length.
pub fn one_block(cpu: &Cpu, alg: HashAlg, block: &[u8], out: &mut [u8]) -> Result<(), KeyError> {
    for (expected, given) in [(alg.block_bytes(), block.len()), (chaining_bytes(alg), out.len())] {
        if expected != given {
            return Err(KeyError::Length { expected, given });
        }
    }
    // A key of exactly one block is padded with nothing and combined with 0x36 (RFC 2104): what
    // goes into the hash is the block given.
    let mut key = Zeroizing::new([0; 128]);
    let key = &mut key[..block.len()];
    key.iter_mut().zip(block).for_each(|(to, byte)| *to = byte ^ 0x36);
    let mut body = HmacKey::zeroed();
    expand(cpu, alg, key, &mut body);
    out.copy_from_slice(&body.inner[..out.len()]);
    Ok(())
}

fn expand(cpu: &Cpu, alg: HashAlg, key: &[u8], body: &mut HmacKey) {
    let hasher = Hasher::choose(cpu, cpu.best(), alg);
    with_kernel(cpu, |_| pass::hmac::expand(hasher, alg, key, body));
}
