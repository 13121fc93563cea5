//! Keys leave nothing behind: every heap block a key occupied is zero when it is given back.

use std::sync::Arc;

use convoy_crypto::{
    AeadKey, GcmParams, GhashKey, IcvLen, KeyBits, KeyMaterial, SealKey, SecretBytes, Suite, Tier,
    Verdict,
    manager::{Direction, GcmStream, HmacKeys},
    open_burst, seal_burst,
    tls::{CbcHmacKey, RecordMac},
};

use super::{SECRET, Seen, TAKEN, watch};
use crate::common::{
    self, Packet, Random,
    packet::{open_op, seal_op},
    setups, setups_for, tiers,
};

#[test]
fn secrets_are_wiped_on_drop() {
    let secret = SecretBytes::copy_from(&[0xa5; 32]);
    assert_eq!(watch(|| drop(secret)), Seen { blocks: 1, bytes: 32, ..Seen::default() });
    let mut roomy = Vec::with_capacity(500);
    roomy.extend_from_slice(&[0xa5; 32]);
    let seen = watch(|| drop(SecretBytes::from(roomy)));
    assert_eq!(seen, Seen { blocks: 2, bytes: 532, ..Seen::default() });
}

/// Secrets whose bytes are all different from zero, in blocks without room to spare.
fn material(suite: Suite) -> KeyMaterial {
    let secret = |bytes| SecretBytes::from(vec![0xa5; bytes]);
    KeyMaterial {
        cipher: secret(suite.key_bytes()),
        integrity: secret(suite.integrity_key_bytes()),
    }
}

#[test]
fn keys_are_wiped_on_drop_in_every_set_up() {
    let setups = setups();
    for suite in Suite::all() {
        let packet = Packet::of_lengths(suite, &mut Random(1), 0, 0, 0);
        for setup in setups_for(suite, &setups) {
            // Detection may take memory the first time, which holds no secrets.
            let _ = setup.cpu();
            // Setting up consumes the secrets and may use scratch memory: nothing may stay there
            // either.
            let mut keys = None;
            let set_up = watch(|| keys = Some((packet.seal_key(setup), packet.open_key(setup))));
            assert_eq!(set_up.left, 0, "setting {suite} up on {setup}");
            let secrets =
                usize::from(suite.key_bytes() > 0) + usize::from(suite.integrity_key_bytes() > 0);
            assert!(set_up.blocks >= 2 * secrets, "{suite} on {setup}: {set_up:?}");
            let dropped = watch(|| drop(keys));
            assert_eq!(dropped.left, 0, "dropping {suite} on {setup}");
            assert!(dropped.blocks >= 2 * secrets, "{suite} on {setup}: {dropped:?}");
            // 11 round keys are the least that any AES key becomes.
            let least = match suite {
                Suite::ChaCha20Poly1305 => 32,
                _ if suite.key_bytes() > 0 => 11 * 16,
                _ => 16,
            };
            assert!(dropped.bytes >= 2 * least, "{suite} on {setup}: {dropped:?}");
        }
    }
}

#[test]
fn keys_for_both_ways_are_wiped_on_drop() {
    for suite in Suite::all().filter(|suite| suite.is_aead()) {
        for tier in tiers() {
            let material = material(suite);
            let mut key = None;
            let set_up = watch(|| {
                key = AeadKey::with_tier(&common::cpu(), tier, suite, material).ok();
            });
            assert!(key.is_some(), "{suite} on {tier}");
            assert_eq!(set_up.left, 0, "setting {suite} up on {tier}");
            let dropped = watch(|| drop(key));
            assert_eq!(dropped.left, 0, "dropping {suite} on {tier}");
            assert!(dropped.blocks > 0, "{suite} on {tier}");
        }
    }
}

/// The box around kept material holds places and lengths, so it is the secret that is looked for.
#[test]
fn kept_material_and_hash_keys_are_wiped_on_drop() {
    let secret = || SecretBytes::from(vec![0xa5; 16]);
    let suite: Suite = "aes-128-gcm-16".parse().expect("a suite");
    let key = SealKey::keeping(&common::cpu(), suite, secret()).unwrap();
    assert_eq!(key.material().map(|kept| kept.cipher.expose()), Some(&[0xa5; 16][..]));
    SECRET.set([0xa5; 8]);
    let dropped = watch(|| drop(key));
    SECRET.set([0; 8]);
    assert_eq!(dropped.secret, 0);
    assert!(dropped.blocks >= 3, "tables, box and secret: {dropped:?}");
    for tier in tiers() {
        let secret = secret();
        let mut key = None;
        let set_up = watch(|| key = GhashKey::with_tier(&common::cpu(), tier, &secret).ok());
        assert!(key.is_some() && set_up.left == 0, "{tier}");
        let dropped = watch(|| drop(key));
        assert_eq!((dropped.blocks, dropped.left), (1, 0), "{tier}");
    }
}

