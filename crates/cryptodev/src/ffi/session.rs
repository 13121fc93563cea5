//! Keys on their way to a device, and sessions in it.

use std::ffi::c_void;

use zeroize::Zeroize;

use crate::ffi::library::Shim;

/// `enum ccd_aead`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Aead {
    None,
    AesGcm,
    ChaCha20Poly1305,
}

/// `enum ccd_cipher`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum BlockCipher {
    None,
    AesCbc,
    /// No work at all.
    Idle,
}

/// `enum ccd_auth`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Auth {
    None,
    HmacSha1,
    HmacSha256,
    HmacSha384,
    HmacSha512,
}

/// `struct ccd_key`.
#[repr(C)]
pub(crate) struct DeviceKey {
    aead: Aead,
    cipher: BlockCipher,
    auth: Auth,
    opens: u8,
    icv: u8,
    aad_length: u8,
    key_length: u8,
    mac_length: u8,
    key: [u8; 32],
    mac: [u8; 64],
}

impl DeviceKey {
    /// `None` when a key is longer than devices take.
    pub(crate) fn new(
        aead: Aead,
        cipher: BlockCipher,
        auth: Auth,
        opens: bool,
        icv: u8,
        key: &[u8],
        mac: &[u8],
    ) -> Option<Self> {
        let mut made = Self {
            aead,
            cipher,
            auth,
            opens: opens.into(),
            icv,
            aad_length: 0,
            key_length: u8::try_from(key.len()).ok()?,
            mac_length: u8::try_from(mac.len()).ok()?,
            key: [0; 32],
            mac: [0; 64],
        };
        made.key.get_mut(..key.len())?.copy_from_slice(key);
        made.mac.get_mut(..mac.len())?.copy_from_slice(mac);
        Some(made)
    }

    /// True if it is an AEAD's.
    pub(crate) fn is_aead(&self) -> bool {
        self.aead != Aead::None
    }

    /// True if it hashes and does not encrypt.
    pub(crate) fn is_mac_alone(&self) -> bool {
        self.aead == Aead::None && self.cipher == BlockCipher::None
    }

    /// True if it does no work.
    pub(crate) fn is_idle(&self) -> bool {
        self.cipher == BlockCipher::Idle
    }

    /// Length of the ICV.
    pub(crate) const fn icv(&self) -> u8 {
        self.icv
    }

    /// For so many bytes of additional data.
    pub(crate) const fn with_aad(&mut self, length: u8) -> &mut Self {
        self.aad_length = length;
        self
    }
}

impl Drop for DeviceKey {
    fn drop(&mut self) {
        self.key.zeroize();
        self.mac.zeroize();
    }
}

impl std::fmt::Debug for DeviceKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DeviceKey({:?}, {:?}, {:?})", self.aead, self.cipher, self.auth)
    }
}

/// Error of a session that was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionError {
    /// The device does not know the algorithms with these lengths.
    Unknown,
    /// All sessions are in use.
    Full,
    /// The device did not take the key.
    Failed,
}

/// A key in a device.
pub(crate) struct Session {
    shim: &'static Shim,
    device: i32,
    raw: *mut c_void,
}

// SAFETY: a session belongs to its device, not to a thread; DPDK lets any thread use and free it.
unsafe impl Send for Session {}

impl Session {
    pub(crate) fn new(
        shim: &'static Shim,
        device: i32,
        key: &DeviceKey,
    ) -> Result<Self, SessionError> {
        if !shim.knows(device, key) {
            return Err(SessionError::Unknown);
        }
        match shim.session(device, key) {
            (raw, false) if !raw.is_null() => Ok(Self { shim, device, raw }),
            (_, true) => Err(SessionError::Full),
            (_, false) => Err(SessionError::Failed),
        }
    }

    pub(super) const fn raw(&self) -> *mut c_void {
        self.raw
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: it is of this device. Engines drop a session when no job under way has it.
        unsafe { self.shim.free_session(self.device, self.raw) }
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session(device {})", self.device)
    }
}
