//! Looks for times that depend on secrets, statistically, in every suite, tier and direction: for what
//! Valgrind cannot run. Made for a quiet machine and a human reader; no part of the tests.
//!
//! ```text
//! cargo run --release -p convoy-crypto --example timing_check [ROUNDS [TIER]]
//! ```
//!
//! As "dude, is my code constant time?" (Reparaz, Balasch and Verbauwhede, 2017) has it, each question
//! compares two classes of inputs that differ in a secret alone, measures bursts of them in random
//! order, and asks with Welch's t-test whether their times have the same mean; once with all
//! measurements, and without the slowest, which are the scheduler's. |t| above 4.5 is repeated with
//! four times the rounds; above 4.5 again, and to the same side, it is called a suspicion.
//!
//! The questions: does sealing take the same time twice (a control: suspicions here show a machine that
//! is too noisy, and make the others worthless); does it depend on the key, on the text; opening on the text; and refusing on
//! where ICVs differ; setting up on the key.

#![allow(clippy::unwrap_used, reason = "an example that ends where something fails")]

use std::hint::black_box;

use convoy_crypto::{
    Cipher, Cpu, KeyMaterial, Nonce, OpenKey, OpenOp, SealKey, SealOp, SecretBytes, Suite, Tier,
    open_burst, seal_burst, time_stamp,
};

/// Packets of a burst; more than any kernel has lanes.
const BURST: usize = 16;
/// Bytes of text: kernels for whole blocks and for what is left both run.
const TEXT: usize = 208;
const HEADER: usize = 16;
/// Keys of a burst. Where their secrets matter they are made anew for each, so that both classes have
/// them in the same places.
const KEYS: usize = 8;
const SUSPICIOUS: f64 = 4.5;

const SUITES: &[&str] = &[
    "aes-128-gcm-16",
    "aes-256-gcm-16",
    "aes-128-gmac-16",
    "aes-128-ccm-16",
    "chacha20-poly1305",
    "aes-128-cbc+null",
    "aes-256-cbc+null",
    "aes-128-ctr+null",
    "null+hmac-md5-96",
    "null+hmac-sha1-96",
    "null+hmac-sha224-224",
    "null+hmac-sha256-128",
    "null+hmac-sha384-192",
    "null+hmac-sha512-256",
    "null+aes-xcbc-96",
    "null+aes-cmac-96",
    "aes-128-cbc+hmac-sha1-96",
];

#[derive(Clone, Copy, Debug)]
enum Question {
    /// No difference: what the others are to be held against.
    Control,
    /// All keys zero, or all different.
    SealKey,
    /// All texts zero, or random.
    SealText,
    OpenText,
    /// Forged ICVs: wrong in the first byte, or in the last.
    ForgedIcv,
    SetUpKey,
}

const QUESTIONS: [Question; 6] = [
    Question::Control,
    Question::SealKey,
    Question::SealText,
    Question::OpenText,
    Question::ForgedIcv,
    Question::SetUpKey,
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let rounds = arguments.next().map_or(Ok(20_000), |word| word.parse())?;
    let only: Option<Tier> = arguments.next().map(|word| word.parse()).transpose()?;
    let known = known_leak(rounds);
    println!(
        "a comparison that ends at the first difference, to see that leaks are seen: t = {known:.0}"
    );
    if known.abs() < SUSPICIOUS {
        return Err("this machine is too noisy".into());
    }
    let with = Cpu::detect()?;
    let without = Cpu::without(Cpu::SHA_NI)?;
    let mut asked = 0;
    let mut suspicions = Vec::new();
    for tier in with.tiers().filter(|&tier| only.is_none_or(|only| only == tier)) {
        for (cpu, note) in [(with, ""), (without, " without sha-ni")] {
            for suite in SUITES.iter().map(|name| name.parse::<Suite>().unwrap()) {
                if !(note.is_empty() || has_hmac(suite) && with.has_sha_ni()) {
                    continue;
                }
                for question in QUESTIONS {
                    let Some(mut bench) = Bench::new(&cpu, tier, suite, question) else { continue };
                    asked += 1;
                    let first = bench.ask(rounds);
                    let name = format!("{tier}{note}, {suite}, {question:?}");
                    if first.abs() < SUSPICIOUS {
                        println!("{name}: t = {first:.1}");
                        continue;
                    }
                    let again = bench.ask(4 * rounds);
                    let lasting = again.abs() >= SUSPICIOUS && (first > 0.0) == (again > 0.0);
                    let verdict = if lasting { "SUSPICIOUS" } else { "did not last" };
                    println!("{name}: t = {first:.1}, then {again:.1}: {verdict}");
                    if lasting {
                        suspicions.push(format!("{name}: t = {first:.1}, then {again:.1}"));
                    }
                }
            }
        }
    }
    println!("\n{asked} questions of {rounds} measurements, {} suspicions", suspicions.len());
    suspicions.iter().for_each(|suspicion| println!("{suspicion}"));
    Ok(())
}

