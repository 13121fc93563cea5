//! Tells whether a branch or an address depends on a secret, under Valgrind's Memcheck.
//!
//! Memcheck follows which bytes are undefined and reports each jump and each address that depends
//! on one. Here keys and plaintext are marked as undefined though they are not; what it then
//! reports is a leak through time (the method is Adam Langley's ctgrind). One thing that depends on
//! secrets is public, whether tags match, and where they are compared the crate says so; nothing
//! is suppressed.
//!
//! ```text
//! interop/constant-time/run.sh [SUITE...]
//! ```
//!
//! Suites are those of bursts, and five more: "jobs" for what only a manager does, "primitives" by themselves,
//! "streams" of AES-GCM, "chacha-streams", and "records" of TLS.
//! Tiers that Valgrind's processor lacks are skipped.

use std::{hint::black_box, process::ExitCode, sync::Arc};

use convoy_crypto::{
    AeadKey, Cipher, Cpu, GcmParams, GcmTables, HashAlg, IcvLen, KeyBits, KeyLender, KeyMaterial,
    Nonce, OpenKey, OpenOp, SealKey, SealOp, SecretBytes, Suite, Tier, Verdict,
    manager::{
        AesDecryptKey, AesEncryptKey, Buffer, ChaChaStream, CmacKey, Direction, Engine, GcmStream,
        HmacKeys, Job, JobCipher, JobHash, Runner, Span, Status, XcbcKey, one_block, tags_match,
    },
    marks::{are_followed, mark_public, mark_secret, reports},
    open_burst, seal_burst,
    tls::{BurstRecord, CbcHmacKey, RecordError, RecordHeader, RecordMac},
};

/// Code to examine: its name, and its work with secrets on a tier.
struct Subject {
    name: String,
    run: Box<Examine>,
}

type Examine = dyn Fn(&Cpu, Tier);

impl Subject {
    fn new(name: impl ToString, run: impl Fn(&Cpu, Tier) + 'static) -> Self {
        Self { name: name.to_string(), run: Box::new(run) }
    }
}

/// Every suite, in a burst of packets of all kinds of lengths, and what bursts do not reach. (Ciphers of
/// old peers look tables up at secret places, and are left out.)
fn subjects() -> Vec<Subject> {
    let suites = Suite::all()
        .filter(|suite| !suite.is_legacy())
        .map(|suite| Subject::new(suite, move |cpu, tier| seal_and_open(cpu, tier, suite)));
    let others = [
        Subject::new("jobs", jobs),
        Subject::new("primitives", primitives),
        Subject::new("streams", streams),
        Subject::new("chacha-streams", chacha_streams),
        Subject::new("records", records),
    ];
    suites.chain(others).collect()
}

/// Lengths of text around those at which kernels change what they do, in bytes.
const LENGTHS: [usize; 16] = [0, 1, 15, 16, 17, 40, 63, 64, 65, 128, 200, 255, 256, 300, 576, 1420];
/// Lengths of additional data, in bytes.
const AADS: [usize; 4] = [8, 12, 0, 33];

/// Sizes of nonces, and operations of each.
macro_rules! with_array {
    ($slice:expr, |$array:ident| $body:expr, $($len:literal)*) => {
        match $slice.len() {
            $($len => {
                let $array: [u8; $len] = (*$slice).try_into().expect("it has this length");
                $body
            })*
            len => panic!("no suite has nonces of {len} bytes"),
        }
    };
}

struct Packet {
    suite: Suite,
    plaintext: Vec<u8>,
    /// Header of a pair, additional data of an AEAD; then the text.
    frame: Vec<u8>,
    header: usize,
    icv: Vec<u8>,
    nonce: Vec<u8>,
}

impl Packet {
    fn new(number: usize, suite: Suite) -> Self {
        let header = bytes(AADS[number % AADS.len()], 5, number);
        let len = LENGTHS[number % LENGTHS.len()];
        let plaintext = bytes(len - len % suite.block_bytes(), 7, number);
        Self {
            suite,
            frame: [&*header, &*plaintext].concat(),
            plaintext,
            header: header.len(),
            icv: vec![0; suite.icv_bytes()],
            nonce: vec![number as u8; suite.nonce_bytes()],
        }
    }

