//! Direction of packets, as policies have it.

/// Group of packets that a policy means: `out`, `in` or `fwd`. Each way has prefixes of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyDirection {
    /// Packets that leave, whether this host sends or forwards them.
    Out,
    /// Packets for this host that come in in clear.
    In,
    /// Packets for others that come in in clear.
    Forward,
}

impl PolicyDirection {
    /// All of them, in the order of their sets.
    pub const ALL: [Self; 3] = [Self::Out, Self::In, Self::Forward];
}
