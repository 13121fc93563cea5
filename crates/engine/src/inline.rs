//! The engine of Convoy's own kernels, which works on the worker's core.

use arrayvec::ArrayVec;
use convoy_crypto::{Lengths, OpenOp, SealOp, Verdict, open_burst, seal_burst};
use convoy_packet::{BURST_MAX, Frame};

use crate::job::{Job, Op, Span, Status};
use crate::output::Output;
use crate::{EngineKey, KeyId, Synchronous};

/// Engine that runs each burst at once.
#[derive(Debug, Default)]
pub(crate) struct Inline {
    /// A slice in the hot path: through a `KeyTable` a job takes one instruction more.
    keys: Vec<Option<EngineKey>>,
}

impl Inline {
    /// An engine without keys.
    pub(crate) fn new() -> Self {
        Self::default()
    }
}

impl Synchronous for Inline {
    fn install(&mut self, id: KeyId, key: EngineKey) {
        let at = id.0 as usize;
        if self.keys.len() <= at {
            self.keys.resize_with(at + 1, || None);
        }
        if let Some(place) = self.keys.get_mut(at) {
            *place = Some(key);
        }
    }

    fn remove(&mut self, id: KeyId) {
        if let Some(place) = self.keys.get_mut(id.0 as usize) {
            *place = None;
        }
    }

    fn run(&mut self, jobs: &mut [Job]) {
        let keys = &*self.keys;
        prefetch(keys, jobs);
        run_jobs(|id| keys.get(id.0 as usize)?.as_ref(), jobs);
    }
}

/// So few keys stay in a near cache.
const FEW_KEYS: usize = 16;

/// Starts loading the keys of all jobs, so that their ways through the memory overlap.
fn prefetch(keys: &[Option<EngineKey>], jobs: &[Job]) {
    if keys.len() <= FEW_KEYS {
        return;
    }
    let mut last = None;
    for id in jobs.iter().map(|job| job.key) {
        // Packets of one SA come in runs.
        if last.replace(id) != Some(id) {
            match keys.get(id.0 as usize) {
                Some(Some(EngineKey::Seal(key))) => key.prefetch(),
                Some(Some(EngineKey::Open(key))) => key.prefetch(),
                _ => {}
            }
        }
    }
}

/// Works on jobs where they lie, with the keys that `key_of` finds.
#[inline]
pub(crate) fn run_jobs<'k>(key_of: impl Fn(KeyId) -> Option<&'k EngineKey>, jobs: &mut [Job]) {
    // Bursts are of one direction, unless a caller mixes them.
    if seal_jobs(&key_of, jobs) < jobs.len() {
        open_jobs(&key_of, jobs);
    }
}

/// Seals what is to be sealed; returns how many that were. All others are rejected for now.
fn seal_jobs<'k>(key_of: impl Fn(KeyId) -> Option<&'k EngineKey>, jobs: &mut [Job]) -> usize {
    let mut ops: ArrayVec<SealOp<'_>, BURST_MAX> = ArrayVec::new();
    let mut seen = 0;
    for job in jobs {
        let Job { frame, text, header, key, status, aad_len, aad, op, .. } = job;
        *status = Status::Rejected;
        if !matches!(op, Op::Seal(_)) {
            continue;
        }
        let Op::Seal(nonce) = core::mem::replace(op, Op::Spent) else { continue };
        seen += 1;
        let Some(EngineKey::Seal(key)) = key_of(*key) else { continue };
        let Some(beside) = aad.get(..usize::from(*aad_len)) else { continue };
        let Some(packet) = from_header(frame, *text, *header) else { continue };
        let lengths = Lengths { header: *header as usize, text: text.len as usize };
        if let Ok(op) = SealOp::in_place(key, nonce, packet, lengths, beside) {
            *status = Status::Done;
            ops.push(op);
        }
    }
    seal_burst(&mut ops);
    seen
}

