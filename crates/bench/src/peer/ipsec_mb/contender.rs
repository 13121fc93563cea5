//! intel-ipsec-mb as a contender, once for every interface that fits the suite.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::rc::Rc;

use convoy_crypto::{Cipher, HashAlg, KeyBits, MacAlg, Suite};

use super::jobs::{Shape, aead_size};
use super::keys::Material;
use super::layout::{
    AnyJob, Burst, CONTEXT, CipherBurst, DECRYPT, ENCRYPT, Generation, GetJob, HashBurst, Job,
    JobV2, MAX_BURST,
};
use super::library::IpsecMb;
use crate::api::CHECKED;
use crate::contender::Contender;
use crate::peer::tags;
use crate::suite::ESP_HEADER;
use crate::workload::{Arena, Direction, Packet, Workload};

/// Everything but the way of calling.
struct Base {
    library: Rc<IpsecMb>,
    keys: Vec<Material>,
    seal: Shape,
    open: Shape,
    /// ICVs of opened packets, to be compared.
    tags: Vec<[u8; 64]>,
}

impl Base {
    fn new(library: &Rc<IpsecMb>, work: &Workload) -> Option<Self> {
        let keys = work.keys.iter().map(|keys| Material::new(library, work.suite, keys));
        Some(Self {
            library: library.clone(),
            keys: keys.collect::<Option<_>>()?,
            seal: Shape::new(work.suite, Direction::Seal)?,
            open: Shape::new(work.suite, Direction::Open)?,
            tags: vec![[0; 64]; work.packets.len()],
        })
    }
}

/// A way of calling: runs all packets, writing ICVs to the arena or to the tags.
trait Calls {
    fn api(&self) -> String;
    fn run(&mut self, base: &mut Base, direction: Direction, work: &Workload, arena: *mut u8);
}

struct Peer<C> {
    base: Base,
    calls: C,
    api: String,
}

impl<C: Calls> Contender for Peer<C> {
    fn who(&self) -> &'static str {
        "ipsec-mb"
    }

    fn api(&self) -> &str {
        &self.api
    }

    fn seal(&mut self, work: &Workload, arena: &mut Arena) {
        let bytes = arena.bytes_mut().as_mut_ptr();
        self.calls.run(&mut self.base, Direction::Seal, work, bytes);
    }

    fn open(&mut self, work: &Workload, arena: &mut Arena) -> usize {
        let bytes = arena.bytes_mut().as_mut_ptr();
        self.calls.run(&mut self.base, Direction::Open, work, bytes);
        tags::authentic(work, arena, &self.base.tags)
    }
}

/// Pointer to the place for the ICV of packet `index`.
#[inline(always)]
fn tag_place(
    shape: &Shape,
    direction: Direction,
    tags: &mut [[u8; 64]],
    index: usize,
    packet: &Packet,
    arena: *mut u8,
) -> *mut u8 {
    match direction {
        Direction::Seal => shape.icv_of(packet, arena),
        Direction::Open => tags[index].as_mut_ptr(),
    }
}

/// Checks of an interface on what its caller hands over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checks {
    /// It trusts its caller.
    None,
    /// It checks its caller.
    Caller,
}

impl Checks {
    /// Both.
    pub const ALL: [Self; 2] = [Self::None, Self::Caller];

    /// Suffix of an interface's name.
    const fn suffix(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Caller => CHECKED,
        }
    }
}

/// Contenders for each interface of `library` that fits the workload; none if it lacks the suite. Those of jobs and bursts are
/// among them with each of these `checks`; those that check their callers are never the fastest.
#[must_use]
pub fn contenders(
    library: &Rc<IpsecMb>,
    work: &Workload,
    checks: &[Checks],
) -> Vec<Box<dyn Contender>> {
    match library.generation {
        Generation::V1 => with_jobs::<Job>(library, work, checks),
        Generation::V2 => with_jobs::<JobV2>(library, work, checks),
    }
}

