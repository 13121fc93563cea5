//! The manager.

use std::ffi::{c_int, c_void};

use super::{
    BurstFn, CfbFn, ChaChaFinalizeFn, ChaChaInitFn, ChaChaUpdateFn, CipherBurstFn, GcmFinalizeFn,
    GcmFn, GcmInitFn, GcmInitVarIvFn, GcmPreFn, GcmPrecompFn, GcmUpdateFn, GhashFn, GmacFn,
    HashBurstFn, HashFn, Job, JobFn, KeyFn, Later, OOO, OneBlockFn, QueueSizeFn, RefusedFn,
    XcbcKeyFn,
};

/// `IMB_MAX_BURST_SIZE`.
pub const MAX_BURST: usize = 128;
/// `IMB_MAX_JOBS`.
pub const MAX_JOBS: usize = 2 * MAX_BURST;

/// The functions of `IMB_MGR` that both versions have. Arrays of three are by AES key size.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Functions {
    /// `get_next_job`.
    pub get_next_job: Option<JobFn>,
    /// `submit_job`.
    pub submit_job: Option<JobFn>,
    /// `submit_job_nocheck`.
    pub submit_job_nocheck: Option<JobFn>,
    /// `get_completed_job`.
    pub get_completed_job: Option<JobFn>,
    /// `flush_job`.
    pub flush_job: Option<JobFn>,
    /// `queue_size`.
    pub queue_size: Option<QueueSizeFn>,
    /// `keyexp_128` and so on.
    pub keyexp: [Option<KeyFn>; 3],
    /// `cmac_subkey_gen_128`.
    pub cmac_subkeys_128: Option<KeyFn>,
    /// `xcbc_keyexp`.
    pub xcbc_keyexp: Option<XcbcKeyFn>,
    /// `des_key_sched`.
    pub des_key_sched: Option<RefusedFn>,
    /// `sha1_one_block`, of SHA-224, SHA-256, SHA-384, SHA-512 and MD5.
    pub one_block: [Option<OneBlockFn>; 6],
    /// `sha1` to `sha512`.
    pub plain_hashes: [Option<HashFn>; 5],
    /// `aes128_cfb_one`.
    pub cfb_one_128: Option<CfbFn>,
    /// `gcm128_enc` and so on.
    pub gcm_enc: [Option<GcmFn>; 3],
    /// `gcm128_dec` and so on.
    pub gcm_dec: [Option<GcmFn>; 3],
    /// `gcm128_init` and so on.
    pub gcm_init: [Option<GcmInitFn>; 3],
    /// `gcm128_enc_update` and so on.
    pub gcm_enc_update: [Option<GcmUpdateFn>; 3],
    /// `gcm128_dec_update` and so on.
    pub gcm_dec_update: [Option<GcmUpdateFn>; 3],
    /// `gcm128_enc_finalize` and so on.
    pub gcm_enc_finalize: [Option<GcmFinalizeFn>; 3],
    /// `gcm128_dec_finalize` and so on.
    pub gcm_dec_finalize: [Option<GcmFinalizeFn>; 3],
    /// `gcm128_precomp` and so on.
    pub gcm_precomp: [Option<GcmPrecompFn>; 3],
    /// `gcm128_pre` and so on.
    pub gcm_pre: [Option<GcmPreFn>; 3],
    /// ZUC, KASUMI and SNOW3G.
    pub mobile: [Option<RefusedFn>; 26],
    /// `ghash`.
    pub ghash: Option<GhashFn>,
    /// `eia3_n_buffer`.
    pub eia3_n_buffer: Option<RefusedFn>,
    /// `gcm128_init_var_iv` and so on.
    pub gcm_init_var_iv: [Option<GcmInitVarIvFn>; 3],
    /// `gmac128_init` and so on.
    pub gmac_init: [Option<GmacFn>; 3],
    /// `gmac128_update` and so on.
    pub gmac_update: [Option<GmacFn>; 3],
    /// `gmac128_finalize` and so on.
    pub gmac_finalize: [Option<GcmFinalizeFn>; 3],
    /// `hec_32` and `hec_64`.
    pub hec: [Option<RefusedFn>; 2],
    /// `cmac_subkey_gen_256`.
    pub cmac_subkeys_256: Option<KeyFn>,
    /// `ghash_pre`.
    pub ghash_pre: Option<GcmPreFn>,
    /// `crc32_ethernet_fcs` and so on.
    pub crc: [Option<RefusedFn>; 12],
    /// `chacha20_poly1305_init`.
    pub chacha_init: Option<ChaChaInitFn>,
    /// `chacha20_poly1305_enc_update`.
    pub chacha_enc_update: Option<ChaChaUpdateFn>,
    /// `chacha20_poly1305_dec_update`.
    pub chacha_dec_update: Option<ChaChaUpdateFn>,
    /// `chacha20_poly1305_finalize`.
    pub chacha_finalize: Option<ChaChaFinalizeFn>,
    /// `get_next_burst`.
    pub get_next_burst: Option<BurstFn>,
    /// `submit_burst`.
    pub submit_burst: Option<BurstFn>,
    /// `submit_burst_nocheck`.
    pub submit_burst_nocheck: Option<BurstFn>,
    /// `flush_burst`.
    pub flush_burst: Option<BurstFn>,
    /// `submit_cipher_burst`.
    pub submit_cipher_burst: Option<CipherBurstFn>,
    /// `submit_cipher_burst_nocheck`.
    pub submit_cipher_burst_nocheck: Option<CipherBurstFn>,
    /// `submit_hash_burst`.
    pub submit_hash_burst: Option<HashBurstFn>,
    /// `submit_hash_burst_nocheck`.
    pub submit_hash_burst_nocheck: Option<HashBurstFn>,
}

/// `IMB_MGR`.
///
/// Of the pointers to out-of-order managers the first leads to what this library keeps of its own, behind the manager in the
/// same memory.
#[repr(C)]
#[derive(Debug)]
pub struct Mgr {
    /// Argument of `alloc_mb_mgr`.
    pub flags: u64,
    /// `IMB_FEATURE_*`.
    pub features: u64,
    reserved: [u64; 4],
    reserved2: [u8; 7],
    /// The type within an architecture; version 1 has nothing here.
    pub used_arch_type: u8,
    /// `IMB_ARCH_*`.
    pub used_arch: u32,
    /// Last error.
    pub errno: c_int,
    /// Pointers that the macros of the header call.
    pub functions: Functions,
    /// Fields that version 2 has besides.
    pub later: Later,
    /// The offset in bytes of the earliest job that was not handed back, -1 if there is none.
    pub earliest_job: c_int,
    /// The offset in bytes of the job that is filled in next.
    pub next_job: c_int,
    /// The ring.
    pub jobs: [Job; MAX_JOBS],
    /// Pointers to out-of-order managers.
    pub ooo: [*mut c_void; OOO],
}
