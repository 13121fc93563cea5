//! Bursts, streams and key set-up leave no secrets in the registers that a function need not keep.

#![cfg(target_arch = "x86_64")]

use std::{arch::asm, slice::from_ref, sync::Arc, thread};

use aes::cipher::{BlockCipherEncrypt as _, KeyInit as _};

use crate::common::{
    Packet, Random,
    packet::{open_op, seal_op},
    setups, setups_for, tiers,
};
use convoy_crypto::{
    AeadKey, GcmParams, IcvLen, KeyBits, OpenOp, SealOp, SecretBytes, Suite, Tier,
    manager::{AesEncryptKey, GcmStream, round_key_bytes},
    open_burst, seal_burst,
};

/// Value of the general registers before work.
const PAINT: u64 = 0x5aa5_a55a_5aa5_a55a;

/// Contents of the registers that a function need not keep (System V ABI for x86-64, section 3.2.1).
#[repr(C, align(64))]
struct Registers {
    vectors: [[u64; 8]; 32],
    general: [u64; 9],
}

impl Registers {
    fn halves(&self) -> impl Iterator<Item = u64> {
        self.vectors.iter().flatten().chain(&self.general).copied()
    }

    /// True if eight bytes of one of `secrets` are there, as they lie in memory or in a register's other order.
    fn hold(&self, secrets: &[Vec<u8>]) -> bool {
        let windows = secrets.iter().flat_map(|secret| secret.windows(8));
        let words: Vec<_> =
            windows.map(|eight| u64::from_le_bytes(eight.try_into().unwrap())).collect();
        self.halves().any(|half| words.contains(&half) || words.contains(&half.swap_bytes()))
    }
}

extern "C" fn call(work: &mut &mut dyn FnMut()) {
    work();
}

/// Calls with the registers filled, the vectors' with zeros, and stores them, with instructions of one width. `rax` is
/// not filled: functions push it to align the stack, and so get it back.
macro_rules! call_and_store {
    ($work:ident, $registers:ident, $clear:literal, $store:literal) => {
        // SAFETY: the call is one of C's ABI, whose registers are all declared as overwritten; what is written lies
        // within the registers' place.
        unsafe {
            asm!(
                $clear,
                ".irp reg, rcx, rdx, rsi, r8, r9, r10, r11",
                "mov \\reg, r13",
                ".endr",
                "call {call}",
                $store,
                ".irp reg, rax, rcx, rdx, rsi, rdi, r8, r9, r10, r11",
                "mov [r12], \\reg",
                "add r12, 8",
                ".endr",
                call = sym call,
                in("rdi") $work,
                inout("r12") $registers => _,
                in("r13") PAINT,
                clobber_abi("C"),
            )
        }
    };
}

/// Contents of the registers right behind `work`.
fn left_by(mut work: impl FnMut()) -> Registers {
    let mut registers = Registers { vectors: [[0; 8]; 32], general: [0; 9] };
    let mut work: &mut dyn FnMut() = &mut work;
    let (work, at) = (&raw mut work, &raw mut registers);
    if is_x86_feature_detected!("avx512f") {
        call_and_store!(
            work,
            at,
            "vzeroall
             .irp n, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
             vpxord zmm\\n, zmm\\n, zmm\\n
             .endr",
            ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, \
             16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
             vmovdqu64 [r12], zmm\\n
             add r12, 64
             .endr"
        );
    } else if is_x86_feature_detected!("avx") {
        call_and_store!(
            work,
            at,
            "vzeroall",
            ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
             vmovdqu [r12], ymm\\n
             add r12, 64
             .endr
             add r12, 1024"
        );
    } else {
        call_and_store!(
            work,
            at,
            ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
             pxor xmm\\n, xmm\\n
             .endr",
            ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
             movdqu [r12], xmm\\n
             add r12, 64
             .endr
             add r12, 1024"
        );
    }
    registers
}

/// Keys, and what AES makes of them: round keys (FIPS 197 section 5.2), the hash key (NIST SP 800-38D section 6.3).
///
/// On a stack of its own: what is left there would pass through registers wherever a value with unused bytes is moved.
fn secrets(packet: &Packet) -> Vec<Vec<u8>> {
    thread::scope(|scope| scope.spawn(|| secrets_here(packet)).join().unwrap())
}

fn secrets_here(packet: &Packet) -> Vec<Vec<u8>> {
    let (key, cpu) = (&packet.keys.0, crate::common::cpu());
    let mut secrets = vec![key.clone(), packet.keys.1.clone()];
    let bits = KeyBits::ALL.into_iter().find(|bits| bits.bytes() == key.len());
    if let (Some(bits), false) = (bits, packet.suite == Suite::ChaCha20Poly1305) {
        let aes = AesEncryptKey::new(&cpu, &SecretBytes::copy_from(key)).unwrap();
        let mut expanded = vec![0; round_key_bytes(bits)];
        aes.expose_round_keys(&mut expanded).unwrap();
        secrets.extend([expanded, hash_key(key)]);
    }
    secrets
}

