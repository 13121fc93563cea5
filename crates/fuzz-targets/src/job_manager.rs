//! Any sequence of calls on a job manager with any jobs, against a model of the queue that knows
//! nothing of batches in a ring, and against OpenSSL: jobs come back in order, processed once, those
//! that make no sense untouched and marked.

use std::collections::VecDeque;
use std::sync::LazyLock;

use arbitrary::Arbitrary;
use convoy_crypto::manager::{
    AesDecryptKey, AesEncryptKey, Buffer, ChainOrder, CmacKey, Direction, HmacKeys, Iv, Job,
    JobCipher, JobHash, Queue, Runner, Span, Status, XcbcKey,
};
use convoy_crypto::{AeadKey, Cpu, HashAlg, IcvLen, KeyBits, MacAlg, SecretBytes, Suite, Tier};

use crate::common::{self, Random};
use crate::oracle::{Oracle, Parts};

/// A tier, the length of a batch, and calls.
#[derive(Arbitrary, Debug)]
pub struct Input {
    tier: u8,
    batch: u8,
    steps: Vec<Step>,
}

#[derive(Arbitrary, Debug)]
enum Step {
    Submit(Spec),
    /// Without asking for a job.
    SubmitNothing,
    Ask,
    Completed,
    Flush,
    /// Some jobs at once, past the queue.
    Burst(Vec<Spec>),
}

/// A job as the fuzzer wants it. `fit` brings its parts together where they would not be by chance.
#[derive(Arbitrary, Clone, Debug)]
struct Spec {
    fit: bool,
    cipher: u8,
    bits: u8,
    hash: u8,
    key: u8,
    decrypt: bool,
    hash_first: bool,
    apart: Option<u16>,
    len: u16,
    cipher_span: (u16, u16),
    hash_span: (u16, u16),
    iv: u8,
    aad: u8,
    trailer: u8,
    tag: u8,
}

/// Most jobs of an input.
const JOBS_MAX: usize = 200;
/// Longest buffer.
const LENGTH_MAX: usize = 2100;
/// Keys of each kind.
const KEYS: usize = 3;

static CPU: LazyLock<Cpu> = LazyLock::new(|| Cpu::detect().unwrap());
static RING: LazyLock<KeyRing> = LazyLock::new(KeyRing::new);

/// The secret that key number `n` of `len` bytes is made of.
fn secret(n: usize, len: usize) -> Vec<u8> {
    Random((n * 100 + len) as u64).bytes(len)
}

/// Every key that jobs name, by key size or hash and then by number.
// Keys come in boxes, so that no copy of a secret stays behind.
#[allow(clippy::vec_box)]
struct KeyRing {
    encrypt: Vec<Vec<Box<AesEncryptKey>>>,
    decrypt: Vec<Vec<Box<AesDecryptKey>>>,
    cmac: Vec<Vec<Box<CmacKey>>>,
    xcbc: Vec<Box<XcbcKey>>,
    hmac: Vec<Vec<Box<HmacKeys>>>,
    aead: Vec<Vec<AeadKey>>,
}

/// The suites that a job takes a key of both ways for.
const AEADS: [Suite; 7] = [
    Suite::Gcm(convoy_crypto::GcmParams::new(KeyBits::Aes128, IcvLen::Icv16)),
    Suite::Gcm(convoy_crypto::GcmParams::new(KeyBits::Aes192, IcvLen::Icv8)),
    Suite::Gcm(convoy_crypto::GcmParams::new(KeyBits::Aes256, IcvLen::Icv16)),
    Suite::Gmac(KeyBits::Aes128),
    Suite::Gmac(KeyBits::Aes256),
    Suite::ChaCha20Poly1305,
    // A job refuses this one: it has a kind of key of its own.
    Suite::Ccm { key_bits: KeyBits::Aes128, icv_len: IcvLen::Icv16 },
];

