//! How often policies decide that protect nothing.
//!
//! What a policy with SAs decides, their counters tell, and packets on the usual way touch nothing more.

use core::sync::atomic::{AtomicU64, Ordering};

use super::{PolicyId, Spd};

/// What one policy has decided. Several workers write, once for each run of packets.
#[derive(Debug, Default)]
pub struct PolicyUse {
    packets: AtomicU64,
    bytes: AtomicU64,
    last_packet_ns: AtomicU64,
}

impl PolicyUse {
    fn add(&self, packets: u64, bytes: u64, now_ns: u64) {
        self.packets.fetch_add(packets, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.last_packet_ns.fetch_max(now_ns, Ordering::Relaxed);
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

    /// When the last of them came, in nanoseconds of the workers' monotonic clock (0: never).
    #[must_use]
    pub fn last_packet_ns(&self) -> u64 {
        self.last_packet_ns.load(Ordering::Relaxed)
    }
}

/// Counts packets of a burst, of which those of one policy mostly come in a row.
pub(crate) struct Tally<'a> {
    spd: Option<&'a Spd>,
    now_ns: u64,
    run: Option<(PolicyId, u64, u64)>,
}

impl<'a> Tally<'a> {
    /// Counts for policies of this database.
    pub(crate) fn new(spd: Option<&'a Spd>, now_ns: u64) -> Self {
        Self { spd, now_ns, run: None }
    }

    /// Counts a packet of so many bytes.
    pub(crate) fn count(&mut self, id: PolicyId, len: usize) {
        let (packets, bytes) = match self.run {
            Some((last, packets, bytes)) if last == id => (packets, bytes),
            _ => {
                self.write();
                (0, 0)
            }
        };
        self.run = Some((id, packets + 1, bytes + len as u64));
    }

    fn write(&mut self) {
        let Some((id, packets, bytes)) = self.run.take() else { return };
        if let Some(uses) = self.spd.and_then(|spd| spd.uses(id)) {
            uses.add(packets, bytes, self.now_ns);
        }
    }
}

impl Drop for Tally<'_> {
    fn drop(&mut self) {
        self.write();
    }
}
