//! HMAC on many messages: `lanes` runs the messages of a burst side by side, in engines. `vector` is
//! the engine of registers of words (`words`) with the block functions of `rounds`; `sha_ni` has
//! those of the SHA extensions.

mod lanes;
mod rounds;
pub(super) mod sha_ni;
mod vector;
mod words;

use std::marker::PhantomData;

use self::{
    lanes::{Engine, Parked, Scratch},
    rounds::{Hash, Md5, Sha1, Sha256, Sha512},
    vector::Vector,
    words::{MAX, Words, X2, X4, Y4, Y4Plus, Y8, Y8Plus, Z8, Z16},
};
use super::{
    Proofs,
    token::{AesNi, Avx, Avx2, Avx512, Door, ShaNi, Task},
};
use crate::{HashAlg, Tier, block::HmacKey, isa::job::HmacJob, trace, width::Width};

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
        Some(Self::of(vectors, proofs.sha_ni, alg))
    }

    fn of(vectors: Vectors, sha_ni: Option<ShaNi>, alg: HashAlg) -> Self {
        // Where, as measured, a register of messages takes no longer than pairs of them.
        let most = match (alg, vectors) {
            (HashAlg::Md5 | HashAlg::Sha384 | HashAlg::Sha512, _) => 0,
            (HashAlg::Sha1, Vectors::Avx2(_)) => 6,
            (_, Vectors::Avx512(_)) => 4,
            _ => usize::MAX,
        };
        Self { vectors, sha_ni: sha_ni.map(|token| (token, most)) }
    }

    /// The fastest for `alg` with registers of 128 bits.
    pub(crate) fn narrow(self, alg: HashAlg) -> Self {
        let vectors = match self.vectors {
            Vectors::Avx2(token) => Vectors::Avx(token.avx()),
            Vectors::Avx512(token) => Vectors::Avx(token.avx2().avx()),
            narrow => narrow,
        };
        Self::of(vectors, self.sha_ni.map(|(token, _)| token), alg)
    }

    /// The registers that a burst of so many messages is hashed in.
    pub(crate) fn width(self, alg: HashAlg, messages: usize) -> Width {
        let few =
            if matches!(alg, HashAlg::Sha384 | HashAlg::Sha512) { FEW_LONG } else { FEW_SHORT };
        match self.vectors {
            _ if self.takes_two(messages) => Width::W128,
            Vectors::AesNi(_) | Vectors::Avx(_) => Width::W128,
            Vectors::Avx2(_) => Width::W256,
            Vectors::Avx512(_) if messages <= few => Width::W256,
            Vectors::Avx512(_) => Width::W512,
        }
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

    /// Takes the blocks of inner and outer padding into the chaining value `start`, both at once.
    /// Returns false, with nothing done, for a hash that the SHA extensions have not.
    pub(crate) fn expand(
        self,
        alg: HashAlg,
        start: &[u8; 64],
        pads: &[[u8; 128]; 2],
        out: &mut HmacKey,
    ) -> bool {
        let Some((token, _)) = self.sha_ni else { return false };
        match alg {
            HashAlg::Sha1 => token.enter(Pads { engine: sha_ni::Sha1, start, pads, out }),
            HashAlg::Sha224 | HashAlg::Sha256 => {
                token.enter(Pads { engine: sha_ni::Sha256, start, pads, out });
            }
            HashAlg::Md5 | HashAlg::Sha384 | HashAlg::Sha512 => return false,
        }
        true
    }

    /// True if a burst of so many messages goes through the SHA extensions, two at a time.
    pub(crate) fn takes_two(self, messages: usize) -> bool {
        self.sha_ni.is_some_and(|(_, most)| messages <= most)
    }

    /// True if [`blocks`](Self::blocks) does anything, for SHA-1 and SHA-256.
    pub(crate) fn takes_blocks(self) -> bool {
        self.sha_ni.is_some()
    }

    /// Takes whole blocks of one message into a chaining value. Returns false, with nothing done, for a
    /// hash that the SHA extensions have not.
    pub(crate) fn blocks(self, alg: HashAlg, state: &mut [u8; 64], blocks: &[[u8; 64]]) -> bool {
        let Some((token, _)) = self.sha_ni else { return false };
        match alg {
            HashAlg::Sha1 => token.enter(sha_ni::Blocks { engine: sha_ni::Sha1, state, blocks }),
            HashAlg::Sha224 | HashAlg::Sha256 => {
                token.enter(sha_ni::Blocks { engine: sha_ni::Sha256, state, blocks });
            }
            HashAlg::Md5 | HashAlg::Sha384 | HashAlg::Sha512 => return false,
        }
        true
    }

    /// Leaves the whole MAC of each job in its `tag`.
    pub(crate) fn hmac(self, alg: HashAlg, jobs: &mut [HmacJob<'_>]) {
        trace::width(self.width(alg, jobs.len()), jobs.len());
        let vectors = self.vectors;
        let sha_ni = self.sha_ni.filter(|&(_, most)| jobs.len() <= most);
        match (alg, sha_ni) {
            (HashAlg::Sha1, Some((token, _))) => Extension::go(sha_ni::Sha1, token, 5, jobs),
            (HashAlg::Sha224, Some((token, _))) => Extension::go(sha_ni::Sha256, token, 7, jobs),
            (HashAlg::Sha256, Some((token, _))) => Extension::go(sha_ni::Sha256, token, 8, jobs),
            (HashAlg::Md5, _) => Short::<Md5, 0>::go(vectors, 4, jobs),
            (HashAlg::Sha1, _) => Short::<Sha1, 0>::go(vectors, 5, jobs),
            (HashAlg::Sha224, _) => Short::<Sha256, 0>::go(vectors, 7, jobs),
            (HashAlg::Sha256, _) => Short::<Sha256, 0>::go(vectors, 8, jobs),
            (HashAlg::Sha384, _) => Long::<Sha512, 0>::go(vectors, 6, jobs),
            (HashAlg::Sha512, _) => Long::<Sha512, 0>::go(vectors, 8, jobs),
        }
    }
}

/// The blocks of an HMAC's paddings, under the SHA extensions.
struct Pads<'r, E> {
    engine: fn(ShaNi) -> E,
    start: &'r [u8; 64],
    pads: &'r [[u8; 128]; 2],
    out: &'r mut HmacKey,
}