impl KeyRing {
    fn new() -> Self {
        let cpu = &*CPU;
        let of = |n, len| SecretBytes::from(secret(n, len));
        fn each<K>(make: impl Fn(usize) -> K) -> Vec<K> {
            (0..KEYS).map(make).collect()
        }
        let sizes = KeyBits::ALL.map(KeyBits::bytes);
        let tiers: Vec<_> = cpu.tiers().collect();
        Self {
            encrypt: sizes
                .iter()
                .map(|&len| each(|n| AesEncryptKey::new(cpu, &of(n, len)).unwrap()))
                .collect(),
            decrypt: sizes
                .iter()
                .map(|&len| each(|n| AesDecryptKey::new(cpu, &of(n, len)).unwrap()))
                .collect(),
            cmac: sizes
                .iter()
                .map(|&len| each(|n| CmacKey::new(cpu, &of(n, len)).unwrap()))
                .collect(),
            xcbc: each(|n| XcbcKey::new(cpu, &of(n, 16)).unwrap()),
            hmac: HashAlg::ALL
                .iter()
                .map(|&hash| each(|n| HmacKeys::new(cpu, hash, &of(n, hmac_key_len(n)))))
                .collect(),
            aead: AEADS
                .iter()
                .map(|&suite| {
                    each(|n| {
                        let tier = tiers[n % tiers.len()];
                        AeadKey::with_tier(cpu, tier, suite, of(n, suite.key_bytes())).unwrap()
                    })
                })
                .collect(),
        }
    }
}

/// Shorter than a block, and longer.
const fn hmac_key_len(n: usize) -> usize {
    [20, 64, 200][n]
}

/// Content of a job, in plain values.
#[derive(Clone, Debug)]
struct Task {
    cipher: Kind,
    decrypt: bool,
    key: usize,
    mac: MacAlg,
    /// A key without anything in it.
    empty_key: bool,
    hash_first: bool,
    src: Vec<u8>,
    /// Destination of the result if not in place.
    dst: Option<Vec<u8>>,
    cipher_span: (usize, usize),
    hash_span: (usize, usize),
    iv: Vec<u8>,
    aad: Vec<u8>,
    trailer: Vec<u8>,
    tag: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Unset,
    Null,
    Cbc(KeyBits),
    Ctr(KeyBits),
    Ccm(KeyBits),
    Aead(usize),
}

impl Task {
    fn new(spec: &Spec) -> Self {
        let bits = KeyBits::ALL[usize::from(spec.bits) % 3];
        let cipher = match spec.cipher % 12 {
            0 => Kind::Unset,
            1 | 2 => Kind::Null,
            3..=5 => Kind::Cbc(bits),
            6 | 7 => Kind::Ctr(bits),
            8 | 9 => Kind::Ccm(bits),
            _ => Kind::Aead(usize::from(spec.bits) % AEADS.len()),
        };
        let mac = match spec.hash % 12 {
            0..=2 => MacAlg::Null,
            3..=8 => MacAlg::Hmac(HashAlg::ALL[usize::from(spec.hash) % 12 - 3]),
            9 => MacAlg::AesXcbc,
            _ => MacAlg::AesCmac(bits),
        };
        let mut random = Random(u64::from(spec.len) << 8 | u64::from(spec.key));
        let len = usize::from(spec.len) % LENGTH_MAX;
        let span = |(offset, len): (u16, u16)| (usize::from(offset), usize::from(len));
        let mut task = Self {
            cipher,
            decrypt: spec.decrypt,
            key: usize::from(spec.key) % KEYS,
            mac,
            empty_key: !spec.fit && spec.key % 16 == 15,
            hash_first: spec.hash_first,
            src: random.bytes(len),
            dst: spec.apart.map(|room| random.bytes(usize::from(room) % LENGTH_MAX)),
            cipher_span: span(spec.cipher_span),
            hash_span: span(spec.hash_span),
            iv: random.bytes(usize::from(spec.iv) % 20),
            aad: random.bytes(usize::from(spec.aad)),
            trailer: random.bytes(usize::from(spec.trailer) % 20),
            tag: random.bytes(usize::from(spec.tag) % 70),
        };
        if spec.fit {
            task.fit();
        }
        if task.iv.len() == 16 && matches!(task.cipher, Kind::Ctr(_)) {
            // OpenSSL's counter has more than 32 bits.
            task.iv[12] = 0;
        }
        task
    }

