//! What crosses the border between C and Rust as memory: constants, keys and jobs.
//!
//! Numbers that name things are plain integers, for C may put any value into an enumeration.

use std::{
    ffi::{c_int, c_void},
    fmt, mem, ptr,
};

use zeroize::Zeroize;

/// Success.
pub const CONVOY_OK: c_int = 0;
/// A pointer is null that must not be.
pub const CONVOY_ERR_NULL: c_int = -1;
/// A length or an offset is out of range.
pub const CONVOY_ERR_LENGTH: c_int = -2;
/// A number names nothing, a pointer is not aligned, or a key was not set up.
pub const CONVOY_ERR_ARGS: c_int = -3;
/// Buffers overlap that must not.
pub const CONVOY_ERR_OVERLAP: c_int = -4;
/// This machine lacks the tier, or it is denied.
pub const CONVOY_ERR_TIER: c_int = -5;
/// The environment variable CONVOY_DENY_CPU cannot be understood.
pub const CONVOY_ERR_ENVIRONMENT: c_int = -6;
/// The tag does not belong to the message; the output was wiped.
pub const CONVOY_ERR_FORGED: c_int = -7;
/// A stream is asked for what does not come now.
pub const CONVOY_ERR_STATE: c_int = -8;
/// A defect of the library; the output is not to be used.
pub const CONVOY_ERR_INTERNAL: c_int = -9;
/// There is no memory.
pub const CONVOY_ERR_MEMORY: c_int = -10;

// Of jobs: what error says of one whose status is CONVOY_STATUS_INVALID_ARGS, beside those above.

/// cipher_mode names no cipher.
pub const CONVOY_ERR_CIPHER_MODE: c_int = -20;
/// cipher_direction is neither of the two.
pub const CONVOY_ERR_CIPHER_DIRECTION: c_int = -21;
/// hash_alg names no MAC, or one beside an AEAD.
pub const CONVOY_ERR_HASH_ALG: c_int = -22;
/// chain_order is neither of the two.
pub const CONVOY_ERR_CHAIN_ORDER: c_int = -23;
/// cipher_key is null, misaligned, not set up, or a key of another kind.
pub const CONVOY_ERR_CIPHER_KEY: c_int = -24;
/// hash_key is null, misaligned, not set up, or a key of another MAC.
pub const CONVOY_ERR_HASH_KEY: c_int = -25;
/// iv_len is not one that the cipher takes.
pub const CONVOY_ERR_IV_LEN: c_int = -26;
/// cipher_len is not whole blocks of 16, or more than the cipher takes.
pub const CONVOY_ERR_CIPHER_LEN: c_int = -27;
/// hash_len is more than the MAC takes.
pub const CONVOY_ERR_HASH_LEN: c_int = -28;
/// aad_len is not 0 without an AEAD.
pub const CONVOY_ERR_AAD_LEN: c_int = -29;
/// trailer_len is more than 16, or not 0 without a MAC.
pub const CONVOY_ERR_TRAILER_LEN: c_int = -30;
/// tag_len is not one that the algorithm has.
pub const CONVOY_ERR_TAG_LEN: c_int = -31;
/// src is null, and there is something to read.
pub const CONVOY_ERR_SRC: c_int = -32;
/// dst is null, and there is something to write.
pub const CONVOY_ERR_DST: c_int = -33;
/// iv is null.
pub const CONVOY_ERR_IV: c_int = -34;
/// aad is null.
pub const CONVOY_ERR_AAD: c_int = -35;
/// trailer is null.
pub const CONVOY_ERR_TRAILER: c_int = -36;
/// tag is null.
pub const CONVOY_ERR_TAG: c_int = -37;

/// The version of this header: the parts of CONVOY_VERSION.
pub const CONVOY_VERSION_MAJOR: u32 = 0;
/// The same.
pub const CONVOY_VERSION_MINOR: u32 = 1;
/// The same.
pub const CONVOY_VERSION_PATCH: u32 = 0;
/// The version of this header as a number that grows: major << 16, minor << 8, patch. What the library at hand is,
/// convoy_version and convoy_version_number say.
pub const CONVOY_VERSION: u32 = 0x100;

/// The best tier of this machine.
pub const CONVOY_TIER_AUTO: c_int = 0;
/// No special instructions.
pub const CONVOY_TIER_PORTABLE: c_int = 1;
/// AES-NI and PCLMULQDQ.
pub const CONVOY_TIER_AESNI: c_int = 2;
/// The same with three-operand encodings.
pub const CONVOY_TIER_AVX: c_int = 3;
/// The same with 256-bit integer registers.
pub const CONVOY_TIER_AVX2: c_int = 4;
/// AVX-512 without VAES.
pub const CONVOY_TIER_AVX512: c_int = 5;
/// VAES on 256-bit registers.
pub const CONVOY_TIER_VAES256: c_int = 6;
/// VAES on 512-bit registers.
pub const CONVOY_TIER_VAES512: c_int = 7;

