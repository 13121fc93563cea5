//! Addresses between which an SA's packets go.

use std::net::IpAddr;

use convoy_xfrm::Sa;

/// Source and destination of an SA's outer packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Ends {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
}

impl Ends {
    pub(super) fn of_sa(sa: &Sa) -> Self {
        Self { source: sa.info.source, destination: sa.info.destination }
    }

    /// Ends of the SA the other way round.
    pub(super) fn turned(self) -> Self {
        Self { source: self.destination, destination: self.source }
    }
}