    /// Bytes that spans may cover.
    fn room(&self) -> usize {
        self.dst.as_ref().map_or(self.src.len(), |dst| dst.len().min(self.src.len()))
    }

    fn is_aead(&self) -> bool {
        matches!(self.cipher, Kind::Ccm(_) | Kind::Aead(_))
    }

    /// Moves everything into what the documentation of jobs allows.
    fn fit(&mut self) {
        let room = self.room();
        let inside = |(offset, len): (usize, usize)| {
            let offset = offset % (room + 1);
            (offset, len % (room - offset + 1))
        };
        self.cipher_span = inside(self.cipher_span);
        self.hash_span = inside(self.hash_span);
        if self.cipher == Kind::Unset {
            self.cipher = Kind::Null;
        }
        if self.cipher == Kind::Aead(AEADS.len() - 1) {
            self.cipher = Kind::Aead(0);
        }
        let iv = match self.cipher {
            Kind::Cbc(_) => 16,
            Kind::Ctr(_) if self.iv.len().is_multiple_of(2) => 16,
            Kind::Ccm(_) => 7 + self.iv.len() % 7,
            _ => 12,
        };
        self.iv.resize(iv, 7);
        if let Kind::Cbc(_) = self.cipher {
            self.cipher_span.1 -= self.cipher_span.1 % 16;
        }
        if self.is_aead() {
            self.mac = MacAlg::Null;
            self.trailer.clear();
            let most = self.tag_max();
            let len = 4 + self.tag.len() % (most - 3);
            self.tag.resize(if matches!(self.cipher, Kind::Ccm(_)) { len & !1 } else { len }, 0);
        } else {
            self.aad.clear();
            self.trailer.truncate(16);
            let most = self.tag_max();
            if most == 0 {
                self.tag.clear();
                self.trailer.clear();
            } else {
                let len = 4 + self.tag.len() % (most - 3);
                self.tag.resize(len, 0);
            }
        }
    }

    /// Most bytes of a tag.
    fn tag_max(&self) -> usize {
        match self.cipher {
            Kind::Ccm(_) => 16,
            Kind::Aead(n) => AEADS[n].icv_bytes(),
            _ => self.mac.mac_bytes(),
        }
    }

    /// True if it makes sense, as the documentation of jobs has it.
    fn is_valid(&self) -> bool {
        let room = self.room();
        let inside = |(offset, len): (usize, usize)| offset + len <= room;
        let (iv, tag) = (self.iv.len(), self.tag.len());
        let keyed = !matches!(self.cipher, Kind::Unset | Kind::Null | Kind::Aead(_))
            || !matches!(self.mac, MacAlg::Null);
        let cipher = match self.cipher {
            Kind::Unset => false,
            Kind::Null => true,
            Kind::Cbc(_) => iv == 16 && self.cipher_span.1.is_multiple_of(16),
            Kind::Ctr(_) => iv == 12 || iv == 16,
            Kind::Ccm(_) => (7..=13).contains(&iv),
            Kind::Aead(n) => iv == 12 && n != AEADS.len() - 1,
        };
        let rest = if self.is_aead() {
            let even = !matches!(self.cipher, Kind::Ccm(_)) || tag % 2 == 0;
            self.mac == MacAlg::Null
                && self.trailer.is_empty()
                && (4..=self.tag_max()).contains(&tag)
                && even
        } else if self.mac == MacAlg::Null {
            self.tag.is_empty() && self.trailer.is_empty() && self.aad.is_empty()
        } else {
            (4..=self.tag_max()).contains(&tag)
                && self.trailer.len() <= 16
                && self.aad.is_empty()
                && inside(self.hash_span)
        };
        cipher && rest && inside(self.cipher_span) && !(self.empty_key && keyed)
    }