/// Opens what is to be opened, of jobs that are rejected so far.
fn open_jobs<'k>(key_of: impl Fn(KeyId) -> Option<&'k EngineKey>, jobs: &mut [Job]) {
    let mut ops: ArrayVec<OpenOp<'_>, BURST_MAX> = ArrayVec::new();
    let mut opened: ArrayVec<&mut Status, BURST_MAX> = ArrayVec::new();
    for job in jobs {
        let Job { frame, text, header, key, status, aad_len, aad, op, .. } = job;
        let Op::Open(nonce) = *op else { continue };
        *op = Op::Spent;
        let Some(EngineKey::Open(key)) = key_of(*key) else { continue };
        let Some(beside) = aad.get(..usize::from(*aad_len)) else { continue };
        let Some(packet) = from_header(frame, *text, *header) else { continue };
        let lengths = Lengths { header: *header as usize, text: text.len as usize };
        if let Ok(op) = OpenOp::in_place(key, nonce, packet, lengths, beside) {
            ops.push(op);
            opened.push(status);
        }
    }
    open_burst(&mut ops);
    for (op, status) in ops.iter().zip(&mut opened) {
        **status = status_of(op.verdict());
    }
}

/// Works on a copy of one job's packet as software does; for engines that have the work done by
/// [`convoy_crypto`] elsewhere. Another key or packet than the job's would use its nonce twice.
pub fn run_copy(key: &EngineKey, job: &Job, packet: &mut [u8]) -> Status {
    let lengths = Lengths { header: job.header as usize, text: job.text.len as usize };
    let start = job.text.start.checked_sub(job.header).map(|start| start as usize);
    let packet = start.and_then(|start| packet.get_mut(start..));
    let (Some(packet), Some(beside)) = (packet, job.aad.get(..usize::from(job.aad_len))) else {
        return Status::Rejected;
    };
    match (job.op.again(), key) {
        (Op::Seal(nonce), EngineKey::Seal(key)) => {
            let op = SealOp::in_place(key, nonce, packet, lengths, beside);
            op.map_or(Status::Rejected, |op| {
                seal_burst(&mut [op]);
                Status::Done
            })
        }
        (Op::Open(nonce), EngineKey::Open(key)) => {
            let op = OpenOp::in_place(key, nonce, packet, lengths, beside);
            op.map_or(Status::Rejected, |op| {
                let mut ops = [op];
                open_burst(&mut ops);
                let [op] = ops;
                status_of(op.verdict())
            })
        }
        _ => Status::Rejected,
    }
}

/// Works on copies of jobs' packets, as many at a time as suits software.
pub(crate) fn run_copies<'k>(
    key_of: impl Fn(KeyId) -> Option<&'k EngineKey>,
    jobs: &[Job],
    outputs: &mut [Output],
) {
    let mut seals: ArrayVec<SealOp<'_>, BURST_MAX> = ArrayVec::new();
    let mut opens: ArrayVec<OpenOp<'_>, BURST_MAX> = ArrayVec::new();
    let mut opened: ArrayVec<&mut Status, BURST_MAX> = ArrayVec::new();
    for (job, output) in jobs.iter().zip(outputs).take(BURST_MAX) {
        let (bytes, status) = output.parts();
        *status = Status::Rejected;
        if bytes.len() != job.frame.len() {
            continue;
        }
        bytes.copy_from_slice(job.frame.data());
        let start = job.text.start.checked_sub(job.header);
        let packet = start.and_then(|start| bytes.get_mut(start as usize..));
        let Some(packet) = packet else { continue };
        let Some(beside) = job.aad.get(..usize::from(job.aad_len)) else { continue };
        let lengths = Lengths { header: job.header as usize, text: job.text.len as usize };
        match (job.op.again(), key_of(job.key)) {
            (Op::Seal(nonce), Some(EngineKey::Seal(key))) => {
                if let Ok(op) = SealOp::in_place(key, nonce, packet, lengths, beside) {
                    *status = Status::Done;
                    seals.push(op);
                }
            }
            (Op::Open(nonce), Some(EngineKey::Open(key))) => {
                if let Ok(op) = OpenOp::in_place(key, nonce, packet, lengths, beside) {
                    opens.push(op);
                    opened.push(status);
                }
            }
            _ => {}
        }
    }
    seal_burst(&mut seals);
    open_burst(&mut opens);
    for (op, status) in opens.iter().zip(&mut opened) {
        **status = status_of(op.verdict());
    }
}

const fn status_of(verdict: Verdict) -> Status {
    match verdict {
        Verdict::Authentic => Status::Done,
        Verdict::Forged => Status::BadIcv,
        Verdict::Pending => Status::Rejected,
    }
}