fn has_hmac(suite: Suite) -> bool {
    suite.to_string().contains("hmac")
}

fn material(suite: Suite, fill: impl FnMut() -> u8) -> KeyMaterial {
    let mut fill = fill;
    let mut secret = |len| SecretBytes::from((0..len).map(|_| fill()).collect::<Vec<_>>());
    KeyMaterial {
        cipher: secret(suite.key_bytes()),
        integrity: secret(suite.integrity_key_bytes()),
    }
}

/// Everything that one question needs; bytes lie in the same place for both classes.
struct Bench {
    cpu: Cpu,
    tier: Tier,
    suite: Suite,
    question: Question,
    random: Random,
    seal_keys: Vec<SealKey>,
    open_keys: Vec<OpenKey>,
    texts: Vec<u8>,
    icvs: Vec<u8>,
}

impl Bench {
    /// None where the question makes no sense.
    fn new(cpu: &Cpu, tier: Tier, suite: Suite, question: Question) -> Option<Self> {
        let no_icv = suite.icv_bytes() == 0;
        let no_cipher = matches!(suite, Suite::Gmac(_) | Suite::Pair { cipher: Cipher::Null, .. });
        match question {
            Question::ForgedIcv if no_icv => return None,
            Question::OpenText if no_cipher => return None,
            _ => {}
        }
        let zeros = || material(suite, || 0);
        let seal_key = |_| SealKey::with_tier(cpu, tier, suite, zeros()).ok();
        let open_key = |_| OpenKey::with_tier(cpu, tier, suite, zeros()).ok();
        let seal_keys = (0..KEYS).map(seal_key).collect::<Option<_>>()?;
        let open_keys = (0..KEYS).map(open_key).collect::<Option<_>>()?;
        let icvs = vec![0; BURST * suite.icv_bytes()];
        Some(Self {
            cpu: *cpu,
            tier,
            suite,
            question,
            random: Random(7),
            seal_keys,
            open_keys,
            texts: vec![0; BURST * (HEADER + TEXT)],
            icvs,
        })
    }

    fn ask(&mut self, rounds: usize) -> f64 {
        ask(rounds, |class| self.measure(class))
    }

    fn measure(&mut self, class: usize) -> u64 {
        self.prepare(class);
        match self.question {
            Question::Control | Question::SealKey | Question::SealText => self.seal(),
            Question::OpenText | Question::ForgedIcv => self.open(),
            Question::SetUpKey => self.set_up(class),
        }
    }

    /// Fills buffers in with the same work for both classes.
    fn prepare(&mut self, class: usize) {
        let text_matters = matches!(self.question, Question::SealText | Question::OpenText);
        let keep = keep(class | usize::from(!text_matters));
        for chunk in self.texts.chunks_exact_mut(8) {
            chunk.copy_from_slice(&(self.random.next() & keep).to_le_bytes());
        }
        if matches!(self.question, Question::SealKey) {
            self.seal_keys.clear();
            for _ in 0..KEYS {
                let material = self.material(class);
                let key = SealKey::with_tier(&self.cpu, self.tier, self.suite, material);
                self.seal_keys.push(key.unwrap());
            }
        }
        if matches!(self.question, Question::OpenText | Question::ForgedIcv) {
            // The text is what opening yields; sealed with the keys that it is opened with.
            self.seal();
        }
        if matches!(self.question, Question::ForgedIcv) {
            let len = self.suite.icv_bytes();
            let at = class * (len - 1);
            for icv in self.icvs.chunks_exact_mut(len) {
                icv[at] ^= 0x10;
            }
        }
    }

    fn seal(&mut self) -> u64 {
        let len = self.suite.icv_bytes();
        let mut icvs = &mut *self.icvs;
        let mut ops = Vec::with_capacity(BURST);
        for (i, frame) in self.texts.chunks_exact_mut(HEADER + TEXT).enumerate() {
            let (icv, rest) = icvs.split_at_mut(len);
            icvs = rest;
            let key = &self.seal_keys[i % KEYS];
            let nonce = match self.suite.nonce_bytes() {
                0 => Nonce::new([]),
                11 => Nonce::new([9; 11]),
                12 => Nonce::new([9; 12]),
                _ => Nonce::new([9; 16]),
            };
            let op = if self.suite.is_aead() {
                let (aad, data) = frame.split_at_mut(HEADER);
                SealOp::new(key, nonce, aad, data, icv)
            } else {
                SealOp::framed(key, nonce, frame, HEADER, &[], icv)
            };
            ops.push(op.unwrap());
        }
        let start = settled_time();
        seal_burst(black_box(&mut ops));
        time_stamp() - start
    }

