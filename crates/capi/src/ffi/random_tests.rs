//! Random jobs of C, on every tier, beside the same jobs in Rust on the portable tier, whose ciphers and hashes are
//! RustCrypto's, and which is held to other libraries (`convoy-crypto`, `tests/it/manager`).

// C has no such thing as a single unsafe operation: a sequence of calls is what is tested.
#![allow(clippy::multiple_unsafe_ops_per_block)]

use std::{env, ptr};

use convoy_crypto::{
    AeadKey as RustAead, Cpu, GcmParams, HashAlg, IcvLen, KeyBits, SecretBytes, Suite, Tier,
    manager::{
        AesDecryptKey, AesEncryptKey, Buffer, ChainOrder, CmacKey as RustCmac, Direction,
        Engine as _, HmacKeys, Iv, Job as RustJob, JobCipher, JobHash, Runner, Span, Status,
        XcbcKey as RustXcbc,
    },
};

use super::misc::number_of;
use crate::{
    ffi::*,
    types::{
        AeadKey, CONVOY_CIPHER_AEAD, CONVOY_CIPHER_CBC, CONVOY_CIPHER_CCM, CONVOY_CIPHER_CTR,
        CONVOY_CIPHER_NULL, CONVOY_DIRECTION_DECRYPT, CONVOY_DIRECTION_ENCRYPT,
        CONVOY_HASH_AES_CMAC, CONVOY_HASH_AES_XCBC, CONVOY_HASH_HMAC_MD5, CONVOY_HASH_NULL,
        CONVOY_OK, CONVOY_ORDER_CIPHER_HASH, CONVOY_ORDER_HASH_CIPHER, CONVOY_STATUS_COMPLETED,
        CONVOY_STATUS_INVALID_ARGS, Job,
    },
};

/// How many jobs are tried on each tier.
fn jobs() -> usize {
    let given = env::var("CONVOY_RANDOM_JOBS");
    given.map_or(15_000, |given| given.parse().expect("CONVOY_RANDOM_JOBS is a number"))
}

/// A linear congruential generator's high bits.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.below(256) as u8)
    }

    fn one_in(&mut self, many: usize) -> bool {
        self.below(many) == 0
    }
}

/// Keys in the form of Rust; but for AEADs they are keys of C as they lie.
#[allow(
    clippy::vec_box,
    reason = "keys are made in boxes, so that none is left where it was moved from"
)]
struct Keys {
    aeads: Vec<(RustAead, *mut AeadKey)>,
    enc: Vec<Box<AesEncryptKey>>,
    dec: Vec<Box<AesDecryptKey>>,
    hmac: Vec<Box<HmacKeys>>,
    xcbc: Box<RustXcbc>,
    cmac: Vec<Box<RustCmac>>,
}

impl Keys {
    fn new(cpu: &Cpu, tier: Tier) -> Self {
        let secret: Vec<u8> = (0..32).map(|i| i * 5 + 3).collect();
        let front = |len: usize| SecretBytes::copy_from(&secret[..len]);
        let gcm = |bits| Suite::from(GcmParams::new(bits, IcvLen::Icv16));
        let suites = [
            gcm(KeyBits::Aes128),
            gcm(KeyBits::Aes256),
            Suite::Gmac(KeyBits::Aes192),
            Suite::ChaCha20Poly1305,
        ];
        let aeads = suites.map(|suite| {
            let (len, mut key) = (suite.key_bytes(), ptr::null_mut());
            let (from, to, tier) = (secret.as_ptr(), &raw mut key, number_of(tier));
            // SAFETY: the secret has so many bytes, and the place is a local.
            let code = unsafe {
                match suite {
                    Suite::Gcm(_) => convoy_gcm_key_new(tier, from, len, to),
                    Suite::Gmac(_) => convoy_gmac_key_new(tier, from, len, to),
                    _ => convoy_chacha20_poly1305_key_new(tier, from, to),
                }
            };
            assert_eq!(code, CONVOY_OK);
            (RustAead::from_slice(cpu, Tier::Portable, suite, &secret[..len]).unwrap(), key)
        });
        let sizes = || KeyBits::ALL.into_iter().map(KeyBits::bytes);
        Self {
            aeads: aeads.into(),
            enc: sizes().map(|len| AesEncryptKey::new(cpu, &front(len)).unwrap()).collect(),
            dec: sizes().map(|len| AesDecryptKey::new(cpu, &front(len)).unwrap()).collect(),
            hmac: HashAlg::ALL.map(|alg| HmacKeys::new(cpu, alg, &front(20))).into(),
            xcbc: RustXcbc::new(cpu, &front(16)).unwrap(),
            cmac: sizes().map(|len| RustCmac::new(cpu, &front(len)).unwrap()).collect(),
        }
    }
}

