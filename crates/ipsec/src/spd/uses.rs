//! Counts of what policies decide: about packets, for those that protect nothing; about questions, for all.
//!
//! What a policy with SAs decides, their counters tell, and packets on the usual way touch nothing more.

use core::sync::atomic::{AtomicU64, Ordering};

use super::Spd;
use super::policy::PolicyId;

/// Counts of what one policy has decided. Several workers write, once for each run of packets.
#[derive(Debug, Default)]
pub struct PolicyUse {
    packets: AtomicU64,
    bytes: AtomicU64,
    last_packet_ns: AtomicU64,
    questions: AtomicU64,
}

impl PolicyUse {
    fn add(&self, packets: u64, bytes: u64, now_ns: u64) {
        self.packets.fetch_add(packets, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.last_packet_ns.fetch_max(now_ns, Ordering::Relaxed);
    }

    pub(super) fn count_question(&self) {
        self.questions.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn questions(&self) -> u64 {
        self.questions.load(Ordering::Relaxed)
    }

    /// Packets that the policy decided about.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.packets.load(Ordering::Relaxed)
    }

    /// Their bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Time at which the last of them came, in nanoseconds of the workers' monotonic clock (0: never).
    #[must_use]
    pub fn last_packet_ns(&self) -> u64 {
        self.last_packet_ns.load(Ordering::Relaxed)
    }
}

/// Counts packets of a burst, of which those of one policy mostly come in a row.
pub(crate) struct Tally<'a> {
    now_ns: u64,
    run: Option<Run<'a>>,
}

/// Packets in a row about which one policy decided.
struct Run<'a> {
    spd: &'a Spd,
    id: PolicyId,
    packets: u64,
    bytes: u64,
}

impl<'a> Tally<'a> {
    /// Counts packets of this moment.
    pub(crate) const fn new(now_ns: u64) -> Self {
        Self { now_ns, run: None }
    }

    /// Counts a packet of so many bytes for a policy of a database.
    pub(crate) fn count(&mut self, spd: Option<&'a Spd>, id: PolicyId, len: usize) {
        let Some(spd) = spd else { return };
        if self.run.as_ref().is_none_or(|run| run.id != id || !core::ptr::eq(run.spd, spd)) {
            self.write();
        }
        let run = self.run.get_or_insert(Run { spd, id, packets: 0, bytes: 0 });
        run.packets += 1;
        run.bytes += len as u64;
    }

    fn write(&mut self) {
        let Some(Run { spd, id, packets, bytes }) = self.run.take() else { return };
        if let Some(uses) = spd.uses(id) {
            uses.add(packets, bytes, self.now_ns);
        }
    }
}

impl Drop for Tally<'_> {
    fn drop(&mut self) {
        self.write();
    }
}
