//! Memory layouts of intel-ipsec-mb's header: the job, the manager, and numbers of algorithms.
//!
//! Written down from the public headers of the versions that [`SUPPORTED`] names. Version 2 appended
//! fields to the job and to the manager's functions and changed nothing in front of them.

use std::ffi::{c_int, c_void};

/// Versions whose layout this is: from the first up to, not including, the second.
pub(super) const SUPPORTED: &[Supported] = &[
    Supported { from: version(1, 3, 0), before: version(1, 4, 0), generation: Generation::V1 },
    Supported { from: version(2, 0, 0), before: version(2, 1, 0), generation: Generation::V2 },
];

/// [`SUPPORTED`] in words.
pub(super) const SUPPORTED_TEXT: &str = "1.3.x and 2.0.x";

pub(super) struct Supported {
    pub(super) from: u32,
    pub(super) before: u32,
    pub(super) generation: Generation,
}

/// One of the two layouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Generation {
    /// Jobs of 200 bytes, no sessions.
    V1,
    /// Jobs of 216 bytes, which the burst call wants stamped by `imb_set_session`.
    V2,
}

pub(super) const fn version(major: u32, minor: u32, patch: u32) -> u32 {
    (major << 16) + (minor << 8) + patch
}

/// `IMB_JOB` of version 1, and the beginning of that of version 2.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Job {
    pub(super) enc_keys: *const c_void,
    pub(super) dec_keys: *const c_void,
    pub(super) key_len: u64,
    pub(super) src: *const u8,
    pub(super) dst: *mut u8,
    pub(super) cipher_offset: u64,
    pub(super) cipher_len: u64,
    pub(super) hash_offset: u64,
    pub(super) hash_len: u64,
    pub(super) iv: *const u8,
    pub(super) iv_len: u64,
    pub(super) tag: *mut u8,
    pub(super) tag_len: u64,
    /// A union of up to three pointers or lengths, by hash algorithm.
    pub(super) u: [usize; 3],
    pub(super) status: u32,
    pub(super) cipher_mode: u32,
    pub(super) direction: u32,
    pub(super) hash_alg: u32,
    pub(super) chain_order: u32,
    pub(super) user_data: *mut c_void,
    pub(super) user_data2: *mut c_void,
    pub(super) cipher_func: *const c_void,
    pub(super) hash_func: *const c_void,
    pub(super) sgl_state: u32,
    pub(super) next_iv: *mut c_void,
}

impl Job {
    pub(super) const EMPTY: Self = Self {
        enc_keys: std::ptr::null(),
        dec_keys: std::ptr::null(),
        key_len: 0,
        src: std::ptr::null(),
        dst: std::ptr::null_mut(),
        cipher_offset: 0,
        cipher_len: 0,
        hash_offset: 0,
        hash_len: 0,
        iv: std::ptr::null(),
        iv_len: 0,
        tag: std::ptr::null_mut(),
        tag_len: 0,
        u: [0; 3],
        status: 0,
        cipher_mode: 0,
        direction: 0,
        hash_alg: 0,
        chain_order: 0,
        user_data: std::ptr::null_mut(),
        user_data2: std::ptr::null_mut(),
        cipher_func: std::ptr::null(),
        hash_func: std::ptr::null(),
        sgl_state: 0,
        next_iv: std::ptr::null_mut(),
    };
}

/// `IMB_JOB` of version 2.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct JobV2 {
    pub(super) job: Job,
    pub(super) suite_id: [u32; 2],
    pub(super) session_id: u32,
}

/// A job of either generation.
pub(super) trait AnyJob: Copy {
    /// With nothing set.
    const EMPTY: Self;
    /// The part that both have.
    fn job(&mut self) -> &mut Job;
}

impl AnyJob for Job {
    const EMPTY: Self = Self::EMPTY;

    #[inline(always)]
    fn job(&mut self) -> &mut Job {
        self
    }
}

impl AnyJob for JobV2 {
    const EMPTY: Self = Self { job: Job::EMPTY, suite_id: [0; 2], session_id: 0 };