/// Most bytes of stack that a call takes below its caller, some of them to wipe what was there.
pub const CONVOY_STACK: usize = 96 << 10;

/// The longest buffer, and the furthest end of an offset and a length, in bytes.
pub const CONVOY_MAX_BYTES: usize = 1 << 30;

/// Jobs that a manager of convoy_mgr_new works on together: so many are submitted before the first comes back, unless
/// the queue is flushed.
pub const CONVOY_BATCH: usize = 64;

/// The most that convoy_mgr_new_batch takes.
pub const CONVOY_BATCH_MAX: usize = 4096;

/// The job waits.
pub const CONVOY_STATUS_QUEUED: u32 = 0;
/// The job is done.
pub const CONVOY_STATUS_COMPLETED: u32 = 1;
/// The job's parts do not fit together, as its error says; nothing was done.
pub const CONVOY_STATUS_INVALID_ARGS: u32 = 2;
/// A defect of the library; the output is not to be used, nor the IV again.
pub const CONVOY_STATUS_INTERNAL: u32 = 3;

/// No cipher; out of place, text is copied. A job whose cipher mode is 0 is invalid.
pub const CONVOY_CIPHER_NULL: u32 = 1;
/// AES-CBC: IV of 16 bytes, text of whole blocks of 16.
pub const CONVOY_CIPHER_CBC: u32 = 2;
/// AES-CTR: IV of 12 bytes, counted from 1 (RFC 3686), or of 16, the first counter block. The last 4
/// bytes of the block count, big-endian; from 2^32 - 1 they go on to 0 without a carry into the 12 in
/// front. The encryption key serves both directions.
pub const CONVOY_CIPHER_CTR: u32 = 3;
/// AES-CCM: IV (nonce) of 7 to 13 bytes, tag of 4 to 16 bytes, an even number. The encryption key
/// serves both directions.
pub const CONVOY_CIPHER_CCM: u32 = 4;
/// AES-GCM, AES-GMAC or ChaCha20-Poly1305, as the key says: IV of 12 bytes, tag of 4 to 16. AES-GCM and
/// AES-GMAC take other IVs, too, which are hashed first (NIST SP 800-38D section 7.1) and cost a job of its own. The
/// key's tier does the work, whatever that of the manager. GMAC changes no text, but counts as writing it.
pub const CONVOY_CIPHER_AEAD: u32 = 5;

/// The same AEADs, over a text in pieces: src points to cipher_len segments (convoy_segment) instead of the text,
/// cipher_offset is 0 and dst null. A job of its own costs what convoy_aead_encrypt_segments does; what that says of
/// segments and IVs holds here. When decrypting, the tag is the one that the message should have, for the caller to
/// compare.
pub const CONVOY_CIPHER_AEAD_SEGMENTS: u32 = 6;

/// Plaintext becomes ciphertext. A job whose direction is 0 is invalid unless its cipher is NULL.
pub const CONVOY_DIRECTION_ENCRYPT: u32 = 1;
/// Ciphertext becomes plaintext.
pub const CONVOY_DIRECTION_DECRYPT: u32 = 2;

/// No MAC; AEADs want this too.
pub const CONVOY_HASH_NULL: u32 = 0;
/// HMAC-MD5, 16 bytes.
pub const CONVOY_HASH_HMAC_MD5: u32 = 1;
/// HMAC-SHA-1, 20 bytes.
pub const CONVOY_HASH_HMAC_SHA1: u32 = 2;
/// HMAC-SHA-224, 28 bytes.
pub const CONVOY_HASH_HMAC_SHA224: u32 = 3;
/// HMAC-SHA-256, 32 bytes.
pub const CONVOY_HASH_HMAC_SHA256: u32 = 4;
/// HMAC-SHA-384, 48 bytes.
pub const CONVOY_HASH_HMAC_SHA384: u32 = 5;
/// HMAC-SHA-512, 64 bytes.
pub const CONVOY_HASH_HMAC_SHA512: u32 = 6;
/// AES-XCBC-MAC, 16 bytes.
pub const CONVOY_HASH_AES_XCBC: u32 = 7;
/// AES-CMAC, 16 bytes.
pub const CONVOY_HASH_AES_CMAC: u32 = 8;

/// Cipher, then MAC: how ESP encrypts.
pub const CONVOY_ORDER_CIPHER_HASH: u32 = 0;
/// MAC, then cipher: how ESP decrypts.
pub const CONVOY_ORDER_HASH_CIPHER: u32 = 1;