impl<E: Engine<64>> Task<ShaNi> for Pads<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run(self, token: ShaNi) {
        let Self { engine, start, pads, out } = self;
        let engine = engine(token);
        // A block takes the first half; what is behind the second lane is not read.
        let [inner, outer] = pads;
        let (inner, outer) = (inner.first_chunk::<64>(), outer.first_chunk::<64>());
        let (Some(inner), Some(outer)) = (inner, outer) else { return };
        let mut rows = [inner; MAX];
        rows[1] = outer;
        let mut state = engine.repeat(start);
        engine.rounds(&mut state, engine.words(&rows));
        // Like everything here it is wiped by whoever sets the key up.
        let mut parked = Parked::EMPTY;
        engine.park(state, &mut parked);
        [out.inner, out.outer, ..] = parked.0;
    }
}

/// A burst under a hash of the SHA extensions.
struct Extension<'r, 'j, E> {
    engine: fn(ShaNi) -> E,
    /// Words of a digest.
    digest: usize,
    jobs: &'r mut [HmacJob<'j>],
    scratch: &'r mut Scratch<64, { sha_ni::LANES }>,
}

impl<'j, E: Engine<64>> Extension<'_, 'j, E> {
    fn go(engine: fn(ShaNi) -> E, token: ShaNi, digest: usize, jobs: &mut [HmacJob<'j>]) {
        Scratch::with(|scratch| token.enter(Extension { engine, digest, jobs, scratch }));
    }
}

impl<E: Engine<64>> Task<ShaNi> for Extension<'_, '_, E> {
    type Output = ();

    #[inline(always)]
    fn run(self, token: ShaNi) {
        lanes::run((self.engine)(token), self.digest, self.jobs, self.scratch);
    }
}

/// So many messages of hashes with 32-bit words, and with 64-bit words, fill no more than 256 bits.
const FEW_SHORT: usize = 8;
const FEW_LONG: usize = 4;

/// A burst under a hash of 32-bit words, and under one of 64-bit words.
macro_rules! burst {
    ($name:ident, $block:literal, $few:ident, $x:ident, $y:ident, $y_plus:ident, $z:ident) => {
        /// Its lanes decide on the registers.
        struct $name<'r, 'j, H, const L: usize> {
            /// Words of a digest.
            digest: usize,
            jobs: &'r mut [HmacJob<'j>],
            scratch: &'r mut Scratch<$block, L>,
            hash: PhantomData<H>,
        }

        impl<'j, H, const L: usize> $name<'_, 'j, H, L> {
            fn enter<D: Door>(door: D, digest: usize, jobs: &mut [HmacJob<'j>])
            where
                for<'r> $name<'r, 'j, H, L>: Task<D, Output = ()>,
            {
                Scratch::with(|scratch| {
                    door.enter($name { digest, jobs, scratch, hash: PhantomData })
                });
            }
        }

        impl<H: Hash<$x> + Hash<$y> + Hash<$y_plus> + Hash<$z>> $name<'_, '_, H, 0> {
            fn go(vectors: Vectors, digest: usize, jobs: &mut [HmacJob<'_>]) {
                match vectors {
                    Vectors::AesNi(token) => {
                        $name::<H, { $x::LANES }>::enter(token, digest, jobs);
                    }
                    Vectors::Avx(token) => {
                        $name::<H, { $x::LANES }>::enter(token, digest, jobs);
                    }
                    Vectors::Avx2(token) => {
                        $name::<H, { $y::LANES }>::enter(token, digest, jobs);
                    }
                    // On few messages, narrow registers are faster: they can use one more port.
                    Vectors::Avx512(token) if jobs.len() <= $few => {
                        $name::<H, { $y_plus::LANES }>::enter(token, digest, jobs);
                    }
                    Vectors::Avx512(token) => {
                        $name::<H, { $z::LANES }>::enter(token, digest, jobs);
                    }
                }
            }
        }

        burst!(@task $name, $x, AesNi, |token| token);
        burst!(@task $name, $x, Avx, |token| token.aesni());
        burst!(@task $name, $y, Avx2, |token| token);
        burst!(@task $name, $y_plus, Avx512, |token| token);
        burst!(@task $name, $z, Avx512, |token| token);
    };
    (@task $name:ident, $words:ident, $token:ident, |$proof:ident| $inner:expr) => {
        impl<H: Hash<$words>> Task<$token> for $name<'_, '_, H, { $words::LANES }> {
            type Output = ();

            #[inline(always)]
            fn run(self, $proof: $token) {
                let engine = Vector::<_, H>::new($words($inner));
                lanes::run(engine, self.digest, self.jobs, self.scratch);
            }
        }
    };
}

burst!(Short, 64, FEW_SHORT, X4, Y8, Y8Plus, Z16);
burst!(Long, 128, FEW_LONG, X2, Y4, Y4Plus, Z8);
