//! HMAC on many messages: `lanes` runs the messages of a burst side by side, in engines. `vector` is
//! the engine of registers of words (`words`) with the block functions of `rounds`; `sha_ni` has
//! those of the SHA extensions.

mod lanes;
mod rounds;
mod sha_ni;
mod vector;
mod words;

use std::marker::PhantomData;

use self::{
    rounds::{Hash, Md5, Sha1, Sha256, Sha512},
    vector::Vector,
    words::{Words, X2, X4, Y4, Y4Plus, Y8, Y8Plus, Z8, Z16},
};
use super::{
    Proofs,
    token::{AesNi, Avx, Avx2, Avx512, Door, ShaNi, Task},
};
use crate::{HashAlg, Tier, pass::HmacJob};

/// Kernels that compute HMACs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HashKernel {
    vectors: Vectors,
    /// The SHA extensions, for bursts of at most so many messages.
    sha_ni: Option<(ShaNi, usize)>,
}

/// Registers that hold a word of each message.
#[derive(Clone, Copy, Debug)]
enum Vectors {
    /// 128 bits, two-operand encodings.
    AesNi(AesNi),
    /// 128 bits.
    Avx(Avx),
    /// 256 bits.
    Avx2(Avx2),
    /// 512 bits, or 256 for short bursts.
    Avx512(Avx512),
}

impl HashKernel {
    /// The fastest for `alg` with the instructions of `tier`, if it may be used.
    pub(crate) fn choose(proofs: &Proofs, tier: Tier, alg: HashAlg) -> Option<Self> {
        let vectors = match tier {
            Tier::Portable => None,
            Tier::AesNi => proofs.aesni.map(Vectors::AesNi),
            Tier::Avx => proofs.avx.map(Vectors::Avx),
            Tier::Avx2 | Tier::Vaes256 => proofs.avx2.map(Vectors::Avx2),
            Tier::Avx512 | Tier::Vaes512 => proofs.avx512.map(Vectors::Avx512),
        }?;
        // Where, as measured, a register of messages takes no longer than pairs of them.
        let most = match (alg, vectors) {
            (HashAlg::Md5 | HashAlg::Sha384 | HashAlg::Sha512, _) => 0,
            (HashAlg::Sha1, Vectors::Avx2(_)) => 6,
            (_, Vectors::Avx512(_)) => 4,
            _ => usize::MAX,
        };
        Some(Self { vectors, sha_ni: proofs.sha_ni.map(|token| (token, most)) })
    }

    /// The instructions, and how many messages of a long burst go side by side.
    pub(crate) fn name(self, alg: HashAlg) -> &'static str {
        if let Some((_, usize::MAX)) = self.sha_ni {
            return "sha-ni x2";
        }
        let long = matches!(alg, HashAlg::Sha384 | HashAlg::Sha512);
        match self.vectors {
            Vectors::AesNi(_) if long => "sse x2",
            Vectors::AesNi(_) => "sse x4",
            Vectors::Avx(_) if long => "avx x2",
            Vectors::Avx(_) => "avx x4",
            Vectors::Avx2(_) if long => "avx2 x4",
            Vectors::Avx2(_) => "avx2 x8",
            Vectors::Avx512(_) if long => "avx512 x8",
            Vectors::Avx512(_) => "avx512 x16",
        }
    }

    /// Leaves the whole MAC of each job in its `tag`.
    pub(crate) fn hmac(self, alg: HashAlg, jobs: &mut [HmacJob<'_>]) {
        let vectors = self.vectors;
        let sha_ni = self.sha_ni.filter(|&(_, most)| jobs.len() <= most);
        match (alg, sha_ni) {
            (HashAlg::Sha1, Some((token, _))) => token.enter(Extension(sha_ni::Sha1, 5, jobs)),
            (HashAlg::Sha224, Some((token, _))) => token.enter(Extension(sha_ni::Sha256, 7, jobs)),
            (HashAlg::Sha256, Some((token, _))) => token.enter(Extension(sha_ni::Sha256, 8, jobs)),
            (HashAlg::Md5, _) => vectors.enter(Short::<Md5>::new(4, jobs)),
            (HashAlg::Sha1, _) => vectors.enter(Short::<Sha1>::new(5, jobs)),
            (HashAlg::Sha224, _) => vectors.enter(Short::<Sha256>::new(7, jobs)),
            (HashAlg::Sha256, _) => vectors.enter(Short::<Sha256>::new(8, jobs)),
            (HashAlg::Sha384, _) => vectors.enter(Long::<Sha512>::new(6, jobs)),
            (HashAlg::Sha512, _) => vectors.enter(Long::<Sha512>::new(8, jobs)),
        }
    }
}

/// A burst in an engine of the SHA extensions, and the words of a digest.
struct Extension<'r, 'j, E>(fn(ShaNi) -> E, usize, &'r mut [HmacJob<'j>]);

impl<E: lanes::Engine<64>> Task<ShaNi> for Extension<'_, '_, E> {
    type Output = ();

    #[inline(always)]
    fn run(self, token: ShaNi) {
        lanes::run::<E, 64, { sha_ni::LANES }>(self.0(token), self.1, self.2);
    }
}

impl Vectors {
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
                lanes::run::<Vector<_, H>, $block, { $x::LANES }>(
                    Vector::new($x(token)),
                    self.digest,
                    self.jobs,
                );
            }
        }

        impl<H: Hash<$x>> Task<Avx> for $name<'_, '_, H> {
            type Output = ();

            #[inline(always)]
            fn run(self, token: Avx) {
                lanes::run::<Vector<_, H>, $block, { $x::LANES }>(
                    Vector::new($x(token.aesni())),
                    self.digest,
                    self.jobs,
                );
            }
        }

        impl<H: Hash<$y>> Task<Avx2> for $name<'_, '_, H> {
            type Output = ();

            #[inline(always)]
            fn run(self, token: Avx2) {
                lanes::run::<Vector<_, H>, $block, { $y::LANES }>(
                    Vector::new($y(token)),
                    self.digest,
                    self.jobs,
                );
            }
        }

        impl<H: Hash<$y_plus> + Hash<$z>> Task<Avx512> for $name<'_, '_, H> {
            type Output = ();

            #[inline(always)]
            fn run(self, token: Avx512) {
                // On few messages, narrow registers are faster: they can use one more port.
                if self.jobs.len() <= 512 / $block {
                    lanes::run::<Vector<_, H>, $block, { $y_plus::LANES }>(
                        Vector::new($y_plus(token)),
                        self.digest,
                        self.jobs,
                    );
                } else {
                    lanes::run::<Vector<_, H>, $block, { $z::LANES }>(
                        Vector::new($z(token)),
                        self.digest,
                        self.jobs,
                    );
                }
            }
        }
    };
}

burst!(Short, 64, X4, Y8, Y8Plus, Z16);
burst!(Long, 128, X2, Y4, Y4Plus, Z8);
