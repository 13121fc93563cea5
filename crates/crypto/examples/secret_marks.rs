//! Tells whether a branch or an address depends on a secret, under Valgrind's Memcheck.
//!
//! Memcheck follows which bytes are undefined and reports each jump and each address that depends
//! on one. Here keys and plaintext are marked as undefined though they are not; what it then
//! reports is a leak through time (the method is Adam Langley's ctgrind). The one branch that may
//! depend on a secret, whether a packet is authentic, is named in
//! `interop/constant-time/declassified.supp`.
//!
//! ```text
//! interop/constant-time/run.sh
//! ```
//!
//! A new suite is one more row in [`subjects`]. Tiers that Valgrind's processor lacks are skipped.

use std::{arch::asm, hint::black_box, process::ExitCode};

use convoy_crypto::{
    Cpu, GcmParams, IcvLen, KeyBits, Nonce, OpenKey, OpenOp, SealKey, SealOp, SecretBytes, Tier,
    Verdict, open_burst, seal_burst,
};

/// What is examined: a name, and what to do with secrets on a tier.
struct Subject {
    name: String,
    run: Box<Examine>,
}

type Examine = dyn Fn(&Cpu, Tier);

/// Every suite, in a burst of packets of all kinds of lengths.
fn subjects() -> Vec<Subject> {
    let gcm = KeyBits::ALL.into_iter().flat_map(|key_bits| {
        IcvLen::ALL.into_iter().map(move |icv_len| GcmParams::new(key_bits, icv_len))
    });
    gcm.map(|params| Subject {
        name: params.to_string(),
        run: Box::new(move |cpu, tier| seal_and_open(cpu, tier, params)),
    })
    .collect()
}

/// Lengths of data around those at which kernels change what they do, in bytes.
const LENGTHS: [usize; 16] = [0, 1, 15, 16, 17, 40, 63, 64, 65, 128, 200, 255, 256, 300, 576, 1420];
/// Lengths of additional data, in bytes.
const AADS: [usize; 4] = [8, 12, 0, 33];

struct Packet {
    plaintext: Vec<u8>,
    data: Vec<u8>,
    aad: Vec<u8>,
    icv: Vec<u8>,
    nonce: [u8; 12],
}

impl Packet {
    fn new(number: usize, icv_bytes: usize) -> Self {
        let bytes = |len: usize, step: u8| -> Vec<u8> {
            (0..len).map(|i| (i as u8).wrapping_mul(step).wrapping_add(number as u8)).collect()
        };
        let plaintext = bytes(LENGTHS[number % LENGTHS.len()], 7);
        Self {
            data: plaintext.clone(),
            plaintext,
            aad: bytes(AADS[number % AADS.len()], 5),
            icv: vec![0; icv_bytes],
            nonce: [number as u8; 12],
        }
    }
}

