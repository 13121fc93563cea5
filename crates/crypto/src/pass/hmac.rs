//! The pass of HMAC (RFC 2104) over MD5 and the SHA family.

use crate::{
    HashAlg, Tier,
    block::HmacKey,
    isa::{HashKernel, Proofs},
    pass::HmacJob,
    portable::hash as portable,
    secret::wipe,
};

#[cfg(test)]
mod tests;

/// What computes an HMAC: chosen when a key is set up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hasher {
    /// Without a kernel it is the portable tier.
    kernel: Option<HashKernel>,
}

impl Hasher {
    /// The fastest for `alg` that keys of `tier` may use.
    pub(crate) fn choose(proofs: &Proofs, tier: Tier, alg: HashAlg) -> Self {
        Self { kernel: HashKernel::choose(proofs, tier, alg) }
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
/// a trailer no more than [`TRAILER_MAX`](crate::pass::TRAILER_MAX) bytes count.
pub(crate) fn hmac(hasher: Hasher, alg: HashAlg, jobs: &mut [HmacJob<'_>]) {
    match hasher.kernel {
        Some(kernel) => kernel.hmac(alg, jobs),
        None => jobs.iter_mut().for_each(|job| portable::hmac(alg, job)),
    }
}