const ROOM: usize = 400;

/// The memory of one job.
#[derive(Clone, PartialEq, Eq)]
struct Memory {
    src: [u8; ROOM],
    dst: [u8; ROOM],
    iv: [u8; 16],
    aad: [u8; 64],
    trailer: [u8; 20],
    tag: [u8; 64],
}

/// What a job is asked for, as numbers.
#[derive(Clone, Debug)]
struct Wish {
    mode: u32,
    decrypts: bool,
    key: usize,
    hash: u32,
    hash_first: bool,
    apart: bool,
    cipher: Span,
    hashed: Span,
    iv_len: usize,
    aad_len: usize,
    trailer_len: usize,
    tag_len: usize,
}

impl Wish {
    fn new(random: &mut Random) -> Self {
        let mode = CONVOY_CIPHER_NULL + random.below(5) as u32;
        let is_aead = mode == CONVOY_CIPHER_AEAD || mode == CONVOY_CIPHER_CCM;
        let hash = if is_aead && !random.one_in(30) { 0 } else { random.below(9) as u32 };
        let span = |random: &mut Random| {
            let offset = random.below(60);
            Span::new(offset, random.below(ROOM - offset + 1))
        };
        let (mut cipher, hashed) = (span(random), span(random));
        if mode == CONVOY_CIPHER_CBC && !random.one_in(20) {
            cipher.len &= !15;
        }
        let iv_len = match mode {
            CONVOY_CIPHER_CBC => 16,
            CONVOY_CIPHER_CTR => [12, 16][random.below(2)],
            CONVOY_CIPHER_CCM => 7 + random.below(7),
            CONVOY_CIPHER_AEAD => 12,
            _ => random.below(17),
        };
        let most = match hash {
            0 if !is_aead => 0,
            1..=6 => HashAlg::ALL[hash as usize - 1].digest_bytes(),
            _ => 16,
        };
        let tag_len = if most == 0 { 0 } else { 4 + random.below(most - 3) };
        Self {
            mode,
            decrypts: random.one_in(2),
            key: random.below(12),
            hash,
            hash_first: random.one_in(2),
            apart: random.one_in(2),
            cipher,
            hashed,
            iv_len: if random.one_in(40) && mode != CONVOY_CIPHER_AEAD { 5 } else { iv_len },
            aad_len: if is_aead || random.one_in(50) { random.below(65) } else { 0 },
            trailer_len: if hash > 0 && random.one_in(3) { random.below(18) } else { 0 },
            tag_len: match tag_len {
                _ if random.one_in(50) => random.below(64),
                // Mostly whole, as packets have it.
                _ if is_aead && random.one_in(2) => 16,
                other => other,
            },
        }
    }

