//! The job, and the contexts of messages that come in parts.

use std::{ffi::c_void, ptr};

use convoy_crypto::manager::{ChaChaSaved, GcmSaved};

use super::{CustomFn, Session};

/// `IMB_JOB`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// Round keys for encryption; of an AEAD, its key.
    pub enc_keys: *const c_void,
    /// Round keys for decryption; of GCM, its key.
    pub dec_keys: *const c_void,
    /// 16, 24 or 32.
    pub key_len: u64,
    /// Start of the input, from which offsets count.
    pub src: *const u8,
    /// Start of the cipher's output. No offset is added.
    pub dst: *mut u8,
    /// From `src` to what the cipher works on.
    pub cipher_offset: u64,
    /// Bytes that the cipher works on.
    pub cipher_len: u64,
    /// From `src` to what is authenticated; callers let it lead to another buffer, so sums wrap.
    pub hash_offset: u64,
    /// Bytes that are authenticated.
    pub hash_len: u64,
    /// IV or nonce of the cipher.
    pub iv: *const u8,
    /// Its bytes.
    pub iv_len: u64,
    /// Buffer for the tag.
    pub tag: *mut u8,
    /// Its bytes.
    pub tag_len: u64,
    /// A union of up to three pointers or lengths, by hash algorithm.
    pub u: [usize; 3],
    /// `IMB_STATUS_*`.
    pub status: u32,
    /// `IMB_CIPHER_*`.
    pub cipher_mode: u32,
    /// `IMB_DIR_*`.
    pub cipher_direction: u32,
    /// `IMB_AUTH_*`.
    pub hash_alg: u32,
    /// `IMB_ORDER_*`.
    pub chain_order: u32,
    /// The caller's.
    pub user_data: *mut c_void,
    /// The caller's.
    pub user_data2: *mut c_void,
    /// A cipher of the caller's.
    pub cipher_func: Option<CustomFn>,
    /// A hash of the caller's.
    pub hash_func: Option<CustomFn>,
    /// `IMB_SGL_*`.
    pub sgl_state: u32,
    /// Of a cipher that is not in the set.
    pub next_iv: *mut c_void,
    /// Fields that version 2 has besides.
    pub session: Session,
}

impl Job {
    /// A job with nothing set.
    pub const EMPTY: Self = Self {
        enc_keys: ptr::null(),
        dec_keys: ptr::null(),
        key_len: 0,
        src: ptr::null(),
        dst: ptr::null_mut(),
        cipher_offset: 0,
        cipher_len: 0,
        hash_offset: 0,
        hash_len: 0,
        iv: ptr::null(),
        iv_len: 0,
        tag: ptr::null_mut(),
        tag_len: 0,
        u: [0; 3],
        status: 0,
        cipher_mode: 0,
        cipher_direction: 0,
        hash_alg: 0,
        chain_order: 0,
        user_data: ptr::null_mut(),
        user_data2: ptr::null_mut(),
        cipher_func: None,
        hash_func: None,
        sgl_state: 0,
        next_iv: ptr::null_mut(),
        session: Session::NONE,
    };

    /// One of the union's fields as a pointer.
    pub(crate) fn pointer<T>(&self, field: usize) -> *const T {
        ptr::with_exposed_provenance(self.u.get(field).copied().unwrap_or(0))
    }
}

/// `struct gcm_key_data`: key tables, wherever they lie.
pub type GcmKey = c_void;

/// `struct gcm_context_data`, of which programs need to know the size alone.
pub type GcmContext = GcmSaved;

/// `struct chacha20_poly1305_context_data`, of which programs need to know the size alone.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ChaChaContext {
    pub(crate) saved: ChaChaSaved,
    unused: [u64; 10],
}

/// `struct IMB_SGL_IOV`: a part of a message.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// Bytes to read.
    pub src: *const u8,
    /// Buffer to write.
    pub dst: *mut u8,
    /// Bytes of it.
    pub len: u64,
}
