//! One packet's work for an engine.

use convoy_crypto::{Nonce, OpenNonce};
use convoy_packet::{BURST_MAX, Frame};

/// Most additional authenticated data a job carries: SPI, a 64-bit sequence number and an IV
/// (RFC 4543 section 3.3).
pub const AAD_MAX: usize = 20;

/// A range of bytes in a frame, relative to the packet's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// Number of bytes.
    pub len: u32,
}

/// Operation on the text.
#[derive(Debug)]
pub enum Op {
    /// Encrypt the text and write the ICV behind it. The nonce goes with the job: it is used up
    /// when the job runs.
    Seal(Nonce),
    /// Verify the ICV behind the text and decrypt.
    Open(OpenNonce),
    /// The work was done; its nonce is gone.
    Spent,
}

impl Op {
    /// The same, to be done to the same packet with the same result.
    pub(crate) const fn again(&self) -> Self {
        match self {
            Self::Seal(nonce) => Self::Seal(nonce.again()),
            Self::Open(nonce) => Self::Open(*nonce),
            Self::Spent => Self::Spent,
        }
    }
}

/// State of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Not run yet.
    Pending,
    /// Sealed, or verified and opened.
    Done,
    /// The ICV was wrong; the text was wiped.
    BadIcv,
    /// The job could not run.
    Rejected,
}

/// Data that the submitter needs to go on with a packet; engines do not look at it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// Table slot of the SA.
    pub slot: u32,
    /// Free for the submitter.
    pub note: u32,
    /// Free for the submitter; the ESP stages keep the sequence number here.
    pub value: u64,
}

/// One packet's work.
#[derive(Debug)]
pub struct Job {
    /// The packet, owned by the job until it is taken back.
    pub frame: Frame,
    /// Bytes that are encrypted; the ICV of the key's length follows directly behind.
    pub text: Span,
    /// Bytes directly in front of the text that a pair of cipher and MAC authenticates with it; 0
    /// for an AEAD.
    pub header: u32,
    /// The key.
    pub key: crate::KeyId,
    /// State of the job.
    pub status: Status,
    /// Length of the additional authenticated data, at most [`AAD_MAX`].
    pub aad_len: u8,
    /// Additional authenticated data of an AEAD; for a pair, what is authenticated behind the text
    /// and not sent: the high half of an extended sequence number.
    pub aad: [u8; AAD_MAX],
    /// Work on the text.
    pub op: Op,
    /// The submitter's own.
    pub context: Context,
}

// Jobs are moved by the hundred; two cache lines are the limit.
const _: () = assert!(size_of::<Job>() <= 128);

impl Job {
    /// A job without work: what is there before the rest is filled in. An engine rejects it.
    #[inline(always)]
    #[must_use]
    pub const fn idle(frame: Frame) -> Self {
        Self {
            frame,
            text: Span { start: 0, len: 0 },
            header: 0,
            key: crate::KeyId(0),
            status: Status::Pending,
            aad_len: 0,
            aad: [0; AAD_MAX],
            op: Op::Spent,
            context: Context { slot: 0, note: 0, value: 0 },
        }
    }

    /// The same job with a copy of its packet in `frame`, so that it is done once more with the same result.
    /// Where the packet does not fit, the copy is [idle](Self::idle), with the context of the original.
    pub(crate) fn again(&self, mut frame: Frame) -> Self {
        let fits = frame.place_like(&self.frame).is_ok();
        let op = if fits { self.op.again() } else { Op::Spent };
        if let Some(to) = frame.data_mut().get_mut(..self.frame.len()) {
            to.copy_from_slice(self.frame.data());
        }
        let Self { text, header, key, aad_len, aad, context, .. } = *self;
        Self { frame, text, header, key, status: Status::Pending, aad_len, aad, op, context }
    }
}

/// Up to [`BURST_MAX`] jobs, in order.
#[derive(Debug)]
pub struct JobBurst {
    jobs: Vec<Job>,
}

impl JobBurst {
    /// An empty burst with its full capacity allocated.
    #[must_use]
    pub fn new() -> Self {
        Self { jobs: Vec::with_capacity(BURST_MAX) }
    }

    /// Appends a job.
    ///
    /// # Errors
    /// The job itself, when the burst is full.
    #[inline]
    pub fn push(&mut self, job: Job) -> Result<(), Job> {
        // The capacity is there from the start. Asking for it leaves no way from here to the
        // allocator, across which the job would be put together on the stack and then copied.
        if self.jobs.len() >= BURST_MAX || self.jobs.len() == self.jobs.capacity() {
            return Err(job);
        }
        self.jobs.push(job);
        Ok(())
    }

    /// Appends an [idle](Job::idle) job with this packet, to be filled in where it lies: a job that is
    /// put together elsewhere is slow to copy.
    ///
    /// # Errors
    /// The packet itself, when the burst is full.
    #[inline(always)]
    pub fn add(&mut self, frame: Frame) -> Result<&mut Job, Frame> {
        if self.jobs.len() >= BURST_MAX || self.jobs.len() == self.jobs.capacity() {
            return Err(frame);
        }
        Ok(self.jobs.push_mut(Job::idle(frame)))
    }

    /// Takes the first jobs of another burst, as many as fit, once `work` has worked on them; returns how
    /// many. The usual case, a whole burst where nothing waits, changes hands without a copy.
    #[inline(always)]
    pub(crate) fn take_from(&mut self, other: &mut Self, work: impl FnOnce(&mut [Job])) -> usize {
        let n = other.len().min(self.room());
        let Some(taken) = other.jobs.get_mut(..n).filter(|taken| !taken.is_empty()) else {
            return 0;
        };
        work(taken);
        if self.is_empty() && n == other.len() {
            core::mem::swap(self, other);
        } else {
            for job in other.drain_front(n) {
                // Dropping a job that does not fit would be a counted leak; room was checked.
                drop(self.push(job));
            }
        }
        n
    }

    /// Takes the last job back.
    #[inline]
    pub fn pop(&mut self) -> Option<Job> {
        self.jobs.pop()
    }

    /// Number of jobs.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Number of jobs that still fit.
    #[inline]
    #[must_use]
    pub fn room(&self) -> usize {
        BURST_MAX - self.jobs.len()
    }

    /// True if there is no job.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// The jobs, in order, to be worked on in place.
    #[inline]
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [Job] {
        &mut self.jobs
    }

    /// The jobs, in order.
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[Job] {
        &self.jobs
    }

    /// Takes all jobs out, in order.
    #[inline]
    pub fn drain(&mut self) -> impl ExactSizeIterator<Item = Job> + '_ {
        self.jobs.drain(..)
    }

    /// Takes the first `n` jobs (all of them, if there are fewer) out, in order.
    #[inline]
    pub fn drain_front(&mut self, n: usize) -> impl ExactSizeIterator<Item = Job> + '_ {
        let n = n.min(self.jobs.len());
        self.jobs.drain(..n)
    }
}

impl Default for JobBurst {
    fn default() -> Self {
        Self::new()
    }
}