/// The choice of its kernels stays in the block, so it is the secrets that are looked for: the first
/// round key, and the inner chaining value.
#[test]
fn keys_of_records_are_wiped_on_drop() {
    let cpu = common::cpu();
    let secret = || SecretBytes::from(vec![0xa5; 32]);
    for (tier, mac) in tiers().into_iter().flat_map(|tier| RecordMac::ALL.map(|mac| (tier, mac))) {
        let inner = HmacKeys::new(&cpu, mac.hash(), &secret());
        let inner = *inner.expose().unwrap().0.first_chunk().unwrap();
        for searched in [[0xa5; 8], inner] {
            let (secrets, mut key) = ([secret(), secret()], None);
            SECRET.set(searched);
            let set_up = watch(|| {
                let [cipher, integrity] = &secrets;
                let direction = Direction::Encrypt;
                key = CbcHmacKey::with_tier(&cpu, tier, mac, direction, cipher, integrity).ok();
            });
            let dropped = watch(|| drop(key));
            SECRET.set([0; 8]);
            assert_eq!(
                (set_up.secret, dropped.secret, dropped.blocks),
                (0, 0, 1),
                "{mac:?} on {tier}"
            );
        }
    }
}

/// A key that is refused takes its secrets with it.
#[test]
fn secrets_of_refused_keys_are_wiped() {
    let refused = |name: &str, cipher: usize, integrity: usize| {
        let suite: Suite = name.parse().expect("a suite");
        let secret = |bytes| SecretBytes::from(vec![0xa5; bytes]);
        let material = KeyMaterial { cipher: secret(cipher), integrity: secret(integrity) };
        let mut refused = false;
        let seen = watch(|| {
            let key = SealKey::new(&common::cpu(), suite, material);
            refused = key.is_err();
            drop(key);
        });
        assert!(refused, "{name} with {cipher} and {integrity} bytes");
        assert_eq!(seen.left, 0, "{name}");
        assert!(seen.bytes >= cipher + integrity, "{name}");
    };
    refused("aes-128-gcm-16", 20, 0);
    refused("aes-128-gcm-16", 16, 4);
    refused("chacha20-poly1305", 36, 0);
    refused("aes-128-cbc+aes-xcbc-96", 16, 20);
    refused("aes-128-cbc+hmac-sha1-96", 24, 20);
}

/// A stream has parts that are no secret, so what is looked for is what it must not leave: the rest of the
/// keystream, and the tag of what was opened.
#[test]
fn streams_are_wiped_on_drop() {
    for (tier, seal) in tiers().into_iter().flat_map(|tier| [(tier, true), (tier, false)]) {
        let secret = SecretBytes::copy_from(&[0xa5; 16]);
        let params = GcmParams::new(KeyBits::Aes128, IcvLen::Icv16);
        let key = Arc::new(AeadKey::with_tier(&common::cpu(), tier, params, secret).unwrap());
        let begin = || {
            let key = Arc::clone(&key);
            let stream = if seal { GcmStream::seal } else { GcmStream::open };
            let mut stream = Box::new(stream(key, &[7; 12]).unwrap());
            stream.aad(b"header").unwrap();
            stream
        };
        // Zeros become keystream, of which the first part takes half a block.
        let mut keystream = [0; 48];
        begin().update(&mut keystream).unwrap();
        let what = if seal { "sealed" } else { "opened" };
        for parts in [&[40][..], &[24, 16], &[8, 16, 16]] {
            let mut stream = begin();
            for &part in parts {
                stream.update(&mut vec![0; part]).unwrap();
            }
            SECRET.set(*keystream.last_chunk().unwrap());
            let mut held = vec![1; 32];
            held[9..17].copy_from_slice(keystream.last_chunk::<8>().unwrap());
            assert_eq!(watch(|| drop(held)).secret, 1, "the inspector sees it on {tier}");
            let dropped = watch(|| drop(stream));
            SECRET.set([0; 8]);
            assert_eq!((dropped.blocks, dropped.secret), (1, 0), "{what} in {parts:?} on {tier}");
        }
        // The tag of the same in one part and in two, which stands in the state.
        let mut sealing = GcmStream::seal(Arc::clone(&key), &[7; 12]).unwrap();
        sealing.aad(b"header").unwrap();
        sealing.update(&mut [1; 64]).unwrap();
        let tag = sealing.tag().unwrap();
        for whole in [true, false] {
            let mut stream = begin();
            let mut data = [1; 64];
            if !seal {
                sealing.restart(&[7; 12]).unwrap();
                sealing.update(&mut data).unwrap();
            }
            let at = if whole { 0 } else { 16 };
            stream.update(&mut data[..at]).unwrap();
            stream.update(&mut data[at..]).unwrap();
            let ended =
                if seal { stream.tag() == Ok(tag) } else { stream.verify(&tag) == Ok(true) };
            assert!(ended, "{what} on {tier}");
            SECRET.set(*tag.first_chunk().unwrap());
            let dropped = watch(|| drop(stream));
            SECRET.set([0; 8]);
            assert_eq!((dropped.blocks, dropped.secret), (1, 0), "the tag, {what} on {tier}");
        }
    }
}