    fn open(&mut self) -> u64 {
        let len = self.suite.icv_bytes();
        let mut icvs = &*self.icvs;
        let mut ops = Vec::with_capacity(BURST);
        for (i, frame) in self.texts.chunks_exact_mut(HEADER + TEXT).enumerate() {
            let (icv, rest) = icvs.split_at(len);
            icvs = rest;
            let key = &self.open_keys[i % KEYS];
            let op = if self.suite.is_aead() {
                let (aad, data) = frame.split_at_mut(HEADER);
                match self.suite.nonce_bytes() {
                    11 => OpenOp::new(key, [9; 11], aad, data, icv),
                    _ => OpenOp::new(key, [9; 12], aad, data, icv),
                }
            } else {
                match self.suite.nonce_bytes() {
                    0 => OpenOp::framed(key, [], frame, HEADER, &[], icv),
                    12 => OpenOp::framed(key, [9; 12], frame, HEADER, &[], icv),
                    _ => OpenOp::framed(key, [9; 16], frame, HEADER, &[], icv),
                }
            };
            ops.push(op.unwrap());
        }
        let start = settled_time();
        open_burst(black_box(&mut ops));
        time_stamp() - start
    }

    /// Secrets that are zero, or random.
    fn material(&mut self, class: usize) -> KeyMaterial {
        let keep = keep(class);
        material(self.suite, || (self.random.next() & keep) as u8)
    }

    fn set_up(&mut self, class: usize) -> u64 {
        let key = self.material(class);
        let start = settled_time();
        let key = black_box(OpenKey::with_tier(&self.cpu, self.tier, self.suite, key));
        let time = time_stamp() - start;
        drop(key);
        time
    }
}

/// Measures one class or the other in random order. The largest t, with its sign, of all the ways to
/// leave slow measurements out.
fn ask(rounds: usize, mut measure: impl FnMut(usize) -> u64) -> f64 {
    let mut random = Random(11);
    let warm_up = rounds / 10;
    let mut samples = Vec::with_capacity(rounds);
    for round in 0..rounds + warm_up {
        let class = (random.next() >> 63) as usize;
        let time = measure(class);
        if round >= warm_up {
            samples.push((class, time as f64));
        }
    }
    let mut times: Vec<_> = samples.iter().map(|&(_, time)| time).collect();
    times.sort_by(f64::total_cmp);
    let limits = [0.3, 0.5, 0.75, 0.9, 0.99, 1.0]
        .map(|part| times[((times.len() - 1) as f64 * part) as usize]);
    let worst = limits.map(|limit| welch(&samples, limit));
    worst.into_iter().max_by(|a, b| a.abs().total_cmp(&b.abs())).unwrap()
}

/// A leak that must be found: sixteen bytes are compared one by one up to the first that differs.
fn known_leak(rounds: usize) -> f64 {
    ask(rounds, |class| {
        let mut tag = [0u8; 16];
        tag[class * 15] = 1;
        let (tag, zeros) = (black_box(tag), black_box([0u8; 16]));
        let start = settled_time();
        let same = tag.iter().zip(&zeros).take_while(|(a, b)| black_box(*a) == *b).count();
        black_box(same);
        settled_time() - start
    })
}

/// A mask that leaves class 0 nothing: without a branch, for a mispredicted one would cost the burst
/// that follows and so tell the classes apart.
fn keep(class: usize) -> u64 {
    black_box((class as u64 & 1).wrapping_neg())
}

/// The time when everything before has been done.
fn settled_time() -> u64 {
    // Stores first: a burst must not wait for those that filled its buffers.
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE2 is part of x86-64, and a fence does nothing else.
    unsafe {
        std::arch::x86_64::_mm_lfence();
    }
    time_stamp()
}

/// Welch's t of the two classes' times that are not above `limit`.
fn welch(samples: &[(usize, f64)], limit: f64) -> f64 {
    let mut of_class = [(0.0f64, 0.0f64, 0.0f64); 2];
    for &(class, time) in samples.iter().filter(|&&(_, time)| time <= limit) {
        let (count, mean, squares) = &mut of_class[class];
        *count += 1.0;
        let off = time - *mean;
        *mean += off / *count;
        *squares += off * (time - *mean);
    }
    let [a, b] = of_class;
    if a.0 < 2.0 || b.0 < 2.0 {
        return 0.0;
    }
    let variance = |(count, _, squares): (f64, f64, f64)| squares / (count - 1.0) / count;
    let spread = (variance(a) + variance(b)).sqrt();
    if spread == 0.0 { 0.0 } else { (a.1 - b.1) / spread }
}

/// Numbers that look random (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
