//! Number of questions that the kernel asked.

use std::{collections::BTreeMap, io};

use convoy_netlink::queue::{self, Handed};

use crate::questions::{Kind, Questions};

/// The kernel's counters of questions about packets of one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Asked {
    /// Packets that it asked about.
    pub packets: u64,
    /// Packets that it dropped as too many waited for an answer.
    pub full: u64,
    /// Packets that it dropped as questions were not read soon enough.
    pub unread: u64,
}

/// Sums of what the kernel counts, over listeners that come and go. Its own counters begin again with each listener, and
/// behind 32 bits.
#[derive(Debug, Default)]
pub struct AskedTotal {
    /// From local to remote networks, and from remote to local networks.
    both: [Asked; 2],
    /// Last counters of each queue.
    last: [Handed; Kind::ALL.len()],
    /// The number of the listener whose counters these were.
    listeners: u64,
}

impl AskedTotal {
    /// Counts of questions about packets from local to remote networks, and from remote to local networks.
    #[must_use]
    pub const fn both(&self) -> [Asked; 2] {
        self.both
    }

    /// Takes over what the kernel says now about queues of the calling thread's network namespace. `listeners` gives a
    /// number that changes whenever a [`Listener`](crate::Listener) is opened there, and none while one is being opened.
    ///
    /// # Errors
    /// Fails if `/proc` cannot be read.
    pub fn follow(
        &mut self,
        questions: &Questions,
        listeners: impl Fn() -> Option<u64>,
    ) -> io::Result<()> {
        let before = listeners();
        let handed = queue::handed()?;
        // Otherwise it is not known whose counters these are.
        if let Some(listeners) = listeners().filter(|now| before == Some(*now)) {
            self.note(questions, &handed, listeners);
        }
        Ok(())
    }

    fn note(&mut self, questions: &Questions, handed: &BTreeMap<u16, Handed>, listeners: u64) {
        if self.listeners != listeners {
            (self.listeners, self.last) = (listeners, Default::default());
        }
        let [outbound, inbound] = &mut self.both;
        for (kind, last) in Kind::ALL.into_iter().zip(&mut self.last) {
            let number = questions.queue.saturating_add(kind.place());
            let Some(now) = handed.get(&number) else { continue };
            let sum = if kind.is_inbound() { &mut *inbound } else { &mut *outbound };
            let more = |of: fn(&Handed) -> u32| u64::from(of(now).wrapping_sub(of(last)));
            let full = more(|it| it.full);
            sum.packets = sum.packets.saturating_add(more(|it| it.numbered)).saturating_add(full);
            sum.full = sum.full.saturating_add(full);
            sum.unread = sum.unread.saturating_add(more(|it| it.unread));
            *last = *now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_that_begin_again_are_added_up() {
        let questions = Questions::new();
        let mut total = AskedTotal::default();
        let mut packets = |listeners, queues: &[(u16, [u32; 3])]| {
            let handed = queues.iter().map(|(kind, [numbered, full, unread])| {
                let (numbered, full, unread) = (*numbered, *full, *unread);
                (questions.queue + kind, Handed { numbered, full, unread })
            });
            total.note(&questions, &handed.collect(), listeners);
            total.both().map(|it| (it.packets, it.full, it.unread))
        };
        let none = (0, 0, 0);
        assert_eq!(packets(1, &[]), [none, none]);
        let most = u32::MAX;
        let first = u64::from(most);
        assert_eq!(packets(1, &[(0, [most, 0, 0]), (1, [5, 0, 0])]), [(first + 5, 0, 0), none]);
        // One of them goes on behind its last number.
        assert_eq!(packets(1, &[(0, [2, 0, 0]), (1, [5, 0, 0])]), [(first + 8, 0, 0), none]);
        let other = (4, 3, 1);
        assert_eq!(
            packets(1, &[(0, [2, 0, 0]), (1, [5, 0, 0]), (3, [1, 3, 1])]),
            [(first + 8, 0, 0), other]
        );
        // Nobody listens, and then somebody else does.
        assert_eq!(packets(1, &[]), [(first + 8, 0, 0), other]);
        assert_eq!(packets(2, &[(0, [7, 0, 0])]), [(first + 15, 0, 0), other]);
        assert_eq!(packets(2, &[(0, [7, most, 0])]).map(|it| it.1), [first, 3]);
    }
}
