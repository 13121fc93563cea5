//! The keys of one direction of a connection.

use std::fmt;

use zeroize::Zeroize;

use super::{RecordError, RecordMac};
use crate::{
    Cpu, KeyBits, KeyError, SecretBytes, Tier,
    block::{HmacKey, RoundKeys},
    isa::{HashKernel, Kernel, RecordKernel},
    manager::Direction,
    pass::{self, Hasher, record::One},
    secret::{depth, scrubbed, scrubbed_to, wipe_below, wipe_message},
};

/// The keys of one direction of a connection: AES-128 or AES-256 in one of the cipher's directions, and
/// the chaining values of an HMAC. They are wiped on drop; copies are made by [`Clone`] alone.
///
/// Both are set together ([`new`](Self::new)), or one after the other ([`set_cipher`](Self::set_cipher),
/// [`set_mac`](Self::set_mac)) where a library hands them over apart.
pub struct CbcHmacKey {
    pub(super) one: One,
    pub(super) mac: RecordMac,
    cipher: Option<(Direction, KeyBits)>,
    has_mac: bool,
    pub(super) round_keys: RoundKeys,
    pub(super) mac_key: HmacKey,
}

impl CbcHmacKey {
    /// Sets both keys up for the best tier of `cpu`. The cipher's has 16 or 32 bytes, the MAC's any
    /// number; TLS gives it as many as the MAC has.
    ///
    /// # Errors
    ///
    /// [`KeyError::Length`] for a cipher key of another length.
    pub fn new(
        cpu: &Cpu,
        mac: RecordMac,
        direction: Direction,
        cipher_key: &SecretBytes,
        mac_key: &SecretBytes,
    ) -> Result<Box<Self>, KeyError> {
        Self::with_tier(cpu, cpu.best(), mac, direction, cipher_key, mac_key)
    }

    /// The same for the kernels of `tier`.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new), or [`KeyError::TierUnavailable`] if `cpu` lacks the tier.
    pub fn with_tier(
        cpu: &Cpu,
        tier: Tier,
        mac: RecordMac,
        direction: Direction,
        cipher_key: &SecretBytes,
        mac_key: &SecretBytes,
    ) -> Result<Box<Self>, KeyError> {
        if !cpu.has(tier) {
            return Err(KeyError::TierUnavailable(tier));
        }
        let mut this = Box::new(Self::of_tier(cpu, tier, mac));
        this.set_cipher(direction, cipher_key.expose())?;
        this.set_mac(mac_key.expose());
        Ok(this)
    }

    /// Room for both keys, for the best tier of `cpu`; what is sealed or opened with it fails until they
    /// are set.
    #[must_use]
    pub fn empty(cpu: &Cpu, mac: RecordMac) -> Self {
        Self::of_tier(cpu, cpu.best(), mac)
    }

    fn of_tier(cpu: &Cpu, tier: Tier, mac: RecordMac) -> Self {
        Self {
            one: One {
                kernel: cpu.proofs().kernel(tier),
                hasher: Hasher::choose(cpu, tier, mac.hash()),
                both: RecordKernel::choose(cpu.proofs(), tier, mac.hash()),
            },
            mac,
            cipher: None,
            has_mac: false,
            round_keys: RoundKeys::zeroed(),
            mac_key: HmacKey::zeroed(),
        }
    }

    /// Sets the cipher's key, in place of the one held.
    ///
    /// # Errors
    ///
    /// [`KeyError::Length`] unless it has 16 or 32 bytes; then no key is held.
    pub fn set_cipher(&mut self, direction: Direction, key: &[u8]) -> Result<(), KeyError> {
        let held = self.cipher.take();
        let bits = match key.len() {
            16 => KeyBits::Aes128,
            32 => KeyBits::Aes256,
            given => return Err(KeyError::Length { expected: 16, given }),
        };
        // Those of the same size are overwritten.
        if held.is_some_and(|(_, held)| held != bits) {
            self.round_keys.zeroize();
        }
        let (kernel, round_keys) = (self.one.kernel, &mut self.round_keys);
        clean::<CIPHER_DEPTH>(kernel, || {
            if direction == Direction::Encrypt {
                return pass::expand_encrypt(kernel, bits, key, round_keys);
            }
            let mut forward = RoundKeys::zeroed();
            pass::expand_encrypt(kernel, bits, key, &mut forward);
            pass::expand_decrypt(kernel, bits, &forward, round_keys);
        });
        self.cipher = Some((direction, bits));
        Ok(())
    }