    /// Range that the spans cover, from the first byte to the last.
    fn cover(&self) -> (usize, usize) {
        let spans =
            [Some(self.cipher_span), Some(self.hash_span).filter(|_| self.mac != MacAlg::Null)];
        let spans = spans.into_iter().flatten().filter(|span| span.1 > 0);
        let ends = spans.map(|(offset, len)| (offset, offset + len));
        ends.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).unwrap_or((0, 0))
    }

    /// Expected bytes of the destination, and the tag; none without an oracle.
    fn expected(&self, oracle: Option<&dyn Oracle>) -> Option<(Vec<u8>, Vec<u8>)> {
        let mut bytes = self.dst.clone().unwrap_or_else(|| self.src.clone());
        if !self.is_valid() {
            return Some((bytes, self.tag.clone()));
        }
        let oracle = oracle?;
        if self.dst.is_some() {
            let (from, to) = self.cover();
            bytes[from..to].copy_from_slice(&self.src[from..to]);
        }
        let mac = |bytes: &[u8]| {
            let len = match self.mac {
                MacAlg::Hmac(_) => hmac_key_len(self.key),
                MacAlg::AesCmac(bits) => bits.bytes(),
                _ => 16,
            };
            let (offset, span) = self.hash_span;
            let none = span == 0 || self.mac == MacAlg::Null;
            let covered = if none { &[][..] } else { &bytes[offset..offset + span] };
            let message = [covered, &self.trailer].concat();
            oracle.mac(self.mac, &secret(self.key, len), &message)
        };
        let mut tag = if self.hash_first { mac(&bytes) } else { Vec::new() };
        let (offset, len) = self.cipher_span;
        let text = &mut bytes[offset..offset + len];
        match self.cipher {
            Kind::Unset | Kind::Null => {}
            Kind::Cbc(bits) => {
                oracle.cbc(bits, !self.decrypt, &secret(self.key, bits.bytes()), &self.iv, text);
            }
            Kind::Ctr(bits) => {
                let mut block = self.iv.clone();
                if block.len() == 12 {
                    block.extend([0, 0, 0, 1]);
                }
                oracle.ctr(bits, &secret(self.key, bits.bytes()), &block, text);
            }
            Kind::Ccm(_) | Kind::Aead(_) => tag = self.aead(oracle, text),
        }
        if !self.is_aead() && !self.hash_first {
            tag = mac(&bytes);
        }
        tag.truncate(self.tag.len());
        Some((bytes, tag))
    }

    fn aead(&self, oracle: &dyn Oracle, text: &mut [u8]) -> Vec<u8> {
        let suite = match self.cipher {
            // CCM's tags depend on how long they are.
            Kind::Ccm(key_bits) => Suite::Ccm { key_bits, icv_len: IcvLen::Icv16 },
            Kind::Aead(n) => match AEADS[n] {
                Suite::Gcm(params) => common::gcm(params.key_bits, IcvLen::Icv16),
                suite => suite,
            },
            _ => unreachable!(),
        };
        let key = secret(self.key, suite.key_bytes());
        let seal = |text: &mut [u8]| {
            let mut parts = Parts {
                suite,
                keys: (&key, &[]),
                nonce: &self.iv,
                header: &self.aad,
                text,
                trailer: &[],
            };
            oracle.seal(&mut parts, self.tag.len())
        };
        if !self.decrypt {
            return seal(text);
        }
        // All of these add a stream: encrypting the ciphertext decrypts it.
        seal(text);
        seal(&mut text.to_vec())
    }

    /// Fills a job in.
    fn fill<'a>(&'a self, job: &mut Job<'a>, memory: &'a mut Memory, number: usize) {
        static EMPTY: LazyLock<(AesEncryptKey, AesDecryptKey, HmacKeys, XcbcKey, CmacKey)> =
            LazyLock::new(Default::default);
        let (ring, n) = (&*RING, self.key);
        let encrypt = |bits: KeyBits| {
            if self.empty_key { &EMPTY.0 } else { &*ring.encrypt[bits as usize][n] }
        };
        let direction = if self.decrypt { Direction::Decrypt } else { Direction::Encrypt };
        job.cipher = match self.cipher {
            Kind::Unset => JobCipher::Unset,
            Kind::Null => JobCipher::Null,
            Kind::Cbc(_) if self.decrypt && self.empty_key => JobCipher::CbcDecrypt(&EMPTY.1),
            Kind::Cbc(bits) if self.decrypt => {
                JobCipher::CbcDecrypt(&ring.decrypt[bits as usize][n])
            }
            Kind::Cbc(bits) => JobCipher::CbcEncrypt(encrypt(bits)),
            Kind::Ctr(bits) => JobCipher::Ctr(encrypt(bits)),
            Kind::Ccm(bits) => JobCipher::Ccm(encrypt(bits), direction),
            Kind::Aead(suite) => JobCipher::Aead(&ring.aead[suite][n], direction),
        };
        job.hash = match self.mac {
            MacAlg::Null => JobHash::Null,
            MacAlg::Hmac(_) if self.empty_key => JobHash::Hmac(&EMPTY.2),
            MacAlg::Hmac(hash) => JobHash::Hmac(&ring.hmac[hash as usize][n]),
            MacAlg::AesXcbc if self.empty_key => JobHash::Xcbc(&EMPTY.3),
            MacAlg::AesXcbc => JobHash::Xcbc(&ring.xcbc[n]),
            MacAlg::AesCmac(_) if self.empty_key => JobHash::Cmac(&EMPTY.4),
            MacAlg::AesCmac(bits) => JobHash::Cmac(&ring.cmac[bits as usize][n]),
        };
        job.buffer = match &self.dst {
            // Where nothing is written, both ways to lend the bytes have one outcome.
            None if matches!(self.cipher, Kind::Null) && number.is_multiple_of(2) => {
                Buffer::ReadOnly(&memory.bytes)
            }
            None => Buffer::InPlace(&mut memory.bytes),
            Some(_) => Buffer::Copy { src: &self.src, dst: &mut memory.bytes },
        };
        job.cipher_span = Span::new(self.cipher_span.0, self.cipher_span.1);
        job.hash_span = Span::new(self.hash_span.0, self.hash_span.1);
        job.order =
            if self.hash_first { ChainOrder::HashThenCipher } else { ChainOrder::CipherThenHash };
        job.iv = Iv::new(&self.iv);
        job.aad = &self.aad;
        job.trailer = &self.trailer;
        job.tag = &mut memory.tag;
        (job.user_data, job.user_data2) = (number, !number);
    }

    /// Checks a job that came back, or its memory after it.
    fn check(&self, bytes: &[u8], tag: &[u8], oracle: Option<&dyn Oracle>) {
        if let Some((expected_bytes, expected_tag)) = self.expected(oracle) {
            assert!(bytes == expected_bytes, "bytes of {self:?}");
            assert!(tag == expected_tag, "tag of {self:?}");
        }
    }
}

