//! The passes of AES: CBC, CTR, the MACs of the CBC-MAC family, and CCM.

use crate::{
    KeyBits, MacAlg,
    block::{CbcMacKey, RoundKeys},
    isa::{
        Kernel,
        job::{CbcMacJob, CcmJob, CipherJob},
    },
    portable::aes as portable,
};

#[cfg(test)]
mod bursts;
#[cfg(test)]
mod tests;

/// Expands `key`, which has the length that `bits` says, for encryption (FIPS 197 section 5.2).
pub(crate) fn expand_encrypt(
    kernel: Option<Kernel>,
    bits: KeyBits,
    key: &[u8],
    keys: &mut RoundKeys,
) {
    match kernel {
        Some(kernel) => kernel.expand_encrypt(bits, key, keys),
        None => portable::expand_encrypt(bits, key, keys),
    }
}

/// Makes the round keys of the equivalent inverse cipher (FIPS 197 section 5.3.5) from those for
/// encryption.
pub(crate) fn expand_decrypt(
    kernel: Option<Kernel>,
    bits: KeyBits,
    forward: &RoundKeys,
    keys: &mut RoundKeys,
) {
    match kernel {
        Some(kernel) => kernel.expand_decrypt(bits, forward, keys),
        None => portable::expand_decrypt(bits, forward, keys),
    }
}

/// Expands the key of a MAC: AES-XCBC (RFC 3566 section 4) or AES-CMAC (NIST SP 800-38B section
/// 6.1). Other algorithms leave `out` alone.
pub(crate) fn expand_cbc_mac(kernel: Option<Kernel>, alg: MacAlg, key: &[u8], out: &mut CbcMacKey) {
    match kernel {
        Some(kernel) => kernel.expand_cbc_mac(alg, key, out),
        None => portable::expand_cbc_mac(alg, key, out),
    }
}

/// Encrypts with AES-CBC. Bytes behind the last whole block stay as they are. The jobs' data is not
/// theirs any more afterwards.
pub(crate) fn cbc_encrypt(kernel: Option<Kernel>, bits: KeyBits, jobs: &mut [CipherJob<'_>]) {
    match kernel {
        Some(kernel) => kernel.cbc_encrypt(bits, jobs),
        None => jobs.iter_mut().for_each(|job| portable::cbc_encrypt(bits, job)),
    }
}

/// Decrypts with AES-CBC; the jobs' keys are those for decryption. Bytes behind the last whole block
/// stay as they are.
pub(crate) fn cbc_decrypt(kernel: Option<Kernel>, bits: KeyBits, jobs: &mut [CipherJob<'_>]) {
    match kernel {
        Some(kernel) => kernel.cbc_decrypt(bits, jobs),
        None => jobs.iter_mut().for_each(|job| portable::cbc_decrypt(bits, job)),
    }
}

/// Encrypts or decrypts with AES-CTR.
pub(crate) fn ctr(kernel: Option<Kernel>, bits: KeyBits, jobs: &mut [CipherJob<'_>]) {
    match kernel {
        Some(kernel) => kernel.ctr(bits, jobs),
        None => jobs.iter_mut().for_each(|job| portable::ctr(bits, job)),
    }
}

/// Makes the MACs of AES-XCBC (RFC 3566, [`KeyBits::Aes128`]) or AES-CMAC (NIST SP 800-38B): with
/// keys expanded, they are one algorithm.
pub(crate) fn cbc_mac(kernel: Option<Kernel>, bits: KeyBits, jobs: &mut [CbcMacJob<'_>]) {
    match kernel {
        Some(kernel) => kernel.cbc_mac(bits, jobs),
        None => jobs.iter_mut().for_each(|job| portable::cbc_mac(bits, job)),
    }
}

/// Seals or opens with AES-CCM: data is transformed in place, and the tag of its plaintext is left
/// in each job. Comparing tags, and wiping what is not authentic, is left to the caller.
pub(crate) fn ccm(kernel: Option<Kernel>, bits: KeyBits, seal: bool, jobs: &mut [CcmJob<'_>]) {
    match kernel {
        Some(kernel) => kernel.ccm(bits, seal, jobs),
        None => jobs.iter_mut().for_each(|job| portable::ccm(bits, seal, job)),
    }
}
