//! Proof tokens: zero-size values that only detection makes, and the doors they open.
//!
//! A door is the one function per tier that is compiled with the tier's features. Everything behind
//! it is inlined into it, which is why the code behind it needs no features of its own.

use super::{Tables, gcm128, gcm512, tables};
use crate::{KeyBits, burst::Entry, op::Op};

macro_rules! token {
    ($(#[$doc:meta])* $name:ident, builds on ($($below:ident)?), kernel $kernel:path, $features:tt) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $name {
            $(below: $below,)?
            _proof: (),
        }

        token!(@below $name $($below)?);
        token!(@doors $name $kernel, $features);
    };
    (@below $name:ident) => {
        impl $name {
            /// Proof that the processor and the operating system support the tier, if they do.
            pub(super) fn detect() -> Option<Self> {
                Self::supported().then_some(Self { _proof: () })
            }
        }
    };
    (@below $name:ident $below:ident) => {
        impl $name {
            /// Proof that the processor and the operating system support the tier, if they do.
            pub(super) fn detect(below: $below) -> Option<Self> {
                Self::supported().then_some(Self { below, _proof: () })
            }

            /// Proof of the tier it builds on.
            #[inline(always)]
            pub(super) fn below(self) -> $below {
                self.below
            }
        }
    };
    (@doors $name:ident $kernel:path, [$($feature:tt),* $(,)?]) => {
        impl $name {
            /// Every feature that code behind the doors may use.
            #[cfg(test)]
            const FEATURES: &[&str] = &[$($feature),*];

            fn supported() -> bool {
                $(std::is_x86_feature_detected!($feature))&&*
            }

            /// Runs operations of one class.
            #[inline]
            pub(super) fn run<'a, O: Op<'a>>(self, slots: &mut [Option<Entry<'a, '_, O>>]) {
                #[target_feature($(enable = $feature),*)]
                fn door<'a, O: Op<'a>>(token: $name, slots: &mut [Option<Entry<'a, '_, O>>]) {
                    $kernel(token, slots);
                }
                // SAFETY: the token proves that the features are there.
                unsafe { door(self, slots) }
            }
        }
    };
}

token! {
    /// Proof of the tier `aesni`.
    AesNi, builds on (), kernel gcm128::run, ["sse4.1", "ssse3", "aes", "pclmulqdq"]
}

token! {
    /// Proof of the tier `avx512`.
    Avx512, builds on (AesNi), kernel gcm128::run, [
        "sse4.1", "ssse3", "aes", "pclmulqdq", "avx512f", "avx512bw", "avx512vl", "avx512dq",
    ]
}

token! {
    /// Proof of the tier `vaes512`.
    Vaes512, builds on (Avx512), kernel gcm512::run, [
        "sse4.1", "ssse3", "aes", "pclmulqdq", "avx512f", "avx512bw", "avx512vl", "avx512dq", "vaes", "vpclmulqdq",
    ]
}

impl AesNi {
    /// Expands `key` into `tables`; every tier uses the same tables.
    pub(super) fn expand(self, bits: KeyBits, key: &[u8], tables: &mut Tables) {
        #[target_feature(enable = "sse4.1,ssse3,aes,pclmulqdq")]
        fn door(token: AesNi, bits: KeyBits, key: &[u8], tables: &mut Tables) {
            tables::expand(token, bits, key, tables);
        }
        // SAFETY: the token proves that the features are there.
        unsafe { door(self, bits, key, tables) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::features;

    #[test]
    fn doors_use_exactly_the_features_of_the_tier_table() {
        assert_eq!(AesNi::FEATURES, features::AESNI);
        assert_eq!(Avx512::FEATURES, [features::AESNI, features::AVX512].concat());
        let vaes512 = [features::AESNI, features::AVX512, features::VAES512].concat();
        assert_eq!(Vaes512::FEATURES, vaes512);
    }
}
