//! Bursts and key set-up leave nothing on the stack by which packets could be forged: neither the tag
//! that a forged packet should have had, nor what masks tags, nor a key.
//!
//! The work is done by a thread of its own, whose stack holds nothing else; then the thread reads
//! what is left below its frame, through the file that Linux makes of a program's memory.

#![cfg(target_os = "linux")]

use std::{fs::File, hint::black_box, os::unix::fs::FileExt, sync::Arc, thread};

use crate::common::{
    Packet, Random,
    packet::{open_op, seal_op},
    setups, setups_for,
};
use convoy_crypto::{
    AeadKey, Cpu, GcmParams, HashAlg, IcvLen, KeyBits, OpenOp, SealOp, SecretBytes, Suite, Tier,
    Verdict,
    manager::{
        AesDecryptKey, AesEncryptKey, Buffer, CmacKey, Direction, Engine, GcmStream, HmacKeys, Job,
        JobCipher, JobHash, Runner, Span, Status, XcbcKey,
    },
    open_burst, seal_burst,
    tls::{BurstRecord, CbcHmacKey, RecordError, RecordHeader, RecordMac},
};

/// Bytes below its frame that the thread looks at; no burst needs more.
const DEPTH: usize = 96 << 10;

/// Byte that fills the stack below the thread's frame before work.
const PAINT: u8 = 0xa5;

/// Bytes of stack that work took which left this of the painted stack.
fn used(left: &[u8]) -> usize {
    left.len() - left.iter().take_while(|&&byte| byte == PAINT).count()
}

/// Bytes that `work` leaves on the stack, which was painted before.
#[track_caller]
fn left_by(work: impl FnOnce() + Send) -> Vec<u8> {
    let place = std::panic::Location::caller();
    /// Keeps the frames that read the stack, which are shallow, apart from those of the work.
    #[inline(never)]
    fn lowered(work: impl FnOnce()) {
        let room = black_box([0u8; 4096]);
        work();
        black_box(&room);
    }
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let memory = open_memory();
            let mut left = vec![PAINT; DEPTH];
            let below = (&raw const memory).addr() - DEPTH;
            // Not what lies between, where this thread's calls are.
            let paint = &left[..DEPTH - 2048];
            memory.write_all_at(paint, below as u64).expect("the stack goes on");
            lowered(work);
            memory.read_exact_at(&mut left, below as u64).expect("the stack goes on");
            if std::env::var_os("SHOW_STACK").is_some() {
                println!("{} bytes of stack at line {}", used(&left), place.line());
            }
            left
        });
        thread.join().expect("the work is done")
    })
}

/// This program's memory, as a file.
fn open_memory() -> File {
    let mut options = File::options();
    options.read(true).write(true).open("/proc/self/mem").expect("a program has its own memory")
}

fn holds(memory: &[u8], secret: &[u8]) -> bool {
    memory.windows(secret.len()).any(|window| window == secret)
}

#[test]
fn what_is_left_is_found() {
    #[inline(never)]
    fn careless(secret: u64) {
        black_box([secret.wrapping_mul(3), secret]);
    }
    let secret = 0x1122_3344_5566_7788_u64;
    let left = left_by(|| careless(black_box(secret)));
    assert!(holds(&left, &secret.to_ne_bytes()));
}

/// Packets of one suite, sealed; then every other was forged. Their right tags must not be found.
struct Burst {
    packets: Vec<Packet>,
    frames: Vec<(Vec<u8>, Vec<u8>)>,
    tags: Vec<(String, Vec<u8>)>,
}

const LENGTHS: [usize; 12] = [0, 16, 48, 64, 100, 160, 256, 524, 1000, 1348, 1420, 4000];

