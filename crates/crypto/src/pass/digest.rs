//! Digests of whole messages, without a key.

use super::hmac::Hasher;
use crate::{HashAlg, block::digest_bytes, portable::hash as portable};

/// The digest of a message, at the front; what is behind it is not said.
pub(crate) fn digest(hasher: Hasher, alg: HashAlg, message: &[u8]) -> [u8; 64] {
    let mut state = portable::start(alg);
    // Blocks of the hashes that kernels take by themselves have 64 bytes.
    let (blocks, rest) = message.as_chunks();
    let by_kernel = hasher.kernel().is_some_and(|kernel| kernel.blocks(alg, &mut state, blocks));
    if by_kernel {
        portable::finish(alg, &mut state, message.len() - rest.len(), rest, &[]);
    } else {
        portable::finish(alg, &mut state, 0, message, &[]);
    }
    digest_bytes(alg, &state).0
}
