//! Many threads, one manager: a thread owns the manager and takes jobs from a queue that all others
//! may fill.

use std::{
    fmt, io,
    sync::{
        Arc, Weak,
        mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use arrayvec::ArrayVec;

use super::{
    job::{Buffer, ChainOrder, Direction, Iv, Job, JobCipher, JobHash, Span, Status},
    keys::{AesDecryptKey, AesEncryptKey, CmacKey, HmacKeys, XcbcKey},
    queue::{Engine, Queue},
    run::{CHUNK, Runner},
};
use crate::AeadKey;

/// Time at which jobs are worked on though they make no whole batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushPolicy {
    /// As soon as no further job waits to be taken up: least delay.
    WhenIdle,
    /// After a pause of this length without a job.
    AfterPause(Duration),
    /// So long after the earliest job was taken up, whatever came since.
    Timer(Duration),
}

/// A cipher with a key that threads share.
#[derive(Clone, Debug)]
pub enum SharedCipher {
    /// None.
    Null,
    /// AES-CBC, encrypting.
    CbcEncrypt(Arc<AesEncryptKey>),
    /// AES-CBC, decrypting.
    CbcDecrypt(Arc<AesDecryptKey>),
    /// AES-CTR.
    Ctr(Arc<AesEncryptKey>),
    /// AES-CCM.
    Ccm(Arc<AesEncryptKey>, Direction),
    /// AES-GCM, AES-GMAC or ChaCha20-Poly1305.
    Aead(Arc<AeadKey>, Direction),
}

/// A MAC with a key that threads share.
#[derive(Clone, Debug)]
pub enum SharedHash {
    /// None.
    Null,
    /// HMAC.
    Hmac(Arc<HmacKeys>),
    /// AES-XCBC-MAC.
    Xcbc(Arc<XcbcKey>),
    /// AES-CMAC.
    Cmac(Arc<CmacKey>),
}

/// A job that owns its buffers, so that it can go from thread to thread. Its fields are those of
/// [`Job`]; it is worked on in place.
#[derive(Debug)]
pub struct OwnedJob {
    /// The packet.
    pub buffer: Box<[u8]>,
    /// The cipher.
    pub cipher: SharedCipher,
    /// Bytes that the cipher works on.
    pub cipher_span: Span,
    /// The MAC.
    pub hash: SharedHash,
    /// Bytes that the MAC authenticates.
    pub hash_span: Span,
    /// Order of the two.
    pub order: ChainOrder,
    /// The IV or nonce.
    pub iv: Iv,
    /// Additional data of an AEAD.
    pub aad: Box<[u8]>,
    /// Bytes that a MAC authenticates behind its span.
    pub trailer: Box<[u8]>,
    /// Room for the tag.
    pub tag: Box<[u8]>,
    /// The submitter's own.
    pub user_data: usize,
    status: Status,
}

impl OwnedJob {
    /// A job on `buffer` that does nothing yet.
    #[must_use]
    pub fn new(buffer: Box<[u8]>) -> Self {
        Self {
            buffer,
            cipher: SharedCipher::Null,
            cipher_span: Span::default(),
            hash: SharedHash::Null,
            hash_span: Span::default(),
            order: ChainOrder::default(),
            iv: Iv::default(),
            aad: Box::default(),
            trailer: Box::default(),
            tag: Box::default(),
            user_data: 0,
            status: Status::Queued,
        }
    }

    /// State of the job.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status
    }

    fn view(&mut self) -> Job<'_> {
        Job {
            buffer: Buffer::InPlace(&mut self.buffer),
            cipher: match &self.cipher {
                SharedCipher::Null => JobCipher::Null,
                SharedCipher::CbcEncrypt(key) => JobCipher::CbcEncrypt(key),
                SharedCipher::CbcDecrypt(key) => JobCipher::CbcDecrypt(key),
                SharedCipher::Ctr(key) => JobCipher::Ctr(key),
                SharedCipher::Ccm(key, direction) => JobCipher::Ccm(key, *direction),
                SharedCipher::Aead(key, direction) => JobCipher::Aead(key, *direction),
            },
            cipher_span: self.cipher_span,
            hash: match &self.hash {
                SharedHash::Null => JobHash::Null,
                SharedHash::Hmac(key) => JobHash::Hmac(key),
                SharedHash::Xcbc(key) => JobHash::Xcbc(key),
                SharedHash::Cmac(key) => JobHash::Cmac(key),
            },
            hash_span: self.hash_span,
            order: self.order,
            iv: self.iv,
            aad: &self.aad,
            trailer: &self.trailer,
            tag: &mut self.tag,
            ..Job::default()
        }
    }
}