/// A packet from its header on; `None` where that begins before it or behind it.
#[inline(always)]
fn from_header(frame: &mut Frame, text: Span, header: u32) -> Option<&mut [u8]> {
    let start = text.start.checked_sub(header)?;
    frame.data_mut().get_mut(start as usize..)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Context, Front, JobBurst};
    use convoy_crypto::{
        Cpu, GcmParams, IcvLen, KeyBits, KeyMaterial, Nonce, OpenKey, SealKey, SecretBytes, Suite,
    };
    use convoy_packet::{Arena, FrameSize, Pool};

    fn engine() -> Inline {
        let mut engine = Inline::new();
        let (seal, open) = keys();
        engine.install(KeyId(3), seal);
        engine.install(KeyId(4), open);
        engine
    }

    /// Keys to seal and to open with.
    fn keys() -> (EngineKey, EngineKey) {
        let cpu = Cpu::detect().unwrap();
        let params = GcmParams::new(KeyBits::Aes128, IcvLen::Icv16);
        let secret = || SecretBytes::copy_from(&[7; 16]);
        let seal = SealKey::new(&cpu, params, secret()).unwrap();
        let open = OpenKey::new(&cpu, params, secret()).unwrap();
        (EngineKey::Seal(Arc::new(seal)), EngineKey::Open(Arc::new(open)))
    }

    fn job(pool: &mut Pool, key: u32, op: Op, bytes: &[u8], len: u32) -> Job {
        let mut frame = pool.alloc().unwrap();
        frame.fill_from(bytes).unwrap();
        Job {
            frame,
            text: Span { start: 2, len },
            key: KeyId(key),
            status: Status::Pending,
            header: 0,
            aad_len: 8,
            aad: [1; 20],
            op,
            context: Context::default(),
        }
    }

    fn run_alone(engine: &mut Inline, job: Job) -> Job {
        let mut jobs = JobBurst::new();
        jobs.push(job).unwrap();
        engine.run(jobs.as_mut_slice());
        jobs.drain().next().unwrap()
    }

    #[test]
    fn what_is_sealed_opens_and_what_was_touched_does_not() {
        let arena = Arena::map(4, FrameSize::for_packet(100)).unwrap();
        let mut pool = arena.pool();
        let mut engine = engine();
        let plain = [&b"..payload"[..], &[0; 16]].concat();
        let sealed = job(&mut pool, 3, Op::Seal(Nonce::new([5; 12])), &plain, 7);
        let sealed = run_alone(&mut engine, sealed);
        assert_eq!(sealed.status, Status::Done);
        assert!(matches!(sealed.op, Op::Spent));
        assert!(sealed.frame.data().starts_with(b"..") && &sealed.frame.data()[2..9] != b"payload");

        let opened = job(&mut pool, 4, Op::Open([5; 12].into()), sealed.frame.data(), 7);
        let opened = run_alone(&mut engine, opened);
        assert_eq!(opened.status, Status::Done);
        assert_eq!(&opened.frame.data()[2..9], b"payload");

        let mut forged = job(&mut pool, 4, Op::Open([5; 12].into()), sealed.frame.data(), 7);
        forged.frame.data_mut()[3] ^= 1;
        let forged = run_alone(&mut engine, forged);
        assert_eq!(forged.status, Status::BadIcv);
        assert_eq!(&forged.frame.data()[2..9], [0; 7]);
        for job in [sealed, opened, forged] {
            pool.free(job.frame);
        }
    }

    /// A pair's header lies in one piece with the text and is authenticated, but not encrypted.
    #[test]
    fn a_pair_s_header_and_trailer_are_authenticated() {
        let arena = Arena::map(4, FrameSize::for_packet(100)).unwrap();
        let mut pool = arena.pool();
        let suite: Suite = "aes-128-cbc+hmac-sha1-96".parse().unwrap();
        let cpu = Cpu::detect().unwrap();
        let material = || KeyMaterial {
            cipher: SecretBytes::copy_from(&[7; 16]),
            integrity: SecretBytes::copy_from(&[8; 20]),
        };
        let mut engine = Inline::new();
        let seal = SealKey::new(&cpu, suite, material()).unwrap();
        engine.install(KeyId(0), EngineKey::Seal(Arc::new(seal)));
        let open = OpenKey::new(&cpu, suite, material()).unwrap();
        engine.install(KeyId(1), EngineKey::Open(Arc::new(open)));
        let pair =
            |job: Job| Job { header: 8, aad_len: 4, text: Span { start: 10, len: 16 }, ..job };

        let plain = [&b"..12345678"[..], &[0x61; 16], &[0; 12]].concat();
        let sealed = job(&mut pool, 0, Op::Seal(Nonce::new([5; 16])), &plain, 0);
        let sealed = run_alone(&mut engine, pair(sealed));
        assert_eq!(sealed.status, Status::Done);
        assert_eq!(&sealed.frame.data()[..10], b"..12345678");
        assert_ne!(sealed.frame.data()[10..26], [0x61; 16]);
        let open =
            |pool: &mut Pool| pair(job(pool, 1, Op::Open([5; 16].into()), sealed.frame.data(), 0));
        let opened = open(&mut pool);
        let opened = run_alone(&mut engine, opened);
        assert_eq!(opened.status, Status::Done);
        assert_eq!(opened.frame.data()[10..26], [0x61; 16]);
        pool.free(opened.frame);
        for byte in [2, 9, 10, 25, 26, 37] {
            let mut forged = open(&mut pool);
            forged.frame.data_mut()[byte] ^= 1;
            let forged = run_alone(&mut engine, forged);
            assert_eq!(forged.status, Status::BadIcv, "byte {byte}");
            pool.free(forged.frame);
        }
        let mut forged = open(&mut pool);
        forged.aad[3] ^= 1;
        let forged = run_alone(&mut engine, forged);
        assert_eq!(forged.status, Status::BadIcv);
        pool.free(forged.frame);
        let mut outside = open(&mut pool);
        outside.header = 11;
        let outside = run_alone(&mut engine, outside);
        assert_eq!(outside.status, Status::Rejected, "a header that begins before the packet");
        pool.free(outside.frame);
        pool.free(sealed.frame);
    }

    #[test]
    fn an_aead_takes_no_header() {
        let arena = Arena::map(4, FrameSize::for_packet(100)).unwrap();
        let mut pool = arena.pool();
        let job = job(&mut pool, 3, Op::Seal(Nonce::new([5; 12])), &[0; 40], 7);
        let job = run_alone(&mut engine(), Job { header: 1, ..job });
        assert_eq!(job.status, Status::Rejected);
        pool.free(job.frame);
    }

    #[test]
    fn a_job_that_can_never_run_comes_back_rejected() {
        let arena = Arena::map(4, FrameSize::for_packet(100)).unwrap();
        let mut pool = arena.pool();
        let mut engine = engine();
        let bytes = [0; 40];
        let seal = || Op::Seal(Nonce::new([5; 12]));
        let cases = [
            ("unknown key", 9, seal(), 7),
            ("key of the other direction", 4, seal(), 7),
            ("text longer than the packet", 3, seal(), 39),
            ("no room for the icv", 3, seal(), 38),
            ("no room for the icv to open", 4, Op::Open([5; 12].into()), 23),
            ("spent", 3, Op::Spent, 7),
        ];
        for (what, key, op, len) in cases {
            let job = job(&mut pool, key, op, &bytes, len);
            let job = run_alone(&mut engine, job);
            assert_eq!(job.status, Status::Rejected, "{what}");
            pool.free(job.frame);
        }
        assert_eq!(arena.leaked(), 0);
    }

    #[test]
    fn a_full_front_end_takes_a_prefix_and_keeps_order() {
        let arena = Arena::map(1024, FrameSize::for_packet(100)).unwrap();
        let mut pool = arena.pool();
        let mut front = Front::inline();
        front.install(KeyId(3), keys().0);
        let (mut jobs, mut done) = (JobBurst::new(), JobBurst::new());
        let mut made = 0;
        let mut seen = 0;
        for step in 0..40 {
            while jobs.room() > 0 && step < 20 {
                let mut job = job(&mut pool, 3, Op::Seal(Nonce::new([5; 12])), &[0; 40], 7);
                job.context.value = made;
                made += 1;
                jobs.push(job).unwrap();
            }
            front.submit(0, &mut pool, &mut jobs);
            if step % 3 != 0 {
                front.poll(0, &mut pool, &mut done);
                // Leave some behind, so that polls also append.
                let n = if step < 30 { 100 } else { 256 };
                for job in done.drain_front(n) {
                    assert_eq!(job.context.value, seen);
                    seen += 1;
                    pool.free(job.frame);
                }
            }
        }
        assert_eq!(seen, made);
        assert_eq!(arena.leaked(), 0);
    }
}