fn with_jobs<J: StampedJob + 'static>(
    library: &Rc<IpsecMb>,
    work: &Workload,
    checks: &[Checks],
) -> Vec<Box<dyn Contender>> {
    let mut all = Vec::new();
    let mut push = |contender: Option<Box<dyn Contender>>| all.extend(contender);
    for &checks in checks {
        push(boxed(library, work, Queue::<J>::new(library, work, checks)));
        for size in [32, MAX_BURST] {
            push(boxed(library, work, Bursts::<J>::new(library, work, size, checks)));
        }
    }
    push(boxed(library, work, Typed::<J>::new(library, work)));
    push(boxed(library, work, Direct::new(library, work)));
    push(boxed(library, work, Quic::new(library, work)));
    all
}

fn boxed<C: Calls + 'static>(
    library: &Rc<IpsecMb>,
    work: &Workload,
    calls: Option<C>,
) -> Option<Box<dyn Contender>> {
    let calls = calls?;
    let base = Base::new(&library.another()?, work)?;
    Some(Box::new(Peer { base, api: calls.api(), calls }))
}

/// A job that can be stamped with its session where the generation has such a thing.
trait StampedJob: AnyJob {
    fn stamp(&mut self, library: &IpsecMb);
}

impl StampedJob for Job {
    fn stamp(&mut self, _library: &IpsecMb) {}
}

impl StampedJob for JobV2 {
    fn stamp(&mut self, library: &IpsecMb) {
        if let Some(set_session) = library.set_session {
            // SAFETY: the manager is alive and the job is of its generation.
            unsafe { set_session(library.manager(), self) };
        }
    }
}

/// The template of each direction as a whole job.
fn templates<J: StampedJob>(library: &IpsecMb, suite: Suite) -> Option<[J; 2]> {
    let template = |direction| {
        let mut job = J::EMPTY;
        *job.job() = Shape::new(suite, direction)?.template;
        job.stamp(library);
        Some(job)
    };
    Some([template(Direction::Seal)?, template(Direction::Open)?])
}

/// One job after the other through the manager's queue.
struct Queue<J> {
    templates: [J; 2],
    checks: Checks,
    next: GetJob,
    submit: GetJob,
    completed: GetJob,
    flush: GetJob,
}

impl<J: StampedJob> Queue<J> {
    fn new(library: &IpsecMb, work: &Workload, checks: Checks) -> Option<Self> {
        let functions = &library.functions;
        let submit = match checks {
            Checks::None => functions.submit_job_nocheck,
            Checks::Caller => functions.submit_job,
        };
        Some(Self {
            templates: templates(library, work.suite)?,
            checks,
            next: library.functions.get_next_job?,
            submit: submit?,
            completed: library.functions.get_completed_job?,
            flush: library.functions.flush_job?,
        })
    }
}

impl<J: StampedJob> Calls for Queue<J> {
    fn api(&self) -> String {
        format!("job{}", self.checks.suffix())
    }

    fn run(&mut self, base: &mut Base, direction: Direction, work: &Workload, arena: *mut u8) {
        let Base { library, keys, tags, seal, open } = base;
        let shape = if direction == Direction::Seal { seal } else { open };
        let template = self.templates[direction as usize];
        let manager = library.manager();
        for (i, packet) in work.packets.iter().enumerate() {
            // SAFETY: the manager is alive and used by this thread alone.
            let slot = unsafe { (self.next)(manager) };
            // SAFETY: the queue hands out a job of its generation that is nobody else's until it
            // is submitted.
            let job = unsafe { &mut *slot.cast::<J>() };
            *job = template;
            let tag = tag_place(shape, direction, tags, i, packet, arena);
            shape.fill(job.job(), &keys[packet.key], packet, arena, tag);
            // SAFETY: the job is filled; keys, packet, nonce and tag outlive the flush below.
            let mut done = unsafe { (self.submit)(manager) };
            while !done.is_null() {
                // SAFETY: as above; it looks at the queue only.
                done = unsafe { (self.completed)(manager) };
            }
        }
        // SAFETY: as above; it ends when the queue is empty.
        while !unsafe { (self.flush)(manager) }.is_null() {}
    }
}

/// Bursts of jobs through the manager's queue.
struct Bursts<J> {
    templates: [J; 2],
    size: usize,
    checks: Checks,
    next: Burst,
    submit: Burst,
    flush: Burst,
}