    fn text(&mut self) -> &mut [u8] {
        &mut self.frame[self.header..]
    }

    fn seal_op<'a>(&'a mut self, key: &'a SealKey) -> SealOp<'a> {
        let nonce = with_array!(&*self.nonce, |array| Nonce::new(array), 0 11 12 16);
        let (header, icv) = (self.header, &mut *self.icv);
        let op = if self.suite.is_aead() {
            let (aad, data) = self.frame.split_at_mut(header);
            SealOp::new(key, nonce, aad, data, icv)
        } else {
            SealOp::framed(key, nonce, &mut self.frame, header, &[0; 4], icv)
        };
        op.expect("it fits")
    }

    fn open_op<'a>(&'a mut self, key: &'a OpenKey) -> OpenOp<'a> {
        let (header, icv) = (self.header, &*self.icv);
        let op = if self.suite.is_aead() {
            let (aad, data) = self.frame.split_at_mut(header);
            with_array!(&*self.nonce, |nonce| OpenOp::new(key, nonce, aad, data, icv), 11 12)
        } else {
            let frame = &mut *self.frame;
            with_array!(
                &*self.nonce,
                |iv| OpenOp::framed(key, iv, frame, header, &[0; 4], icv),
                0 12 16
            )
        };
        op.expect("it fits")
    }
}

/// Bytes that are not secret.
fn bytes(len: usize, step: u8, number: usize) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(step).wrapping_add(number as u8)).collect()
}

fn secret(len: usize, number: usize) -> SecretBytes {
    let mut key = vec![number as u8 * 17 + 3; len];
    mark_secret(&mut *key);
    SecretBytes::from(key)
}

/// Seals a burst of secret plaintext with secret keys and opens it again, with forgeries in it.
fn seal_and_open(cpu: &Cpu, tier: Tier, suite: Suite) {
    let material = |of: usize| KeyMaterial {
        cipher: secret(suite.key_bytes(), of),
        integrity: secret(suite.integrity_key_bytes(), of + 5),
    };
    let seal_keys: Vec<_> = (0..3)
        .map(|of| SealKey::with_tier(cpu, tier, suite, material(of)).expect("the tier is there"))
        .collect();
    let open_keys: Vec<_> = (0..3)
        .map(|of| OpenKey::with_tier(cpu, tier, suite, material(of)).expect("the tier is there"))
        .collect();
    let mut packets: Vec<_> = (0..2 * LENGTHS.len()).map(|i| Packet::new(i, suite)).collect();
    packets.iter_mut().for_each(|packet| mark_secret(packet.text()));
    let mut ops: Vec<_> =
        packets.iter_mut().enumerate().map(|(i, p)| p.seal_op(&seal_keys[i % 3])).collect();
    seal_burst(&mut ops);
    drop(ops);
    let is_forged = |i: usize| i % 5 == 4 && suite.icv_bytes() > 0;
    for (i, packet) in packets.iter_mut().enumerate() {
        // What goes over the wire is public, but for a text that was not encrypted.
        if !matches!(suite, Suite::Gmac(_) | Suite::Pair { cipher: Cipher::Null, .. }) {
            mark_public(packet.text());
        }
        mark_public(&mut *packet.icv);
        if is_forged(i) {
            packet.icv[0] ^= 1;
        }
    }
    let mut ops: Vec<_> =
        packets.iter_mut().enumerate().map(|(i, p)| p.open_op(&open_keys[i % 3])).collect();
    open_burst(&mut ops);
    let verdicts: Vec<_> = ops.iter().map(OpenOp::verdict).collect();
    drop(ops);
    for (i, (packet, verdict)) in packets.iter_mut().zip(verdicts).enumerate() {
        let expected = if is_forged(i) { Verdict::Forged } else { Verdict::Authentic };
        assert_eq!(verdict, expected, "{suite} on {tier}, packet {i}");
        mark_public(packet.text());
        let zeros = vec![0; packet.plaintext.len()];
        let expected = if is_forged(i) { zeros } else { packet.plaintext.clone() };
        assert!(packet.text() == expected, "{suite} on {tier}, packet {i}");
    }
}