impl Burst {
    fn new(suite: Suite) -> Self {
        let mut random = Random(7);
        let packets: Vec<_> = (0..40)
            .map(|i| {
                let header = if suite.is_aead() { 8 } else { 24 };
                Packet::of_lengths(suite, &mut random, header, LENGTHS[i % 12], 4)
            })
            .collect();
        let mut sealed: Vec<_> = packets.clone();
        crate::common::seal(&mut sealed, |_| Tier::Portable);
        let mut tags = Vec::new();
        for (i, packet) in sealed.iter_mut().enumerate() {
            if i % 2 == 1 && suite.icv_bytes() > 0 {
                tags.push((format!("the right tag of packet {i}"), packet.icv.clone()));
                packet.icv[0] ^= 1;
            }
        }
        let frames = sealed.iter().map(|p| ([&*p.header, &*p.text].concat(), p.icv.clone()));
        Self { frames: frames.collect(), packets, tags }
    }
}

/// Mask of a packet's tag: of GMAC the tag of nothing, for the hash of nothing is zero. (The
/// kernels of GCM may leave masks where the compiler spills keystream.)
fn mask(packet: &Packet) -> Option<Vec<u8>> {
    if !matches!(packet.suite, Suite::Gmac(_)) {
        return None;
    }
    let nothing = Packet { header: Vec::new(), text: Vec::new(), ..packet.clone() };
    let mut nothing = [nothing];
    crate::common::seal(&mut nothing, |_| Tier::Portable);
    let [nothing] = nothing;
    Some(nothing.icv)
}

/// The names of those secrets that are left, or nothing.
fn found(what: &str, left: &[u8], secrets: &[(String, Vec<u8>)]) -> Option<String> {
    let names: Vec<_> =
        secrets.iter().filter(|(_, secret)| holds(left, secret)).map(|(name, _)| &**name).collect();
    (!names.is_empty()).then(|| format!("{what}: {}", names.join(", ")))
}