impl<J: StampedJob> Bursts<J> {
    fn new(library: &IpsecMb, work: &Workload, size: usize, checks: Checks) -> Option<Self> {
        let functions = &library.functions;
        let submit = match checks {
            Checks::None => functions.submit_burst_nocheck,
            Checks::Caller => functions.submit_burst,
        };
        Some(Self {
            templates: templates(library, work.suite)?,
            size,
            checks,
            next: library.functions.get_next_burst?,
            submit: submit?,
            flush: library.functions.flush_burst?,
        })
    }
}

impl<J: StampedJob> Calls for Bursts<J> {
    fn api(&self) -> String {
        format!("burst-{}{}", self.size, self.checks.suffix())
    }

    fn run(&mut self, base: &mut Base, direction: Direction, work: &Workload, arena: *mut u8) {
        let Base { library, keys, tags, seal, open } = base;
        let shape = if direction == Direction::Seal { seal } else { open };
        let template = self.templates[direction as usize];
        let manager = library.manager();
        let mut slots = [null_mut::<Job>(); MAX_BURST];
        let all = MAX_BURST as u32;
        let mut index = 0;
        for packets in work.packets.chunks(self.size) {
            let count = packets.len() as u32;
            // SAFETY: the manager is alive and used by this thread alone; there is room for as many
            // slots as are asked for.
            while unsafe { (self.next)(manager, count, slots.as_mut_ptr()) } < count {
                // The queue is full.
                // SAFETY: as above.
                unsafe { (self.flush)(manager, all, slots.as_mut_ptr()) };
            }
            for (packet, slot) in packets.iter().zip(slots) {
                // SAFETY: the queue hands out jobs of its generation that are nobody else's until
                // they are submitted.
                let job = unsafe { &mut *slot.cast::<J>() };
                *job = template;
                let tag = tag_place(shape, direction, tags, index, packet, arena);
                shape.fill(job.job(), &keys[packet.key], packet, arena, tag);
                index += 1;
            }
            // SAFETY: the jobs are filled; keys, packets, nonces and tags outlive the flush below.
            unsafe { (self.submit)(manager, count, slots.as_mut_ptr()) };
        }
        // SAFETY: as above; it ends when the queue is empty.
        while unsafe { (self.flush)(manager, all, slots.as_mut_ptr()) } > 0 {}
    }
}

/// Bursts of one algorithm on jobs of our own: cipher, then hash, or an AEAD.
struct Typed<J> {
    jobs: [Vec<J>; 2],
    steps: Steps,
}

#[derive(Clone, Copy)]
enum Steps {
    Aead(CipherBurst),
    Pair { cipher: Option<CipherBurst>, hash: HashBurst },
}

impl<J: StampedJob> Typed<J> {
    fn new(library: &IpsecMb, work: &Workload) -> Option<Self> {
        let v2 = library.generation == Generation::V2;
        let steps = match work.suite {
            Suite::Ccm { .. } => Steps::Aead(library.aead_burst?),
            Suite::Pair { cipher, integrity } => {
                let has_hash = match integrity.alg() {
                    MacAlg::Hmac(hash) => hash != HashAlg::Md5,
                    MacAlg::AesCmac(_) => v2,
                    _ => false,
                };
                let hash = library.functions.hash_burst_nocheck.filter(|_| has_hash)?;
                let cipher = match cipher {
                    Cipher::Null => None,
                    _ => Some(library.functions.cipher_burst_nocheck?),
                };
                Steps::Pair { cipher, hash }
            }
            _ => return None,
        };
        let jobs = templates(library, work.suite)?.map(|template| vec![template; MAX_BURST]);
        Some(Self { jobs, steps })
    }
}

impl<J: StampedJob> Calls for Typed<J> {
    fn api(&self) -> String {
        match self.steps {
            Steps::Aead(_) => "aead-burst",
            Steps::Pair { cipher: None, .. } => "hash-burst",
            Steps::Pair { cipher: Some(_), .. } => "cipher-burst+hash-burst",
        }
        .to_owned()
    }

