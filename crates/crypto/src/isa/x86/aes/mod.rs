//! Kernels of the AES modes, one source for every tier.
//!
//! `width` hides how many blocks a register has. `stream` has the modes whose blocks do not wait for
//! one another, `chain` the lanes for those whose blocks do; `gcm_parts`
//! is `stream` with GHASH beside it. `cbc`, `xcbc` and `ccm` bring packets to
//! them, the latter two through `mac`, in the order that `order` finds. `keys` expands keys.

mod cbc;
mod ccm;
mod chain;
mod gcm_parts;
pub(super) mod keys;
mod mac;
mod order;
mod stream;
mod width;
mod xcbc;

use super::token::Door;
use crate::{
    KeyBits, MacAlg,
    block::{CbcMacKey, RoundKeys},
    isa::x86::{Kernel, Tables},
    isa::{
        job::{CbcMacJob, CcmJob, CipherJob},
        part::{GcmState, Lengths, PartOperation},
    },
};

/// Does `$task` with the features of the tier that `$kernel` proves. Of AVX2 these modes have no use.
macro_rules! enter {
    ($kernel:expr, $task:expr) => {
        match $kernel {
            Kernel::AesNi(token) => token.enter($task),
            Kernel::Avx(token) => token.enter($task),
            Kernel::Avx2(token) => token.avx().enter($task),
            Kernel::Avx512(token) => token.enter($task),
            Kernel::Vaes256(token) => token.enter($task),
            Kernel::Vaes512(token) => token.enter($task),
        }
    };
}

impl Kernel {
    /// See [`pass::aes::expand_encrypt`](crate::pass::aes::expand_encrypt).
    pub(crate) fn expand_encrypt(self, bits: KeyBits, key: &[u8], keys: &mut RoundKeys) {
        self.aesni().enter(keys::ExpandEncrypt { bits, key, keys });
        self.wipe_registers();
    }

    /// See [`pass::aes::expand_decrypt`](crate::pass::aes::expand_decrypt).
    pub(crate) fn expand_decrypt(self, bits: KeyBits, forward: &RoundKeys, keys: &mut RoundKeys) {
        self.aesni().enter(keys::ExpandDecrypt { bits, forward, keys });
        self.wipe_registers();
    }

    /// See [`pass::aes::expand_cbc_mac`](crate::pass::aes::expand_cbc_mac).
    pub(crate) fn expand_cbc_mac(self, alg: MacAlg, key: &[u8], out: &mut CbcMacKey) {
        self.aesni().enter(keys::ExpandCbcMac { alg, key, out });
        self.wipe_registers();
    }

    /// See [`pass::aes::cbc_encrypt`](crate::pass::aes::cbc_encrypt).
    pub(crate) fn cbc_encrypt(self, bits: KeyBits, jobs: &mut [CipherJob<'_>]) {
        enter!(self, cbc::CbcEncrypt { bits, jobs });
    }

    /// See [`pass::aes::cbc_decrypt`](crate::pass::aes::cbc_decrypt).
    pub(crate) fn cbc_decrypt(self, bits: KeyBits, jobs: &mut [CipherJob<'_>]) {
        enter!(self, stream::CbcDecrypt { bits, jobs });
    }

    /// See [`pass::aes::ctr`](crate::pass::aes::ctr).
    pub(crate) fn ctr(self, bits: KeyBits, jobs: &mut [CipherJob<'_>]) {
        enter!(self, stream::Ctr { bits, jobs });
    }

    /// See [`pass::aes::cbc_mac`](crate::pass::aes::cbc_mac).
    pub(crate) fn cbc_mac(self, bits: KeyBits, jobs: &mut [CbcMacJob<'_>]) {
        enter!(self, xcbc::CbcMac { bits, jobs });
    }

    /// See [`pass::aes::ccm`](crate::pass::aes::ccm).
    pub(crate) fn ccm(self, bits: KeyBits, seal: bool, jobs: &mut [CcmJob<'_>]) {
        enter!(self, ccm::Ccm { bits, seal, jobs });
    }

    /// See [`Gcm::part`](crate::stream::gcm_steps::Gcm::part).
    pub(crate) fn gcm_part(
        self,
        tables: &Tables,
        counter: &[u8; 16],
        operation: PartOperation,
        data: &mut [u8],
        state: &mut GcmState,
    ) {
        let GcmState { hash, keystream, .. } = state;
        enter!(self, gcm_parts::Part { tables, counter, operation, data, hash, keystream });
    }

    /// See [`Gcm::resume`](crate::stream::gcm_steps::Gcm::resume).
    pub(crate) fn gcm_resume(
        self,
        tables: &Tables,
        origin: &[u8; 16],
        counter: &[u8; 16],
        lengths: Lengths,
        state: &mut GcmState,
    ) {
        let GcmState { hash, mask, keystream } = state;
        let resume = gcm_parts::Resume { tables, origin, counter, lengths, hash, mask, keystream };
        enter!(self, resume);
    }

    /// See [`Gcm::begin`](crate::stream::gcm_steps::Gcm::begin).
    pub(crate) fn gcm_begin(self, tables: &Tables, origin: &[u8; 16], state: &mut GcmState) {
        let GcmState { hash, mask, .. } = state;
        enter!(self, gcm_parts::Begin { tables, origin, hash, mask });
    }

    /// See [`Gcm::add`](crate::stream::gcm_steps::Gcm::add).
    pub(crate) fn gcm_add(self, tables: &Tables, bytes: &[u8; 16], state: &mut GcmState) {
        enter!(self, gcm_parts::Add { tables, bytes, hash: &mut state.hash });
    }

    /// See [`Gcm::finish`](crate::stream::gcm_steps::Gcm::finish).
    pub(crate) fn gcm_finish(self, tables: &Tables, lengths: Lengths, state: &mut GcmState) {
        let GcmState { hash, mask, .. } = state;
        enter!(self, gcm_parts::Finish { tables, lengths, mask, hash });
    }
}
