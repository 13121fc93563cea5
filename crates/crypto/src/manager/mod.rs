//! A job manager over the passes, for callers that have one packet at a time.
//!
//! A job names everything that is done to a packet: buffer, cipher, MAC, order, keys. The manager
//! takes jobs one by one, works on a batch of them at once, and hands them back in the order in
//! which they came. Whoever holds a whole burst anyway is better served by
//! [`seal_burst`](crate::seal_burst) and [`open_burst`](crate::open_burst), or by
//! [`Queue::burst`].
//!
//! ```
//! use convoy_crypto::{
//!     Cpu, HashAlg, SecretBytes,
//!     manager::{AesEncryptKey, Buffer, HmacKeys, Iv, JobCipher, JobHash, Manager, Span, Status},
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let cpu = Cpu::detect()?;
//! let key = AesEncryptKey::new(&cpu, &SecretBytes::copy_from(b"an example key!!"))?;
//! let mac = HmacKeys::new(&cpu, HashAlg::Sha256, &SecretBytes::copy_from(b"another"));
//! let (mut packet, mut tag) = ([0x45; 8 + 16 + 48], [0; 16]);
//! let mut manager = Manager::best(&cpu);
//!
//! let job = manager.next_job();
//! job.iv = Iv::new(&packet[8..24]);
//! job.buffer = Buffer::InPlace(&mut packet);
//! job.cipher = JobCipher::CbcEncrypt(&key);
//! job.cipher_span = Span::new(24, 48);
//! job.hash = JobHash::Hmac(&mac);
//! job.hash_span = Span::new(0, 72);
//! job.tag = &mut tag;
//! job.user_data = 7;
//!
//! // One job is no batch yet, so nothing comes back until the queue is flushed.
//! assert!(manager.submit().is_none());
//! let done = manager.flush().expect("one job is in line");
//! assert_eq!((done.status(), done.user_data), (Status::Completed, 7));
//! # Ok(())
//! # }
//! ```
//!
//! # Rules
//!
//! * Jobs come back strictly in the order in which they were submitted, invalid ones like the
//!   others, and at most one with each submit.
//! * A job that was handed back stays readable until the next one is asked for.
//! * Jobs of one batch are worked on together, so one cannot read what another writes.
//! * Nothing is allocated and the system is not called once a manager has been made.
//! * A manager belongs to one thread at a time; keys may be shared.
//!   [`Service`] lets many threads use one manager.
//!
//! What modes are made of is there by itself, too, for protocols of one's own: [`Runner`] encrypts blocks of AES,
//! adds keystream of ChaCha20, and makes digests and tags of Poly1305.

mod aead;
mod check;
mod job;
mod keys;
mod plan;
mod primitives;
mod queue;
mod run;
mod service;

pub use job::{
    Buffer, ChainOrder, Direction, Iv, Job, JobCipher, JobError, JobHash, Span, Status, tags_match,
};
pub use keys::{
    AesDecryptKey, AesEncryptKey, CmacKey, HmacKeys, XcbcKey, chaining_bytes, one_block,
    round_key_bytes,
};
pub use queue::{Engine, Queue};
pub use run::Runner;
pub use service::{
    FlushPolicy, OwnedJob, Service, ServiceDied, ServiceEnded, SharedCipher, SharedHash, Submitter,
};

pub use crate::stream::{ChaChaSaved, ChaChaStream, GcmSaved, GcmStream, StreamError};
use crate::{Cpu, KeyError, Tier};

/// A job manager for jobs in safe Rust. `'a` is how long packets and keys live.
pub type Manager<'a> = Queue<Job<'a>, Runner>;

impl Manager<'_> {
    /// Jobs of a batch, unless another number is asked for: enough to keep sixteen lanes busy, few
    /// enough that jobs stay in the nearest cache.
    pub const BATCH: usize = 64;

    /// A manager that uses the best tier of `cpu`.
    #[must_use]
    pub fn best(cpu: &Cpu) -> Self {
        Self::new(Runner::best(cpu), Self::BATCH)
    }

    /// A manager that uses the kernels of one tier.
    ///
    /// # Errors
    ///
    /// [`KeyError::TierUnavailable`] if `cpu` lacks the tier.
    pub fn with_tier(cpu: &Cpu, tier: Tier) -> Result<Self, KeyError> {
        Ok(Self::new(Runner::new(cpu, tier)?, Self::BATCH))
    }
}