    fn run(&mut self, base: &mut Base, direction: Direction, work: &Workload, arena: *mut u8) {
        let Base { library, keys, tags, seal, open } = base;
        let shape = if direction == Direction::Seal { seal } else { open };
        let jobs = &mut self.jobs[direction as usize];
        let mut index = 0;
        for packets in work.packets.chunks(MAX_BURST) {
            for (packet, job) in packets.iter().zip(jobs.iter_mut()) {
                let tag = tag_place(shape, direction, tags, index, packet, arena);
                shape.fill(job.job(), &keys[packet.key], packet, arena, tag);
                index += 1;
            }
            let first = jobs.as_mut_ptr().cast::<Job>();
            let count = packets.len() as u32;
            let Job { cipher_mode, direction, key_len, hash_alg, .. } = shape.template;
            let run_cipher = |burst: CipherBurst| {
                let manager = library.manager();
                // SAFETY: the manager is alive and used by this thread alone; the jobs are filled,
                // of its generation, and done when the call returns.
                unsafe { burst(manager, first, count, cipher_mode, direction, key_len as u32) };
            };
            let run_hash = |burst: HashBurst| {
                // SAFETY: as above.
                unsafe { burst(library.manager(), first, count, hash_alg) };
            };
            match self.steps {
                Steps::Aead(burst) => run_cipher(burst),
                Steps::Pair { cipher, hash } => {
                    if direction == DECRYPT {
                        run_hash(hash);
                    }
                    cipher.map(run_cipher);
                    if direction == ENCRYPT {
                        run_hash(hash);
                    }
                }
            }
        }
    }
}

/// One call per packet, without jobs.
struct Direct {
    suite: DirectSuite,
    context: Arena,
}

enum DirectSuite {
    Gcm {
        enc: super::layout::GcmRun,
        dec: super::layout::GcmRun,
    },
    Gmac(super::layout::GmacInit, super::layout::GmacUpdate, super::layout::GmacFinalize),
    ChaCha {
        init: super::layout::ChaChaInit,
        enc: super::layout::ChaChaUpdate,
        dec: super::layout::ChaChaUpdate,
        finalize: super::layout::ChaChaFinalize,
    },
}

impl Direct {
    fn new(library: &IpsecMb, work: &Workload) -> Option<Self> {
        let functions = &library.functions;
        let suite = match work.suite {
            Suite::Gcm(_) => {
                let size = aead_size(work.suite)?;
                DirectSuite::Gcm { enc: functions.gcm_enc[size]?, dec: functions.gcm_dec[size]? }
            }
            Suite::Gmac(_) => {
                let size = aead_size(work.suite)?;
                let (init, update) = (functions.gmac_init[size]?, functions.gmac_update[size]?);
                DirectSuite::Gmac(init, update, functions.gmac_finalize[size]?)
            }
            Suite::ChaCha20Poly1305 => DirectSuite::ChaCha {
                init: functions.chacha_init?,
                enc: functions.chacha_enc?,
                dec: functions.chacha_dec?,
                finalize: functions.chacha_finalize?,
            },
            _ => return None,
        };
        Some(Self { suite, context: Arena::new(CONTEXT) })
    }
}

impl Calls for Direct {
    fn api(&self) -> String {
        "direct".to_owned()
    }

    fn run(&mut self, base: &mut Base, direction: Direction, work: &Workload, arena: *mut u8) {
        let Base { keys, tags, seal, open, .. } = base;
        let shape = if direction == Direction::Seal { seal } else { open };
        let context = self.context.bytes_mut().as_mut_ptr();
        let icv = shape.icv as u64;
        for (i, packet) in work.packets.iter().enumerate() {
            let tag = tag_place(shape, direction, tags, i, packet, arena);
            let frame = arena.wrapping_add(packet.start);
            let text = frame.wrapping_add(shape.header);
            let (len, nonce) = (packet.text as u64, packet.nonce.as_ptr());
            let aad = ESP_HEADER as u64;
            let Material { enc: key, gcm, .. } = keys[packet.key];
            match self.suite {
                DirectSuite::Gcm { enc, dec } => {
                    let run = if direction == Direction::Seal { enc } else { dec };
                    // SAFETY: key data, context, text, nonce of 12 bytes, additional data and tag
                    // are where these pointers say, text in place as the library allows.
                    unsafe { run(gcm, context, text, text, len, nonce, frame, aad, tag, icv) };
                }
                DirectSuite::Gmac(init, update, finalize) => {
                    // SAFETY: as above.
                    unsafe { init(gcm, context, nonce, 12) };
                    // SAFETY: header and text lie behind one another.
                    unsafe { update(gcm, context, frame, shape.header as u64 + len) };
                    // SAFETY: as above.
                    unsafe { finalize(gcm, context, tag, icv) };
                }
                DirectSuite::ChaCha { init, enc, dec, finalize } => {
                    let update = if direction == Direction::Seal { enc } else { dec };
                    // SAFETY: as above.
                    unsafe { init(key, context, nonce, frame, aad) };
                    // SAFETY: as above.
                    unsafe { update(key, context, text, text, len) };
                    // SAFETY: as above.
                    unsafe { finalize(context, tag, icv) };
                }
            }
        }
    }
}