/// A job in line, and whose it is.
#[derive(Default)]
struct Slot(Option<(OwnedJob, Sender<OwnedJob>)>);

/// Runs what is in slots.
struct SlotRunner(Runner);

impl Engine<Slot> for SlotRunner {
    fn run(&mut self, slots: &mut [Slot]) {
        for slots in slots.chunks_mut(CHUNK) {
            let mut views = ArrayVec::<_, CHUNK>::new();
            views.extend(jobs_of(slots).map(OwnedJob::view));
            self.0.run(&mut views);
            let states: ArrayVec<_, CHUNK> = views.iter().map(Job::status).collect();
            drop(views);
            jobs_of(slots).zip(states).for_each(|(job, status)| job.status = status);
        }
    }
}

fn jobs_of(slots: &mut [Slot]) -> impl Iterator<Item = &mut OwnedJob> {
    slots.iter_mut().filter_map(|slot| slot.0.as_mut()).map(|(job, _)| job)
}

/// The service has ended; the job comes back as it was.
#[derive(Debug)]
pub struct ServiceEnded(pub Box<OwnedJob>);

/// The service's thread died of a defect, and the jobs it held died with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceDied;

impl fmt::Display for ServiceDied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the thread of the job service died")
    }
}

impl std::error::Error for ServiceDied {}

/// One thread's way to the manager. Results come back to the submitter that sent the job, in its
/// order, and are kept until it takes them.
#[derive(Debug)]
pub struct Submitter {
    /// Gone when the service's thread is.
    alive: Weak<()>,
    jobs: SyncSender<(OwnedJob, Sender<OwnedJob>)>,
    results: Receiver<OwnedJob>,
    back: Sender<OwnedJob>,
}

impl Submitter {
    /// Hands a job to the service; waits while its queue is full.
    ///
    /// # Errors
    ///
    /// [`ServiceEnded`] if there is no service any more.
    pub fn submit(&self, job: OwnedJob) -> Result<(), ServiceEnded> {
        let sent = self.jobs.send((job, self.back.clone()));
        sent.map_err(|mpsc::SendError((job, _))| ServiceEnded(Box::new(job)))
    }

    /// The next result that is there already.
    ///
    /// # Errors
    ///
    /// [`ServiceDied`] if there is none and none will come any more.
    pub fn try_result(&self) -> Result<Option<OwnedJob>, ServiceDied> {
        // In this order: what the thread sent before it ended is there then.
        let alive = self.alive.strong_count() > 0;
        match self.results.try_recv() {
            Ok(job) => Ok(Some(job)),
            Err(_) if alive => Ok(None),
            Err(_) => Err(ServiceDied),
        }
    }

    /// The next result; waits for it at most so long.
    ///
    /// # Errors
    ///
    /// [`ServiceDied`] if there is none and none will come any more.
    pub fn result(&self, wait: Duration) -> Result<Option<OwnedJob>, ServiceDied> {
        let start = Instant::now();
        loop {
            let left = wait.saturating_sub(start.elapsed());
            // A submitter can send to itself, so the channel does not tell that nobody else will.
            match self.results.recv_timeout(left.min(LOOK_AFTER)) {
                Ok(job) => return Ok(Some(job)),
                Err(_) if left <= LOOK_AFTER => return self.try_result(),
                Err(_) => {
                    if let Some(job) = self.try_result()? {
                        return Ok(Some(job));
                    }
                }
            }
        }
    }
}

/// Time to wait for a result before looking whether anybody works on it.
const LOOK_AFTER: Duration = Duration::from_millis(50);

/// A thread with a manager of its own, which works on the jobs of any number of other threads.
///
/// The service ends, with every job done and sent back, when it is [shut down](Self::shut_down) and
/// all its submitters are gone. Dropping it does the same, but nobody waits for the end then: a thread
/// that held the last submitter would wait for itself.
#[derive(Debug)]
pub struct Service {
    alive: Weak<()>,
    jobs: SyncSender<(OwnedJob, Sender<OwnedJob>)>,
    thread: JoinHandle<u64>,
}

impl Service {
    /// Starts the thread. `room` is how many jobs may wait to be taken up.
    ///
    /// # Errors
    ///
    /// The system's error if it has no thread to give.
    pub fn start(runner: Runner, policy: FlushPolicy, room: usize) -> io::Result<Self> {
        Self::start_on(SlotRunner(runner), policy, room)
    }