    fn of_c(&self, memory: &mut Memory, keys: &Keys) -> Job {
        let src = memory.src.as_ptr();
        let dst = if self.apart { memory.dst.as_mut_ptr() } else { memory.src.as_mut_ptr() };
        let mut job = Job {
            src: if self.apart { src } else { dst.cast_const() },
            dst,
            cipher_offset: self.cipher.offset,
            cipher_len: self.cipher.len,
            hash_offset: self.hashed.offset,
            hash_len: self.hashed.len,
            iv: memory.iv.as_ptr(),
            iv_len: self.iv_len,
            aad: memory.aad.as_ptr(),
            aad_len: self.aad_len,
            trailer: memory.trailer.as_ptr(),
            trailer_len: self.trailer_len,
            tag: memory.tag.as_mut_ptr(),
            tag_len: self.tag_len,
            cipher_mode: self.mode,
            cipher_direction: [CONVOY_DIRECTION_ENCRYPT, CONVOY_DIRECTION_DECRYPT]
                [usize::from(self.decrypts)],
            hash_alg: self.hash,
            chain_order: [CONVOY_ORDER_CIPHER_HASH, CONVOY_ORDER_HASH_CIPHER]
                [usize::from(self.hash_first)],
            ..Job::default()
        };
        match self.mode {
            CONVOY_CIPHER_AEAD => job.cipher_key.aead = keys.aeads[self.key % 4].1,
            CONVOY_CIPHER_CBC if self.decrypts => {
                job.cipher_key.dec = (&raw const *keys.dec[self.key % 3]).cast();
            }
            _ => job.cipher_key.enc = (&raw const *keys.enc[self.key % 3]).cast(),
        }
        match self.hash {
            CONVOY_HASH_NULL => {}
            CONVOY_HASH_AES_XCBC => job.hash_key.xcbc = (&raw const *keys.xcbc).cast(),
            CONVOY_HASH_AES_CMAC => {
                job.hash_key.cmac = (&raw const *keys.cmac[self.key % 3]).cast();
            }
            hmac => {
                let place = (hmac - CONVOY_HASH_HMAC_MD5) as usize;
                job.hash_key.hmac = (&raw const *keys.hmac[place]).cast();
            }
        }
        job
    }

    fn of_rust<'a>(&self, memory: &'a mut Memory, keys: &'a Keys) -> RustJob<'a> {
        let mut job = RustJob::default();
        job.buffer = match self.apart {
            true => Buffer::Copy { src: &memory.src, dst: &mut memory.dst },
            false => Buffer::InPlace(&mut memory.src),
        };
        let direction = if self.decrypts { Direction::Decrypt } else { Direction::Encrypt };
        let (enc, dec) = (&*keys.enc[self.key % 3], &*keys.dec[self.key % 3]);
        job.cipher = match self.mode {
            CONVOY_CIPHER_NULL => JobCipher::Null,
            CONVOY_CIPHER_CBC if self.decrypts => JobCipher::CbcDecrypt(dec),
            CONVOY_CIPHER_CBC => JobCipher::CbcEncrypt(enc),
            CONVOY_CIPHER_CTR => JobCipher::Ctr(enc),
            CONVOY_CIPHER_CCM => JobCipher::Ccm(enc, direction),
            _ => JobCipher::Aead(&keys.aeads[self.key % 4].0, direction),
        };
        job.hash = match self.hash {
            CONVOY_HASH_NULL => JobHash::Null,
            CONVOY_HASH_AES_XCBC => JobHash::Xcbc(&keys.xcbc),
            CONVOY_HASH_AES_CMAC => JobHash::Cmac(&keys.cmac[self.key % 3]),
            hmac => JobHash::Hmac(&keys.hmac[(hmac - CONVOY_HASH_HMAC_MD5) as usize]),
        };
        (job.cipher_span, job.hash_span) = (self.cipher, self.hashed);
        job.order = match self.hash_first {
            true => ChainOrder::HashThenCipher,
            false => ChainOrder::CipherThenHash,
        };
        job.iv = Iv::new(&memory.iv[..self.iv_len]);
        job.aad = &memory.aad[..self.aad_len];
        job.trailer = &memory.trailer[..self.trailer_len];
        job.tag = &mut memory.tag[..self.tag_len];
        job
    }
}

