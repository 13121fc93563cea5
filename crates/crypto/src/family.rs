//! Bursts of every suite but AES-GCM: operations that share a route go through their passes
//! together.

use std::cell::Cell;

use arrayvec::ArrayVec;
use zeroize::Zeroize;

use crate::{
    KeyBits,
    isa::{
        Kernel,
        job::{CbcMacJob, CcmJob, ChaChaJob, CipherJob, GmacJob, HmacJob},
    },
    key::{CipherKey, Key, MacKey, Schedule},
    op::{Op, Sink, Whole},
    pass::{self, Batch, Tagged},
    trace,
    wide_units::Load,
    widest::Widest,
};

/// Operations that go through a pass together. Larger bursts are cut: jobs lie on the stack, and
/// should stay in the nearest cache.
const CHUNK: usize = 128;

/// Operations of one route.
type Run<'o, O> = ArrayVec<&'o mut O, CHUNK>;

/// Runs every operation that is due and not of AES-GCM. What it leaves on the stack is below the
/// caller's frame.
#[inline(never)]
pub(crate) fn run<'a, O: Op<'a>>(ops: &mut [O], widest: &mut Widest) {
    // Nearly always there is one route, and this ends after one round. Every round leaves fewer
    // operations.
    let mut rest = ops;
    while let Some(first) = rest.iter().position(O::is_due) {
        let Some((_, due)) = rest.split_at_mut_checked(first) else { return };
        if !run_first_route(due, widest) {
            return;
        }
        rest = due.get_mut(1..).unwrap_or_default();
    }
}

/// Runs all operations on the route of the first; returns whether others are left.
fn run_first_route<'a, O: Op<'a>>(ops: &mut [O], widest: &mut Widest) -> bool {
    let Some(key) = ops.first().map(O::key) else { return false };
    widest.note(key.schedule().kernel());
    if key.schedule().is_legacy() {
        widest.note(None);
    }
    // Where wide units sleep, all of the burst counts.
    let narrow = key.schedule().goes_narrow(CHUNK, || {
        let of_route = |op: &&O| op.is_due() && op.key().route() == key.route();
        let lengths = ops.iter().filter(of_route).map(O::data_len);
        lengths.fold(Load::default(), |load, length| Load {
            messages: load.messages + 1,
            bytes: load.bytes + length,
        })
    });
    let mut left = false;
    for ops in ops.chunks_mut(CHUNK) {
        let mut run: Run<'_, O> = ArrayVec::new();
        for op in ops {
            if !op.is_due() {
                continue;
            }
            if op.key().route() == key.route() {
                run.push(op);
            } else {
                left = true;
            }
        }
        trace::hit(key.tier(), O::SEAL, run.len());
        run_route(key.schedule(), narrow, &mut run);
        run.iter_mut().for_each(|op| op.conclude());
    }
    left
}

/// Runs operations of one route, to which `schedule` belongs; hashes and ChaCha20 in narrow registers, where it is
/// said.
fn run_route<'a, O: Op<'a>>(schedule: &Schedule, narrow: bool, run: &mut Run<'_, O>) {
    match *schedule {
        // GCM has a scheduler of its own.
        Schedule::SoftGcm(_) | Schedule::Gcm { .. } => {}
        Schedule::SoftGmac(_) => soft_gmac(run),
        Schedule::Gmac { kernel, .. } => gmac(kernel, run),
        Schedule::Ccm { kernel, key_bits, .. } => ccm(kernel, key_bits, run),
        Schedule::ChaCha { kernel, .. } if narrow => chacha(kernel.map(Kernel::narrow), run),
        Schedule::ChaCha { kernel, .. } => chacha(kernel, run),
        Schedule::Pair { kernel, ref cipher, ref mac } if O::SEAL => {
            run_cipher(kernel, cipher, run);
            run_mac(kernel, mac, narrow, run);
        }
        Schedule::Pair { kernel, ref cipher, ref mac } => {
            run_mac(kernel, mac, narrow, run);
            run_cipher(kernel, cipher, run);
        }
    }
}

/// Makes a job of each operation, runs a pass over the jobs, and gives the operations their tags, of
/// `length` bytes. There is no operation on this route that no job is made of.
#[inline(always)]
fn with_tags<'a, 'r, O: Op<'a>, J: Tagged>(
    run: &'r mut Run<'_, O>,
    length: usize,
    job: impl Fn(&'a Key, Whole<'r>) -> Option<J>,
    pass: impl FnOnce(&mut [J]),
) {
    let mut batch = Batch::<J, Sink<'r>, CHUNK>::new();
    for op in run {
        let key = op.key();
        let (whole, sink) = op.split();
        if let Some(job) = job(key, whole) {
            batch.push(job, sink);
        }
    }
    pass(batch.jobs());
    batch.deliver(|sink, tag| sink.finish(tag.get(..length).unwrap_or(tag)));
}

fn soft_gmac<'a, O: Op<'a>>(run: &mut Run<'_, O>) {
    for op in run {
        let Schedule::SoftGmac(key) = op.key().schedule() else { continue };
        let (Whole { nonce, beside: aad, data, .. }, sink) = op.split();
        let mut tag = key.gmac(nonce, aad, data);
        sink.finish(&tag);
        tag.zeroize();
    }
}