    fn start_on<E: Engine<Slot> + Send + 'static>(
        engine: E,
        policy: FlushPolicy,
        room: usize,
    ) -> io::Result<Self> {
        let (jobs, incoming) = mpsc::sync_channel(room);
        let life = Arc::new(());
        let alive = Arc::downgrade(&life);
        let thread = thread::Builder::new().name("convoy-jobs".to_owned()).spawn(move || {
            let _life = life;
            serve(engine, policy, &incoming)
        })?;
        Ok(Self { alive, jobs, thread })
    }

    /// A way to the manager for one more thread.
    #[must_use]
    pub fn submitter(&self) -> Submitter {
        // Without a bound, for the service must not wait for a thread that waits for the service.
        let (back, results) = mpsc::channel();
        Submitter { alive: Weak::clone(&self.alive), jobs: self.jobs.clone(), results, back }
    }

    /// Waits until all submitters are gone and their jobs are done; returns how many jobs there
    /// were.
    ///
    /// # Errors
    ///
    /// [`ServiceDied`] if the thread ended before that.
    pub fn shut_down(self) -> Result<u64, ServiceDied> {
        drop(self.jobs);
        self.thread.join().map_err(|_| ServiceDied)
    }
}

/// Reason for which the next job is not there.
enum Nothing {
    /// It is time to flush.
    Due,
    /// No job will come.
    End,
}

fn serve<E: Engine<Slot>>(
    engine: E,
    policy: FlushPolicy,
    incoming: &Receiver<(OwnedJob, Sender<OwnedJob>)>,
) -> u64 {
    let mut queue = Queue::new(engine, super::Manager::BATCH);
    let (mut count, mut earliest) = (0, Instant::now());
    loop {
        match next(policy, incoming, queue.is_empty(), earliest) {
            Ok(job) => {
                if queue.is_empty() {
                    earliest = Instant::now();
                }
                count += 1;
                *queue.next_job() = Slot(Some(job));
                send_back(queue.submit());
                while send_back(queue.completed()) {}
            }
            Err(Nothing::Due) => while send_back(queue.flush()) {},
            Err(Nothing::End) => {
                while send_back(queue.flush()) {}
                return count;
            }
        }
    }
}

/// The next job, as long as there is time to wait for it.
fn next<T>(
    policy: FlushPolicy,
    incoming: &Receiver<T>,
    idle: bool,
    earliest: Instant,
) -> Result<T, Nothing> {
    if idle {
        return incoming.recv().map_err(|_| Nothing::End);
    }
    let wait = match policy {
        FlushPolicy::WhenIdle => {
            return incoming.try_recv().map_err(|error| match error {
                TryRecvError::Empty => Nothing::Due,
                TryRecvError::Disconnected => Nothing::End,
            });
        }
        FlushPolicy::AfterPause(pause) => pause,
        FlushPolicy::Timer(delay) => delay.saturating_sub(earliest.elapsed()),
    };
    if wait.is_zero() {
        return Err(Nothing::Due);
    }
    incoming.recv_timeout(wait).map_err(|error| match error {
        RecvTimeoutError::Timeout => Nothing::Due,
        RecvTimeoutError::Disconnected => Nothing::End,
    })
}

/// Sends a job back to whom it belongs, if there is one; a submitter that is gone wants no results.
fn send_back(slot: Option<&mut Slot>) -> bool {
    let Some(slot) = slot else { return false };
    if let Some((job, back)) = slot.0.take() {
        let _ = back.send(job);
    }
    true
}