    #[inline(always)]
    fn job(&mut self) -> &mut Job {
        &mut self.job
    }
}

/// The manager, opaque but for its [`Functions`].
#[repr(C)]
pub(super) struct Manager {
    pub(super) functions: Functions,
}

/// A pointer to a function that is not called here.
type Unused = *const c_void;

pub(super) type GetJob = unsafe extern "C" fn(*mut Manager) -> *mut Job;
pub(super) type KeyExpand = unsafe extern "C" fn(*const u8, *mut u8, *mut u8);
pub(super) type CmacSubkeys = unsafe extern "C" fn(*const u8, *mut u8, *mut u8);
pub(super) type XcbcExpand = unsafe extern "C" fn(*const u8, *mut u8, *mut u8, *mut u8);
pub(super) type OneBlock = unsafe extern "C" fn(*const u8, *mut u8);
pub(super) type GcmPre = unsafe extern "C" fn(*const u8, *mut u8);
pub(super) type GcmRun = unsafe extern "C" fn(
    *const c_void, // key data
    *mut u8,       // context
    *mut u8,       // out
    *const u8,     // in
    u64,
    *const u8, // iv
    *const u8, // aad
    u64,
    *mut u8, // tag
    u64,
);
pub(super) type GmacInit = unsafe extern "C" fn(*const c_void, *mut u8, *const u8, u64);
pub(super) type GmacUpdate = unsafe extern "C" fn(*const c_void, *mut u8, *const u8, u64);
pub(super) type GmacFinalize = unsafe extern "C" fn(*const c_void, *mut u8, *mut u8, u64);
pub(super) type ChaChaInit =
    unsafe extern "C" fn(*const c_void, *mut u8, *const u8, *const u8, u64);
pub(super) type ChaChaUpdate =
    unsafe extern "C" fn(*const c_void, *mut u8, *mut u8, *const u8, u64);
pub(super) type ChaChaFinalize = unsafe extern "C" fn(*mut u8, *mut u8, u64);
pub(super) type Burst = unsafe extern "C" fn(*mut Manager, u32, *mut *mut Job) -> u32;
pub(super) type CipherBurst =
    unsafe extern "C" fn(*mut Manager, *mut Job, u32, u32, u32, u32) -> u32;
pub(super) type HashBurst = unsafe extern "C" fn(*mut Manager, *mut Job, u32, u32) -> u32;

/// The beginning of `IMB_MGR`, the same in both generations. Arrays of three are by AES key size.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Functions {
    pub(super) flags: u64,
    pub(super) features: u64,
    reserved: [u64; 5],
    pub(super) used_arch: u32,
    pub(super) errno: c_int,
    pub(super) get_next_job: Option<GetJob>,
    pub(super) submit_job: Option<GetJob>,
    pub(super) submit_job_nocheck: Option<GetJob>,
    pub(super) get_completed_job: Option<GetJob>,
    pub(super) flush_job: Option<GetJob>,
    queue_size: Unused,
    pub(super) keyexp: [Option<KeyExpand>; 3],
    pub(super) cmac_subkeys_128: Option<CmacSubkeys>,
    pub(super) xcbc_keyexp: Option<XcbcExpand>,
    des_key_sched: Unused,
    /// SHA-1, SHA-224, SHA-256, SHA-384, SHA-512, MD5.
    pub(super) one_block: [Option<OneBlock>; 6],
    plain_hashes_and_cfb: [Unused; 6],
    pub(super) gcm_enc: [Option<GcmRun>; 3],
    pub(super) gcm_dec: [Option<GcmRun>; 3],
    gcm_pieces: [Unused; 18],
    pub(super) gcm_pre: [Option<GcmPre>; 3],
    mobile: [Unused; 31],
    pub(super) gmac_init: [Option<GmacInit>; 3],
    pub(super) gmac_update: [Option<GmacUpdate>; 3],
    pub(super) gmac_finalize: [Option<GmacFinalize>; 3],
    hec: [Unused; 2],
    pub(super) cmac_subkeys_256: Option<CmacSubkeys>,
    ghash_and_crc: [Unused; 13],
    pub(super) chacha_init: Option<ChaChaInit>,
    pub(super) chacha_enc: Option<ChaChaUpdate>,
    pub(super) chacha_dec: Option<ChaChaUpdate>,
    pub(super) chacha_finalize: Option<ChaChaFinalize>,
    pub(super) get_next_burst: Option<Burst>,
    pub(super) submit_burst: Option<Burst>,
    pub(super) submit_burst_nocheck: Option<Burst>,
    pub(super) flush_burst: Option<Burst>,
    submit_cipher_burst: Unused,
    pub(super) cipher_burst_nocheck: Option<CipherBurst>,
    submit_hash_burst: Unused,
    pub(super) hash_burst_nocheck: Option<HashBurst>,
}