/// Round keys of AES for encryption, made by convoy_aes_keyexp_*. Whoever owns the memory wipes it,
/// best with convoy_wipe.
#[repr(C, align(16))]
pub struct AesEncKey {
    /// 11, 13 or 15 round keys in the order of FIPS 197.
    pub round_keys: [[u8; 16]; 15],
    /// What tells jobs that this is such a key, and of which size.
    pub label: [u32; 4],
}

/// Round keys of AES for decryption (FIPS 197 section 5.3.5), made by convoy_aes_keyexp_*.
#[repr(C, align(16))]
pub struct AesDecKey {
    /// 11, 13 or 15 round keys in the order in which decryption uses them.
    pub round_keys: [[u8; 16]; 15],
    /// What tells jobs that this is such a key, and of which size.
    pub label: [u32; 4],
}

/// The keys of AES-XCBC-MAC (RFC 3566), made by convoy_xcbc_keyexp.
#[repr(C, align(16))]
pub struct XcbcKey {
    /// K1, expanded.
    pub k1: [[u8; 16]; 15],
    /// K2, for a last block that is whole.
    pub k2: [u8; 16],
    /// K3, for a last block that was padded.
    pub k3: [u8; 16],
    /// What tells jobs that this is such a key.
    pub label: [u32; 4],
}

/// The keys of AES-CMAC (NIST SP 800-38B), made by convoy_cmac_keyexp.
#[repr(C, align(16))]
pub struct CmacKey {
    /// The key, expanded.
    pub round_keys: [[u8; 16]; 15],
    /// K1, for a last block that is whole.
    pub k1: [u8; 16],
    /// K2, for a last block that was padded.
    pub k2: [u8; 16],
    /// What tells jobs that this is such a key, and of which size.
    pub label: [u32; 4],
}

/// The key of an HMAC, made by convoy_hmac_keyexp, or by convoy_hmac_key_set from the chaining
/// values of convoy_hmac_*_one_block.
#[repr(C, align(64))]
pub struct HmacKey {
    /// The chaining value behind the block of inner padding, then zeros.
    pub ipad: [u8; 64],
    /// The chaining value behind the block of outer padding, then zeros.
    pub opad: [u8; 64],
    /// What tells jobs that this is such a key, and of which hash; then nothing.
    pub label: [u32; 16],
}

macro_rules! show_name_only {
    ($($name:ident)*) => {$(
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($name))
            }
        }
    )*};
}

show_name_only!(AesEncKey AesDecKey XcbcKey CmacKey HmacKey CipherKey HashKey);

const _: () = {
    use convoy_crypto::manager as m;
    assert!(size_of::<AesEncKey>() == size_of::<m::AesEncryptKey>());
    assert!(align_of::<AesEncKey>() == align_of::<m::AesEncryptKey>());
    assert!(size_of::<AesDecKey>() == size_of::<m::AesDecryptKey>());
    assert!(align_of::<AesDecKey>() == align_of::<m::AesDecryptKey>());
    assert!(size_of::<XcbcKey>() == size_of::<m::XcbcKey>());
    assert!(align_of::<XcbcKey>() == align_of::<m::XcbcKey>());
    assert!(size_of::<CmacKey>() == size_of::<m::CmacKey>());
    assert!(align_of::<CmacKey>() == align_of::<m::CmacKey>());
    assert!(size_of::<HmacKey>() == size_of::<m::HmacKeys>());
    assert!(align_of::<HmacKey>() == align_of::<m::HmacKeys>());
};

/// The key of AES-GCM, AES-GMAC or ChaCha20-Poly1305, with the tier that was chosen for it.
#[derive(Debug)]
pub struct AeadKey {
    /// What tells jobs that this is such a key: [`LABEL`](Self::LABEL).
    pub(crate) label: u64,
    /// Shared with messages in parts, which may outlive it.
    pub(crate) key: convoy_crypto::Shared<convoy_crypto::AeadKey>,
}

impl AeadKey {
    /// No key of another kind is likely to hold this where the label is.
    pub(crate) const LABEL: u64 = u64::from_le_bytes(*b"aead key");

    /// Where the label is.
    pub(crate) const LABEL_AT: usize = mem::offset_of!(Self, label);

    pub(crate) fn new(key: convoy_crypto::Shared<convoy_crypto::AeadKey>) -> Self {
        Self { label: Self::LABEL, key }
    }
}

impl Drop for AeadKey {
    fn drop(&mut self) {
        // Not left to the compiler, which sees that nobody reads it: a key that was freed is refused, as long as
        // nothing else is in its place.
        self.label.zeroize();
    }
}

// Whatever kind of key is behind a pointer, the label can be read.
const _: () = assert!(size_of::<AeadKey>() <= size_of::<AesEncKey>());

/// A cipher's key; which of them is meant, mode and direction say.
#[derive(Clone, Copy)]
#[repr(C)]
pub union CipherKey {
    /// CBC encrypting; CTR and CCM.
    pub enc: *const AesEncKey,
    /// CBC decrypting.
    pub dec: *const AesDecKey,
    /// AEAD.
    pub aead: *const AeadKey,
}

