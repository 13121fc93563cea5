//! aws-lc as a driver of AES-GCM and ChaCha20-Poly1305: a library that wants the key itself.

use std::sync::Arc;

use aws_lc_rs::aead::{
    AES_128_GCM, AES_192_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce,
    UnboundKey,
};
use convoy_crypto::{
    Cpu, GcmParams, IcvLen, KeyBits, KeyError, KeyMaterial, OpenKey, SealKey, Suite,
};
use convoy_engine::registry::{Driver, Provider};
use convoy_engine::{EngineKey, Front, Job, KeyId, KeyTable, Op, Status, Synchronous};

/// Names that a kernel gives the algorithms.
pub(crate) const GCM: &str = "rfc4106(gcm(aes))";
pub(crate) const CHACHA: &str = "rfc7539esp(chacha20,poly1305)";

/// Behind Convoy's portable software, so that nobody gets it who does not ask for it.
const PRIORITY: u16 = 50;

/// A driver for each algorithm.
pub(crate) fn drivers(cpu: &Cpu) -> [Driver; 2] {
    let driver = |algorithm, name| {
        let driver = Driver::new(algorithm, name, Arc::new(AwsLc::new(cpu)));
        driver.with_priority(PRIORITY).with_about("aws-lc, one packet at a time")
    };
    [driver(GCM, "rfc4106-gcm-aes-aws-lc"), driver(CHACHA, "rfc7539esp-chacha20-poly1305-aws-lc")]
}

/// Its keys are Convoy's, which keep the material for it.
#[derive(Debug)]
pub(crate) struct AwsLc {
    cpu: Cpu,
}

impl AwsLc {
    pub(crate) fn new(cpu: &Cpu) -> Self {
        Self { cpu: *cpu }
    }
}

/// aws-lc opens no packet whose ICV is cut.
fn algorithm(suite: Suite) -> Option<&'static Algorithm> {
    match suite {
        Suite::Gcm(GcmParams { key_bits, icv_len: IcvLen::Icv16 }) => Some(match key_bits {
            KeyBits::Aes128 => &AES_128_GCM,
            KeyBits::Aes192 => &AES_192_GCM,
            KeyBits::Aes256 => &AES_256_GCM,
        }),
        Suite::ChaCha20Poly1305 => Some(&CHACHA20_POLY1305),
        _ => None,
    }
}

impl Provider for AwsLc {
    fn takes(&self, suite: Suite) -> bool {
        algorithm(suite).is_some()
    }

    fn seal_key(&self, suite: Suite, material: KeyMaterial) -> Result<SealKey, KeyError> {
        SealKey::keeping(&self.cpu, suite, material)
    }

    fn open_key(&self, suite: Suite, material: KeyMaterial) -> Result<OpenKey, KeyError> {
        OpenKey::keeping(&self.cpu, suite, material)
    }

    fn engine(&self) -> Front {
        Front::at_once(Box::<Engine>::default())
    }
}

#[derive(Debug, Default)]
pub(crate) struct Engine {
    keys: KeyTable<LessSafeKey>,
}

impl Synchronous for Engine {
    fn install(&mut self, id: KeyId, key: EngineKey) {
        let (suite, material) = match &key {
            EngineKey::Seal(key) => (key.suite(), key.material()),
            EngineKey::Open(key) => (key.suite(), key.material()),
        };
        let key = algorithm(suite).zip(material).and_then(|(algorithm, material)| {
            UnboundKey::new(algorithm, material.cipher.expose()).ok().map(LessSafeKey::new)
        });
        self.keys.put(id, key);
    }

    fn remove(&mut self, id: KeyId) {
        drop(self.keys.remove(id));
    }

    fn run(&mut self, jobs: &mut [Job]) {
        for job in jobs {
            let key = self.keys.get(job.key);
            job.status = key.and_then(|key| work(key, job)).unwrap_or(Status::Rejected);
            job.op = Op::Spent;
        }
    }
}

/// Does a job and returns its status; `None` if it cannot be done.
fn work(key: &LessSafeKey, job: &mut Job) -> Option<Status> {
    let (start, len) = (job.text.start as usize, job.text.len as usize);
    let end = start.checked_add(len)?.checked_add(key.algorithm().tag_len())?;
    let aad = job.aad.get(..usize::from(job.aad_len)).filter(|_| job.header == 0)?;
    let body = job.frame.data_mut().get_mut(start..end)?;
    match &job.op {
        Op::Seal(nonce) => {
            let nonce = Nonce::try_assume_unique_for_key(nonce.expose()).ok()?;
            let (text, icv) = body.split_at_mut_checked(len)?;
            let tag = key.seal_in_place_separate_tag(nonce, Aad::from(aad), text).ok()?;
            icv.copy_from_slice(tag.as_ref());
            Some(Status::Done)
        }
        Op::Open(nonce) => {
            let nonce = Nonce::try_assume_unique_for_key(nonce.expose()).ok()?;
            if key.open_in_place(nonce, Aad::from(aad), body).is_ok() {
                return Some(Status::Done);
            }
            body.get_mut(..len)?.fill(0);
            Some(Status::BadIcv)
        }
        Op::Spent => None,
    }
}
