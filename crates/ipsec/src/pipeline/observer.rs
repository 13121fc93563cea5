//! Watching the stages at work, for benchmarks.

use core::fmt;

/// A stage of a pipeline, as the snapshot in [the module's documentation](super) names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Outbound: headers are read.
    Parse,
    /// Outbound: policy and SA are found.
    Classify,
    /// Outbound: sequence numbers are reserved and ESP laid out.
    Protect,
    /// Inbound: the SA is found and the packet's number looked at.
    Demux,
    /// Either direction: the engine takes and returns jobs.
    Engine,
    /// Outbound: finished packets go to the wire.
    Forward,
    /// Inbound: the anti-replay window moves.
    Commit,
    /// Inbound: ESP is taken off.
    Decap,
    /// Inbound: the policy of the inner packet is checked.
    Policy,
}

impl Stage {
    /// All stages.
    pub const ALL: [Self; 9] = [
        Self::Parse,
        Self::Classify,
        Self::Protect,
        Self::Demux,
        Self::Engine,
        Self::Forward,
        Self::Commit,
        Self::Decap,
        Self::Policy,
    ];

    /// Its name in small letters.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Parse => "parse",
            Self::Classify => "classify",
            Self::Protect => "protect",
            Self::Demux => "demux",
            Self::Engine => "engine",
            Self::Forward => "forward",
            Self::Commit => "commit",
            Self::Decap => "decap",
            Self::Policy => "policy",
        }
    }
}

/// Is told, burst by burst, when a stage has done its work. The observer of a gateway is `()`,
/// which compiles to nothing.
pub trait Observer: fmt::Debug {
    /// `stage` has dealt with a burst.
    fn passed(&mut self, stage: Stage);
}

impl Observer for () {
    #[inline(always)]
    fn passed(&mut self, _: Stage) {}
}
