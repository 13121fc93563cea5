//! From jobs to passes: gathers jobs of one algorithm and runs them together.

use std::cell::Cell;

use arrayvec::ArrayVec;

use super::{
    aead, check,
    job::{Job, JobCipher, JobHash, Span, Status, tags_match},
    plan::{CipherPass, MacPass, PassSet, Plan, Planned},
    queue::Engine,
};
use crate::{
    Cpu, HashAlg, KeyBits, KeyError, Tier,
    icv::write_icv,
    isa::{
        Kernel,
        job::{CbcMacJob, CcmJob, CipherJob, HmacJob},
    },
    pass::{self, Batch, hmac::Hasher},
    secret::{depth, wipe_below},
};

/// Jobs that are worked on together; what passes are told of them stays on the stack.
pub(super) const CHUNK: usize = 64;

/// Jobs of a pass that makes tags, and where they go.
type Tags<'j, J> = Batch<J, &'j mut [u8], CHUNK>;

/// Processes jobs with the kernels of one tier.
#[derive(Clone, Copy, Debug)]
pub struct Runner {
    kernel: Option<Kernel>,
    hashers: [Hasher; HashAlg::ALL.len()],
}

impl Runner {
    /// Takes the kernels of the best tier of `cpu`.
    #[must_use]
    pub fn best(cpu: &Cpu) -> Self {
        Self::of(cpu, cpu.best())
    }

    /// Takes the kernels of `tier`.
    ///
    /// # Errors
    ///
    /// [`KeyError::TierUnavailable`] if `cpu` lacks the tier.
    pub fn new(cpu: &Cpu, tier: Tier) -> Result<Self, KeyError> {
        if !cpu.has(tier) {
            return Err(KeyError::TierUnavailable(tier));
        }
        Ok(Self::of(cpu, tier))
    }

    fn of(cpu: &Cpu, tier: Tier) -> Self {
        let hashers = HashAlg::ALL.map(|alg| Hasher::choose(cpu, tier, alg));
        Self { kernel: cpu.proofs().kernel(tier), hashers }
    }

    pub(super) fn kernel(&self) -> Option<Kernel> {
        self.kernel
    }

    pub(super) fn hasher(&self, alg: HashAlg) -> Hasher {
        self.hashers[alg as usize]
    }

    /// The tier whose kernels are used.
    #[must_use]
    pub fn tier(&self) -> Tier {
        self.kernel.map_or(Tier::Portable, Kernel::tier)
    }

    /// Processes one job.
    pub fn run_one(&mut self, job: &mut Job<'_>) {
        self.run(std::slice::from_mut(job));
    }

    /// Processes one job and compares the tag that it leaves with `received`, as [`tags_match`] does.
    /// What a forged message's tag should have been may lie on the stack, where the compiler put it:
    /// if the two differ, that is wiped. The tag in the job is left to the caller.
    #[must_use]
    pub fn verify_one(&mut self, job: &mut Job<'_>, received: &[u8]) -> bool {
        self.run_one(job);
        let authentic = job.status == Status::Completed && tags_match(job.tag, received);
        if !authentic {
            wipe_below::<{ depth::JOBS }>();
        }
        authentic
    }

