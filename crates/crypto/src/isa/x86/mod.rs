//! Kernels for x86-64.
//!
//! `token` proves tiers and opens the doors, `tables` expands keys, `lanes` wraps the instructions,
//! `gcm128`, `gcm256` and `gcm512` are the kernels of GCM: one source for every tier with one block
//! per register, one each for two and for four. With four blocks there are also `gcm_fours`, for four packets of one
//! key in step, `gcm_rows`, for one packet after the other, and `gcm_lanes`, for four short packets, each in a
//! lane; `sum192` and `sum4` sum for them. `tag` ends operations. `gmac` and `chacha` are the other AEADs
//! but CCM, which `aes` has with AES's other modes; `hash` has the HMACs. `record` has
//! the cipher and the hash of a TLS record side by side.

mod aad;
mod aes;
mod chacha;
mod gcm128;
mod gcm256;
mod gcm512;
mod gcm_fours;
mod gcm_lanes;
mod gcm_rows;
mod gmac;
mod hash;
mod lanes;
mod lanes256;
mod lanes512;
mod record;
mod sum192;
mod sum4;
mod tables;
mod tag;
mod token;
mod wipe;

pub(crate) use hash::HashKernel;
pub(crate) use record::RecordKernel;
pub(crate) use tables::Tables;
use token::{AesNi, AesSha, Avx, Avx2, Avx512, Door, ShaNi, Vaes256, Vaes512, WideSha};
pub(crate) use token::{is_by_amd, sleepers_mhz};
pub(crate) use wipe::general as wipe_general_registers;

use crate::{
    KeyBits, Tier,
    isa::{
        job::{ChaChaJob, GmacJob},
        packet::{GcmPacket, Slot},
        part::{ChaChaState, KeystreamFrom, Pads},
    },
    memory::{Lined, OutOfMemory},
    trace,
    width::Width,
};

/// The tiers of this machine that were not denied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Proofs {
    aesni: Option<AesNi>,
    avx: Option<Avx>,
    avx2: Option<Avx2>,
    avx512: Option<Avx512>,
    vaes256: Option<Vaes256>,
    vaes512: Option<Vaes512>,
    sha_ni: Option<ShaNi>,
    aes_sha: Option<AesSha>,
    wide_sha: Option<WideSha>,
}

/// Asks the processor and the operating system for every tier that is `allowed`, and for the SHA
/// extensions if they are.
pub(crate) fn detect(allowed: impl Fn(Tier) -> bool, sha_ni: bool) -> Proofs {
    let aesni = AesNi::detect().filter(|_| allowed(Tier::AesNi));
    let avx = aesni.and_then(Avx::detect).filter(|_| allowed(Tier::Avx));
    let avx2 = avx.and_then(Avx2::detect).filter(|_| allowed(Tier::Avx2));
    let avx512 = avx2.and_then(Avx512::detect).filter(|_| allowed(Tier::Avx512));
    let vaes256 = avx2.and_then(Vaes256::detect).filter(|_| allowed(Tier::Vaes256));
    let both = avx512.zip(vaes256);
    let vaes512 = both
        .and_then(|(avx512, vaes256)| Vaes512::detect(avx512, vaes256))
        .filter(|_| allowed(Tier::Vaes512));
    let sha_ni = ShaNi::detect().filter(|_| sha_ni);
    let aes_sha = aesni.and(sha_ni).and_then(AesSha::detect);
    let mixed = vaes512.and(sha_ni).filter(|_| token::mixes_encodings());
    let wide_sha = mixed.and_then(WideSha::detect);
    Proofs { aesni, avx, avx2, avx512, vaes256, vaes512, sha_ni, aes_sha, wide_sha }
}

impl Proofs {
    /// The kernel for `tier`, if the tier may be used.
    pub(crate) fn kernel(&self, tier: Tier) -> Option<Kernel> {
        match tier {
            Tier::Portable => None,
            Tier::AesNi => self.aesni.map(Kernel::AesNi),
            Tier::Avx => self.avx.map(Kernel::Avx),
            Tier::Avx2 => self.avx2.map(Kernel::Avx2),
            Tier::Avx512 => self.avx512.map(Kernel::Avx512),
            Tier::Vaes256 => self.vaes256.map(Kernel::Vaes256),
            Tier::Vaes512 => self.vaes512.map(Kernel::Vaes512),
        }
    }

    /// True if the SHA extensions may be used.
    pub(crate) fn has_sha_ni(&self) -> bool {
        self.sha_ni.is_some()
    }
}

