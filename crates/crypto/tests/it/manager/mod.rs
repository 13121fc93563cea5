//! The job manager against other people's code: every cipher, MAC, order and direction, in place and
//! not, on every tier, in flows of jobs of which some are invalid.

// Helpers are no tests, and the lint spares only those.

mod oracle;

use crate::common::{Random, cpu, tiers};
use convoy_crypto::{
    AeadKey, GcmParams, HashAlg, IcvLen, KeyBits, MacAlg, SecretBytes, Suite, Tier,
    manager::{
        AesDecryptKey, AesEncryptKey, Buffer, ChainOrder, CmacKey, Direction, HmacKeys, Iv, Job,
        JobCipher, JobHash, Manager, Queue, Runner, Span, Status, XcbcKey,
    },
};

/// Cipher of a job, without its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Null,
    Cbc(KeyBits),
    Ctr(KeyBits),
    Ccm(KeyBits),
    Gcm(KeyBits),
    Gmac(KeyBits),
    ChaCha,
}

impl Mode {
    fn all() -> Vec<Self> {
        let sized = [Self::Cbc, Self::Ctr, Self::Ccm, Self::Gcm, Self::Gmac];
        let sized = sized.iter().flat_map(|mode| KeyBits::ALL.map(mode));
        [Self::Null, Self::ChaCha].into_iter().chain(sized).collect()
    }

    fn is_aead(self) -> bool {
        !matches!(self, Self::Null | Self::Cbc(_) | Self::Ctr(_))
    }

    fn key_bytes(self) -> usize {
        match self {
            Self::Null => 0,
            Self::ChaCha => 32,
            Self::Cbc(bits)
            | Self::Ctr(bits)
            | Self::Ccm(bits)
            | Self::Gcm(bits)
            | Self::Gmac(bits) => bits.bytes(),
        }
    }
}

fn macs() -> Vec<MacAlg> {
    let hmacs = HashAlg::ALL.map(MacAlg::Hmac);
    let cmacs = KeyBits::ALL.map(MacAlg::AesCmac);
    [MacAlg::Null, MacAlg::AesXcbc].into_iter().chain(hmacs).chain(cmacs).collect()
}

/// A job that owns everything, and what an independent implementation makes of it.
#[derive(Clone, Debug)]
struct Case {
    mode: Mode,
    direction: Direction,
    mac: MacAlg,
    order: ChainOrder,
    key: Vec<u8>,
    mac_key: Vec<u8>,
    iv: Vec<u8>,
    aad: Vec<u8>,
    trailer: Vec<u8>,
    cipher: Span,
    hash: Span,
    src: Vec<u8>,
    /// None: in place.
    dst: Option<Vec<u8>>,
    tag: Vec<u8>,
    expected: Outcome,
}

/// Contents of the buffer and the tag afterwards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Outcome {
    buffer: Vec<u8>,
    tag: Vec<u8>,
    valid: bool,
}

impl Case {
    fn random(mode: Mode, mac: MacAlg, random: &mut Random, most: usize) -> Self {
        let mac = if mode.is_aead() { MacAlg::Null } else { mac };
        let mut len = random.below(most);
        if matches!(mode, Mode::Cbc(_)) {
            len = len / 16 * 16;
        }
        let cipher = Span::new(random.below(40), len);
        let hash = Span::new(random.below(40), random.below(most));
        let room = (cipher.offset + cipher.len).max(hash.offset + hash.len) + random.below(20);
        let (iv, tag) = match mode {
            Mode::Null => (0, 0),
            Mode::Cbc(_) => (16, 0),
            Mode::Ctr(_) => (random.pick(&[12, 16]), 0),
            Mode::Ccm(_) => random.pick(&[(11, 8), (12, 16), (13, 4), (7, 12)]),
            Mode::Gcm(_) | Mode::Gmac(_) | Mode::ChaCha => (12, random.pick(&[16, 12, 8, 4])),
        };
        let tag = match mac {
            MacAlg::Null => tag,
            mac => 4 + random.below(mac.mac_bytes() - 3),
        };
        let aad = if mode.is_aead() { random.pick(&[0, 8, 12, 33]) } else { 0 };
        let trailer = if mac == MacAlg::Null { 0 } else { random.pick(&[0, 4, 16]) };
        let mac_key = match mac {
            MacAlg::Null => 0,
            MacAlg::Hmac(_) => random.pick(&[0, 16, 20, 32, 64, 65, 128, 200]),
            MacAlg::AesXcbc => 16,
            MacAlg::AesCmac(bits) => bits.bytes(),
        };
        let orders = [ChainOrder::CipherThenHash, ChainOrder::HashThenCipher];
        let directions = [Direction::Encrypt, Direction::Decrypt];
        let mut case = Self {
            mode,
            direction: random.pick(&directions),
            mac,
            order: random.pick(&orders),
            key: random.bytes(mode.key_bytes()),
            mac_key: random.bytes(mac_key),
            iv: random.bytes(iv),
            aad: random.bytes(aad),
            trailer: random.bytes(trailer),
            cipher,
            hash,
            src: random.bytes(room),
            dst: None,
            tag: random.bytes(tag),
            expected: Outcome::default(),
        };
        if random.below(2) == 0 {
            let more = random.below(8);
            case.dst = Some(random.bytes(room + more));
        }
        case.expected = oracle::outcome(&case);
        case
    }