    /// Runs at most [`CHUNK`] jobs; says whether registers, or the stack below, may hold something of
    /// them.
    #[inline(never)]
    fn run_chunk(&self, jobs: &mut [Job<'_>]) -> bool {
        let (mut early, mut ciphers, mut late) = (PassSet::new(), PassSet::new(), PassSet::new());
        for job in &mut *jobs {
            match check::prepare(job) {
                Ok(plan) => {
                    (job.status, job.error, job.plan) = (Status::Completed, None, plan);
                    early.insert(plan.early_mac);
                    ciphers.insert(plan.cipher);
                    late.insert(plan.late_mac);
                }
                Err(error) => {
                    (job.status, job.error) = (Status::InvalidArgs, Some(error));
                    job.plan = Plan::NOTHING;
                }
            }
        }
        early.iter().for_each(|pass| self.mac(jobs, pass, |plan| plan.early_mac));
        ciphers.iter().for_each(|pass| self.cipher(jobs, pass));
        late.iter().for_each(|pass| self.mac(jobs, pass, |plan| plan.late_mac));
        !(early.is_empty() && ciphers.is_empty() && late.is_empty())
    }

    fn cipher(&self, jobs: &mut [Job<'_>], pass: CipherPass) {
        match pass {
            CipherPass::CbcEncrypt(bits) => {
                pass::aes::cbc_encrypt(self.kernel, bits, &mut cipher_jobs(jobs, pass));
            }
            CipherPass::CbcDecrypt(bits) => {
                pass::aes::cbc_decrypt(self.kernel, bits, &mut cipher_jobs(jobs, pass));
            }
            CipherPass::Ctr(bits) => {
                pass::aes::ctr(self.kernel, bits, &mut cipher_jobs(jobs, pass));
            }
            CipherPass::CcmSeal(bits) => self.ccm(jobs, pass, bits, true),
            CipherPass::CcmOpen(bits) => self.ccm(jobs, pass, bits, false),
            CipherPass::Aead(direction) => aead::run(jobs, direction),
        }
    }

    fn ccm(&self, jobs: &mut [Job<'_>], pass: CipherPass, bits: KeyBits, seal: bool) {
        let mut batch = Tags::new();
        for job in jobs.iter_mut().filter(|job| job.plan.cipher == Planned::new(pass)) {
            let JobCipher::Ccm(key, _) = job.cipher else { continue };
            let Some(data) = part_mut(job.buffer.work_mut(), job.cipher_span) else { continue };
            let (nonce, nonce_len) = (&job.iv.bytes, usize::from(job.iv.len));
            let (keys, icv_len, aad) = (key.body(), job.tag.len(), job.aad);
            let (tag, state) = <(Cell<_>, Cell<_>)>::default();
            let ccm = CcmJob { keys, nonce, nonce_len, icv_len, aad, data, tag, state };
            batch.push(ccm, &mut *job.tag);
        }
        pass::aes::ccm(self.kernel, bits, seal, batch.jobs());
        batch.deliver(|place, tag| write_icv(tag, place));
    }

    fn mac(&self, jobs: &mut [Job<'_>], pass: MacPass, of: impl Fn(Plan) -> Planned<MacPass>) {
        let jobs = jobs.iter_mut().filter(|job| of(job.plan) == Planned::new(pass));
        match pass {
            MacPass::Hmac(alg) => hmac(self.hasher(alg), alg, jobs),
            MacPass::CbcMac(bits) => self.cbc_mac(bits, jobs),
        }
    }

    fn cbc_mac<'j, 'a: 'j>(&self, bits: KeyBits, jobs: impl Iterator<Item = &'j mut Job<'a>>) {
        let mut batch = Tags::new();
        for job in jobs {
            let key = match job.hash {
                JobHash::Xcbc(key) => key.body(),
                JobHash::Cmac(key) => key.body(),
                _ => continue,
            };
            let Some(message) = part(job.buffer.work(), job.hash_span) else { continue };
            let mac = CbcMacJob { key, message, trailer: job.trailer, tag: [0; 16] };
            batch.push(mac, &mut *job.tag);
        }
        pass::aes::cbc_mac(self.kernel, bits, batch.jobs());
        batch.deliver(|place, tag| write_icv(tag, place));
    }
}

impl<'a> Engine<Job<'a>> for Runner {
    fn run(&mut self, jobs: &mut [Job<'a>]) {
        let mut soiled = false;
        for chunk in jobs.chunks_mut(CHUNK) {
            soiled |= self.run_chunk(chunk);
        }
        match self.kernel {
            _ if !soiled => {}
            Some(kernel) => kernel.wipe_registers(),
            None => wipe_below::<{ depth::PORTABLE_JOBS }>(),
        }
    }
}

fn hmac<'j, 'a: 'j>(hasher: Hasher, alg: HashAlg, jobs: impl Iterator<Item = &'j mut Job<'a>>) {
    let mut batch = Tags::new();
    for job in jobs {
        let JobHash::Hmac(key) = job.hash else { continue };
        let Some(message) = part(job.buffer.work(), job.hash_span) else { continue };
        let mac = HmacJob { key: key.body(), message, trailer: job.trailer, tag: [0; 64] };
        batch.push(mac, &mut *job.tag);
    }
    let hasher = hasher.for_jobs(alg, batch.jobs());
    pass::hmac::hmac(hasher, alg, batch.jobs());
    batch.deliver(|place, tag| write_icv(tag, place));
}

fn cipher_jobs<'j>(jobs: &'j mut [Job<'_>], pass: CipherPass) -> ArrayVec<CipherJob<'j>, CHUNK> {
    let mut run = ArrayVec::new();
    for job in jobs.iter_mut().filter(|job| job.plan.cipher == Planned::new(pass)) {
        let keys = match job.cipher {
            JobCipher::CbcEncrypt(key) | JobCipher::Ctr(key) => key.body(),
            JobCipher::CbcDecrypt(key) => key.body(),
            _ => continue,
        };
        if let Some(data) = part_mut(job.buffer.work_mut(), job.cipher_span) {
            run.push(CipherJob { keys, iv: &job.iv.bytes, data });
        }
    }
    run
}

fn part(data: &[u8], span: Span) -> Option<&[u8]> {
    data.get(span.offset..)?.get(..span.len)
}

pub(super) fn part_mut(data: &mut [u8], span: Span) -> Option<&mut [u8]> {
    data.get_mut(span.offset..)?.get_mut(..span.len)
}