/// A kernel that may run here: each variant holds the proof.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kernel {
    AesNi(AesNi),
    Avx(Avx),
    Avx2(Avx2),
    Avx512(Avx512),
    Vaes256(Vaes256),
    Vaes512(Vaes512),
}

/// Does `$task` with the features of whatever tier `$kernel` proves. The task's type must implement
/// [`Task`] for every token.
macro_rules! enter {
    ($kernel:expr, $task:expr) => {
        match $kernel {
            Kernel::AesNi(token) => token.enter($task),
            Kernel::Avx(token) => token.enter($task),
            Kernel::Avx2(token) => token.enter($task),
            Kernel::Avx512(token) => token.enter($task),
            Kernel::Vaes256(token) => token.enter($task),
            Kernel::Vaes512(token) => token.enter($task),
        }
    };
}
#[allow(unused_imports)]
use enter;

/// Does something with the token of whatever tier `$kernel` proves, with AVX2's for what has nothing to gain
/// from AES in 256 bits.
macro_rules! without_vaes256 {
    ($kernel:expr, |$token:ident| $work:expr) => {
        match $kernel {
            Kernel::AesNi($token) => $work,
            Kernel::Avx($token) => $work,
            Kernel::Avx2($token) => $work,
            Kernel::Avx512($token) => $work,
            Kernel::Vaes256(proof) => {
                let $token = proof.avx2();
                $work
            }
            Kernel::Vaes512($token) => $work,
        }
    };
}
#[allow(unused_imports)]
use without_vaes256;

impl Kernel {
    /// The tier it belongs to.
    #[inline(always)]
    pub(crate) fn tier(self) -> Tier {
        match self {
            Self::AesNi(_) => Tier::AesNi,
            Self::Avx(_) => Tier::Avx,
            Self::Avx2(_) => Tier::Avx2,
            Self::Avx512(_) => Tier::Avx512,
            Self::Vaes256(_) => Tier::Vaes256,
            Self::Vaes512(_) => Tier::Vaes512,
        }
    }

    /// The proof of the tier that all others build on.
    fn aesni(self) -> AesNi {
        match self {
            Self::AesNi(proof) => proof,
            Self::Avx(proof) => proof.aesni(),
            Self::Avx2(proof) => proof.avx().aesni(),
            Self::Avx512(proof) => proof.avx2().avx().aesni(),
            Self::Vaes256(proof) => proof.avx2().avx().aesni(),
            Self::Vaes512(proof) => proof.avx512().avx2().avx().aesni(),
        }
    }

    /// Expands `key`, which has the length that `bits` says, for GCM.
    ///
    /// # Errors
    ///
    /// There is no memory for the tables.
    pub(crate) fn expand(
        self,
        bits: KeyBits,
        key: &[u8],
    ) -> Result<Box<Lined<Tables>>, OutOfMemory> {
        let mut tables = Tables::zeroed()?;
        self.expand_into(bits, key, &mut tables.0);
        Ok(tables)
    }

    /// The same into tables that are there, over those of a key of the same size.
    pub(crate) fn expand_into(self, bits: KeyBits, key: &[u8], tables: &mut Tables) {
        let work = tables::Expand { bits, key, tables };
        match self {
            Self::AesNi(proof) => proof.enter(work),
            Self::Vaes512(proof) => proof.enter(tables::ExpandFour(work)),
            _ => self.aesni().enter(work),
        }
        self.wipe_registers();
    }

    /// Fills the GHASH part of tables that were empty, for a hash key which no AES key made.
    pub(crate) fn expand_hash_key(self, h: &[u8; 16], tables: &mut Tables) {
        self.aesni().enter(tables::ExpandHashKey { h, tables });
        self.wipe_registers();
    }