impl fmt::Debug for SlotRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cpu, HashAlg, SecretBytes};

    const THREADS: usize = 8;
    const JOBS: usize = 1000;

    /// Long enough that only a test that hangs gets there.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn keys() -> (Arc<AesEncryptKey>, Arc<HmacKeys>) {
        let cpu = Cpu::without("").unwrap();
        let key = AesEncryptKey::new(&cpu, &SecretBytes::copy_from(&[7; 16])).unwrap();
        let mac = HmacKeys::new(&cpu, HashAlg::Sha1, &SecretBytes::copy_from(b"mac"));
        (Arc::from(key), Arc::from(mac))
    }

    fn job(keys: &(Arc<AesEncryptKey>, Arc<HmacKeys>), thread: usize, number: usize) -> OwnedJob {
        let len = 32 + (thread * 31 + number * 7) % 400;
        let mut job = OwnedJob::new(vec![thread as u8; len].into());
        job.cipher = SharedCipher::Ctr(Arc::clone(&keys.0));
        job.cipher_span = Span::new(16, len - 16);
        job.hash = SharedHash::Hmac(Arc::clone(&keys.1));
        job.hash_span = Span::new(0, len);
        // Every 50th is invalid.
        job.iv = if number % 50 == 49 { Iv::default() } else { [number as u8; 12].into() };
        job.tag = vec![0; 12].into();
        job.user_data = number;
        job
    }

    /// The job done by itself.
    fn expected(job: &mut OwnedJob) -> Status {
        let mut view = job.view();
        Runner::best(&Cpu::without("").unwrap()).run_one(&mut view);
        view.status()
    }

    fn many_threads(policy: FlushPolicy) {
        let runner = Runner::best(&Cpu::without("").unwrap());
        let service = Service::start(runner, policy, 100).unwrap();
        let keys = keys();
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (submitter, keys) = (service.submitter(), &keys);
                scope.spawn(move || {
                    for number in 0..JOBS {
                        submitter.submit(job(keys, thread, number)).unwrap();
                    }
                    for number in 0..JOBS {
                        let done = submitter.result(PATIENCE).unwrap().unwrap();
                        let mut alone = job(keys, thread, number);
                        let status = expected(&mut alone);
                        assert_eq!((done.user_data, done.status()), (number, status));
                        assert_eq!((&done.buffer, &done.tag), (&alone.buffer, &alone.tag));
                    }
                    assert!(matches!(submitter.try_result(), Ok(None)));
                });
            }
        });
        assert_eq!(service.shut_down(), Ok((THREADS * JOBS) as u64));
    }

    #[test]
    fn many_threads_share_a_manager_that_flushes_when_idle() {
        many_threads(FlushPolicy::WhenIdle);
    }

    #[test]
    fn many_threads_share_a_manager_that_flushes_after_a_pause() {
        many_threads(FlushPolicy::AfterPause(Duration::from_micros(300)));
    }

    #[test]
    fn many_threads_share_a_manager_that_flushes_by_a_timer() {
        many_threads(FlushPolicy::Timer(Duration::from_millis(1)));
    }

    #[test]
    fn shutting_down_loses_nothing_that_was_submitted() {
        // Nothing is flushed before the end.
        let policy = FlushPolicy::AfterPause(PATIENCE * 100);
        let runner = Runner::best(&Cpu::without("").unwrap());
        let service = Service::start(runner, policy, 100).unwrap();
        let Submitter { jobs, results, back, .. } = service.submitter();
        let keys = keys();
        for number in 0..30 {
            jobs.send((job(&keys, 1, number), back.clone())).unwrap();
        }
        drop((jobs, back));
        assert_eq!(service.shut_down(), Ok(30));
        let done: Vec<_> = results.iter().map(|job| (job.user_data, job.status())).collect();
        let expected: Vec<_> = (0..30).map(|number| (number, Status::Completed)).collect();
        assert_eq!(done, expected);
    }

    #[test]
    fn a_submitter_that_is_gone_stops_nobody() {
        let runner = Runner::best(&Cpu::without("").unwrap());
        let service = Service::start(runner, FlushPolicy::WhenIdle, 10).unwrap();
        let (gone, stays) = (service.submitter(), service.submitter());
        let keys = keys();
        for number in 0..5 {
            gone.submit(job(&keys, 0, number)).unwrap();
        }
        drop(gone);
        stays.submit(job(&keys, 0, 0)).unwrap();
        let done = stays.result(PATIENCE).unwrap().map(|job| job.status());
        assert_eq!(done, Some(Status::Completed));
        drop(stays);
        assert_eq!(service.shut_down(), Ok(6));
    }

    #[test]
    fn a_dead_thread_is_told_from_a_slow_one() {
        /// An engine with a defect.
        struct Broken;

        impl Engine<Slot> for Broken {
            fn run(&mut self, _: &mut [Slot]) {
                panic!("a defect");
            }
        }

        let service = Service::start_on(Broken, FlushPolicy::WhenIdle, 10).unwrap();
        let submitter = service.submitter();
        assert!(matches!(submitter.try_result(), Ok(None)), "alive, and nothing was submitted");
        submitter.submit(job(&keys(), 0, 0)).unwrap();
        assert_eq!(submitter.result(PATIENCE).map(|_| ()), Err(ServiceDied));
        assert_eq!(submitter.try_result().map(|_| ()), Err(ServiceDied));
        assert!(submitter.submit(job(&keys(), 0, 1)).is_err());
        drop(submitter);
        assert_eq!(service.shut_down(), Err(ServiceDied));
    }

    #[test]
    fn a_service_that_is_dropped_still_does_what_was_submitted() {
        let runner = Runner::best(&Cpu::without("").unwrap());
        let service = Service::start(runner, FlushPolicy::WhenIdle, 10).unwrap();
        let submitter = service.submitter();
        drop(service);
        submitter.submit(job(&keys(), 0, 0)).unwrap();
        assert!(matches!(submitter.result(PATIENCE), Ok(Some(_))));
    }
}
