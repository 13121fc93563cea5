//! The pass of HMAC (RFC 2104) over MD5 and the SHA family.

use crate::{
    Cpu, HashAlg, Tier, WideUnits,
    block::HmacKey,
    isa::{HashKernel, job::HmacJob},
    portable::hash as portable,
    secret::wipe,
    wide_units::{Load, Work, go_narrow},
};

#[cfg(test)]
mod tests;

/// Implementation of an HMAC, chosen when a key is set up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hasher {
    /// Without a kernel it is the portable tier.
    kernel: Option<HashKernel>,
    wide_units: Option<&'static WideUnits>,
}

impl Hasher {
    /// The fastest for `alg` that keys of `tier` may use.
    pub(crate) fn choose(cpu: &Cpu, tier: Tier, alg: HashAlg) -> Self {
        let kernel = HashKernel::choose(cpu.proofs(), tier, alg);
        Self { kernel, wide_units: cpu.wide_units() }
    }

    /// True if this thread's next burst is better off with [`narrow`](Self::narrow), as wide units sleep. `burst`
    /// returns its load; at most `most` messages go
    /// side by side; it is called only where wide units can sleep.
    #[inline(always)]
    pub(crate) fn goes_narrow(
        self,
        alg: HashAlg,
        most: usize,
        burst: impl FnOnce() -> Load,
    ) -> bool {
        let (Some(kernel), Some(units)) = (self.kernel, self.wide_units) else { return false };
        let load = burst();
        let width = kernel.width(alg, load.messages.min(most));
        go_narrow(units, Work::Hash(alg), width, load)
    }

    /// The fastest for `alg` in registers of 128 bits.
    pub(crate) fn narrow(self, alg: HashAlg) -> Self {
        Self { kernel: self.kernel.map(|kernel| kernel.narrow(alg)), ..self }
    }

    /// The fastest for these jobs, which are all of this thread's burst.
    #[inline(always)]
    pub(crate) fn for_jobs(self, alg: HashAlg, jobs: &[HmacJob<'_>]) -> Self {
        let bytes = || jobs.iter().map(|job| job.message.len()).sum();
        let narrow =
            self.goes_narrow(alg, usize::MAX, || Load { messages: jobs.len(), bytes: bytes() });
        if narrow { self.narrow(alg) } else { self }
    }

    /// The kernel, unless it is the portable tier.
    #[inline(always)]
    pub(crate) fn kernel(self) -> Option<HashKernel> {
        self.kernel
    }

    /// Its name in listings: the instructions and how many messages go side by side.
    pub(crate) fn name(self, alg: HashAlg) -> &'static str {
        self.kernel.map_or("portable", |kernel| kernel.name(alg))
    }
}

/// Expands a key of any length. One that is longer than a block of the hash is hashed first
/// (RFC 2104 section 2). What `out` held is overwritten.
pub(crate) fn expand(hasher: Hasher, alg: HashAlg, key: &[u8], out: &mut HmacKey) {
    let mut pads = [[0; 128]; 2];
    portable::pad(alg, key, &mut pads);
    let start = portable::start(alg);
    if !hasher.kernel.is_some_and(|kernel| kernel.expand(alg, &start, &pads, out)) {
        portable::expand(alg, &pads, out);
    }
    wipe(&mut pads, [0; 128]);
}

/// Leaves the whole MAC of each job in its `tag`; what becomes of the bytes behind it is not said. Of
/// a trailer no more than [`TRAILER_MAX`](crate::isa::job::TRAILER_MAX) bytes count.
pub(crate) fn hmac(hasher: Hasher, alg: HashAlg, jobs: &mut [HmacJob<'_>]) {
    match hasher.kernel {
        Some(kernel) => kernel.hmac(alg, jobs),
        None => jobs.iter_mut().for_each(|job| portable::hmac(alg, job)),
    }
}