/// Jobs of every cipher and MAC that a manager has keys of its own for, out of place and in place.
fn jobs(cpu: &Cpu, tier: Tier) {
    let ciphers: Vec<_> = [16, 24, 32]
        .iter()
        .map(|&len| {
            let enc = AesEncryptKey::new(cpu, &secret(len, 1)).expect("an AES key");
            let dec = AesDecryptKey::new(cpu, &secret(len, 1)).expect("an AES key");
            (enc, dec, CmacKey::new(cpu, &secret(len, 2)).expect("an AES key"))
        })
        .collect();
    let xcbc = XcbcKey::new(cpu, &secret(16, 3)).expect("a key of XCBC");
    let hmacs: Vec<_> = HashAlg::ALL
        .iter()
        .flat_map(|&alg| [20, 200].map(|len| HmacKeys::new(cpu, alg, &secret(len, 4))))
        .collect();
    let mut kinds: Vec<(JobCipher<'_>, JobHash<'_>)> =
        hmacs.iter().map(|key| (JobCipher::Null, JobHash::Hmac(key))).collect();
    for (enc, dec, cmac) in &ciphers {
        kinds.extend([
            (JobCipher::CbcEncrypt(enc), JobHash::Xcbc(&xcbc)),
            (JobCipher::CbcDecrypt(dec), JobHash::Cmac(cmac)),
            (JobCipher::Ctr(enc), JobHash::Null),
            (JobCipher::Ccm(enc, Direction::Encrypt), JobHash::Null),
            (JobCipher::Ccm(enc, Direction::Decrypt), JobHash::Null),
        ]);
    }
    let mut runner = Runner::new(cpu, tier).expect("the tier is there");
    for (cipher, hash) in kinds {
        let whole = !matches!(cipher, JobCipher::Null);
        let mut packets: Vec<_> = (0..LENGTHS.len())
            .map(|i| {
                let mut data = bytes(if whole { LENGTHS[i] / 16 * 16 } else { LENGTHS[i] }, 3, i);
                mark_secret(&mut *data);
                (data.clone(), data, [0; 16])
            })
            .collect();
        let mut jobs: Vec<_> = packets
            .iter_mut()
            .enumerate()
            .map(|(i, (src, dst, tag))| {
                let span = Span::new(0, src.len());
                let mut job = Job::default();
                (job.cipher, job.hash, job.cipher_span, job.hash_span) = (cipher, hash, span, span);
                job.iv = match cipher {
                    JobCipher::CbcEncrypt(_) | JobCipher::CbcDecrypt(_) => [i as u8; 16].into(),
                    _ => [i as u8; 12].into(),
                };
                let tagged = !matches!(hash, JobHash::Null) || matches!(cipher, JobCipher::Ccm(..));
                job.tag = if tagged { tag } else { &mut [] };
                job.buffer =
                    if i % 2 == 0 { Buffer::InPlace(dst) } else { Buffer::Copy { src, dst } };
                job
            })
            .collect();
        runner.run(&mut jobs);
        assert!(jobs.iter().all(|job| job.status() == Status::Completed), "{cipher:?}, {hash:?}");
        // Whoever decrypts compares.
        let received = [0; 16];
        assert!(jobs.iter().all(|job| !tags_match(job.tag, &received[..job.tag.len()])));
    }
    for alg in HashAlg::ALL {
        let block = secret(alg.block_bytes(), 6);
        let mut out = [0; 64];
        let len = convoy_crypto::manager::chaining_bytes(alg);
        one_block(cpu, alg, block.expose(), &mut out[..len]).expect("the lengths are right");
    }
}

