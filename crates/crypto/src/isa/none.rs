//! Targets without kernels: every key is portable, and the types that would say otherwise have no
//! values.

use super::{
    job::{CbcMacJob, CcmJob, ChaChaJob, CipherJob, GmacJob, HmacJob},
    packet::{GcmPacket, Slot},
    part::{ChaChaState, GcmState, KeystreamFrom, Lengths, Pads, PartOperation},
    record_job::RecordJob,
};
use crate::{
    HashAlg, KeyBits, MacAlg, Tier,
    block::{CbcMacKey, HmacKey, RoundKeys},
    memory::{Lined, OutOfMemory},
    width::Width,
};

/// A tier proven to be usable here; there is none.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kernel {}

/// Kernel for HMACs; there is none.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HashKernel {}

impl HashKernel {
    pub(crate) fn choose(_: &Proofs, _: Tier, _: HashAlg) -> Option<Self> {
        None
    }

    pub(crate) fn name(self, _: HashAlg) -> &'static str {
        match self {}
    }

    pub(crate) fn expand(
        self,
        _: HashAlg,
        _: &[u8; 64],
        _: &[[u8; 128]; 2],
        _: &mut HmacKey,
    ) -> bool {
        match self {}
    }

    pub(crate) fn blocks(self, _: HashAlg, _: &mut [u8; 64], _: &[[u8; 64]]) -> bool {
        match self {}
    }

    pub(crate) fn takes_blocks(self) -> bool {
        match self {}
    }

    pub(crate) fn hmac(self, _: HashAlg, _: &mut [HmacJob<'_>]) {
        match self {}
    }

    pub(crate) fn width(self, _: HashAlg, _: usize) -> Width {
        match self {}
    }

    pub(crate) fn narrow(self, _: HashAlg) -> Self {
        match self {}
    }
}

/// Kernel that seals records; there is none.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RecordKernel {}

impl RecordKernel {
    pub(crate) fn choose(_: &Proofs, _: Tier, _: HashAlg) -> Option<Self> {
        None
    }

    pub(crate) fn is_best_for(self, _: HashAlg, _: usize, _: Option<HashKernel>) -> bool {
        match self {}
    }

    pub(crate) fn seal(self, _: HashAlg, _: SizedKeys<'_>, _: &mut [RecordJob<'_>]) {
        match self {}
    }
}

/// Key tables of the kernels.
pub(crate) enum Tables {}

/// Result of detection: nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Proofs;

/// The processor is nobody's that has kernels.
pub(crate) fn is_by_amd() -> bool {
    false
}

/// Nothing that sleeps is known of it.
pub(crate) fn sleepers_mhz() -> Option<u32> {
    None
}

/// Finds no tier.
pub(crate) fn detect(_allowed: impl Fn(Tier) -> bool, _sha_ni: bool) -> Proofs {
    Proofs
}

impl Proofs {
    /// No tier is available.
    pub(crate) fn kernel(&self, _: Tier) -> Option<Kernel> {
        None
    }

    /// There are no such extensions.
    pub(crate) fn has_sha_ni(&self) -> bool {
        false
    }
}

impl Kernel {
    pub(crate) fn tier(self) -> Tier {
        match self {}
    }

    pub(crate) fn expand(self, _: KeyBits, _: &[u8]) -> Result<Box<Lined<Tables>>, OutOfMemory> {
        match self {}
    }

    pub(crate) fn expand_into(self, _: KeyBits, _: &[u8], _: &mut Tables) {
        match self {}
    }

    pub(crate) fn run<'a, O: GcmPacket<'a>>(self, _: &mut [Slot<'_, O>]) {
        match self {}
    }

    pub(crate) fn run_one<'a, O: GcmPacket<'a>>(self, _: &mut O) {
        match self {}
    }

    pub(crate) fn ghash_on(self, _: &Tables, _: &mut [u8; 16], _: &[[u8; 16]]) {
        match self {}
    }

    pub(crate) fn gcm_part(
        self,
        _: &Tables,
        _: &[u8; 16],
        _: PartOperation,
        _: &mut [u8],
        _: &mut GcmState,
    ) {
        match self {}
    }

    pub(crate) fn gcm_resume(
        self,
        _: &Tables,
        _: &[u8; 16],
        _: &[u8; 16],
        _: Lengths,
        _: &mut GcmState,
    ) {
        match self {}
    }

    pub(crate) fn gcm_begin(self, _: &Tables, _: &[u8; 16], _: &mut GcmState) {
        match self {}
    }

    pub(crate) fn gcm_add(self, _: &Tables, _: &[u8; 16], _: &mut GcmState) {
        match self {}
    }

    pub(crate) fn gcm_finish(self, _: &Tables, _: Lengths, _: &mut GcmState) {
        match self {}
    }

    pub(crate) fn chacha20_poly1305(self, _: bool, _: &mut [ChaChaJob<'_>]) {
        match self {}
    }

    pub(crate) fn chacha_width(self) -> Width {
        match self {}
    }

    pub(crate) fn narrow(self) -> Self {
        match self {}
    }

    pub(crate) fn chacha_first(self, _: bool, _: ChaChaJob<'_>, _: &mut ChaChaState) {
        match self {}
    }

    pub(crate) fn chacha_next(
        self,
        _: bool,
        _: KeystreamFrom<'_>,
        _: &mut [u8],
        _: &mut ChaChaState,
    ) {
        match self {}
    }

    pub(crate) fn chacha_keystream(self, _: KeystreamFrom<'_>, _: &mut Pads) {
        match self {}
    }

    pub(crate) fn gmac(self, _: &mut [GmacJob<'_>]) {
        match self {}
    }

    pub(crate) fn ghash(self, _: &Tables, _: &[u8], _: &[u8]) -> [u8; 16] {
        match self {}
    }

    pub(crate) fn expand_encrypt(self, _: KeyBits, _: &[u8], _: &mut RoundKeys) {
        match self {}
    }

    pub(crate) fn expand_decrypt(self, _: KeyBits, _: &RoundKeys, _: &mut RoundKeys) {
        match self {}
    }

    pub(crate) fn expand_cbc_mac(self, _: MacAlg, _: &[u8], _: &mut CbcMacKey) {
        match self {}
    }

    pub(crate) fn cbc_encrypt(self, _: KeyBits, _: &mut [CipherJob<'_>]) {
        match self {}
    }

    pub(crate) fn cbc_encrypt_one(self, _: KeyBits, _: &RoundKeys, _: &mut [u8; 16], _: &mut [u8]) {
        match self {}
    }

    pub(crate) fn cbc_decrypt(self, _: KeyBits, _: &mut [CipherJob<'_>]) {
        match self {}
    }

    pub(crate) fn ctr(self, _: KeyBits, _: &mut [CipherJob<'_>]) {
        match self {}
    }

    pub(crate) fn cbc_mac(self, _: KeyBits, _: &mut [CbcMacJob<'_>]) {
        match self {}
    }

    pub(crate) fn ccm(self, _: KeyBits, _: bool, _: &mut [CcmJob<'_>]) {
        match self {}
    }

    pub(crate) fn wipe_registers(self) {
        match self {}
    }
}