/// Bytes and tag that a job works on.
struct Memory {
    bytes: Vec<u8>,
    tag: Vec<u8>,
}

impl Memory {
    fn of(task: &Task) -> Self {
        let bytes = task.dst.as_ref().unwrap_or(&task.src).clone();
        Self { bytes, tag: task.tag.clone() }
    }
}

/// Model of a queue, as simple as possible; jobs are numbers.
struct Model {
    batch: usize,
    waiting: VecDeque<usize>,
    processed: VecDeque<usize>,
}

/// The number of jobs that nobody filled in.
const NOTHING: usize = 0;

impl Model {
    fn submit(&mut self, number: usize) -> Option<usize> {
        self.waiting.push_back(number);
        if self.waiting.len() == self.batch {
            self.processed.append(&mut self.waiting);
        }
        self.processed.pop_front()
    }

    fn flush(&mut self) -> Option<usize> {
        self.processed.append(&mut self.waiting);
        self.processed.pop_front()
    }
}

/// Tasks and oracle that jobs that come back are held against.
struct Judge<'t> {
    tasks: &'t [Task],
    oracle: Option<&'t dyn Oracle>,
}

impl Judge<'_> {
    /// A job that came back must be the one the model names, and be as it should.
    fn check(&self, job: Option<&mut Job<'_>>, expected: Option<usize>) {
        assert_eq!(job.as_ref().map(|job| job.user_data), expected);
        let (Some(job), Some(number)) = (job, expected) else { return };
        if number == NOTHING {
            assert_eq!(job.status(), Status::InvalidArgs);
            return;
        }
        assert_eq!(job.user_data2, !number);
        let task = &self.tasks[number - 1];
        let status = if task.is_valid() { Status::Completed } else { Status::InvalidArgs };
        assert_eq!(job.status(), status, "{task:?}");
        let bytes = match &job.buffer {
            Buffer::InPlace(bytes) | Buffer::Copy { dst: bytes, .. } => &**bytes,
            Buffer::ReadOnly(bytes) => bytes,
        };
        task.check(bytes, job.tag, self.oracle);
    }
}

