//! Account of every packet: the number sent is the number received and the number dropped,
//! reason by reason, in every place that counts.

use convoy_io::fault::FaultCounts;
use convoy_ipsec::counters::SaCounters;
use convoy_ipsec::drop_reason::DropReason;

/// Packets by the name of the reason they were dropped for.
pub type Drops = Vec<(&'static str, u64)>;

/// Counts of the fault injector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Injected {
    /// Packets it saw.
    pub seen: u64,
    /// Packets it took away.
    pub lost: u64,
    /// Packets it sent twice.
    pub duplicated: u64,
    /// Packets it kept back to be overtaken.
    pub reordered: u64,
    /// Packets of which it inverted a bit.
    pub flipped: u64,
    /// Packets that it cut short.
    pub truncated: u64,
}

impl From<FaultCounts> for Injected {
    fn from(counts: FaultCounts) -> Self {
        let FaultCounts { seen, lost, duplicated, reordered, flipped, truncated } = counts;
        Self { seen, lost, duplicated, reordered, flipped, truncated }
    }
}

/// Sums over all SAs of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SaSums {
    /// Packets protected or accepted.
    pub packets: u64,
    /// Inner bytes of those.
    pub bytes: u64,
    /// Last sequence numbers used; 0 inbound.
    pub sequence: u64,
    /// Packets outside or already seen inside the anti-replay window.
    pub replayed: u64,
    /// Packets whose ICV was wrong.
    pub icv_failures: u64,
}

impl<'a> FromIterator<&'a SaCounters> for SaSums {
    fn from_iter<T: IntoIterator<Item = &'a SaCounters>>(all: T) -> Self {
        all.into_iter().fold(Self::default(), |sums, sa| Self {
            packets: sums.packets + sa.packets.get(),
            bytes: sums.bytes + sa.bytes.get(),
            sequence: sums.sequence + sa.sequence.get(),
            replayed: sums.replayed + sa.replayed.get(),
            icv_failures: sums.icv_failures + sa.icv_failures.get(),
        })
    }
}

/// Everything that was counted on the way from generator to sink.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Books {
    /// Packets that the generator made.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Packets that the outbound pipeline dropped.
    pub refused: Drops,
    /// Packets that it protected, as it says itself.
    pub protected: u64,
    /// Their inner bytes.
    pub protected_bytes: u64,
    /// Counts of faults on the wire; none without an injector.
    pub faults: Option<Injected>,
    /// Packets that the inbound pipeline was given.
    pub offered: u64,
    /// Packets that it dropped.
    pub dropped: Drops,
    /// Packets that it accepted, as it says itself.
    pub accepted: u64,
    /// Their inner bytes.
    pub accepted_bytes: u64,
    /// Packets that came to the sink as they were sent, each once.
    pub received: u64,
    /// Bytes that came to the sink.
    pub received_bytes: u64,
    /// Packets that never came to the sink.
    pub missing: u64,
    /// Packets that came to the sink twice, or as nobody sent them.
    pub strange: u64,
    /// Sums of the outbound SAs' counters.
    pub outbound_sas: SaSums,
    /// Sums of the inbound SAs' counters.
    pub inbound_sas: SaSums,
    /// Frames that were dropped or not given back.
    pub frames_lost: u64,
}

