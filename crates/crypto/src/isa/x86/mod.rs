//! Kernels for x86-64.
//!
//! `token` proves tiers and opens the doors, `tables` expands keys, `lanes` wraps the instructions,
//! `gcm128` and `gcm512` are the kernels: one source for every tier with one block per register,
//! another for four.

mod aad;
mod gcm128;
mod gcm512;
mod lanes;
mod lanes512;
mod tables;
mod token;
mod wipe;

pub(crate) use tables::Tables;
use token::{AesNi, Avx512, Vaes512};

use crate::{KeyBits, Tier, burst::Entry, op::Op, trace};

/// The tiers of this machine that were not denied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Proofs {
    aesni: Option<AesNi>,
    avx512: Option<Avx512>,
    vaes512: Option<Vaes512>,
}

/// Asks the processor and the operating system for every tier that is `allowed`.
pub(crate) fn detect(allowed: impl Fn(Tier) -> bool) -> Proofs {
    let aesni = AesNi::detect().filter(|_| allowed(Tier::AesNi));
    let avx512 = aesni.and_then(Avx512::detect).filter(|_| allowed(Tier::Avx512));
    let vaes512 = avx512.and_then(Vaes512::detect).filter(|_| allowed(Tier::Vaes512));
    Proofs { aesni, avx512, vaes512 }
}

impl Proofs {
    /// The kernel for `tier`, if the tier may be used.
    pub(crate) fn kernel(&self, tier: Tier) -> Option<Kernel> {
        match tier {
            Tier::Portable => None,
            Tier::AesNi => self.aesni.map(Kernel::AesNi),
            Tier::Avx512 => self.avx512.map(Kernel::Avx512),
            Tier::Vaes512 => self.vaes512.map(Kernel::Vaes512),
        }
    }
}

/// A kernel that may run here: each variant holds the proof.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kernel {
    AesNi(AesNi),
    Avx512(Avx512),
    Vaes512(Vaes512),
}

impl Kernel {
    /// The tier it belongs to.
    #[inline(always)]
    pub(crate) fn tier(self) -> Tier {
        match self {
            Self::AesNi(_) => Tier::AesNi,
            Self::Avx512(_) => Tier::Avx512,
            Self::Vaes512(_) => Tier::Vaes512,
        }
    }

    /// Expands `key`, which has the length that `bits` says.
    pub(crate) fn expand(self, bits: KeyBits, key: &[u8]) -> Box<Tables> {
        let aesni = match self {
            Self::AesNi(proof) => proof,
            Self::Avx512(proof) => proof.below(),
            Self::Vaes512(proof) => proof.below().below(),
        };
        let mut tables = Tables::zeroed();
        aesni.expand(bits, key, &mut tables);
        wipe::xmm(aesni);
        tables
    }

    /// Runs operations of one class (tier, key size and length) whose keys were all set up for this
    /// tier.
    pub(crate) fn run<'a, O: Op<'a>>(self, slots: &mut [Option<Entry<'a, '_, O>>]) {
        trace::hit(self.tier(), O::SEAL, slots.len());
        match self {
            Self::AesNi(proof) => proof.run(slots),
            Self::Avx512(proof) => proof.run(slots),
            Self::Vaes512(proof) => proof.run(slots),
        }
    }

    /// Wipes every vector register that kernels of this tier may have left data in.
    pub(crate) fn wipe_registers(self) {
        match self {
            Self::AesNi(proof) => wipe::xmm(proof),
            Self::Avx512(proof) => wipe::zmm(proof),
            Self::Vaes512(proof) => wipe::zmm(proof.below()),
        }
    }
}