/// Neither memory for a message, nor for a copy of its state.
#[test]
fn streams_take_no_memory() {
    let cpu = common::cpu();
    for tier in cpu.tiers() {
        let params = GcmParams::new(KeyBits::Aes256, IcvLen::Icv16);
        let secret = SecretBytes::copy_from(&[0xa5; 32]);
        let key = Arc::new(AeadKey::with_tier(&cpu, tier, params, secret).unwrap());
        let mut data = [0; 1000];
        let before = TAKEN.get();
        for iv in [&[1; 12][..], &[1; 16]] {
            let mut stream = GcmStream::seal(Arc::clone(&key), iv).unwrap();
            stream.aad(&[2; 50]).unwrap();
            stream.update(&mut data[..500]).unwrap();
            let mut copy = stream.clone();
            copy.update(&mut data[500..]).unwrap();
            assert_ne!((stream.tag(), copy.tag()), (Ok([0; 16]), Ok([0; 16])));
        }
        assert_eq!(TAKEN.get(), before, "{tier}");
    }
}

#[test]
fn bursts_take_no_memory() {
    let setups = setups();
    let mut all = 0;
    let each = Suite::all().map(|suite| vec![suite]);
    // One of many suites goes the way of sorting.
    for suites in each.chain([Suite::all().collect()]) {
        for setup in setups_for(suites[0], &setups) {
            let plain: Vec<_> = (0..300)
                .map(|i| {
                    let suite = suites[i % suites.len()];
                    Packet::random(suite, &mut Random(i as u64), i * 5)
                })
                .collect();
            let mut frames: Vec<_> =
                plain.iter().map(|p| ([&*p.header, &*p.text].concat(), p.icv.clone())).collect();
            let keys: Vec<_> = plain.iter().map(|p| p.seal_key(setup)).collect();
            let mut ops: Vec<_> = plain
                .iter()
                .zip(&mut frames)
                .zip(&keys)
                .map(|((packet, (frame, icv)), key)| seal_op(packet, key, frame, icv))
                .collect();
            let before = TAKEN.get();
            seal_burst(&mut ops);
            assert_eq!(TAKEN.get(), before, "sealing {} on {setup}", suites[0]);
            drop(ops);
            let keys: Vec<_> = plain.iter().map(|p| p.open_key(setup)).collect();
            // Some are forged, which is no reason to take memory either.
            frames.iter_mut().step_by(7).for_each(|(_, icv)| icv[0] ^= 1);
            let mut ops: Vec<_> = plain
                .iter()
                .zip(&mut frames)
                .zip(&keys)
                .map(|((packet, (frame, icv)), key)| open_op(packet, key, frame, icv))
                .collect();
            let before = TAKEN.get();
            open_burst(&mut ops);
            assert_eq!(TAKEN.get(), before, "opening {} on {setup}", suites[0]);
            assert!(before > 0, "the allocator counts");
            all += ops.iter().filter(|op| op.verdict() == Verdict::Authentic).count();
        }
    }
    assert!(all > 0, "packets were opened");
}

