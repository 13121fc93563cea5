//! The CPU features of every tier, as Rust spells them.

/// Features of the tier `aesni`.
pub(crate) const AESNI: &[&str] = &["sse4.1", "ssse3", "aes", "pclmulqdq"];
/// Features of the tier `avx512`, beyond those of `aesni`.
pub(crate) const AVX512: &[&str] = &["avx512f", "avx512bw", "avx512vl", "avx512dq"];
/// Features of the tier `vaes512`, beyond those of `avx512`.
pub(crate) const VAES512: &[&str] = &["vaes", "vpclmulqdq"];
