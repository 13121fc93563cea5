//! Packets that leak protection dropped.

use convoy_control::status::{QuestionCounts, Questions as QuestionReport};
use convoy_leak_protection::{Answered, Answers, Asked, Drops, Tally};

/// Number of counters that have names.
pub(in crate::gateway) const COUNTS: usize = 8;

/// Packets that leak protection dropped.
#[derive(Debug, Default)]
pub(super) struct DropCounts {
    outbound: Count,
    inbound: Count,
    past_interface: Count,
    quoting: Count,
    /// From local to remote networks, and from remote to local networks.
    unanswered: [Count; 2],
    discarded_again: Count,
}

impl DropCounts {
    /// Takes over what the packet filter counts.
    pub(super) fn note(&mut self, drops: &Drops) {
        self.outbound.note(drops.outbound);
        self.inbound.note(drops.inbound);
        self.past_interface.note(drops.past_interface());
        self.quoting.note(drops.quoting);
        self.discarded_again.note(drops.discarded_again);
        let now = [drops.unanswered_outbound, drops.unanswered_inbound];
        self.unanswered.iter_mut().zip(now).for_each(|(count, now)| count.note(now));
    }

    /// By name.
    pub(super) fn named(&self, tally: &Tally) -> [(&'static str, u64); COUNTS] {
        let [outbound, inbound] = self.unanswered.map(|count| count.total);
        [
            ("leak-protection.outbound", self.outbound.total),
            ("leak-protection.inbound", self.inbound.total),
            ("leak-protection.past-interface", self.past_interface.total),
            ("leak-protection.quoting-errors", self.quoting.total),
            ("leak-protection.unanswered-outbound", outbound),
            ("leak-protection.unanswered-inbound", inbound),
            ("leak-protection.discarded-again", self.discarded_again.total),
            ("leak-protection.question-overflows", tally.overflows()),
        ]
    }

    /// Outcomes of the kernel's questions.
    pub(super) fn questions(&self, tally: &Tally) -> QuestionReport {
        let Answers { outbound, inbound } = tally.answers();
        let [of_outbound, of_inbound] = tally.asked().map_or([None; 2], |both| both.map(Some));
        let [past_out, past_in] = self.unanswered.map(|count| count.total);
        QuestionReport {
            outbound: direction(outbound, of_outbound, past_out),
            inbound: direction(inbound, of_inbound, past_in),
        }
    }

    /// In words.
    pub(super) fn in_words(&self) -> String {
        let past = match self.past_interface.total {
            0 => String::new(),
            past => format!(" ({past} of them led past the interface)"),
        };
        let [outbound, inbound] = [self.outbound, self.inbound].map(|count| count.total);
        format!("dropped {outbound} outbound packets{past} and {inbound} inbound")
    }
}

/// Outcomes of questions of one direction, with the number of packets that were dropped without an answer.
fn direction(answered: Answered, kernel: Option<Asked>, unanswered: u64) -> QuestionCounts {
    let asked = kernel.map(|kernel| kernel.packets);
    let (queue_full, unread) = (kernel.map(|it| it.full), kernel.map(|it| it.unread));
    let Answered { bypassed, protected, discarded } = answered;
    QuestionCounts { asked, bypassed, protected, discarded, unanswered, queue_full, unread }
}

/// Answers that were given, in words.
pub(super) fn in_words(tally: &Tally) -> String {
    let Answered { bypassed, protected, discarded } = tally.answered();
    let overflows = match tally.overflows() {
        0 => String::new(),
        many => format!(", {many} more because verdict requests overflowed"),
    };
    format!(
        "{bypassed} flows pass in clear, {protected} are protected, {discarded} packets dropped{overflows}"
    )
}

/// A counter of the packet filter, which begins anew when the filter is made again.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    total: u64,
    last: u64,
}

impl Count {
    fn note(&mut self, now: u64) {
        self.total += now.checked_sub(self.last).unwrap_or(now);
        self.last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_go_on_when_the_filter_begins_anew() {
        let mut count = Count::default();
        [0, 3, 3, 1, 5].into_iter().for_each(|now| count.note(now));
        assert_eq!(count.total, 8);
    }
}