/// Many packets of one key in one call: what the library offers for QUIC.
struct Quic {
    call: QuicCall,
    texts: Vec<*mut u8>,
    lens: Vec<u64>,
    nonces: Vec<*const u8>,
    aads: Vec<*const u8>,
    tags: Vec<*mut u8>,
    _not_send: PhantomData<*mut c_void>,
}

#[derive(Clone, Copy)]
enum QuicCall {
    Gcm(super::library::QuicGcm, KeyBits),
    ChaCha(super::library::QuicChaCha),
}

impl Quic {
    fn new(library: &IpsecMb, work: &Workload) -> Option<Self> {
        if work.keys.len() != 1 {
            return None;
        }
        let call = match work.suite {
            // It knows no other sizes.
            Suite::Gcm(params) if params.key_bits != KeyBits::Aes192 => {
                QuicCall::Gcm(library.quic_gcm?, params.key_bits)
            }
            Suite::ChaCha20Poly1305 => QuicCall::ChaCha(library.quic_chacha?),
            _ => return None,
        };
        Some(Self {
            call,
            texts: Vec::new(),
            lens: Vec::new(),
            nonces: Vec::new(),
            aads: Vec::new(),
            tags: Vec::new(),
            _not_send: PhantomData,
        })
    }
}

impl Calls for Quic {
    fn api(&self) -> String {
        "quic-batch".to_owned()
    }

    fn run(&mut self, base: &mut Base, direction: Direction, work: &Workload, arena: *mut u8) {
        let Self { call, texts, lens, nonces, aads, tags: places, .. } = self;
        let Base { library, keys, tags, seal, open } = base;
        let shape = if direction == Direction::Seal { seal } else { open };
        texts.clear();
        lens.clear();
        nonces.clear();
        aads.clear();
        places.clear();
        for (i, packet) in work.packets.iter().enumerate() {
            let frame = arena.wrapping_add(packet.start);
            texts.push(frame.wrapping_add(shape.header));
            lens.push(packet.text as u64);
            nonces.push(packet.nonce.as_ptr());
            aads.push(frame);
            places.push(tag_place(shape, direction, tags, i, packet, arena));
        }
        let (manager, count) = (library.manager(), lens.len() as u64);
        let from = texts.as_ptr().cast::<*const u8>();
        let (to, lens, tags) = (texts.as_ptr(), lens.as_ptr(), places.as_ptr());
        let (nonces, aads, aad) = (nonces.as_ptr(), aads.as_ptr(), ESP_HEADER as u64);
        let dir = shape.template.direction;
        let key = keys[0].enc;
        match *call {
            QuicCall::Gcm(call, bits) => {
                let (bytes, icv) = (bits.bytes() as u32, shape.icv as u64);
                // SAFETY: all arrays have as many entries as there are packets, and these point to
                // what their names say; the work is done when the call returns.
                unsafe {
                    call(
                        manager, key, bytes, dir, to, from, lens, nonces, aads, aad, tags, icv,
                        count,
                    );
                }
            }
            QuicCall::ChaCha(call) => {
                // SAFETY: as above.
                unsafe { call(manager, key, dir, to, from, lens, nonces, aads, aad, tags, count) };
            }
        }
    }
}
