//! Numbers of algorithms, states and errors.

use super::version::LATE_ERRORS as LATE;

macro_rules! numbers {
    ($kind:ty: $($name:ident = $value:expr),* $(,)?) => {$(
        #[doc = concat!("`IMB_", stringify!($name), "`.")]
        pub const $name: $kind = $value;
    )*};
}

numbers! { u32:
    ARCH_NONE = 0,
    STATUS_BEING_PROCESSED = 0, STATUS_COMPLETED_CIPHER = 1, STATUS_COMPLETED_AUTH = 2,
    STATUS_COMPLETED = 3, STATUS_INVALID_ARGS = 4, STATUS_INTERNAL_ERROR = 5,
    DIR_ENCRYPT = 1, DIR_DECRYPT = 2,
    ORDER_CIPHER_HASH = 1, ORDER_HASH_CIPHER = 2,
    CIPHER_CBC = 1, CIPHER_CNTR = 2, CIPHER_NULL = 3, CIPHER_GCM = 5, CIPHER_CUSTOM = 6,
    CIPHER_CCM = 9, CIPHER_ECB = 12, CIPHER_CNTR_BITLEN = 13, CIPHER_CHACHA20 = 18,
    CIPHER_CHACHA20_POLY1305 = 19, CIPHER_CHACHA20_POLY1305_SGL = 20, CIPHER_GCM_SGL = 23,
    CIPHER_CFB = 26,
    SGL_INIT = 0, SGL_UPDATE = 1, SGL_COMPLETE = 2, SGL_ALL = 3,
    AUTH_HMAC_SHA_1 = 1, AUTH_HMAC_SHA_224 = 2, AUTH_HMAC_SHA_256 = 3, AUTH_HMAC_SHA_384 = 4,
    AUTH_HMAC_SHA_512 = 5, AUTH_AES_XCBC = 6, AUTH_MD5 = 7, AUTH_NULL = 8, AUTH_AES_GMAC = 9,
    AUTH_CUSTOM = 10, AUTH_AES_CCM = 11, AUTH_AES_CMAC = 12, AUTH_SHA_1 = 13, AUTH_SHA_224 = 14,
    AUTH_SHA_256 = 15, AUTH_SHA_384 = 16, AUTH_SHA_512 = 17, AUTH_AES_CMAC_BITLEN = 18,
    AUTH_AES_GMAC_128 = 24, AUTH_AES_GMAC_192 = 25, AUTH_AES_GMAC_256 = 26, AUTH_AES_CMAC_256 = 27,
    AUTH_POLY1305 = 28, AUTH_CHACHA20_POLY1305 = 29, AUTH_CHACHA20_POLY1305_SGL = 30, AUTH_GCM_SGL = 33, AUTH_GHASH = 46,
}

numbers! { u64:
    FLAG_SHANI_OFF = 1,
    FEATURE_SHANI = 1, FEATURE_AESNI = 1 << 1, FEATURE_PCLMULQDQ = 1 << 2, FEATURE_CMOV = 1 << 3,
    FEATURE_SSE4_2 = 1 << 4, FEATURE_AVX = 1 << 5, FEATURE_AVX2 = 1 << 6,
    FEATURE_AVX512F = 1 << 7, FEATURE_AVX512DQ = 1 << 8, FEATURE_AVX512CD = 1 << 9,
    FEATURE_AVX512BW = 1 << 10, FEATURE_AVX512VL = 1 << 11, FEATURE_VAES = 1 << 12,
    FEATURE_VPCLMULQDQ = 1 << 13, FEATURE_SAFE_DATA = 1 << 14, FEATURE_SAFE_PARAM = 1 << 15,
    FEATURE_GFNI = 1 << 16, FEATURE_AVX512_IFMA = 1 << 17, FEATURE_BMI2 = 1 << 18,
    FEATURE_XSAVE = 1 << 26, FEATURE_OSXSAVE = 1 << 27,
}

macro_rules! errors {
    ($function:ident, else $or:expr; $($name:ident = $value:expr, $text:literal;)*) => {
        $(
            #[doc = concat!("`IMB_", stringify!($name), "`: ", $text, ".")]
            pub const $name: std::ffi::c_int = $value;
        )*

        /// Meaning of an error number.
        pub(crate) fn $function(number: std::ffi::c_int) -> Option<&'static std::ffi::CStr> {
            match number {
                $($name => {
                    std::ffi::CStr::from_bytes_with_nul(concat!($text, "\0").as_bytes()).ok()
                })*
                _ => $or(number),
            }
        }
    };
}
pub(super) use errors;