/// A MAC's key; which of them is meant, the hash algorithm says.
#[derive(Clone, Copy)]
#[repr(C)]
pub union HashKey {
    /// HMAC; its hash must be the one the job names.
    pub hmac: *const HmacKey,
    /// AES-XCBC-MAC.
    pub xcbc: *const XcbcKey,
    /// AES-CMAC.
    pub cmac: *const CmacKey,
}

/// A piece of a text.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Segment {
    /// Where the piece is.
    pub input: *const u8,
    /// Where its result goes: the same place, or one that does not overlap it.
    pub output: *mut u8,
    /// Its bytes, which may be none.
    pub len: usize,
}

/// One packet's worth of work.
///
/// A job whose bytes are all zero is what convoy_get_next_job lends; it is invalid until its cipher
/// mode is set. All that it points to must stay as it is until the job has been handed back, and no
/// job may write what another job in line reads or writes, nor have its dst or tag among the jobs
/// themselves. Jobs without a cipher whose dst is src only read it; without a hash as well, they read
/// nothing, and src may be anything. The IV may lie in what is worked on.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Job {
    /// The packet.
    pub src: *const u8,
    /// Where the result goes: src itself, or a buffer that does not overlap it. Offsets count from
    /// the beginning of either. What cipher and MAC cover, from the first byte of either to the
    /// last, is copied to the same place of dst and worked on there.
    pub dst: *mut u8,
    /// Bytes in front of what the cipher works on.
    pub cipher_offset: usize,
    /// Bytes that the cipher works on; for an AEAD the payload, for GMAC what is authenticated
    /// behind the additional data.
    pub cipher_len: usize,
    /// Bytes in front of what the MAC authenticates.
    pub hash_offset: usize,
    /// Bytes that the MAC authenticates.
    pub hash_len: usize,
    /// The IV or nonce.
    pub iv: *const u8,
    /// Its length.
    pub iv_len: usize,
    /// Additional data of an AEAD.
    pub aad: *const u8,
    /// Its length; 0 for others.
    pub aad_len: usize,
    /// What a MAC authenticates behind its bytes, such as the high half of an extended sequence
    /// number.
    pub trailer: *const u8,
    /// Its length: at most 16, and 0 without a MAC.
    pub trailer_len: usize,
    /// Where the MAC or the AEAD's tag goes, in both directions: whoever decrypts compares it with
    /// what came along, best with convoy_tags_match. It overlaps nothing else of the job.
    pub tag: *mut u8,
    /// How many bytes of it: at least 4, at most what the algorithm has; 0 without MAC or AEAD.
    pub tag_len: usize,
    /// The cipher's key.
    pub cipher_key: CipherKey,
    /// The MAC's key.
    pub hash_key: HashKey,
    /// The caller's own.
    pub user_data: *mut c_void,
    /// The caller's own.
    pub user_data2: *mut c_void,
    /// CONVOY_CIPHER_*.
    pub cipher_mode: u32,
    /// CONVOY_DIRECTION_*.
    pub cipher_direction: u32,
    /// CONVOY_HASH_*.
    pub hash_alg: u32,
    /// CONVOY_ORDER_*.
    pub chain_order: u32,
    /// CONVOY_STATUS_*; written by the library.
    pub status: u32,
    /// CONVOY_ERR_*: why the job is invalid, or CONVOY_OK; written by the library. convoy_strerror puts it into words.
    pub error: c_int,
    /// The library's own.
    pub reserved: [u64; 3],
}

// Three cache lines, so that jobs in an array that begins a line share none.
const _: () = assert!(size_of::<Job>() == 192);

impl Default for Job {
    #[inline]
    fn default() -> Self {
        Self {
            src: ptr::null(),
            dst: ptr::null_mut(),
            cipher_offset: 0,
            cipher_len: 0,
            hash_offset: 0,
            hash_len: 0,
            iv: ptr::null(),
            iv_len: 0,
            aad: ptr::null(),
            aad_len: 0,
            trailer: ptr::null(),
            trailer_len: 0,
            tag: ptr::null_mut(),
            tag_len: 0,
            cipher_key: CipherKey { enc: ptr::null() },
            hash_key: HashKey { hmac: ptr::null() },
            user_data: ptr::null_mut(),
            user_data2: ptr::null_mut(),
            cipher_mode: 0,
            cipher_direction: 0,
            hash_alg: 0,
            chain_order: 0,
            status: CONVOY_STATUS_QUEUED,
            error: CONVOY_OK,
            reserved: [0; 3],
        }
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("cipher_mode", &self.cipher_mode)
            .field("hash_alg", &self.hash_alg)
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}