fn gmac<'a, O: Op<'a>>(kernel: Kernel, run: &mut Run<'_, O>) {
    with_tags(
        run,
        16,
        |key, Whole { nonce, beside: aad, data, .. }| {
            let Schedule::Gmac { tables, .. } = key.schedule() else { return None };
            Some(GmacJob { tables, nonce, aad, data, tag: [0; 16] })
        },
        |jobs| pass::gmac(kernel, jobs),
    );
}

fn ccm<'a, O: Op<'a>>(kernel: Option<Kernel>, bits: KeyBits, run: &mut Run<'_, O>) {
    with_tags(
        run,
        16,
        |key, Whole { nonce, nonce_len, beside: aad, data, .. }| {
            let Schedule::Ccm { keys, .. } = key.schedule() else { return None };
            let icv_len = usize::from(key.limits().icv);
            Some(CcmJob {
                keys,
                nonce,
                nonce_len,
                icv_len,
                aad,
                data,
                tag: Cell::new([0; 16]),
                state: Cell::new([0; 16]),
            })
        },
        |jobs| pass::ccm(kernel, bits, O::SEAL, jobs),
    );
}

fn chacha<'a, O: Op<'a>>(kernel: Option<Kernel>, run: &mut Run<'_, O>) {
    with_tags(
        run,
        16,
        |key, Whole { nonce, beside: aad, data, .. }| {
            let Schedule::ChaCha { key, .. } = key.schedule() else { return None };
            Some(ChaChaJob { key, nonce, aad, data, tag: [0; 16] })
        },
        |jobs| pass::chacha20_poly1305(kernel, O::SEAL, jobs),
    );
}

/// Runs a pair's cipher over the texts; of opened frames, only those that are authentic.
fn run_cipher<'a, O: Op<'a>>(kernel: Option<Kernel>, cipher: &CipherKey, run: &mut Run<'_, O>) {
    if let CipherKey::Legacy(_) = cipher {
        return legacy(run);
    }
    let mut jobs: ArrayVec<CipherJob<'_>, CHUNK> = ArrayVec::new();
    for op in run.iter_mut().filter(|op| !op.is_refused()) {
        let Schedule::Pair { cipher, .. } = op.key().schedule() else { continue };
        let (CipherKey::Cbc(_, keys) | CipherKey::Ctr(_, keys)) = cipher else { continue };
        let (Whole { nonce: iv, header, data, .. }, _) = op.split();
        let Some(data) = data.get_mut(header..) else { continue };
        jobs.push(CipherJob { keys, iv, data });
    }
    match *cipher {
        CipherKey::Null | CipherKey::Legacy(_) => {}
        CipherKey::Cbc(bits, _) if O::SEAL => pass::cbc_encrypt(kernel, bits, &mut jobs),
        CipherKey::Cbc(bits, _) => pass::cbc_decrypt(kernel, bits, &mut jobs),
        CipherKey::Ctr(bits, _) => pass::ctr(kernel, bits, &mut jobs),
    }
}

/// Runs a cipher that no kernel has, one packet after another.
#[cold]
fn legacy<'a, O: Op<'a>>(run: &mut Run<'_, O>) {
    for op in run.iter_mut().filter(|op| !op.is_refused()) {
        let Schedule::Pair { cipher: CipherKey::Legacy(key), .. } = op.key().schedule() else {
            continue;
        };
        let (Whole { nonce: iv, header, data, .. }, _) = op.split();
        let Some(data) = data.get_mut(header..) else { continue };
        if O::SEAL {
            key.cbc_encrypt(iv, data);
        } else {
            key.cbc_decrypt(iv, data);
        }
    }
}

/// Runs a pair's MAC over frames and trailers.
fn run_mac<'a, O: Op<'a>>(
    kernel: Option<Kernel>,
    mac: &MacKey,
    narrow: bool,
    run: &mut Run<'_, O>,
) {
    match *mac {
        MacKey::Null => run.iter_mut().for_each(|op| op.split().1.finish(&[])),
        MacKey::Hmac(hasher, hash, _) => with_tags(
            run,
            hash.digest_bytes(),
            |key, Whole { beside: trailer, data, .. }| {
                let Schedule::Pair { mac: MacKey::Hmac(_, _, key), .. } = key.schedule() else {
                    return None;
                };
                Some(HmacJob { key, message: data, trailer, tag: [0; 64] })
            },
            |jobs| {
                let hasher = if narrow { hasher.narrow(hash) } else { hasher };
                pass::hmac(hasher, hash, jobs);
            },
        ),
        MacKey::CbcMac(bits, _) => with_tags(
            run,
            16,
            |key, Whole { beside: trailer, data, .. }| {
                let Schedule::Pair { mac: MacKey::CbcMac(_, key), .. } = key.schedule() else {
                    return None;
                };
                Some(CbcMacJob { key, message: data, trailer, tag: [0; 16] })
            },
            |jobs| pass::cbc_mac(kernel, bits, jobs),
        ),
    }
}