errors! { error_text, else super::version::own_error_text;
    ERR_NULL_MBMGR = 2001, "the manager is null, or was not initialised";
    ERR_JOB_NULL_SRC = 2002, "the job's source is null";
    ERR_JOB_NULL_DST = 2003, "the job's destination is null";
    ERR_JOB_NULL_KEY = 2004, "the job's key is null";
    ERR_JOB_NULL_IV = 2005, "the job's IV is null";
    ERR_JOB_NULL_AUTH = 2006, "the job's place for a tag is null";
    ERR_JOB_NULL_AAD = 2007, "the job's additional data is null";
    ERR_JOB_CIPH_LEN = 2008, "the job's cipher does not take so many bytes";
    ERR_JOB_AUTH_LEN = 2009, "the job's hash does not take so many bytes";
    ERR_JOB_IV_LEN = 2010, "the job's cipher does not take an IV of this length";
    ERR_JOB_KEY_LEN = 2011, "the job's cipher has no keys of this length";
    ERR_JOB_AUTH_TAG_LEN = 2012, "the job's hash has no tags of this length";
    ERR_JOB_AAD_LEN = 2013, "the job has too much additional data";
    ERR_JOB_SRC_OFFSET = 2014, "the job's cipher and hash begin in different places";
    ERR_JOB_CHAIN_ORDER = 2015, "the job's order is none";
    ERR_CIPH_MODE = 2016, "the cipher is not in the set, or not beside this hash";
    ERR_HASH_ALGO = 2017, "the hash is not in the set, or not beside this cipher";
    ERR_JOB_NULL_AUTH_KEY = 2018, "the key of the job's hash is null";
    ERR_JOB_NULL_SGL_CTX = 2019, "the job's context is null";
    ERR_JOB_NULL_NEXT_IV = 2020, "the job's place for the next IV is null";
    ERR_JOB_PON_PLI = 2021, "the job's payload length of PON is wrong";
    ERR_NULL_SRC = 2022, "the source is null";
    ERR_NULL_DST = 2023, "the destination is null";
    ERR_NULL_KEY = 2024, "the key is null";
    ERR_NULL_EXP_KEY = 2025, "the expanded key is null";
    ERR_NULL_IV = 2026, "the IV is null";
    ERR_NULL_AUTH = 2027, "the place for a tag is null";
    ERR_NULL_AAD = 2028, "the additional data is null";
    ERR_CIPH_LEN = 2029, "the cipher does not take so many bytes";
    ERR_AUTH_LEN = 2030, "the hash does not take so many bytes";
    ERR_IV_LEN = 2031, "the cipher does not take an IV of this length";
    ERR_KEY_LEN = 2032, "no key has this length";
    ERR_AUTH_TAG_LEN = 2033, "no tag has this length";
    ERR_AAD_LEN = 2034, "too much additional data";
    ERR_SRC_OFFSET = 2035, "the offset is wrong";
    ERR_NULL_AUTH_KEY = 2036, "the hash's key is null";
    ERR_NULL_CTX = 2037, "the context is null";
    ERR_JOB_NULL_HMAC_OPAD = LATE + 1, "the outer value of the job's HMAC is null";
    ERR_JOB_NULL_HMAC_IPAD = LATE + 2, "the inner value of the job's HMAC is null";
    ERR_JOB_NULL_XCBC_K1_EXP = LATE + 3, "K1 of the job's XCBC is null";
    ERR_JOB_NULL_XCBC_K2 = LATE + 4, "K2 of the job's XCBC is null";
    ERR_JOB_NULL_XCBC_K3 = LATE + 5, "K3 of the job's XCBC is null";
    ERR_JOB_CIPH_DIR = LATE + 6, "the job's direction is none";
    ERR_JOB_NULL_GHASH_INIT_TAG = LATE + 7, "the job's first value of GHASH is null";
    ERR_MISSING_CPUFLAGS_INIT_MGR = LATE + 8, "the processor lacks what this manager needs";
    ERR_NULL_JOB = LATE + 9, "the job is null";
    ERR_QUEUE_SPACE = LATE + 10, "the queue has no room for so many jobs";
    ERR_NULL_BURST = LATE + 11, "the array of jobs is null";
    ERR_BURST_SIZE = LATE + 12, "the burst has too many jobs";
    ERR_BURST_OOO = LATE + 13, "the burst's jobs are not those that come next";
    ERR_SELFTEST = LATE + 14, "the self-test failed";
}