/// Seals a burst of secret plaintext with secret keys and opens it again, once as it is and once
/// with forgeries in it.
fn seal_and_open(cpu: &Cpu, tier: Tier, params: GcmParams) {
    let secret = |of: usize| {
        let mut key = vec![of as u8 * 17 + 3; params.key_bits.bytes()];
        mark_secret(&mut key);
        SecretBytes::from(key)
    };
    let seal_keys: Vec<_> = (0..3)
        .map(|of| SealKey::with_tier(cpu, tier, params, secret(of)).expect("the tier is there"))
        .collect();
    let open_keys: Vec<_> = (0..3)
        .map(|of| OpenKey::with_tier(cpu, tier, params, secret(of)).expect("the tier is there"))
        .collect();
    let mut packets: Vec<_> =
        (0..2 * LENGTHS.len()).map(|i| Packet::new(i, params.icv_len.bytes())).collect();
    packets.iter_mut().for_each(|packet| mark_secret(&mut packet.data));
    let mut ops: Vec<_> = packets
        .iter_mut()
        .enumerate()
        .map(|(i, p)| {
            let nonce = Nonce::new(p.nonce);
            SealOp::new(&seal_keys[i % 3], nonce, &p.aad, &mut p.data, &mut p.icv).expect("it fits")
        })
        .collect();
    seal_burst(&mut ops);
    drop(ops);
    for (i, packet) in packets.iter_mut().enumerate() {
        // What goes over the wire is public.
        mark_public(&mut packet.data);
        mark_public(&mut packet.icv);
        packet.icv[0] ^= u8::from(i % 5 == 4);
    }
    let mut ops: Vec<_> = packets
        .iter_mut()
        .enumerate()
        .map(|(i, p)| {
            OpenOp::new(&open_keys[i % 3], p.nonce, &p.aad, &mut p.data, &p.icv).expect("it fits")
        })
        .collect();
    open_burst(&mut ops);
    let mut verdicts: Vec<_> = ops.iter().map(|op| op.verdict() as u8).collect();
    drop(ops);
    mark_public(&mut verdicts);
    for (i, (packet, verdict)) in packets.iter_mut().zip(verdicts).enumerate() {
        let forged = i % 5 == 4;
        let expected = if forged { Verdict::Forged } else { Verdict::Authentic };
        assert_eq!(verdict, expected as u8, "{tier}, packet {i}");
        mark_public(&mut packet.data);
        let zeros = packet.data.iter().all(|&byte| byte == 0);
        assert!(if forged { zeros } else { packet.data == packet.plaintext }, "{tier}, packet {i}");
    }
}

fn main() -> ExitCode {
    if ask(RUNNING_ON_VALGRIND, &[]) == 0 {
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

    let cpu = Cpu::detect().expect("CONVOY_DENY_CPU names tiers");
    for tier in Tier::ALL {
        if !cpu.has(tier) {
            skipped += 1;
            println!("SKIPPED: constant time on {tier}: Valgrind's processor lacks it");
            continue;
        }
        for subject in subjects() {
            let name = format!("{} on {tier}", subject.name);
            tell(&name, reports_of(|| (subject.run)(&cpu, tier)), false);
        }
        println!("{tier}: {} suites", subjects().len());
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    ExitCode::from(u8::from(failed > 0))
}

/// How many reports Memcheck adds while `work` runs.
fn reports_of(work: impl FnOnce()) -> u64 {
    let before = ask(COUNT_ERRORS, &[]);
    work();
    ask(COUNT_ERRORS, &[]) - before
}

fn two_secrets() -> [[u8; 16]; 2] {
    let mut both = black_box([[1; 16], [1; 16]]);
    both.iter_mut().for_each(|one| mark_secret(one));
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

const RUNNING_ON_VALGRIND: u64 = 0x1001;
const COUNT_ERRORS: u64 = 0x1201;
/// Requests to Memcheck begin with its letters.
const MAKE_MEM_UNDEFINED: u64 = 0x4d43_0001;
const MAKE_MEM_DEFINED: u64 = 0x4d43_0002;

fn mark_secret(bytes: &mut [u8]) {
    ask(MAKE_MEM_UNDEFINED, &[bytes.as_mut_ptr() as u64, bytes.len() as u64]);
}

fn mark_public(bytes: &mut [u8]) {
    ask(MAKE_MEM_DEFINED, &[bytes.as_mut_ptr() as u64, bytes.len() as u64]);
}

/// A request to Valgrind; 0 where there is none. Valgrind knows it by a row of rotations that
/// together change nothing.
fn ask(request: u64, arguments: &[u64]) -> u64 {
    let mut block = [0; 6];
    block[0] = request;
    block[1..=arguments.len()].copy_from_slice(arguments);
    let mut answer = 0_u64;
    // SAFETY: without Valgrind this does nothing: the rotations add up to 128. With it, memory that
    // a request names is marked and not changed.
    unsafe {
        asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") block.as_ptr(),
            inout("rdx") answer,
        );
    }
    answer
}