/// Runs so many random jobs, through C on `tier`; returns how many were completed. `spoil` may change what C is told.
fn run(tier: Tier, seed: u64, jobs: usize, spoil: impl Fn(usize, &mut Job)) -> usize {
    let cpu = Cpu::detect().unwrap();
    let (keys, mut random) = (Keys::new(&cpu, tier), Random(seed));
    let mut runner = Runner::new(&cpu, Tier::Portable).unwrap();
    let mut mgr = ptr::null_mut();
    // SAFETY: the place is a local.
    assert_eq!(unsafe { convoy_mgr_new(number_of(tier), &raw mut mgr) }, CONVOY_OK);
    let (mut tried, mut completed) = (0, 0);
    while tried < jobs {
        let burst = 1 + random.below(130);
        let wishes: Vec<_> = (0..burst).map(|_| Wish::new(&mut random)).collect();
        let mut memories: Vec<_> = wishes
            .iter()
            .map(|_| Memory {
                src: random.bytes(),
                dst: random.bytes(),
                iv: random.bytes(),
                aad: random.bytes(),
                trailer: random.bytes(),
                tag: random.bytes(),
            })
            .collect();
        let mut others = memories.clone();
        let both = wishes.iter().zip(&mut others);
        let mut expected: Vec<_> = both.map(|(wish, memory)| wish.of_rust(memory, &keys)).collect();
        runner.run(&mut expected);
        let expected: Vec<_> = expected.iter().map(RustJob::status).collect();
        let both = wishes.iter().zip(&mut memories);
        let mut given: Vec<_> = both.map(|(wish, memory)| wish.of_c(memory, &keys)).collect();
        given.iter_mut().enumerate().for_each(|(place, job)| spoil(tried + place, job));
        let unchecked = random.one_in(2);
        // SAFETY: what jobs point to outlives them.
        unsafe {
            match unchecked {
                true => convoy_submit_burst_nocheck(mgr, given.as_mut_ptr(), burst),
                false => convoy_submit_burst(mgr, given.as_mut_ptr(), burst),
            };
        }
        for (place, wish) in wishes.iter().enumerate() {
            let status = match expected[place] {
                Status::Completed => CONVOY_STATUS_COMPLETED,
                _ => CONVOY_STATUS_INVALID_ARGS,
            };
            let job = &given[place];
            assert_eq!(job.status, status, "job {}: {wish:?}, error {}", tried + place, job.error);
            assert!(memories[place] == others[place], "job {}: {wish:?}", tried + place);
            assert_eq!(job.error == CONVOY_OK, status == CONVOY_STATUS_COMPLETED);
            completed += usize::from(status == CONVOY_STATUS_COMPLETED);
        }
        tried += burst;
    }
    // SAFETY: made above, and freed once.
    unsafe {
        convoy_mgr_free(mgr);
        keys.aeads.iter().for_each(|(_, key)| convoy_aead_key_free(*key));
    }
    completed
}

#[test]
fn random_jobs_of_every_tier_do_what_the_portable_tier_does() {
    for tier in Cpu::detect().unwrap().tiers() {
        let (jobs, seed) = (jobs(), 1 + tier as u64);
        let completed = run(tier, seed, jobs, |_, _| {});
        // Some are wrong on purpose.
        assert!(completed > jobs * 3 / 4 && completed < jobs, "{completed} on {tier}");
    }
}

#[test]
#[should_panic(expected = "job 50")]
fn wrong_jobs_among_random_ones_are_noticed() {
    // Some of the first ten have nothing to work on.
    let spoil = |number: usize, job: &mut Job| {
        if (500..510).contains(&number) {
            job.cipher_offset ^= 1;
            job.hash_offset ^= 1;
        }
    };
    run(Cpu::detect().unwrap().best(), 2, 1000, spoil);
}
