//! Settings of what the packet filter asks.

use convoy_netlink::nft::QueueBy;

use crate::marks::{Epoch, Marks};

/// Settings of questions about packets between partly bypassed prefixes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Questions {
    /// Bits in which answers are kept.
    pub marks: Marks,
    /// The first of five queues (NFQUEUE) that nobody else uses.
    pub queue: u16,
    /// The first of two routing tables, 1 to 252 or from 256 on, that nobody else uses: one has the routes to remote
    /// networks, the next one leads what was answered so into the TUN interface.
    pub table: u32,
    /// Priority of the first `ip rule`; the six from there on are taken.
    pub priority: u32,
}

impl Default for Questions {
    fn default() -> Self {
        Self::new()
    }
}

impl Questions {
    /// Marks as [`Marks::new`], queues 4510 to 4514, tables 4510 and 4511, priorities 210 to 215.
    #[must_use]
    pub const fn new() -> Self {
        Self { marks: Marks::new(), queue: 4510, table: 4510, priority: 210 }
    }

    /// The tables of remote networks, and of what was answered.
    pub(crate) const fn tables(&self) -> [u32; 2] {
        [self.table, self.table.saturating_add(1)]
    }
}

/// Groups of packets that are asked about, one queue each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Packets that this host sends, that came out of a tunnel, or that source NAT changed.
    Sent,
    /// Packets that others send from local to remote networks.
    Leaving,
    /// Packets for this host.
    Arriving,
    /// Packets that others send from remote to local networks, also if they go from local to remote networks as well.
    Forwarded,
    /// Packets that NAT gave the addresses of a protected one.
    Rewritten,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] =
        [Self::Sent, Self::Leaving, Self::Arriving, Self::Forwarded, Self::Rewritten];

    /// Its place among the queues.
    pub(crate) const fn place(self) -> u16 {
        match self {
            Self::Sent => 0,
            Self::Leaving => 1,
            Self::Arriving => 2,
            Self::Forwarded => 3,
            Self::Rewritten => 4,
        }
    }

    /// True if it is about packets that come in in clear.
    pub(crate) const fn is_inbound(self) -> bool {
        matches!(self, Self::Arriving | Self::Forwarded)
    }
}

/// Marks and queues that chains need to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asking {
    pub(crate) marks: Marks,
    pub(crate) queue: u16,
    pub(crate) by: QueueBy,
    /// That of the policies that answer; none while flows may remember answers of another one with its number, and
    /// nothing is remembered.
    pub(crate) epoch: Option<Epoch>,
}

impl Asking {
    pub(crate) const fn new(questions: &Questions) -> Self {
        let Questions { marks, queue, .. } = *questions;
        Self { marks, queue, by: QueueBy::Expression, epoch: None }
    }

    pub(crate) fn number(&self, kind: Kind) -> u16 {
        self.queue.saturating_add(kind.place())
    }
}