/// The beginning of `IMB_MGR` of version 2.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct FunctionsV2 {
    pub(super) common: Functions,
    cfb_and_quic: [Unused; 9],
    submit_aead_burst: Unused,
    pub(super) aead_burst_nocheck: Option<CipherBurst>,
}

/// Bytes for `struct gcm_key_data` of any version.
pub(super) const GCM_KEY_DATA: usize = 2048;
/// Bytes for the contexts of GCM and of ChaCha20-Poly1305, of any version.
pub(super) const CONTEXT: usize = 512;
/// `IMB_MAX_BURST_SIZE`.
pub(super) const MAX_BURST: usize = 128;

impl Generation {
    /// `IMB_FLAG_SHANI_OFF | IMB_FLAG_GFNI_OFF`: without these a manager is of type 1. In version 1
    /// another flag stood between them.
    pub(super) const fn flags_type_1(self) -> u64 {
        match self {
            Self::V1 => 0b101,
            Self::V2 => 0b11,
        }
    }
}

/// `IMB_FEATURE_SHANI`, `_VAES`, `_VPCLMULQDQ`, `_GFNI`.
pub(super) const FEATURES_TYPE_2: u64 = 1 | 1 << 12 | 1 << 13 | 1 << 16;
/// `IMB_FEATURE_AVX512_IFMA`.
pub(super) const FEATURE_IFMA: u64 = 1 << 17;

/// `IMB_CIPHER_*`.
pub(super) mod cipher {
    pub(in super::super) const CBC: u32 = 1;
    pub(in super::super) const CTR: u32 = 2;
    pub(in super::super) const NULL: u32 = 3;
    pub(in super::super) const GCM: u32 = 5;
    pub(in super::super) const CCM: u32 = 9;
    pub(in super::super) const CHACHA20_POLY1305: u32 = 19;
}

/// `IMB_AUTH_*`.
pub(super) mod auth {
    pub(in super::super) const HMAC_SHA1: u32 = 1;
    pub(in super::super) const HMAC_SHA224: u32 = 2;
    pub(in super::super) const HMAC_SHA256: u32 = 3;
    pub(in super::super) const HMAC_SHA384: u32 = 4;
    pub(in super::super) const HMAC_SHA512: u32 = 5;
    pub(in super::super) const XCBC: u32 = 6;
    pub(in super::super) const HMAC_MD5: u32 = 7;
    pub(in super::super) const GCM: u32 = 9;
    pub(in super::super) const CCM: u32 = 11;
    pub(in super::super) const CMAC: u32 = 12;
    /// And 192 and 256 behind it.
    pub(in super::super) const GMAC_128: u32 = 24;
    pub(in super::super) const CMAC_256: u32 = 27;
    pub(in super::super) const CHACHA20_POLY1305: u32 = 29;
}