fn hash_key(key: &[u8]) -> Vec<u8> {
    let mut block = [0; 16].into();
    match key.len() {
        16 => aes::Aes128::new_from_slice(key).unwrap().encrypt_block(&mut block),
        24 => aes::Aes192::new_from_slice(key).unwrap().encrypt_block(&mut block),
        _ => aes::Aes256::new_from_slice(key).unwrap().encrypt_block(&mut block),
    }
    block.to_vec()
}

const LENGTHS: [usize; 12] = [0, 16, 48, 64, 100, 160, 256, 524, 1000, 1348, 1420, 4000];

#[test]
fn what_is_left_is_found() {
    let secret: Vec<u8> = (1..=16).collect();
    for half in [0x0807_0605_0403_0201_u64, 0x0807_0605_0403_0201_u64.swap_bytes()] {
        let registers = left_by(|| {
            // SAFETY: only the register that is declared is written.
            unsafe { asm!("mov r10, {}", in(reg) half, out("r10") _) };
        });
        assert!(registers.hold(from_ref(&secret)));
        assert!(!registers.hold(&[vec![0x77; 16]]));
    }
    let registers = left_by(|| {
        // SAFETY: only the register that is declared is written.
        unsafe { asm!("movq xmm9, {}", in(reg) 0x0807_0605_0403_0201_u64, out("xmm9") _) };
    });
    assert!(registers.hold(&[secret]));
    assert!(left_by(|| ()).general.contains(&PAINT));
}

#[test]
fn bursts_and_set_up_leave_no_keys_in_registers() {
    let (setups, mut all, mut random) = (setups(), Vec::new(), Random(31));
    for suite in Suite::all() {
        let of_length = |random: &mut _, len| Packet {
            keys: Default::default(),
            ..Packet::of_lengths(suite, random, 8, len, 4)
        };
        let keys = Packet::of_lengths(suite, &mut random, 0, 0, 0).keys;
        let packets: Vec<_> = LENGTHS
            .iter()
            .map(|&len| Packet { keys: keys.clone(), ..of_length(&mut random, len) })
            .collect();
        let secrets = secrets(&packets[0]);
        for setup in
            setups_for(suite, &setups).into_iter().filter(|setup| setup.tier != Tier::Portable)
        {
            let mut made = None;
            let mut note = |what: &str, left: Registers| {
                if left.hold(&secrets) {
                    all.push(format!("{what} {suite} on {setup}: a key"));
                }
                if left.general.contains(&PAINT) {
                    all.push(format!("{what} {suite} on {setup}: what was in a register before"));
                }
            };
            note(
                "setting up",
                left_by(|| made = Some((packets[0].seal_key(setup), packets[0].open_key(setup)))),
            );
            let (seals, opens) = made.unwrap();
            let frames = packets.iter().map(|p| ([&*p.header, &*p.text].concat(), p.icv.clone()));
            let mut frames: Vec<_> = frames.collect();
            for (packet, (frame, icv)) in packets.iter().zip(&mut frames) {
                let mut op = [seal_op(packet, &seals, frame, icv)];
                note("sealing one of", left_by(|| seal_burst(&mut op)));
                let mut op = [open_op(packet, &opens, frame, icv)];
                note("opening one of", left_by(|| open_burst(&mut op)));
            }
            let places = packets.iter().zip(&mut frames);
            let mut ops: Vec<SealOp<'_>> =
                places.map(|(p, (frame, icv))| seal_op(p, &seals, frame, icv)).collect();
            note("sealing", left_by(|| seal_burst(&mut ops)));
            let places = packets.iter().zip(&mut frames);
            let mut ops: Vec<OpenOp<'_>> =
                places.map(|(p, (frame, icv))| open_op(p, &opens, frame, icv)).collect();
            note("opening", left_by(|| open_burst(&mut ops)));
        }
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn streams_leave_no_keys_in_registers() {
    let (cpu, mut random) = (crate::common::cpu(), Random(37));
    for tier in tiers().into_iter().filter(|&tier| tier != Tier::Portable) {
        let params = GcmParams::new(KeyBits::Aes128, IcvLen::Icv16);
        let packet = Packet::of_lengths(Suite::Gcm(params), &mut random, 0, 0, 0);
        let secrets = secrets(&packet);
        let key = SecretBytes::copy_from(&packet.keys.0);
        let key = Arc::new(AeadKey::with_tier(&cpu, tier, params, key).unwrap());
        for len in LENGTHS {
            let mut data = random.bytes(len);
            let mut stream = GcmStream::seal(Arc::clone(&key), &[7; 12]).unwrap();
            assert!(
                !left_by(|| stream.update(&mut data).unwrap()).hold(&secrets),
                "{len} on {tier}"
            );
            assert!(!left_by(|| assert!(stream.tag().is_ok())).hold(&secrets), "{len} on {tier}");
        }
    }
}
