//! HMAC in lanes: `words` wraps registers of words, `rounds` has the block functions, `lanes` runs
//! the messages of a burst side by side.

mod lanes;
mod rounds;
mod words;

use std::marker::PhantomData;

use self::{
    rounds::{Hash, Md5, Sha1, Sha256, Sha512},
    words::{X2, X4, Y4, Y4Plus, Y8, Y8Plus, Z8, Z16},
};
use super::{
    Proofs,
    token::{AesNi, Avx, Avx2, Avx512, Task},
};
use crate::{HashAlg, Tier, pass::HmacJob};

/// Kernels that compute HMACs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HashKernel {
    /// Lanes of 128 bits, two-operand encodings.
    AesNi(AesNi),
    /// Lanes of 128 bits.
    Avx(Avx),
    /// Lanes of 256 bits.
    Avx2(Avx2),
    /// Lanes of 512 bits, or 256 for short bursts.
    Avx512(Avx512),
}

impl HashKernel {
    /// The fastest for `alg` with the instructions of `tier`, if it may be used.
    pub(crate) fn choose(proofs: &Proofs, tier: Tier, alg: HashAlg) -> Option<Self> {
        let _ = alg;
        match tier {
            Tier::Portable => None,
            Tier::AesNi => proofs.aesni.map(Self::AesNi),
            Tier::Avx => proofs.avx.map(Self::Avx),
            Tier::Avx2 | Tier::Vaes256 => proofs.avx2.map(Self::Avx2),
            Tier::Avx512 | Tier::Vaes512 => proofs.avx512.map(Self::Avx512),
        }
    }

    /// The instructions and how many messages go side by side.
    pub(crate) fn name(self, alg: HashAlg) -> &'static str {
        let long = matches!(alg, HashAlg::Sha384 | HashAlg::Sha512);
        match self {
            Self::AesNi(_) if long => "sse x2",
            Self::AesNi(_) => "sse x4",
            Self::Avx(_) if long => "avx x2",
            Self::Avx(_) => "avx x4",
            Self::Avx2(_) if long => "avx2 x4",
            Self::Avx2(_) => "avx2 x8",
            Self::Avx512(_) if long => "avx512 x8",
            Self::Avx512(_) => "avx512 x16",
        }
    }

    /// Leaves the whole MAC of each job in its `tag`.
    pub(crate) fn hmac(self, alg: HashAlg, jobs: &mut [HmacJob<'_>]) {
        match alg {
            HashAlg::Md5 => self.enter(Short::<Md5>::new(4, jobs)),
            HashAlg::Sha1 => self.enter(Short::<Sha1>::new(5, jobs)),
            HashAlg::Sha224 => self.enter(Short::<Sha256>::new(7, jobs)),
            HashAlg::Sha256 => self.enter(Short::<Sha256>::new(8, jobs)),
            HashAlg::Sha384 => self.enter(Long::<Sha512>::new(6, jobs)),
            HashAlg::Sha512 => self.enter(Long::<Sha512>::new(8, jobs)),
        }
    }

    fn enter<T>(self, task: T)
    where
        T: Task<AesNi, Output = ()>
            + Task<Avx, Output = ()>
            + Task<Avx2, Output = ()>
            + Task<Avx512, Output = ()>,
    {
        match self {
            Self::AesNi(token) => token.enter(task),
            Self::Avx(token) => token.enter(task),
            Self::Avx2(token) => token.enter(task),
            Self::Avx512(token) => token.enter(task),
        }
    }
}

/// A burst under a hash of 32-bit words, and under one of 64-bit words.
macro_rules! burst {
    ($name:ident, $block:literal, $x:ident, $y:ident, $y_plus:ident, $z:ident) => {
        struct $name<'r, 'j, H> {
            /// Words of a digest.
            digest: usize,
            jobs: &'r mut [HmacJob<'j>],
            hash: PhantomData<H>,
        }

        impl<'r, 'j, H> $name<'r, 'j, H> {
            fn new(digest: usize, jobs: &'r mut [HmacJob<'j>]) -> Self {
                Self { digest, jobs, hash: PhantomData }
            }
        }

        impl<H: Hash<$x>> Task<AesNi> for $name<'_, '_, H> {
            type Output = ();

            #[inline(always)]
            fn run(self, token: AesNi) {
                lanes::run::<_, H, $block>($x(token), self.digest, self.jobs);
            }
        }

        impl<H: Hash<$x>> Task<Avx> for $name<'_, '_, H> {
            type Output = ();

            #[inline(always)]
            fn run(self, token: Avx) {
                lanes::run::<_, H, $block>($x(token.aesni()), self.digest, self.jobs);
            }
        }

        impl<H: Hash<$y>> Task<Avx2> for $name<'_, '_, H> {
            type Output = ();

            #[inline(always)]
            fn run(self, token: Avx2) {
                lanes::run::<_, H, $block>($y(token), self.digest, self.jobs);
            }
        }

        impl<H: Hash<$y_plus> + Hash<$z>> Task<Avx512> for $name<'_, '_, H> {
            type Output = ();

            #[inline(always)]
            fn run(self, token: Avx512) {
                // On few messages, narrow registers are faster: they can use one more port.
                if self.jobs.len() <= 512 / $block {
                    lanes::run::<_, H, $block>($y_plus(token), self.digest, self.jobs);
                } else {
                    lanes::run::<_, H, $block>($z(token), self.digest, self.jobs);
                }
            }
        }
    };
}

burst!(Short, 64, X4, Y8, Y8Plus, Z16);
burst!(Long, 128, X2, Y4, Y4Plus, Z8);
