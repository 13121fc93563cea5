//! Bursts of every suite but AES-GCM: operations that share a route go through their passes
//! together.

use arrayvec::ArrayVec;

use crate::{
    burst::Widest,
    isa::Kernel,
    key::{CipherKey, MacKey, Schedule},
    op::{Op, Sink, Whole},
    pass::{self, CbcMacJob, CcmJob, ChaChaJob, CipherJob, GmacJob, HmacJob},
    trace,
};

/// Operations that go through a pass together. Larger bursts are cut: jobs lie on the stack, and
/// should stay in the nearest cache.
const CHUNK: usize = 128;

/// Operations of one route.
type Run<'o, O> = ArrayVec<&'o mut O, CHUNK>;

/// Runs every operation that is due and not of AES-GCM.
pub(crate) fn run<'a, O: Op<'a>>(ops: &mut [O], widest: &mut Widest) {
    // Nearly always there is one route and this ends after the first round. Every round leaves fewer
    // operations that are due.
    while let Some(first) = ops.iter().position(O::is_due) {
        let Some((_, ops)) = ops.split_at_mut_checked(first) else { return };
        let Some(key) = ops.first().map(O::key) else { return };
        let route = key.route();
        let mut due = ops.iter_mut().filter(|op| op.is_due() && op.key().route() == route);
        loop {
            let mut run: Run<'_, O> = due.by_ref().take(CHUNK).collect();
            let Some(first) = run.first() else { break };
            let schedule = first.key().schedule();
            trace::hit(first.key().tier(), O::SEAL, run.len());
            schedule.kernel().into_iter().for_each(|kernel| widest.note(kernel));
            run_route(schedule, &mut run);
            if !O::SEAL {
                wipe_forged(&mut run);
            }
        }
    }
}

/// Runs operations of one route, to which `schedule` belongs.
fn run_route<'a, O: Op<'a>>(schedule: &Schedule, run: &mut Run<'_, O>) {
    match schedule {
        // GCM has a scheduler of its own.
        Schedule::SoftGcm(_) | Schedule::Gcm { .. } => {}
        Schedule::SoftGmac(_) => soft_gmac(run),
        Schedule::Gmac { .. } => gmac(run),
        Schedule::Ccm { .. } => ccm(run),
        Schedule::ChaCha { .. } => chacha(run),
        Schedule::Pair { kernel, cipher, mac } if O::SEAL => {
            run_cipher(*kernel, cipher, run);
            run_mac(*kernel, mac, run);
        }
        Schedule::Pair { kernel, cipher, mac } => {
            run_mac(*kernel, mac, run);
            run_cipher(*kernel, cipher, run);
        }
    }
}

fn wipe_forged<'a, O: Op<'a>>(run: &mut Run<'_, O>) {
    for op in run.iter_mut().filter(|op| op.is_forged()) {
        let (Whole { header, data, .. }, _) = op.split();
        if let Some(text) = data.get_mut(header..) {
            text.fill(0);
        }
    }
}

/// A pass's jobs, and where their outcomes go.
type Jobs<J> = ArrayVec<J, CHUNK>;
type Sinks<'p> = ArrayVec<Sink<'p>, CHUNK>;

