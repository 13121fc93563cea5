//! Proof tokens: zero-size values that only detection makes, and the doors they open.
//!
//! A door is the one function per tier that is compiled with the tier's features. Everything behind
//! it is inlined into it, which is why the code behind it needs no features of its own.

use std::arch::x86_64::__cpuid;

/// Work of a kernel behind a door.
///
/// Implementations are generic over the token, so that one source serves every tier whose token has
/// the instructions it calls for. `run` and all that it calls must be `#[inline(always)]`: code that
/// is not inlined into the door is compiled without the tier's features.
pub(super) trait Task<Token> {
    /// Result of the work.
    type Output;

    /// Does the work.
    fn run(self, token: Token) -> Self::Output;
}

/// A task with its door for a tier. The door is the task's, so that compilers have it in the unit of the task's
/// module: were all doors the token's, one unit would have every kernel, and a build would wait for it.
trait Behind<Token>: Task<Token> {
    /// Does the work with the tier's features.
    ///
    /// # Safety
    ///
    /// The processor has the features, which a token proves.
    unsafe fn door(self, token: Token) -> Self::Output;
}

/// A proof token, whose door [`Task`]s go through.
///
/// Large kernels go through doors one by one: compilers take much longer for one large function than
/// for many small ones.
pub(super) trait Door: Copy {
    /// Does `task` with the tier's features.
    fn enter<T: Task<Self>>(self, task: T) -> T::Output;
}

macro_rules! token {
    ($(#[$doc:meta])* $name:ident, builds on ($($below:ident: $type:ident),*), $features:tt) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $name {
            $($below: $type,)*
            _proof: (),
        }

        impl $name {
            /// Proof that the processor and the operating system support the tier, if they do.
            pub(super) fn detect($($below: $type),*) -> Option<Self> {
                Self::supported().then_some(Self { $($below,)* _proof: () })
            }

            $(
                /// Proof of a tier it builds on.
                #[inline(always)]
                pub(super) fn $below(self) -> $type {
                    self.$below
                }
            )*
        }

        token!(@door $name, $features);
    };
    (@door $name:ident, [$($feature:tt),* $(,)?]) => {
        impl $name {
            /// Every feature that code behind the door may use.
            #[cfg(test)]
            const FEATURES: &[&str] = &[$($feature),*];

            fn supported() -> bool {
                $(std::is_x86_feature_detected!($feature))&&*
            }
        }

        impl<T: Task<$name>> Behind<$name> for T {
            #[target_feature($(enable = $feature),*)]
            unsafe fn door(self, token: $name) -> T::Output {
                self.run(token)
            }
        }

        impl Door for $name {
            #[inline]
            fn enter<T: Task<Self>>(self, task: T) -> T::Output {
                // SAFETY: the token proves that the features are there.
                unsafe { Behind::<Self>::door(task, self) }
            }
        }
    };
}

token! {
    /// Proof of the tier `aesni`.
    AesNi, builds on (), ["sse4.1", "ssse3", "aes", "pclmulqdq"]
}

token! {
    /// Proof of the tier `avx`.
    Avx, builds on (aesni: AesNi), ["sse4.1", "ssse3", "aes", "pclmulqdq", "avx"]
}

token! {
    /// Proof of the tier `avx2`.
    Avx2, builds on (avx: Avx), ["sse4.1", "ssse3", "aes", "pclmulqdq", "avx", "avx2", "bmi2"]
}

token! {
    /// Proof of the tier `avx512`.
    Avx512, builds on (avx2: Avx2), [
        "sse4.1", "ssse3", "aes", "pclmulqdq", "avx", "avx2", "bmi2",
        "avx512f", "avx512bw", "avx512vl", "avx512dq",
    ]
}

token! {
    /// Proof of the tier `vaes256`.
    Vaes256, builds on (avx2: Avx2), [
        "sse4.1", "ssse3", "aes", "pclmulqdq", "avx", "avx2", "bmi2", "vaes", "vpclmulqdq",
    ]
}