impl Books {
    /// Describes counts that do not add up; empty when every packet is accounted for.
    #[must_use]
    pub fn errors(&self) -> Vec<String> {
        let untouched = || Injected { seen: self.protected, ..Injected::default() };
        let faults = self.faults.unwrap_or_else(untouched);
        let total = |drops: &Drops| drops.iter().map(|(_, n)| n).sum::<u64>();
        let of = |reason: DropReason| {
            self.dropped.iter().filter(|(name, _)| *name == reason.name()).map(|(_, n)| n).sum()
        };
        let (refused, dropped) = (total(&self.refused), total(&self.dropped));
        // A copy is dropped whatever becomes of the packet it was made of: that packet passes, and
        // the copy is a replay, or both are damaged.
        let damaged = dropped.wrapping_sub(faults.duplicated);
        let (out, inn) = (&self.outbound_sas, &self.inbound_sas);
        let replays = of(DropReason::Replayed) + of(DropReason::TooOld);
        let mut errors = Vec::new();
        let mut equal = |what: &str, left: u64, right: u64| {
            if left != right {
                errors.push(format!("{what}: {left} and not {right}"));
            }
        };
        equal("packets refused outbound", refused, 0);
        equal("packets protected, against those sent", self.protected, self.sent);
        equal("bytes protected, against those sent", self.protected_bytes, self.sent_bytes);
        equal("packets that the injector saw", faults.seen, self.protected);
        equal(
            "packets on the wire",
            self.offered,
            (faults.seen + faults.duplicated).wrapping_sub(faults.lost),
        );
        equal("packets accepted and dropped", self.accepted + dropped, self.offered);
        equal("packets received, against those accepted", self.received, self.accepted);
        equal("bytes received, against those accepted", self.received_bytes, self.accepted_bytes);
        equal("packets received twice, late or changed", self.strange, 0);
        equal("packets received and missing", self.received + self.missing, self.sent);
        equal("packets missing", self.missing, faults.lost.wrapping_add(damaged));
        equal("packets that outbound SAs counted", out.packets, self.protected);
        equal("bytes that outbound SAs counted", out.bytes, self.protected_bytes);
        equal("sequence numbers used", out.sequence, self.protected);
        equal("packets that inbound SAs counted", inn.packets, self.accepted);
        equal("bytes that inbound SAs counted", inn.bytes, self.accepted_bytes);
        equal("replays that inbound SAs counted", inn.replayed, replays);
        equal("wrong ICVs that inbound SAs counted", inn.icv_failures, of(DropReason::BadIcv));
        equal("frames not given back", self.frames_lost, 0);
        if damaged > faults.flipped + faults.truncated {
            errors.push(format!(
                "packets dropped for damage: {damaged}, though the injector damaged {} at most",
                faults.flipped + faults.truncated
            ));
        }
        errors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1000 packets of 64 bytes; 10 lost, 20 sent twice, 6 damaged of which one passed (its outer
    /// TTL was hit) and one was sent twice.
    fn good() -> Books {
        let sums = |packets| SaSums { packets, bytes: 64 * packets, ..SaSums::default() };
        Books {
            sent: 1000,
            sent_bytes: 64_000,
            protected: 1000,
            protected_bytes: 64_000,
            faults: Some(Injected {
                seen: 1000,
                lost: 10,
                duplicated: 20,
                flipped: 4,
                truncated: 2,
                ..Injected::default()
            }),
            offered: 1010,
            dropped: vec![("replayed", 18), ("too-old", 1), ("bad-icv", 4), ("ip-total-length", 2)],
            accepted: 985,
            accepted_bytes: 64 * 985,
            received: 985,
            received_bytes: 64 * 985,
            missing: 15,
            outbound_sas: SaSums { sequence: 1000, ..sums(1000) },
            inbound_sas: SaSums { replayed: 19, icv_failures: 4, ..sums(985) },
            ..Books::default()
        }
    }

    #[test]
    fn books_that_add_up_have_no_errors() {
        assert_eq!(good().errors(), [""; 0]);
    }

    #[test]
    fn one_packet_too_many_or_too_few_shows_wherever_it_is_counted() {
        let wrong: [fn(&mut Books); 20] = [
            |b| b.sent += 1,
            |b| b.sent_bytes -= 1,
            |b| b.refused = vec![("no-sa", 1)],
            |b| b.protected -= 1,
            |b| b.protected_bytes += 1,
            |b| b.faults.as_mut().unwrap().seen += 1,
            |b| b.faults.as_mut().unwrap().lost -= 1,
            |b| b.faults.as_mut().unwrap().duplicated += 1,
            |b| b.faults.as_mut().unwrap().flipped -= 2,
            |b| b.offered += 1,
            |b| b.dropped[0].1 += 1,
            |b| b.dropped[2] = ("replayed", 4),
            |b| b.accepted += 1,
            |b| b.received -= 1,
            |b| b.missing += 1,
            |b| b.strange += 1,
            |b| b.outbound_sas.sequence += 1,
            |b| b.outbound_sas.packets -= 1,
            |b| b.inbound_sas.replayed += 1,
            |b| b.frames_lost += 1,
        ];
        for (n, wrong) in wrong.iter().enumerate() {
            let mut books = good();
            wrong(&mut books);
            assert!(!books.errors().is_empty(), "change {n} is not noticed");
        }
    }
}