    /// Runs operations of one class (tier, key size and length) whose keys were all set up for this
    /// tier.
    pub(crate) fn run<'a, O: GcmPacket<'a>>(self, slots: &mut [Slot<'_, O>]) {
        trace::hit(self.tier(), O::SEAL, slots.len());
        match self {
            Self::AesNi(proof) => gcm128::run(proof, slots),
            Self::Avx(proof) => gcm128::run(proof, slots),
            // With one block per register AVX2 has nothing to add.
            Self::Avx2(proof) => gcm128::run(proof.avx(), slots),
            Self::Avx512(proof) => gcm128::run(proof, slots),
            Self::Vaes256(proof) => gcm256::run(proof, slots),
            Self::Vaes512(proof) => gcm512::run(proof, slots),
        }
    }

    /// Runs one operation whose key was set up for this tier, without the code for operations that go
    /// beside each other.
    pub(crate) fn run_one<'a, O: GcmPacket<'a>>(self, op: &mut O) {
        trace::hit(self.tier(), O::SEAL, 1);
        let slots = &mut [Some(op)];
        match self {
            Self::AesNi(proof) => gcm128::run(proof, slots),
            Self::Avx(proof) => gcm128::run(proof, slots),
            Self::Avx2(proof) => gcm128::run(proof.avx(), slots),
            Self::Avx512(proof) => gcm128::run(proof, slots),
            Self::Vaes256(proof) => gcm256::run(proof, slots),
            Self::Vaes512(proof) => gcm512::run_apart(proof, slots),
        }
    }

    /// Seals or opens with ChaCha20-Poly1305; the tags stay in the jobs.
    pub(crate) fn chacha20_poly1305(self, seal: bool, jobs: &mut [ChaChaJob<'_>]) {
        trace::width(self.chacha_width(), jobs.len());
        without_vaes256!(self, |token| chacha::burst(token, seal, jobs));
    }

    /// The registers that ChaCha20 has lanes in.
    pub(crate) fn chacha_width(self) -> Width {
        match self {
            Self::AesNi(_) | Self::Avx(_) => Width::W128,
            Self::Avx2(_) | Self::Vaes256(_) => Width::W256,
            Self::Avx512(_) | Self::Vaes512(_) => Width::W512,
        }
    }

    /// The best kernel of registers of 128 bits among those that its tier builds on.
    pub(crate) fn narrow(self) -> Self {
        match self {
            Self::AesNi(_) | Self::Avx(_) => self,
            Self::Avx2(proof) => Self::Avx(proof.avx()),
            Self::Avx512(proof) => Self::Avx(proof.avx2().avx()),
            Self::Vaes256(proof) => Self::Avx(proof.avx2().avx()),
            Self::Vaes512(proof) => Self::Avx(proof.avx512().avx2().avx()),
        }
    }

    /// Seals or opens the first part of a message; the job gets no tag.
    pub(crate) fn chacha_first(self, seal: bool, mut job: ChaChaJob<'_>, state: &mut ChaChaState) {
        let work = chacha::FirstPart { seal, job: &mut job };
        let (mac, tail) = without_vaes256!(self, |token| token.enter(work));
        (state.mac, state.tail) = (mac, tail.to_le_bytes());
    }

    /// Seals or opens another part, from a block of keystream on.
    pub(crate) fn chacha_next(
        self,
        seal: bool,
        from: KeystreamFrom<'_>,
        data: &mut [u8],
        state: &mut ChaChaState,
    ) {
        let KeystreamFrom { key, nonce, block } = from;
        let work = chacha::NextPart { seal, key, nonce, block, data, state };
        without_vaes256!(self, |token| token.enter(work));
    }

    /// Computes keystream of ChaCha20 from a block on.
    pub(crate) fn chacha_keystream(self, from: KeystreamFrom<'_>, pads: &mut Pads) {
        let KeystreamFrom { key, nonce, block } = from;
        let work = chacha::Keystream { key, nonce, block, pads };
        without_vaes256!(self, |token| token.enter(work));
    }

    /// Computes the tags of AES-GMAC.
    pub(crate) fn gmac(self, jobs: &mut [GmacJob<'_>]) {
        enter!(self, gmac::Run(jobs));
    }

    /// The hash of a block that has the hash so far in it, and of more blocks behind it.
    pub(crate) fn ghash_on(self, tables: &Tables, hash: &mut [u8; 16], blocks: &[[u8; 16]]) {
        enter!(self, gmac::GhashOn { tables, hash, blocks });
    }

    /// GHASH alone (NIST SP 800-38D section 6.4), of what GCM hashes.
    pub(crate) fn ghash(self, tables: &Tables, aad: &[u8], data: &[u8]) -> [u8; 16] {
        let hash = enter!(self, gmac::Ghash { tables, aad, data });
        self.wipe_registers();
        hash
    }

    /// Wipes every vector register that kernels of this tier may have left data in, and the general registers that
    /// functions need not keep.
    pub(crate) fn wipe_registers(self) {
        wipe::general();
        match self {
            Self::AesNi(proof) => wipe::xmm(proof),
            Self::Avx(proof) => wipe::ymm(proof),
            Self::Avx2(proof) => wipe::ymm(proof.avx()),
            Self::Avx512(proof) => wipe::zmm(proof),
            Self::Vaes256(proof) => wipe::ymm(proof.avx2().avx()),
            Self::Vaes512(proof) => wipe::zmm(proof.avx512()),
        }
    }
}