/// `IMB_DIR_*`.
pub(super) const ENCRYPT: u32 = 1;
pub(super) const DECRYPT: u32 = 2;
/// `IMB_ORDER_*`.
pub(super) const CIPHER_HASH: u32 = 1;
pub(super) const HASH_CIPHER: u32 = 2;

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;

    /// Printed by a C program from the headers of 1.3.0, 2.0.0 and 2.0.2, which agree.
    #[test]
    fn job_lies_as_the_headers_say() {
        let offsets = [
            (offset_of!(Job, enc_keys), 0),
            (offset_of!(Job, dec_keys), 8),
            (offset_of!(Job, key_len), 16),
            (offset_of!(Job, src), 24),
            (offset_of!(Job, dst), 32),
            (offset_of!(Job, cipher_offset), 40),
            (offset_of!(Job, cipher_len), 48),
            (offset_of!(Job, hash_offset), 56),
            (offset_of!(Job, hash_len), 64),
            (offset_of!(Job, iv), 72),
            (offset_of!(Job, iv_len), 80),
            (offset_of!(Job, tag), 88),
            (offset_of!(Job, tag_len), 96),
            (offset_of!(Job, u), 104),
            (offset_of!(Job, status), 128),
            (offset_of!(Job, cipher_mode), 132),
            (offset_of!(Job, direction), 136),
            (offset_of!(Job, hash_alg), 140),
            (offset_of!(Job, chain_order), 144),
            (offset_of!(Job, user_data), 152),
            (offset_of!(Job, user_data2), 160),
            (offset_of!(Job, cipher_func), 168),
            (offset_of!(Job, hash_func), 176),
            (offset_of!(Job, sgl_state), 184),
            (offset_of!(Job, next_iv), 192),
            (size_of::<Job>(), 200),
            (offset_of!(JobV2, suite_id), 200),
            (offset_of!(JobV2, session_id), 208),
            (size_of::<JobV2>(), 216),
        ];
        for (row, (here, header)) in offsets.into_iter().enumerate() {
            assert_eq!(here, header, "row {row}");
        }
    }

    #[test]
    fn manager_lies_as_the_headers_say() {
        let offsets = [
            (offset_of!(Functions, features), 8),
            (offset_of!(Functions, used_arch), 56),
            (offset_of!(Functions, errno), 60),
            (offset_of!(Functions, get_next_job), 64),
            (offset_of!(Functions, submit_job), 72),
            (offset_of!(Functions, submit_job_nocheck), 80),
            (offset_of!(Functions, get_completed_job), 88),
            (offset_of!(Functions, flush_job), 96),
            (offset_of!(Functions, keyexp), 112),
            (offset_of!(Functions, cmac_subkeys_128), 136),
            (offset_of!(Functions, xcbc_keyexp), 144),
            (offset_of!(Functions, one_block), 160),
            (offset_of!(Functions, gcm_enc), 256),
            (offset_of!(Functions, gcm_dec) + 16, 296),
            (offset_of!(Functions, gcm_pre), 448),
            (offset_of!(Functions, gmac_init), 720),
            (offset_of!(Functions, gmac_update), 744),
            (offset_of!(Functions, gmac_finalize), 768),
            (offset_of!(Functions, cmac_subkeys_256), 808),
            (offset_of!(Functions, chacha_init), 920),
            (offset_of!(Functions, chacha_enc), 928),
            (offset_of!(Functions, chacha_dec), 936),
            (offset_of!(Functions, chacha_finalize), 944),
            (offset_of!(Functions, get_next_burst), 952),
            (offset_of!(Functions, submit_burst), 960),
            (offset_of!(Functions, submit_burst_nocheck), 968),
            (offset_of!(Functions, flush_burst), 976),
            (offset_of!(Functions, cipher_burst_nocheck), 992),
            (offset_of!(Functions, hash_burst_nocheck), 1008),
            (offset_of!(FunctionsV2, aead_burst_nocheck), 1096),
        ];
        for (row, (here, header)) in offsets.into_iter().enumerate() {
            assert_eq!(here, header, "row {row}");
        }
    }

    #[test]
    fn supported_versions_are_those_of_the_text() {
        let find = |number| SUPPORTED.iter().find(|s| (s.from..s.before).contains(&number));
        assert_eq!(find(version(1, 3, 0)).unwrap().generation, Generation::V1);
        assert_eq!(find(version(2, 0, 2)).unwrap().generation, Generation::V2);
        for unknown in [version(1, 2, 0), version(1, 4, 0), version(3, 0, 0), 0] {
            assert!(find(unknown).is_none());
        }
    }
}