fn finish<'s, J: 's>(jobs: &'s [J], sinks: Sinks<'_>, tag: impl Fn(&'s J) -> &'s [u8]) {
    for (job, sink) in jobs.iter().zip(sinks) {
        sink.finish(tag(job));
    }
}

fn soft_gmac<'a, O: Op<'a>>(run: &mut Run<'_, O>) {
    for op in run {
        let Schedule::SoftGmac(key) = op.key().schedule() else { continue };
        let (Whole { nonce, beside: aad, data, .. }, sink) = op.split();
        sink.finish(&key.gmac(nonce, aad, data));
    }
}

fn gmac<'a, O: Op<'a>>(run: &mut Run<'_, O>) {
    let mut jobs: Jobs<GmacJob<'_>> = ArrayVec::new();
    let mut sinks: Sinks<'_> = ArrayVec::new();
    let mut chosen = None;
    for op in run {
        let Schedule::Gmac { kernel, tables } = op.key().schedule() else { continue };
        chosen = Some(*kernel);
        let (Whole { nonce, beside: aad, data, .. }, sink) = op.split();
        jobs.push(GmacJob { tables, nonce, aad, data, tag: [0; 16] });
        sinks.push(sink);
    }
    let Some(kernel) = chosen else { return };
    pass::gmac(kernel, &mut jobs);
    finish(&jobs, sinks, |job| &job.tag);
}

fn ccm<'a, O: Op<'a>>(run: &mut Run<'_, O>) {
    let mut jobs: Jobs<CcmJob<'_>> = ArrayVec::new();
    let mut sinks: Sinks<'_> = ArrayVec::new();
    let mut chosen = None;
    for op in run {
        let key = op.key();
        let Schedule::Ccm { kernel, key_bits, keys } = key.schedule() else { continue };
        chosen = Some((*kernel, *key_bits));
        let icv_len = usize::from(key.limits().icv);
        let (Whole { nonce, nonce_len, beside: aad, data, .. }, sink) = op.split();
        jobs.push(CcmJob { keys, nonce, nonce_len, icv_len, aad, data, tag: [0; 16] });
        sinks.push(sink);
    }
    let Some((kernel, bits)) = chosen else { return };
    pass::ccm(kernel, bits, O::SEAL, &mut jobs);
    finish(&jobs, sinks, |job| &job.tag);
}

fn chacha<'a, O: Op<'a>>(run: &mut Run<'_, O>) {
    let mut jobs: Jobs<ChaChaJob<'_>> = ArrayVec::new();
    let mut sinks: Sinks<'_> = ArrayVec::new();
    let mut chosen = None;
    for op in run {
        let Schedule::ChaCha { kernel, key } = op.key().schedule() else { continue };
        chosen = *kernel;
        let (Whole { nonce, beside: aad, data, .. }, sink) = op.split();
        jobs.push(ChaChaJob { key, nonce, aad, data, tag: [0; 16] });
        sinks.push(sink);
    }
    pass::chacha20_poly1305(chosen, O::SEAL, &mut jobs);
    finish(&jobs, sinks, |job| &job.tag);
}

/// Runs a pair's cipher over the texts; of opened frames, only those that are authentic.
fn run_cipher<'a, O: Op<'a>>(kernel: Option<Kernel>, cipher: &CipherKey, run: &mut Run<'_, O>) {
    let mut jobs: Jobs<CipherJob<'_>> = ArrayVec::new();
    for op in run.iter_mut().filter(|op| !op.is_forged()) {
        let Schedule::Pair { cipher, .. } = op.key().schedule() else { continue };
        let (CipherKey::Cbc(_, keys) | CipherKey::Ctr(_, keys)) = cipher else { continue };
        let (Whole { nonce: iv, header, data, .. }, _) = op.split();
        let Some(data) = data.get_mut(header..) else { continue };
        jobs.push(CipherJob { keys, iv, data });
    }
    match *cipher {
        CipherKey::Null => {}
        CipherKey::Cbc(bits, _) if O::SEAL => pass::cbc_encrypt(kernel, bits, &mut jobs),
        CipherKey::Cbc(bits, _) => pass::cbc_decrypt(kernel, bits, &mut jobs),
        CipherKey::Ctr(bits, _) => pass::ctr(kernel, bits, &mut jobs),
    }
}

/// Runs a pair's MAC over frames and trailers.
fn run_mac<'a, O: Op<'a>>(kernel: Option<Kernel>, mac: &MacKey, run: &mut Run<'_, O>) {
    match *mac {
        MacKey::Null => run.iter_mut().for_each(|op| op.split().1.finish(&[])),
        MacKey::Hmac(hasher, hash, _) => {
            let mut jobs: Jobs<HmacJob<'_>> = ArrayVec::new();
            let mut sinks: Sinks<'_> = ArrayVec::new();
            for op in run {
                let Schedule::Pair { mac: MacKey::Hmac(_, _, key), .. } = op.key().schedule()
                else {
                    continue;
                };
                let (Whole { beside: trailer, data, .. }, sink) = op.split();
                jobs.push(HmacJob { key, message: data, trailer, tag: [0; 64] });
                sinks.push(sink);
            }
            pass::hmac(hasher, hash, &mut jobs);
            let length = hash.digest_bytes();
            finish(&jobs, sinks, |job| job.tag.get(..length).unwrap_or_default());
        }
        MacKey::CbcMac(bits, _) => {
            let mut jobs: Jobs<CbcMacJob<'_>> = ArrayVec::new();
            let mut sinks: Sinks<'_> = ArrayVec::new();
            for op in run {
                let Schedule::Pair { mac: MacKey::CbcMac(_, key), .. } = op.key().schedule() else {
                    continue;
                };
                let (Whole { beside: trailer, data, .. }, sink) = op.split();
                jobs.push(CbcMacJob { key, message: data, trailer, tag: [0; 16] });
                sinks.push(sink);
            }
            pass::cbc_mac(kernel, bits, &mut jobs);
            finish(&jobs, sinks, |job| &job.tag);
        }
    }
}
