//! What records of TLS need besides the other passes: a hash and a cipher of one message, by whole blocks.

use crate::{
    HashAlg, KeyBits,
    block::RoundKeys,
    isa::Kernel,
    pass::{CipherJob, Hasher},
    portable,
};

/// Takes whole blocks of SHA-1 or SHA-256 into a chaining value, its words in the machine's byte order.
#[inline(always)]
pub(crate) fn hash_blocks(hasher: Hasher, alg: HashAlg, state: &mut [u8; 64], blocks: &[[u8; 64]]) {
    let done = hasher.kernel().is_some_and(|kernel| kernel.blocks(alg, state, blocks));
    if !done {
        soft(alg, state, blocks);
    }
}

/// Of its own frame, so that what it leaves is below the caller's.
#[inline(never)]
fn soft(alg: HashAlg, state: &mut [u8; 64], blocks: &[[u8; 64]]) {
    portable::hash::compress(alg, state, blocks.as_flattened());
}

/// Encrypts whole blocks with AES-CBC; `chain` is the IV, then the last block.
#[inline(always)]
pub(crate) fn cbc_encrypt_one(
    kernel: Option<Kernel>,
    bits: KeyBits,
    keys: &RoundKeys,
    chain: &mut [u8; 16],
    data: &mut [u8],
) {
    if let Some(kernel) = kernel {
        return kernel.cbc_encrypt_one(bits, keys, chain, data);
    }
    let iv = *chain;
    portable::aes::cbc_encrypt(bits, &mut CipherJob { keys, iv: &iv, data: &mut *data });
    if let Some(last) = data.last_chunk() {
        *chain = *last;
    }
}