    /// Makes a job invalid; the manager must refuse it and touch nothing.
    fn broken(mut self, how: usize) -> Option<Self> {
        let room = self.src.len();
        match how {
            0 => self.cipher.len = room + 1,
            1 => self.cipher.offset = usize::MAX,
            2 if self.mac != MacAlg::Null => self.hash.len = usize::MAX - 2,
            3 => self.tag.push(0),
            4 if !self.tag.is_empty() => self.tag.truncate(3),
            5 => self.iv = vec![0; 17],
            6 if self.mode != Mode::Null => self.iv.truncate(5),
            7 => self.trailer = vec![0; 17],
            8 if !self.mode.is_aead() => self.aad = vec![0; 8],
            9 if matches!(self.mode, Mode::Cbc(_)) && self.cipher.len > 0 => self.cipher.len -= 1,
            10 if self.mac != MacAlg::Null => self.hash.offset = room + 1,
            _ => return None,
        }
        // The tag that is one too long is so only if it was whole.
        if how == 3 && !self.mode.is_aead() && self.tag.len() <= self.mac.mac_bytes() {
            return None;
        }
        if how == 3 && matches!(self.mode, Mode::Gcm(_) | Mode::Gmac(_) | Mode::ChaCha) {
            self.tag = vec![0; 17];
        }
        // A NULL cipher looks at no IV.
        if how == 5 && self.mode == Mode::Null {
            return None;
        }
        self.expected = Outcome {
            buffer: self.dst.clone().unwrap_or_else(|| self.src.clone()),
            tag: self.tag.clone(),
            valid: false,
        };
        Some(self)
    }
}

/// Keys of a case, expanded.
enum CipherKey {
    None,
    Encrypt(Box<AesEncryptKey>),
    Decrypt(Box<AesDecryptKey>),
    Aead(AeadKey),
}

enum MacKey {
    None,
    Hmac(Box<HmacKeys>),
    Xcbc(Box<XcbcKey>),
    Cmac(Box<CmacKey>),
}

fn keys(case: &Case, tier: Tier) -> (CipherKey, MacKey) {
    let (cpu, secret) = (cpu(), SecretBytes::copy_from(&case.key));
    let aead = |suite: Suite| {
        let secret = SecretBytes::copy_from(&case.key);
        CipherKey::Aead(AeadKey::with_tier(&cpu, tier, suite, secret).unwrap())
    };
    let cipher = match case.mode {
        Mode::Null => CipherKey::None,
        Mode::Cbc(_) if case.direction == Direction::Decrypt => {
            CipherKey::Decrypt(AesDecryptKey::new(&cpu, &secret).unwrap())
        }
        Mode::Cbc(_) | Mode::Ctr(_) | Mode::Ccm(_) => {
            CipherKey::Encrypt(AesEncryptKey::new(&cpu, &secret).unwrap())
        }
        Mode::Gcm(bits) => aead(GcmParams::new(bits, IcvLen::Icv16).into()),
        Mode::Gmac(bits) => aead(Suite::Gmac(bits)),
        Mode::ChaCha => aead(Suite::ChaCha20Poly1305),
    };
    let secret = SecretBytes::copy_from(&case.mac_key);
    let mac = match case.mac {
        MacAlg::Null => MacKey::None,
        MacAlg::Hmac(alg) => MacKey::Hmac(HmacKeys::new(&cpu, alg, &secret)),
        MacAlg::AesXcbc => MacKey::Xcbc(XcbcKey::new(&cpu, &secret).unwrap()),
        MacAlg::AesCmac(_) => MacKey::Cmac(CmacKey::new(&cpu, &secret).unwrap()),
    };
    (cipher, mac)
}