/// The sixteen registers that only AVX-512 has, which no other code touches by chance.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn upper_registers() -> [[u8; 64]; 16] {
    let mut contents = [[0; 64]; 16];
    let to = contents.as_mut_ptr();
    // SAFETY: the caller has AVX-512 F, and the array has room for all sixteen.
    unsafe {
        std::arch::asm!(
            "vmovdqu64 [{to}], zmm16",
            "vmovdqu64 [{to} + 64], zmm17",
            "vmovdqu64 [{to} + 128], zmm18",
            "vmovdqu64 [{to} + 192], zmm19",
            "vmovdqu64 [{to} + 256], zmm20",
            "vmovdqu64 [{to} + 320], zmm21",
            "vmovdqu64 [{to} + 384], zmm22",
            "vmovdqu64 [{to} + 448], zmm23",
            "vmovdqu64 [{to} + 512], zmm24",
            "vmovdqu64 [{to} + 576], zmm25",
            "vmovdqu64 [{to} + 640], zmm26",
            "vmovdqu64 [{to} + 704], zmm27",
            "vmovdqu64 [{to} + 768], zmm28",
            "vmovdqu64 [{to} + 832], zmm29",
            "vmovdqu64 [{to} + 896], zmm30",
            "vmovdqu64 [{to} + 960], zmm31",
            to = in(reg) to,
            options(nostack, preserves_flags),
        );
    }
    contents
}

/// Puts a pattern into two of them.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn soil_registers() {
    // SAFETY: the caller has AVX-512 F; the registers written are declared.
    unsafe {
        std::arch::asm!(
            "vpternlogd zmm16, zmm16, zmm16, 0xff",
            "vpternlogd zmm31, zmm31, zmm31, 0xff",
            out("zmm16") _,
            out("zmm31") _,
            options(nomem, nostack, preserves_flags),
        );
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn bursts_leave_nothing_in_vector_registers() {
    let wide: Vec<_> = tiers().into_iter().filter(|tier| tier.needs(Tier::Avx512)).collect();
    if wide.is_empty() {
        println!("SKIPPED: no tier with 32 registers");
        return;
    }
    // SAFETY: the tiers above need AVX-512 F.
    unsafe { soil_registers() };
    // SAFETY: as above.
    let soiled = unsafe { upper_registers() };
    assert_eq!(
        (soiled[0], soiled[15]),
        ([0xff; 64], [0xff; 64]),
        "the test itself sees what is in registers"
    );
    for suite in Suite::all() {
        for &tier in &wide {
            assert_registers_are_wiped(suite, tier);
        }
    }
}

/// Seals and opens packets of `suite` on `tier` along with one of a narrower tier, which must not
/// narrow the wiping.
#[cfg(target_arch = "x86_64")]
fn assert_registers_are_wiped(suite: Suite, tier: Tier) {
    let gcm = common::gcm(KeyBits::Aes256, IcvLen::Icv16);
    let mut random = Random(5);
    let mut packets: Vec<_> =
        [2000, 100, 1, 64].iter().map(|&len| Packet::random(suite, &mut random, len)).collect();
    packets.push(Packet::random(gcm, &mut random, 100));
    let setup_of = |i| if i == 4 { Tier::AesNi } else { tier };
    let mut frames: Vec<_> =
        packets.iter().map(|p| ([&*p.header, &*p.text].concat(), p.icv.clone())).collect();
    let keys: Vec<_> = packets.iter().enumerate().map(|(i, p)| p.seal_key(setup_of(i))).collect();
    let places = packets.iter().zip(&mut frames).zip(&keys);
    let mut ops: Vec<_> =
        places.map(|((packet, (frame, icv)), key)| seal_op(packet, key, frame, icv)).collect();
    // SAFETY: the caller looked for AVX-512 F.
    unsafe { soil_registers() };
    seal_burst(&mut ops);
    // SAFETY: as above.
    let left = unsafe { upper_registers() };
    assert!(left == [[0; 64]; 16], "sealing {suite} on {tier}");
    drop(ops);
    let keys: Vec<_> = packets.iter().enumerate().map(|(i, p)| p.open_key(setup_of(i))).collect();
    let places = packets.iter().zip(&mut frames).zip(&keys);
    let mut ops: Vec<_> =
        places.map(|((packet, (frame, icv)), key)| open_op(packet, key, frame, icv)).collect();
    // SAFETY: as above.
    unsafe { soil_registers() };
    open_burst(&mut ops);
    // SAFETY: as above.
    let left = unsafe { upper_registers() };
    assert!(left == [[0; 64]; 16], "opening {suite} on {tier}");
    assert!(ops.iter().all(|op| op.verdict() == Verdict::Authentic));
    drop(ops);
    // SAFETY: as above.
    unsafe { soil_registers() };
    let key = packets[0].seal_key(tier);
    // SAFETY: as above.
    let left = unsafe { upper_registers() };
    drop(key);
    assert!(left == [[0; 64]; 16], "setting {suite} up on {tier}");
}