#[test]
fn bursts_leave_no_tags_of_forged_packets_and_no_masks() {
    let (setups, mut all) = (setups(), Vec::new());
    for suite in Suite::all() {
        let burst = Burst::new(suite);
        let masks = burst.packets.iter().enumerate().filter(|(_, p)| !p.text.is_empty());
        let masks: Vec<_> = masks
            .filter_map(|(i, packet)| Some((format!("the mask of packet {i}"), mask(packet)?)))
            .collect();
        for setup in setups_for(suite, &setups) {
            let mut frames = burst.frames.clone();
            let keys: Vec<_> = burst.packets.iter().map(|p| p.open_key(setup)).collect();
            let places = burst.packets.iter().zip(&mut frames).zip(&keys);
            let mut ops: Vec<OpenOp<'_>> =
                places.map(|((p, (frame, icv)), key)| open_op(p, key, frame, icv)).collect();
            let left = left_by(|| open_burst(&mut ops));
            let forged = ops.iter().filter(|op| op.verdict() == Verdict::Forged).count();
            assert_eq!(forged, burst.tags.len(), "{suite} on {setup}");
            let what = format!("opening {suite} on {setup}");
            all.extend(found(&what, &left, &burst.tags));
            all.extend(found(&what, &left, &masks));
            // Alone, which goes another way.
            if suite.is_aead() {
                let mut frames = burst.frames.clone();
                let places = burst.packets.iter().zip(&mut frames).zip(&keys);
                for (i, ((packet, (frame, icv)), key)) in places.enumerate().take(12) {
                    let mut op = [open_op(packet, key, frame, icv)];
                    let left = left_by(|| open_burst(&mut op));
                    assert_eq!(
                        op[0].verdict() == Verdict::Forged,
                        i % 2 == 1,
                        "{suite} on {setup}"
                    );
                    all.extend(found(&format!("{what} alone"), &left, &burst.tags));
                }
            }

            let keys: Vec<_> = burst.packets.iter().map(|p| p.seal_key(setup)).collect();
            let mut frames = burst.frames.clone();
            let places = burst.packets.iter().zip(&mut frames).zip(&keys);
            let mut ops: Vec<SealOp<'_>> =
                places.map(|((p, (frame, icv)), key)| seal_op(p, key, frame, icv)).collect();
            let left = left_by(|| seal_burst(&mut ops));
            all.extend(found(&format!("sealing {suite} on {setup}"), &left, &masks));
        }
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn setting_keys_up_leaves_none_of_them() {
    let (setups, mut all) = (setups(), Vec::new());
    for suite in Suite::all() {
        let packet = Packet::of_lengths(suite, &mut Random(9), 0, 0, 0);
        let secrets = parts(&[&packet.keys.0, &packet.keys.1]);
        for setup in setups_for(suite, &setups) {
            let mut keys = None;
            let left = left_by(|| keys = Some((packet.seal_key(setup), packet.open_key(setup))));
            all.extend(found(&format!("setting {suite} up on {setup}"), &left, &secrets));
        }
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

/// Sixteen bytes each of some keys.
fn parts(keys: &[&[u8]]) -> Vec<(String, Vec<u8>)> {
    let parts = keys.iter().flat_map(|key| key.chunks_exact(16));
    parts.map(|part| ("a key".to_owned(), part.to_vec())).collect()
}

#[test]
fn setting_a_manager_s_keys_up_leaves_none_of_them() {
    let mut random = Random(11);
    let secret = random.bytes(32);
    let secrets = parts(&[&secret]);
    let xcbc = random.bytes(16);
    for denied in ["", "aesni"] {
        let cpu = Cpu::without(denied).unwrap();
        let (mut enc, mut dec) = (AesEncryptKey::empty(), AesDecryptKey::empty());
        let (mut cmac, mut derived) = (CmacKey::empty(), XcbcKey::empty());
        let left = left_by(|| {
            enc.set(&cpu, &secret).unwrap();
            dec.set(&cpu, &enc);
            cmac.set(&cpu, &secret).unwrap();
            derived.set(&cpu, &xcbc).unwrap();
        });
        assert_eq!(found("AES", &left, &secrets), None, "without {denied:?}");
        assert_eq!(found("XCBC", &left, &parts(&[&xcbc])), None, "without {denied:?}");
        for alg in HashAlg::ALL {
            let mut hmac = HmacKeys::empty();
            let left = left_by(|| hmac.set(&cpu, alg, &secret));
            let (inner, outer) = hmac.expose().unwrap();
            let secrets = parts(&[&secret, inner, outer]);
            assert_eq!(found("HMAC", &left, &secrets), None, "{alg:?} without {denied:?}");
        }
    }
}

/// The tags of a manager's jobs may prove to be those that forgeries should have had.
#[test]
fn a_manager_leaves_no_tags() {
    let mut random = Random(13);
    let (secret, iv) = (SecretBytes::from(random.bytes(16)), [7; 12]);
    for tier in crate::common::tiers() {
        let cpu = crate::common::cpu();
        let aes = AesEncryptKey::new(&cpu, &secret).unwrap();
        let hmacs = HashAlg::ALL.map(|alg| HmacKeys::new(&cpu, alg, &secret));
        let cmac = CmacKey::new(&cpu, &secret).unwrap();
        let xcbc = XcbcKey::new(&cpu, &secret).unwrap();
        let aeads = ["aes-128-gcm-16", "aes-128-gmac-16", "chacha20-poly1305"].map(|name| {
            let suite: Suite = name.parse().unwrap();
            let secret = SecretBytes::from(vec![3; suite.key_bytes()]);
            AeadKey::with_tier(&cpu, tier, suite, secret).unwrap()
        });
        let hashes = hmacs.iter().map(|key| JobHash::Hmac(key));
        let hashes = hashes.chain([JobHash::Cmac(&cmac), JobHash::Xcbc(&xcbc)]);
        let mut kinds: Vec<_> = hashes.map(|hash| (JobCipher::Null, hash)).collect();
        let aeads = aeads.iter().map(|key| JobCipher::Aead(key, Direction::Decrypt));
        let aeads = aeads.chain([JobCipher::Ccm(&aes, Direction::Decrypt)]);
        kinds.extend(aeads.map(|cipher| (cipher, JobHash::Null)));
        for (cipher, hash) in kinds {
            let mut packets: Vec<_> =
                LENGTHS.iter().map(|&len| (random.bytes(len), [0; 16])).collect();
            let mut runner = Runner::new(&cpu, tier).unwrap();
            let mut jobs: Vec<_> = packets
                .iter_mut()
                .map(|(packet, tag)| {
                    let span = Span::new(0, packet.len());
                    let mut job = Job::default();
                    (job.cipher, job.hash, job.iv) = (cipher, hash, iv.into());
                    (job.cipher_span, job.hash_span) = (span, span);
                    (job.buffer, job.tag) = (Buffer::InPlace(packet), tag);
                    job
                })
                .collect();
            let left = left_by(|| runner.run(&mut jobs));
            assert!(
                jobs.iter().all(|job| job.status() == Status::Completed),
                "{cipher:?} {hash:?}"
            );
            drop(jobs);
            let count = packets.iter().filter(|(_, tag)| holds(&left, tag)).count();
            // What the compiler spilled of the last group of lanes.
            let spilled = if tier == Tier::Portable { 0 } else { 2 };
            assert!(count <= spilled, "{count} tags of {cipher:?} and {hash:?} on {tier}");
        }
    }
}

/// Nor may that of a message that came in parts, nor the key that it was set up with.
#[test]
fn a_forged_stream_leaves_no_tag() {
    let (mut random, mut all) = (Random(19), Vec::new());
    let cpu = crate::common::cpu();
    for tier in crate::common::tiers() {
        let params = GcmParams::new(KeyBits::Aes256, IcvLen::Icv16);
        let secret = SecretBytes::from(random.bytes(32));
        let key = Arc::new(AeadKey::with_tier(&cpu, tier, params, secret).unwrap());
        for (len, cuts) in [(0, 1), (40, 1), (300, 1), (4000, 1), (40, 3), (300, 7), (4000, 5)] {
            let plain = random.bytes(len);
            let mut seal = GcmStream::seal(Arc::clone(&key), &[7; 12]).unwrap();
            let mut data = plain.clone();
            seal.update(&mut data).unwrap();
            let tag = seal.tag().unwrap();
            let mut open = Box::new(GcmStream::open(Arc::clone(&key), &[7; 12]).unwrap());
            let left = left_by(|| {
                let size = (len / cuts).max(1);
                data.chunks_mut(size).for_each(|part| open.update(part).unwrap());
                assert_eq!(open.verify(&[1; 16]), Ok(false));
            });
            assert!(data == plain);
            let secrets = [("the right tag".to_owned(), tag.to_vec())];
            all.extend(found(&format!("{len} bytes in {cuts} parts on {tier}"), &left, &secrets));
        }
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

/// The right tag of a message that is verified by itself must not be found once it proved forged.
#[test]
fn verifying_one_forged_message_leaves_no_tag() {
    let (mut random, mut all) = (Random(17), Vec::new());
    let (cpu, iv) = (crate::common::cpu(), [7; 12]);
    let aes = AesEncryptKey::new(&cpu, &SecretBytes::from(random.bytes(16))).unwrap();
    for tier in crate::common::tiers() {
        let keys = ["aes-128-gcm-16", "aes-128-gmac-16", "chacha20-poly1305"].map(|name| {
            let suite: Suite = name.parse().unwrap();
            let secret = SecretBytes::from(vec![3; suite.key_bytes()]);
            AeadKey::with_tier(&cpu, tier, suite, secret).unwrap()
        });
        let ciphers = keys.iter().map(|key| JobCipher::Aead(key, Direction::Decrypt));
        for cipher in ciphers.chain([JobCipher::Ccm(&aes, Direction::Decrypt)]) {
            for len in LENGTHS {
                let (mut packet, mut tag) = (random.bytes(len), [0; 16]);
                let mut runner = Runner::new(&cpu, tier).unwrap();
                let mut job = Job::default();
                (job.cipher, job.iv, job.cipher_span) = (cipher, iv.into(), Span::new(0, len));
                (job.buffer, job.tag) = (Buffer::InPlace(&mut packet), &mut tag);
                let mut authentic = true;
                let left = left_by(|| authentic = runner.verify_one(&mut job, &[0x5a; 16]));
                assert_eq!((authentic, job.status()), (false, Status::Completed));
                let secrets = [("the right tag".to_owned(), tag.to_vec())];
                all.extend(found(&format!("{len} bytes of {cipher:?} on {tier}"), &left, &secrets));
            }
        }
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

/// Records leave neither their keys, nor what these were expanded to, nor the MAC that a forged one should
/// have had.
#[test]
fn records_leave_no_keys_and_no_macs() {
    let (mut random, mut all) = (Random(23), Vec::new());
    let header = RecordHeader { number: 3, content_type: 23, version: 0x0303 };
    for setup in setups() {
        for (mac, bits) in RecordMac::ALL.into_iter().flat_map(|mac| [(mac, 16), (mac, 32)]) {
            let (cpu, cipher, integrity) = (setup.cpu(), random.bytes(bits), random.bytes(32));
            let key = |direction| {
                let secrets = [&cipher, &integrity].map(|key| SecretBytes::copy_from(key));
                let [cipher, integrity] = &secrets;
                CbcHmacKey::with_tier(&cpu, setup.tier, mac, direction, cipher, integrity).unwrap()
            };
            let states = HmacKeys::new(&cpu, mac.hash(), &SecretBytes::copy_from(&integrity));
            let (inner, outer) = states.expose().unwrap();
            let mut secrets = parts(&[&cipher, &integrity, inner, outer]);
            let what = format!("{mac:?} and {bits} bytes on {setup}");
            let mut keys = None;
            let left = left_by(|| {
                keys = Some((key(Direction::Encrypt), key(Direction::Decrypt)));
            });
            all.extend(found(&format!("setting {what} up"), &left, &secrets));
            let (seals, opens) = keys.unwrap();
            for text in LENGTHS {
                let mut record = random.bytes(text);
                record.resize(seals.sealed_bytes(text), 0);
                let left =
                    left_by(|| seals.seal(header, &mut [7; 16], 0, text, &mut record).unwrap());
                all.extend(found(&format!("sealing {text} with {what}"), &left, &secrets));

                let mut again = record.clone();
                assert_eq!(opens.open(header, &[7; 16], &mut again), Ok(text));
                secrets.push(("the right MAC".to_owned(), again[text..text + 16].to_vec()));
                record[0] ^= 1;
                let mut opened = Ok(0);
                let left = left_by(|| opened = opens.open(header, &[7; 16], &mut record));
                assert!(opened == Err(RecordError::Forged) && record.iter().all(|&byte| byte == 0));
                // Of a text that is empty, the bit is one of the MAC's.
                let secrets_of_it = if text == 0 { &secrets[..4] } else { &secrets[..] };
                all.extend(found(&format!("opening {text} with {what}"), &left, secrets_of_it));
                secrets.pop();
            }
            let mut records: Vec<_> =
                LENGTHS.iter().map(|&text| random.bytes(16 + seals.sealed_bytes(text))).collect();
            let places = records.iter_mut().zip(LENGTHS);
            let mut burst: Vec<_> =
                places.map(|(bytes, text)| BurstRecord { header, text, bytes }).collect();
            let left = left_by(|| seals.seal_burst(&mut burst).unwrap());
            all.extend(found(&format!("sealing many with {what}"), &left, &secrets));
        }
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}
