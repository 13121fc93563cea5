//! The CPU features of every tier, as Rust spells them.

/// Features of the tier `aesni`.
pub(crate) const AESNI: &[&str] = &["sse4.1", "ssse3", "aes", "pclmulqdq"];
/// Features of the tier `avx`, beyond those of `aesni`.
pub(crate) const AVX: &[&str] = &["avx"];
/// Features of the tier `avx2`, beyond those of `avx`.
pub(crate) const AVX2: &[&str] = &["avx2", "bmi2"];
/// Features of the tier `avx512`, beyond those of `avx2`.
pub(crate) const AVX512: &[&str] = &["avx512f", "avx512bw", "avx512vl", "avx512dq"];
/// Features of the tier `vaes256`, beyond those of `avx2`.
pub(crate) const VAES256: &[&str] = &["vaes", "vpclmulqdq"];
/// Features of the tier `vaes512`, beyond those of `avx512` and `vaes256`.
pub(crate) const VAES512: &[&str] = &["avx512ifma"];
/// Features of the SHA extensions, which are no tier: they serve the hashes of every tier.
#[cfg(test)]
pub(crate) const SHA_NI: &[&str] = &["sse4.1", "ssse3", "sha"];