/// Fills a job in with what a case says.
fn fill<'a>(job: &mut Job<'a>, case: &'a mut Case, keys: &'a (CipherKey, MacKey), number: usize) {
    job.buffer = match &mut case.dst {
        Some(dst) => Buffer::Copy { src: &case.src, dst },
        None => Buffer::InPlace(&mut case.src),
    };
    job.cipher = match (&keys.0, case.mode) {
        (CipherKey::None, _) => JobCipher::Null,
        (CipherKey::Encrypt(key), Mode::Cbc(_)) => JobCipher::CbcEncrypt(key),
        (CipherKey::Encrypt(key), Mode::Ctr(_)) => JobCipher::Ctr(key),
        (CipherKey::Encrypt(key), _) => JobCipher::Ccm(key, case.direction),
        (CipherKey::Decrypt(key), _) => JobCipher::CbcDecrypt(key),
        (CipherKey::Aead(key), _) => JobCipher::Aead(key, case.direction),
    };
    job.hash = match &keys.1 {
        MacKey::None => JobHash::Null,
        MacKey::Hmac(key) => JobHash::Hmac(key),
        MacKey::Xcbc(key) => JobHash::Xcbc(key),
        MacKey::Cmac(key) => JobHash::Cmac(key),
    };
    (job.cipher_span, job.hash_span, job.order) = (case.cipher, case.hash, case.order);
    (job.iv, job.aad, job.trailer) = (Iv::new(&case.iv), &case.aad, &case.trailer);
    job.tag = &mut case.tag;
    (job.user_data, job.user_data2) = (number, !number);
}

fn check(cases: &[Case], after: &[Case], what: &str) {
    for (i, (before, after)) in cases.iter().zip(after).enumerate() {
        let buffer = after.dst.as_ref().unwrap_or(&after.src);
        let expected = &before.expected;
        assert!(*buffer == expected.buffer, "buffer of job {i} {what}: {before:?}\n{after:?}");
        assert_eq!(after.tag, expected.tag, "tag of job {i} {what}: {before:?}");
        if after.dst.is_some() {
            assert!(before.src == after.src, "source of job {i} {what}");
        }
    }
}

/// Takes the jobs through a manager, flushing at random, and checks order and status of each.
fn flow(cases: &[Case], tier: Tier, batch: usize, random: &mut Random) {
    let mut work = cases.to_vec();
    let keys: Vec<_> = cases.iter().map(|case| keys(case, tier)).collect();
    let mut manager: Manager<'_> = Queue::new(Runner::new(&cpu(), tier).unwrap(), batch);
    let mut returned = 0;
    let mut take = |job: Option<&mut Job<'_>>| {
        let Some(job) = job else { return false };
        assert_eq!((job.user_data, job.user_data2), (returned, !returned));
        let valid = cases[returned].expected.valid;
        let status = if valid { Status::Completed } else { Status::InvalidArgs };
        assert_eq!(job.status(), status, "job {returned} on {tier}: {:?}", cases[returned]);
        returned += 1;
        true
    };
    for (number, (case, keys)) in work.iter_mut().zip(&keys).enumerate() {
        fill(manager.next_job(), case, keys, number);
        take(manager.submit());
        match random.below(40) {
            0 => drop(take(manager.flush())),
            1 => while take(manager.completed()) {},
            _ => {}
        }
    }
    while take(manager.flush()) {}
    assert_eq!((returned, manager.len()), (cases.len(), 0));
    drop(manager);
    check(cases, &work, &format!("in a flow on {tier}"));
}

/// Takes the jobs through as one array.
fn burst(cases: &[Case], tier: Tier) {
    let mut work = cases.to_vec();
    let keys: Vec<_> = cases.iter().map(|case| keys(case, tier)).collect();
    let mut manager = Manager::with_tier(&cpu(), tier).unwrap();
    let mut jobs: Vec<_> = (0..work.len()).map(|_| Job::default()).collect();
    for (number, ((job, case), keys)) in jobs.iter_mut().zip(&mut work).zip(&keys).enumerate() {
        fill(job, case, keys, number);
    }
    manager.burst(&mut jobs);
    for (number, (job, case)) in jobs.iter().zip(cases).enumerate() {
        assert_eq!(job.user_data, number);
        assert_eq!(job.status() == Status::Completed, case.expected.valid, "{case:?}");
    }
    drop((jobs, manager));
    check(cases, &work, &format!("in a burst on {tier}"));
}

#[test]
fn every_cipher_with_every_mac_agrees_with_the_oracle() {
    let mut random = Random(1);
    let mut cases = Vec::new();
    for mode in Mode::all() {
        for mac in macs() {
            for _ in 0..6 {
                cases.push(Case::random(mode, mac, &mut random, 150));
            }
        }
    }
    for tier in tiers() {
        burst(&cases, tier);
        flow(&cases, tier, 64, &mut random);
    }
}