/// Panics where the manager differs from the model or from the oracle.
pub fn check(input: &Input, oracle: Option<&dyn Oracle>) {
    let tiers: Vec<Tier> = CPU.tiers().collect();
    let tier = tiers[usize::from(input.tier) % tiers.len()];
    let batch = 1 + usize::from(input.batch) % 130;
    // Tasks are numbered from 1 in the order of the steps.
    let specs = input.steps.iter().flat_map(|step| match step {
        Step::Submit(spec) => std::slice::from_ref(spec),
        Step::Burst(specs) => &specs[..],
        _ => &[],
    });
    let tasks: Vec<Task> = specs.take(JOBS_MAX).map(Task::new).collect();
    let judge = Judge { tasks: &tasks, oracle };
    let mut memory: Vec<Memory> = tasks.iter().map(Memory::of).collect();
    let mut places = memory.iter_mut();
    let mut numbered = (1..).zip(&tasks);
    let mut queue: Queue<Job<'_>, Runner> = Queue::new(Runner::new(&CPU, tier).unwrap(), batch);
    let mut model = Model { batch, waiting: VecDeque::new(), processed: VecDeque::new() };
    let mut lent = false;
    for step in &input.steps {
        match step {
            Step::Submit(_) => {
                let (Some((number, task)), Some(place)) = (numbered.next(), places.next()) else {
                    break;
                };
                task.fill(queue.next_job(), place, number);
                judge.check(queue.submit(), model.submit(number));
            }
            Step::SubmitNothing => {
                // Only what was asked for goes in line, and that is empty.
                let expected = if lent { model.submit(NOTHING) } else { None };
                judge.check(queue.submit(), expected);
            }
            Step::Ask => assert_eq!(queue.next_job().status(), Status::Queued),
            Step::Completed => {
                judge.check(queue.completed(), model.processed.pop_front());
            }
            Step::Flush => judge.check(queue.flush(), model.flush()),
            Step::Burst(specs) => {
                let mut jobs = Vec::new();
                let mut numbers = Vec::new();
                for _ in specs {
                    let (Some((number, task)), Some(place)) = (numbered.next(), places.next())
                    else {
                        break;
                    };
                    let mut job = Job::default();
                    task.fill(&mut job, place, number);
                    jobs.push(job);
                    numbers.push(number);
                }
                queue.burst(&mut jobs);
                for (job, number) in jobs.iter_mut().zip(numbers) {
                    judge.check(Some(job), Some(number));
                }
            }
        }
        lent = match step {
            Step::Ask => true,
            Step::Submit(_) | Step::SubmitNothing => false,
            _ => lent,
        };
        assert_eq!(queue.len(), model.waiting.len() + model.processed.len());
    }
    while !queue.is_empty() {
        judge.check(queue.flush(), model.flush());
    }
    assert!(model.flush().is_none());
    // Later jobs left alone what earlier ones made.
    drop(queue);
    for (task, memory) in tasks.iter().zip(&memory) {
        if task.is_valid() && (memory.bytes != *task.dst.as_ref().unwrap_or(&task.src)) {
            task.check(&memory.bytes, &memory.tag, oracle);
        }
    }
}