/// Examines the primitives that modes are made of: over secret texts, with secret keys.
fn primitives(cpu: &Cpu, tier: Tier) {
    let runner = Runner::new(cpu, tier).expect("the tier is there");
    let lender = KeyLender::with_tier(cpu, tier).ok();
    let mut text = bytes(1420, 9, 1);
    mark_secret(&mut *text);
    for len in LENGTHS {
        for alg in HashAlg::ALL {
            black_box(runner.digest(alg, &text[..len]));
        }
        let key = secret(32, 2);
        let key = key.expose().first_chunk().expect("32 bytes");
        black_box(runner.poly1305(key, &text[..len]));
        runner.chacha20(key, &[1; 12], 1, &mut text[..len]).expect("few blocks");
        if let Some(lender) = &lender {
            let (mut tables, mut hash) = (GcmTables::EMPTY, [0; 16]);
            lender.expand_hash_key(key.first_chunk().expect("16 bytes"), &mut tables);
            lender.ghash(&tables, &mut hash, &text[..len]);
            black_box(hash);
        }
        for bytes in [16, 24, 32] {
            let (blocks, _) = text[..len].as_chunks_mut();
            let key = AesEncryptKey::new(cpu, &secret(bytes, 3)).expect("an AES key");
            runner.encrypt_blocks(&key, blocks).expect("a key is held");
            let key = AesDecryptKey::new(cpu, &secret(bytes, 3)).expect("an AES key");
            runner.decrypt_blocks(&key, blocks).expect("a key is held");
        }
    }
}

/// A message in parts of all kinds of lengths, sealed and opened, and one of a single part.
fn streams(cpu: &Cpu, tier: Tier) {
    for bits in KeyBits::ALL {
        let params = GcmParams::new(bits, IcvLen::Icv16);
        let key = AeadKey::with_tier(cpu, tier, params, secret(bits.bytes(), 1));
        let key = Arc::new(key.expect("the tier is there"));
        for iv in [&[7; 12][..], &[7; 50]] {
            for parts in [&LENGTHS[..], &[600], &[5, 11, 256, 1, 15, 3000]] {
                let seal = GcmStream::seal(Arc::clone(&key), iv);
                let open = GcmStream::open(Arc::clone(&key), iv);
                for mut stream in [seal, open].map(|stream| stream.expect("the key is of GCM")) {
                    stream.aad(b"header").expect("in front of text");
                    stream.aad(&[1; 60]).expect("in front of text");
                    for (i, &len) in parts.iter().enumerate() {
                        let mut data = bytes(len, 3, i);
                        mark_secret(&mut *data);
                        stream.update(&mut data).expect("not too long");
                    }
                    if stream.is_seal() {
                        assert_ne!(*public(stream.tag().expect("it seals")), [0; 16]);
                    } else {
                        assert_eq!(stream.verify(&[0; 16]), Ok(false));
                    }
                }
            }
        }
    }
}

/// The same with ChaCha20-Poly1305, whose parts are many short ones, or few.
fn chacha_streams(cpu: &Cpu, tier: Tier) {
    let key = AeadKey::with_tier(cpu, tier, Suite::ChaCha20Poly1305, secret(32, 1));
    let key = Arc::new(key.expect("the tier is there"));
    for header in [13, 60] {
        for parts in [&LENGTHS[..], &[600], &[5, 11, 256, 1, 15, 3000]] {
            let seal = ChaChaStream::seal(Arc::clone(&key), &[7; 12]);
            let open = ChaChaStream::open(Arc::clone(&key), &[7; 12]);
            for mut stream in [seal, open].map(|stream| stream.expect("the key is of ChaCha20")) {
                stream.aad(&bytes(header, 1, 0)).expect("in front of text");
                for (i, &len) in parts.iter().enumerate() {
                    let mut data = bytes(len, 3, i);
                    mark_secret(&mut *data);
                    stream.update(&mut data).expect("not too long");
                }
                if stream.is_seal() {
                    assert_ne!(*public(stream.tag().expect("it seals")), [0; 16]);
                } else {
                    assert_eq!(stream.verify(&[0; 16]), Ok(false));
                }
            }
        }
    }
}