#[test]
fn random_flows_with_invalid_jobs_among_them_agree_with_the_oracle() {
    let mut random = Random(2);
    for round in 0..12 {
        let (modes, macs) = (Mode::all(), macs());
        // Few algorithms at a time, so that lanes meet.
        let modes: Vec<_> = (0..1 + round % 4).map(|_| random.pick(&modes)).collect();
        let macs: Vec<_> = (0..1 + round % 3).map(|_| random.pick(&macs)).collect();
        let mut cases = Vec::new();
        while cases.len() < 300 {
            let most = random.pick(&[20, 100, 100, 600, 1500, 5000]);
            let (mode, mac) = (random.pick(&modes), random.pick(&macs));
            let case = Case::random(mode, mac, &mut random, most);
            if random.below(8) == 0 {
                cases.extend(case.broken(random.below(11)));
            } else {
                cases.push(case);
            }
        }
        let batch = random.pick(&[1, 2, 7, 33, 64, 100]);
        for tier in tiers() {
            flow(&cases, tier, batch, &mut random);
        }
        burst(&cases, cpu().best());
    }
}

#[test]
fn every_way_to_be_invalid_is_seen() {
    let mut random = Random(3);
    for how in 0..11 {
        let mut cases = Vec::new();
        for mode in Mode::all() {
            for mac in macs() {
                cases.extend(Case::random(mode, mac, &mut random, 100).broken(how));
            }
        }
        assert!(!cases.is_empty(), "way {how}");
        burst(&cases, cpu().best());
    }
}

#[test]
fn jobs_without_a_cipher_or_with_an_empty_key_are_invalid() {
    let mut manager = Manager::best(&cpu());
    let (mut a, mut b, mut tag) = ([1; 32], [2; 32], [3; 16]);
    let (encrypt, hmac) = (AesEncryptKey::empty(), HmacKeys::empty());
    manager.next_job().buffer = Buffer::InPlace(&mut a);
    assert!(manager.submit().is_none());
    let job = manager.next_job();
    job.buffer = Buffer::InPlace(&mut b);
    (job.cipher, job.cipher_span, job.iv) =
        (JobCipher::CbcEncrypt(&encrypt), Span::new(0, 32), [0; 16].into());
    assert!(manager.submit().is_none());
    let job = manager.next_job();
    (job.cipher, job.hash, job.tag) = (JobCipher::Null, JobHash::Hmac(&hmac), &mut tag);
    assert!(manager.submit().is_none());
    for _ in 0..3 {
        assert_eq!(manager.flush().map(|job| job.status()), Some(Status::InvalidArgs));
    }
    assert!(manager.flush().is_none());
    assert_eq!((a, b, tag), ([1; 32], [2; 32], [3; 16]));
}

#[test]
fn aead_keys_of_suites_with_their_own_jobs_are_refused() {
    let cpu = cpu();
    let suite = Suite::Ccm { key_bits: KeyBits::Aes128, icv_len: IcvLen::Icv16 };
    let key = AeadKey::new(&cpu, suite, SecretBytes::copy_from(&[1; 16])).unwrap();
    let (mut data, mut tag) = ([0; 4], [0; 16]);
    let mut job = Job::default();
    job.buffer = Buffer::InPlace(&mut data);
    (job.cipher, job.cipher_span) = (JobCipher::Aead(&key, Direction::Encrypt), Span::new(0, 4));
    (job.iv, job.tag) = ([0; 12].into(), &mut tag);
    Runner::best(&cpu).run_one(&mut job);
    assert_eq!(job.status(), Status::InvalidArgs);
}

#[test]
fn chaining_values_stand_for_the_key() {
    let mut random = Random(4);
    for alg in HashAlg::ALL {
        let key = random.bytes(alg.block_bytes());
        let whole = HmacKeys::new(&cpu(), alg, &SecretBytes::copy_from(&key));
        let half = |pad: u8| {
            let block: Vec<u8> = key.iter().map(|byte| byte ^ pad).collect();
            let mut out = vec![0; convoy_crypto::manager::chaining_bytes(alg)];
            convoy_crypto::manager::one_block(&cpu(), alg, &block, &mut out).unwrap();
            out
        };
        let (inner, outer) = (half(0x36), half(0x5c));
        assert_eq!(whole.expose(), Some((&*inner, &*outer)));
        let mut again = HmacKeys::empty();
        again.set_chaining(alg, &inner, &outer).unwrap();
        assert_eq!((again.alg(), again.expose()), (Some(alg), whole.expose()));
        assert!(again.set_chaining(alg, &inner[1..], &outer).is_err());
    }
}
