//! The pass of HMAC (RFC 2104) over MD5 and the SHA family.

use crate::{
    HashAlg, Tier, block::HmacKey, isa::Proofs, pass::HmacJob, portable::hash as portable,
};

#[cfg(test)]
mod tests;

/// What computes an HMAC: chosen when a key is set up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hasher;

impl Hasher {
    /// The fastest for `alg` that keys of `tier` may use.
    pub(crate) fn choose(_proofs: &Proofs, _tier: Tier, _alg: HashAlg) -> Self {
        Self
    }

    /// Its name in listings: the instructions and how many messages go side by side.
    pub(crate) fn name(self) -> &'static str {
        "portable"
    }
}

/// Expands a key of any length. One that is longer than a block of the hash is hashed first
/// (RFC 2104 section 2). What `out` held is overwritten.
pub(crate) fn expand(alg: HashAlg, key: &[u8], out: &mut HmacKey) {
    portable::expand(alg, key, out);
}

/// Leaves the whole MAC of each job in its `tag`; bytes of `tag` behind it stay as they are. Of a
/// trailer no more than [`TRAILER_MAX`](crate::pass::TRAILER_MAX) bytes count.
pub(crate) fn hmac(hasher: Hasher, alg: HashAlg, jobs: &mut [HmacJob<'_>]) {
    let Hasher = hasher;
    jobs.iter_mut().for_each(|job| portable::hmac(alg, job));
}