/// Records of AES-CBC with HMAC, sealed alone and together, and opened: good ones, and some whose padding,
/// MAC or text is wrong. How long a text is, is secret until its record was found authentic.
fn records(cpu: &Cpu, tier: Tier) {
    let header = RecordHeader { number: 7, content_type: 23, version: 0x0303 };
    for mac in RecordMac::ALL {
        for bits in [KeyBits::Aes128, KeyBits::Aes256] {
            let key = |direction| {
                let (cipher, integrity) = (secret(bits.bytes(), 1), secret(mac.bytes(), 2));
                let key = CbcHmacKey::with_tier(cpu, tier, mac, direction, &cipher, &integrity);
                key.expect("the tier is there")
            };
            let (seals, opens) = (key(Direction::Encrypt), key(Direction::Decrypt));
            for text in LENGTHS {
                let mut record = bytes(text, 3, 1);
                record.resize(seals.sealed_bytes(text), 0);
                mark_secret(&mut record[..text]);
                seals.seal(header, &mut [3; 16], 0, text, &mut record).expect("it fits");
                mark_public(&mut *record);
                for wrong in [None, Some(0), Some(record.len() - 17), Some(record.len() - 1)] {
                    let mut received = record.clone();
                    if let Some(at) = wrong {
                        received[at] ^= 1;
                    }
                    let opened = opens.open(header, &[3; 16], &mut received);
                    let right = if wrong.is_none() { Ok(text) } else { Err(RecordError::Forged) };
                    assert_eq!(opened, right, "{mac:?} on {tier}, {text} bytes, {wrong:?}");
                }
            }
            let mut records = LENGTHS.map(|text| {
                let mut record = bytes(16 + text, 3, 1);
                mark_secret(&mut record[16..]);
                record.resize(16 + seals.sealed_bytes(text), 0);
                (text, record)
            });
            let mut burst: Vec<_> = records
                .iter_mut()
                .map(|(text, bytes)| BurstRecord { header, text: *text, bytes })
                .collect();
            seals.seal_burst(&mut burst).expect("they fit");
        }
    }
}

/// A tag that was made is for everybody.
fn public(tag: [u8; 16]) -> Box<[u8; 16]> {
    let mut tag = Box::new(tag);
    mark_public(&mut *tag);
    tag
}

fn main() -> ExitCode {
    if !are_followed() {
        println!(
            "SKIPPED: constant time: not under Valgrind; interop/constant-time/run.sh runs it"
        );
        return ExitCode::from(77);
    }
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    let mut tell = |name: &str, reports: u64, expected: bool| {
        if (reports > 0) == expected {
            passed += 1;
            return;
        }
        failed += 1;
        println!("FAILED: {name}: {reports} reports; the log tells where");
    };
    // A run that cannot fail proves nothing.
    tell("a comparison that ends early must be reported", reports_of(leaky_comparison), true);
    tell("a table read at a secret place must be reported", reports_of(leaky_table), true);
    tell("a comparison in constant time must not be", reports_of(steady_comparison), false);

    let named: Vec<String> = std::env::args().skip(1).collect();
    let mut subjects = subjects();
    subjects.retain(|subject| named.is_empty() || named.contains(&subject.name));
    let cpu = Cpu::detect().expect("CONVOY_DENY_CPU names tiers");
    for tier in Tier::ALL {
        if !cpu.has(tier) {
            skipped += 1;
            println!("SKIPPED: constant time on {tier}: Valgrind's processor lacks it");
            continue;
        }
        for subject in &subjects {
            let name = format!("{} on {tier}", subject.name);
            tell(&name, reports_of(|| (subject.run)(&cpu, tier)), false);
        }
        println!("{tier}: {} subjects", subjects.len());
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    ExitCode::from(u8::from(failed > 0))
}

/// Number of reports that Memcheck adds while `work` runs.
fn reports_of(work: impl FnOnce()) -> u64 {
    let before = reports();
    work();
    reports() - before
}

fn two_secrets() -> [[u8; 16]; 2] {
    let mut both = black_box([[1; 16], [1; 16]]);
    mark_secret(&mut both);
    both
}

fn leaky_comparison() {
    let [a, b] = two_secrets();
    for (x, y) in a.iter().zip(&b) {
        if black_box(x != y) {
            break;
        }
    }
}

fn leaky_table() {
    let table = black_box([7_u8; 256]);
    let [[at, ..], _] = two_secrets();
    black_box(table[usize::from(at)]);
}

fn steady_comparison() {
    let [a, b] = two_secrets();
    black_box(a.iter().zip(&b).fold(0, |sum, (x, y)| sum | (x ^ y)));
}
