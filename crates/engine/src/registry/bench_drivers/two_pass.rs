//! AES-GCM in two passes, one packet at a time: what kernels did before there were combined AEADs.

use std::hint::black_box;

use convoy_crypto::{
    Cipher, Cpu, GhashKey, Integrity, KeyBits, KeyError, KeyMaterial, Lengths, OpenKey, OpenOp,
    SealKey, SealOp, SecretBytes, Suite, Tier, open_burst, seal_burst,
};

use crate::registry::Provider;
use crate::{EngineKey, Front, Job, KeyId, KeyTable, Op, Status, Synchronous};

/// Encrypts with the best tier, and hashes with another one.
#[derive(Debug)]
pub(super) struct TwoPass {
    pub(super) cpu: Cpu,
    pub(super) hash: Tier,
}

impl Provider for TwoPass {
    fn takes(&self, suite: Suite) -> bool {
        matches!(suite, Suite::Gcm(_))
    }

    fn seal_key(&self, suite: Suite, material: KeyMaterial) -> Result<SealKey, KeyError> {
        SealKey::keeping(&self.cpu, suite, material)
    }

    fn open_key(&self, suite: Suite, material: KeyMaterial) -> Result<OpenKey, KeyError> {
        OpenKey::keeping(&self.cpu, suite, material)
    }

    fn engine(&self) -> Front {
        Front::synchronous(Box::new(Engine {
            cpu: self.cpu,
            hash: self.hash,
            keys: KeyTable::new(),
        }))
    }
}

#[derive(Debug)]
struct Engine {
    cpu: Cpu,
    hash: Tier,
    keys: KeyTable<Key>,
}

impl Synchronous for Engine {
    fn install(&mut self, id: KeyId, key: EngineKey) {
        self.keys.put(id, Key::new(&self.cpu, self.hash, &key));
    }

    fn remove(&mut self, id: KeyId) {
        drop(self.keys.remove(id));
    }

    fn run(&mut self, jobs: &mut [Job]) {
        for job in jobs {
            let key = self.keys.get(job.key);
            job.status = key.and_then(|key| key.run(job)).unwrap_or(Status::Rejected);
            job.op = Op::Spent;
        }
    }
}

/// Counter mode of the same AES key. It counts from 1, which GCM masks the tag with.
#[derive(Debug)]
enum Counter {
    Seal(SealKey),
    Open(OpenKey),
}

#[derive(Debug)]
struct Key {
    counter: Counter,
    hash: GhashKey,
    icv: usize,
}

const BLOCK: usize = 16;

impl Key {
    /// Nothing for a key of another suite, or one that does not keep its material.
    fn new(cpu: &Cpu, hash: Tier, key: &EngineKey) -> Option<Self> {
        let (suite, material) = match key {
            EngineKey::Seal(key) => (key.suite(), key.material()?),
            EngineKey::Open(key) => (key.suite(), key.material()?),
        };
        let Suite::Gcm(params) = suite else { return None };
        let secret = || SecretBytes::copy_from(material.cipher.expose());
        let counter = counter_mode(params.key_bits);
        let counter = match key {
            EngineKey::Seal(_) => Counter::Seal(SealKey::new(cpu, counter, secret()).ok()?),
            EngineKey::Open(_) => Counter::Open(OpenKey::new(cpu, counter, secret()).ok()?),
        };
        let hash = GhashKey::with_tier(cpu, hash, &material.cipher).ok()?;
        Some(Self { counter, hash, icv: suite.icv_bytes() })
    }

    /// Does a job and returns its status; `None` if it cannot be done.
    fn run(&self, job: &mut Job) -> Option<Status> {
        let start = job.text.start as usize;
        let end = start.checked_add(job.text.len as usize)?;
        let behind = end.checked_add(self.icv)?;
        let aad = job.aad.get(..usize::from(job.aad_len)).filter(|_| job.header == 0)?;
        let packet = job.frame.data_mut().get_mut(..behind)?;
        let opens = matches!(self.counter, Counter::Open(_));
        let before = if opens { Some(self.hash.hash(aad, packet.get(start..end)?)) } else { None };
        let mask = self.encrypt(&mut job.op, packet, start, end)?;
        let (text, icv) = packet.get_mut(start..)?.split_at_mut_checked(end - start)?;
        let hash = before.unwrap_or_else(|| self.hash.hash(aad, text));
        let tag = u128::from_ne_bytes(hash) ^ u128::from_ne_bytes(mask);
        let tag = tag.to_ne_bytes();
        if !opens {
            icv.iter_mut().zip(tag).for_each(|(to, byte)| *to = byte);
            return Some(Status::Done);
        }
        let differs = icv.iter().zip(tag).fold(0, |differs, (a, b)| differs | (a ^ b));
        if black_box(differs) == 0 {
            return Some(Status::Done);
        }
        text.fill(0);
        Some(Status::BadIcv)
    }

    /// Encrypts or decrypts the text and returns the block that masks the tag: a block of zeros in front of
    /// the text becomes it, for which what lies there makes room.
    fn encrypt(
        &self,
        op: &mut Op,
        packet: &mut [u8],
        start: usize,
        end: usize,
    ) -> Option<[u8; BLOCK]> {
        let Some(first) = start.checked_sub(BLOCK) else {
            let mut apart = [&[0; BLOCK], packet.get(start..end)?].concat();
            self.count(op, &mut apart)?;
            let (mask, text) = apart.split_first_chunk::<BLOCK>()?;
            packet.get_mut(start..end)?.copy_from_slice(text);
            return Some(*mask);
        };
        let range = packet.get_mut(first..end)?;
        let kept = std::mem::replace(range.first_chunk_mut::<BLOCK>()?, [0; BLOCK]);
        let done = self.count(op, range);
        let mask = std::mem::replace(range.first_chunk_mut::<BLOCK>()?, kept);
        done.map(|()| mask)
    }

    fn count(&self, op: &mut Op, bytes: &mut [u8]) -> Option<()> {
        let lengths = Lengths { header: 0, text: bytes.len() };
        match (&self.counter, std::mem::replace(op, Op::Spent)) {
            (Counter::Seal(key), Op::Seal(nonce)) => {
                seal_burst(&mut [SealOp::in_place(key, nonce, bytes, lengths, &[]).ok()?]);
            }
            (Counter::Open(key), Op::Open(nonce)) => {
                open_burst(&mut [OpenOp::in_place(key, nonce, bytes, lengths, &[]).ok()?]);
            }
            _ => return None,
        }
        Some(())
    }
}

const fn counter_mode(bits: KeyBits) -> Suite {
    Suite::Pair { cipher: Cipher::AesCtr(bits), integrity: Integrity::NULL }
}