token! {
    /// Proof of the tier `vaes512`.
    Vaes512, builds on (avx512: Avx512, vaes256: Vaes256), [
        "sse4.1", "ssse3", "aes", "pclmulqdq", "avx", "avx2", "bmi2",
        "avx512f", "avx512bw", "avx512vl", "avx512dq", "vaes", "vpclmulqdq", "avx512ifma",
    ]
}

token! {
    /// Proof of the SHA extensions, in two-operand encodings.
    ShaNi, builds on (), ["sse4.1", "ssse3", "sha"]
}

token! {
    /// Proof of the features of `aesni` and of the SHA extensions, in two-operand encodings.
    AesSha, builds on (sha_ni: ShaNi), ["sse4.1", "ssse3", "aes", "pclmulqdq", "sha"]
}

/// True if the processor is AMD's.
pub(crate) fn is_by_amd() -> bool {
    is_by(b"AuthenticAMD")
}

fn is_by(maker: &[u8; 12]) -> bool {
    let leaf = __cpuid(0);
    let vendor = [leaf.ebx, leaf.edx, leaf.ecx].map(u32::to_le_bytes);
    vendor.as_flattened() == maker
}

/// Ticks of the time-stamp counter in a microsecond, if the processor is of the class whose wide units sleep:
/// Intel's with AVX-512 and without VAES.
pub(crate) fn sleepers_mhz() -> Option<u32> {
    let has_wide =
        std::is_x86_feature_detected!("avx512f") && std::is_x86_feature_detected!("avx512bw");
    if !has_wide || std::is_x86_feature_detected!("vaes") || !is_by(b"GenuineIntel") {
        return None;
    }
    // The counter runs at the base frequency. Hypervisors may keep it to themselves; most of the class have
    // 2.0 to 3.0 GHz.
    const USUAL: u32 = 2500;
    const FREQUENCIES: u32 = 0x16;
    let told = (__cpuid(0).eax >= FREQUENCIES).then(|| __cpuid(FREQUENCIES).eax & 0xffff);
    Some(told.filter(|mhz| *mhz != 0).unwrap_or(USUAL))
}

/// True if instructions of SHA, which have legacy encodings alone, may stand between those of AVX: on
/// processors of other makers than AMD each of them may wait for the upper halves of registers.
pub(super) fn mixes_encodings() -> bool {
    is_by_amd()
}

token! {
    /// Proof of the features of `vaes512` and of the SHA extensions, where [`mixes_encodings`] says so.
    WideSha, builds on (sha_ni: ShaNi), [
        "sse4.1", "ssse3", "aes", "pclmulqdq", "avx", "avx2", "bmi2",
        "avx512f", "avx512bw", "avx512vl", "avx512dq", "vaes", "vpclmulqdq", "avx512ifma", "sha",
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::features::{AESNI, AVX, AVX2, AVX512, SHA_NI, VAES256, VAES512};

    #[test]
    fn doors_use_exactly_the_features_of_the_tier_table() {
        assert_eq!(AesNi::FEATURES, AESNI);
        assert_eq!(Avx::FEATURES, [AESNI, AVX].concat());
        assert_eq!(Avx2::FEATURES, [AESNI, AVX, AVX2].concat());
        assert_eq!(Avx512::FEATURES, [AESNI, AVX, AVX2, AVX512].concat());
        assert_eq!(Vaes256::FEATURES, [AESNI, AVX, AVX2, VAES256].concat());
        let vaes512 = [AESNI, AVX, AVX2, AVX512, VAES256, VAES512].concat();
        assert_eq!(Vaes512::FEATURES, vaes512);
        assert_eq!(WideSha::FEATURES, [&vaes512[..], &["sha"]].concat());
        assert_eq!(ShaNi::FEATURES, SHA_NI);
        assert_eq!(AesSha::FEATURES, [AESNI, &["sha"]].concat());
        // Behind any other door the compiler would have instructions of AVX stand between those of SHA.
        let without_avx = [ShaNi::FEATURES, AesSha::FEATURES];
        assert!(without_avx.iter().all(|features| !features.contains(&"avx")));
    }
}
