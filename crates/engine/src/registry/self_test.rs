//! The self-test of drivers: known answers, and forged packets that must be refused.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use convoy_crypto::known_answers::{self, Case};
use convoy_crypto::{Cpu, KeyError, Nonce, OpenNonce, Suite};
use convoy_packet::{Arena, FrameSize, Pool};

use super::Driver;
use crate::{EngineKey, Front, Job, JobBurst, KeyId, Op, Span, Status};

/// Reason for which a driver failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    #[error("it takes no suite of its algorithm")]
    NoSuite,
    #[error("there is no memory for packets")]
    NoMemory,
    #[error("{0}: {1}")]
    Key(Suite, KeyError),
    #[error("{0}: it did not finish")]
    Unfinished(Suite),
    #[error("{0}: software did its work")]
    InSoftware(Suite),
    #[error("{0}: it gave a packet up ({1:?}), {2}")]
    GaveUp(Suite, Status, &'static str),
    #[error("{0}: it sealed to other bytes than {1}")]
    Sealed(Suite, &'static str),
    #[error("{0}: it opened to other bytes than {1}")]
    Opened(Suite, &'static str),
    #[error("{0}: it took a packet with a forged {1}")]
    TookForgery(Suite, &'static str),
    #[error("{0}: it left the text of a forged packet")]
    LeftText(Suite),
}

/// Copies of each packet, so that what works on several side by side does.
const COPIES: usize = 17;

/// In front of a packet and behind it, where nothing may change.
const FRONT: &[u8] = &[0xf7; 24];
const BEHIND: &[u8] = &[0x7f; 5];

/// Longest time that an engine may take for a burst.
const PATIENCE: Duration = Duration::from_secs(5);

/// Tests a driver with every suite that it takes.
pub(super) fn run(driver: &Driver, cpu: &Cpu) -> Result<(), Fault> {
    let pool = pool().ok_or(Fault::NoMemory)?;
    let mut pool = pool.lock().unwrap_or_else(PoisonError::into_inner);
    let mut suites =
        super::algorithm::suites(&driver.algorithm).filter(|suite| driver.takes(*suite));
    let mut suite = suites.next().ok_or(Fault::NoSuite)?;
    loop {
        let cases = known_answers::cases(suite, cpu).map_err(|error| Fault::Key(suite, error))?;
        for case in cases {
            test(driver, &case, &mut pool)?;
        }
        let Some(next) = suites.next() else { return Ok(()) };
        suite = next;
    }
}

/// Frames for all tests of this process, for arenas are never unmapped.
fn pool() -> Option<&'static Mutex<Pool>> {
    static POOL: OnceLock<Option<Mutex<Pool>>> = OnceLock::new();
    POOL.get_or_init(|| {
        let arena = Arena::map(128, FrameSize::for_packet(1536)).ok()?;
        Some(Mutex::new(arena.pool()))
    })
    .as_ref()
}

fn test(driver: &Driver, case: &Case, pool: &mut Pool) -> Result<(), Fault> {
    let suite = case.suite;
    let provider = &driver.provider;
    let wrong_key = |error| Fault::Key(suite, error);
    let key = provider.seal_key(suite, case.material()).map_err(wrong_key)?;
    let mut sealing = Bench::new(provider.engine(), EngineKey::Seal(key.into()), suite);
    let icv = vec![0; suite.icv_bytes()];
    let plain = [&*case.plain, &*icv].concat();
    for copies in [1, COPIES] {
        for done in sealing.run(pool, copies, |_| Packet::of(case, Operation::Seal, &plain))? {
            done.expect(case, &case.sealed, Fault::Sealed(suite, case.source))?;
        }
    }
    let key = provider.open_key(suite, case.material()).map_err(wrong_key)?;
    let mut opening = Bench::new(provider.engine(), EngineKey::Open(key.into()), suite);
    let opened = [&*case.plain, case.sealed.get(case.plain.len()..).unwrap_or_default()].concat();
    let authentic = Packet::of(case, Operation::Open, &case.sealed);
    for copies in [1, COPIES] {
        for done in opening.run(pool, copies, |_| authentic.clone())? {
            done.expect(case, &opened, Fault::Opened(suite, case.source))?;
        }
    }
    if suite.icv_bytes() > 0 {
        refuses_forgeries(&mut opening, case, &authentic, &opened, pool)?;
    }
    Ok(())
}

/// Every other packet of a burst is forged, each elsewhere.
fn refuses_forgeries(
    opening: &mut Bench,
    case: &Case,
    authentic: &Packet,
    opened: &[u8],
    pool: &mut Pool,
) -> Result<(), Fault> {
    let forged = authentic.forgeries(case);
    let packet = |i: usize| match forged.get(i / 2) {
        Some((_, forged)) if i % 2 == 1 => forged.clone(),
        _ => authentic.clone(),
    };
    let results = opening.run(pool, 2 * forged.len(), packet)?;
    for (i, done) in results.iter().enumerate() {
        match forged.get(i / 2).filter(|_| i % 2 == 1) {
            None => done.expect(case, opened, Fault::Opened(case.suite, case.source))?,
            Some((part, _)) => done.expect_refused(case, part, opening.is_elsewhere)?,
        }
    }
    Ok(())
}

/// The operation of a job.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Seal,
    Open,
}

/// Parts that a job is made of.
#[derive(Clone, Debug)]
struct Packet {
    operation: Operation,
    nonce: ([u8; 16], u8),
    header: Vec<u8>,
    beside: Vec<u8>,
    /// The text, with its ICV or room for it.
    body: Vec<u8>,
    text: usize,
}

impl Packet {
    fn of(case: &Case, operation: Operation, body: &[u8]) -> Self {
        Self {
            operation,
            nonce: case.nonce_block(),
            header: case.header.clone(),
            beside: case.beside.clone(),
            body: body.to_vec(),
            text: case.plain.len(),
        }
    }

    /// The same with one bit of one part changed, for each part that is authenticated.
    fn forgeries(&self, case: &Case) -> Vec<(&'static str, Self)> {
        let mut forged = Vec::new();
        let last = self.body.len().saturating_sub(1);
        let parts: [(&str, usize, bool); 4] = [
            ("ICV", self.text, true),
            ("ICV", last, true),
            ("text", 0, self.text > 0),
            ("text", self.text.saturating_sub(1), self.text > 0),
        ];
        for (part, at, _) in parts.into_iter().filter(|(_, _, is_there)| *is_there) {
            let mut packet = self.clone();
            packet.body.get_mut(at).into_iter().for_each(|byte| *byte ^= 0x10);
            forged.push((part, packet));
        }
        for at in [0, case.header.len().saturating_sub(1)] {
            let mut packet = self.clone();
            if let Some(byte) = packet.header.get_mut(at) {
                *byte ^= 1;
                forged.push(("header", packet));
            }
        }
        for at in [0, case.beside.len().saturating_sub(1)] {
            let mut packet = self.clone();
            if let Some(byte) = packet.beside.get_mut(at) {
                *byte ^= 0x80;
                forged.push(("additional data", packet));
            }
        }
        forged
    }

    fn into_job(self, pool: &mut Pool) -> Option<Job> {
        let mut frame = pool.alloc()?;
        let bytes = [FRONT, &self.header, &self.body, BEHIND].concat();
        if frame.fill_from(&bytes).is_err() {
            pool.free(frame);
            return None;
        }
        let (nonce, len) = self.nonce;
        let mut job = Job::idle(frame);
        let start = FRONT.len() + self.header.len();
        job.text = Span { start: start as u32, len: self.text as u32 };
        job.header = self.header.len() as u32;
        job.aad_len = self.beside.len() as u8;
        job.aad.iter_mut().zip(&self.beside).for_each(|(to, byte)| *to = *byte);
        job.op = match self.operation {
            // The same packet each time, so the same bytes come out.
            Operation::Seal => Op::Seal(Nonce::front(nonce, len)),
            Operation::Open => Op::Open(OpenNonce::front(nonce, len)),
        };
        Some(job)
    }
}

/// Status and bytes of a packet after its job.
struct Outcome {
    status: Status,
    bytes: Vec<u8>,
}

impl Outcome {
    fn expect(&self, case: &Case, body: &[u8], fault: Fault) -> Result<(), Fault> {
        if self.status != Status::Done {
            return Err(Fault::GaveUp(case.suite, self.status, case.source));
        }
        let expected = [FRONT, &case.header, body, BEHIND].concat();
        if self.bytes == expected { Ok(()) } else { Err(fault) }
    }

    /// Of an engine elsewhere nobody looks at the text of a packet that it refused.
    fn expect_refused(
        &self,
        case: &Case,
        part: &'static str,
        is_elsewhere: bool,
    ) -> Result<(), Fault> {
        match self.status {
            Status::BadIcv => {}
            Status::Done => return Err(Fault::TookForgery(case.suite, part)),
            status => return Err(Fault::GaveUp(case.suite, status, case.source)),
        }
        let start = FRONT.len() + case.header.len();
        let text = self.bytes.get(start..start + case.plain.len()).unwrap_or_default();
        if is_elsewhere || text.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        Err(Fault::LeftText(case.suite))
    }
}

/// An engine with one key.
struct Bench {
    suite: Suite,
    front: Front,
    start: Instant,
    is_elsewhere: bool,
}

impl Bench {
    const KEY: KeyId = KeyId(1);

    fn new(mut front: Front, key: EngineKey, suite: Suite) -> Self {
        front.install(Self::KEY, key);
        let is_elsewhere = front.standing().is_some();
        Self { suite, front, start: Instant::now(), is_elsewhere }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Has the engine work on packets, and returns what became of them.
    fn run(
        &mut self,
        pool: &mut Pool,
        count: usize,
        packet: impl Fn(usize) -> Packet,
    ) -> Result<Vec<Outcome>, Fault> {
        let mut jobs = JobBurst::new();
        let filled = (0..count).all(|i| {
            packet(i).into_job(pool).is_some_and(|job| {
                let job = Job { key: Self::KEY, ..job };
                jobs.push(job).map_err(|job| pool.free(job.frame)).is_ok()
            })
        });
        let outcome =
            if filled { self.finish(pool, &mut jobs, count) } else { Err(Fault::NoMemory) };
        jobs.drain().for_each(|job| pool.free(job.frame));
        if outcome.is_err() {
            let now = self.now();
            self.front.release(now, pool);
        }
        outcome
    }

    fn finish(
        &mut self,
        pool: &mut Pool,
        jobs: &mut JobBurst,
        count: usize,
    ) -> Result<Vec<Outcome>, Fault> {
        let (mut outcomes, mut done) = (Vec::new(), JobBurst::new());
        let until = Instant::now() + PATIENCE;
        while outcomes.len() < count {
            let now = self.now();
            self.front.submit(now, pool, jobs);
            self.front.flush(now);
            if self.front.poll(now, pool, &mut done) == 0 {
                if Instant::now() > until {
                    return Err(Fault::Unfinished(self.suite));
                }
                std::thread::yield_now();
            }
            for job in done.drain() {
                let bytes = job.frame.data().to_vec();
                outcomes.push(Outcome { status: job.status, bytes });
                pool.free(job.frame);
            }
        }
        let counts = self.front.counts();
        if counts.in_software + counts.refused + counts.redone > 0 {
            return Err(Fault::InSoftware(self.suite));
        }
        Ok(outcomes)
    }
}