    /// Sets the MAC's key, in place of the one held: any number of bytes (RFC 2104 section 3).
    pub fn set_mac(&mut self, key: &[u8]) {
        let (hasher, hash, mac_key) = (self.one.hasher, self.mac.hash(), &mut self.mac_key);
        let expand = || pass::hmac::expand(hasher, hash, key, mac_key);
        clean::<{ depth::KEY }>(self.one.kernel, expand);
        self.has_mac = true;
    }

    /// Forgets both keys.
    pub fn clear(&mut self) {
        self.cipher = None;
        self.round_keys.zeroize();
        self.clear_mac();
    }

    /// Forgets the MAC's key.
    pub fn clear_mac(&mut self) {
        self.has_mac = false;
        self.mac_key.zeroize();
    }

    /// The MAC.
    #[must_use]
    pub fn mac(&self) -> RecordMac {
        self.mac
    }

    /// Direction of the cipher's key, if one is held.
    #[must_use]
    pub fn direction(&self) -> Option<Direction> {
        self.cipher.map(|(direction, _)| direction)
    }

    /// The cipher's size if both keys are held, the cipher's for this direction.
    #[inline(always)]
    pub(super) fn both(&self, direction: Direction) -> Result<KeyBits, RecordError> {
        match self.cipher {
            Some((held, bits)) if held == direction && self.has_mac => Ok(bits),
            _ => Err(RecordError::NoKey),
        }
    }

    /// The cipher's size if its key is held, for this direction.
    #[inline(always)]
    pub(super) fn cipher(&self, direction: Direction) -> Result<KeyBits, RecordError> {
        let held = self.cipher.filter(|&(held, _)| held == direction);
        held.map(|(_, bits)| bits).ok_or(RecordError::NoKey)
    }

    /// Wipes registers, and the stack below where code that does not keep it clean took part, or where
    /// the MAC that a forged record should have had may lie.
    #[inline(always)]
    pub(super) fn wipe_behind(&self, is_forged: bool) {
        if let Some(kernel) = self.one.kernel {
            kernel.wipe_registers();
        }
        let is_portable = self.one.kernel.is_none();
        if is_forged || is_portable {
            wipe_message(is_portable);
        } else if !self.one.hasher.kernel().is_some_and(HashKernel::takes_blocks) {
            wipe_below::<{ depth::KEY }>();
        }
    }
}

/// Bytes of stack that setting a cipher's key up for a kernel may leave secrets in; a MAC's takes more.
const CIPHER_DEPTH: usize = 1 << 10;

/// Sets a key up, and wipes registers and `N` bytes of stack behind it.
#[inline(always)]
fn clean<const N: usize>(kernel: Option<Kernel>, work: impl FnOnce()) {
    let Some(kernel) = kernel else { return scrubbed(work) };
    scrubbed_to::<N, _>(work);
    kernel.wipe_registers();
}

impl Clone for CbcHmacKey {
    fn clone(&self) -> Self {
        let Self { one, mac, cipher, has_mac, ref round_keys, ref mac_key } = *self;
        Self {
            one,
            mac,
            cipher,
            has_mac,
            round_keys: RoundKeys(round_keys.0),
            mac_key: HmacKey { inner: mac_key.inner, outer: mac_key.outer },
        }
    }
}

impl fmt::Debug for CbcHmacKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CbcHmacKey")
            .field("mac", &self.mac)
            .field("cipher", &self.cipher)
            .finish_non_exhaustive()
    }
}
