//! Rules that choose drivers: what a site prefers, and what it says of SAs of IKE daemons.

use std::net::IpAddr;
use std::sync::Arc;

use convoy_wire::Prefix;

/// Choice of drivers for SAs that name none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriverRules {
    /// Each for its algorithm, in place of the one of highest priority.
    pub preferred: Vec<Arc<str>>,
    /// For SAs of IKE daemons: the first that matches.
    pub of_daemons: Vec<DriverRule>,
    /// True if keys keep what they are made of, for a device that wants the key itself.
    pub keeps_keys: bool,
}

/// The driver of some SAs of IKE daemons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverRule {
    /// Its name.
    pub driver: Arc<str>,
    /// SAs that get it.
    pub sas: DaemonSas,
}

/// The SAs of IKE daemons that a rule is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DaemonSas {
    /// Network of their peers; `None`: any.
    pub peer: Option<Prefix>,
    /// Their interface identifier, 0 for none; `None`: any.
    pub if_id: Option<u32>,
}

impl DaemonSas {
    /// True if the SAs with this peer and interface identifier are among them.
    #[must_use]
    pub fn contains(&self, peer: IpAddr, if_id: u32) -> bool {
        self.peer.is_none_or(|network| network.contains(peer))
            && self.if_id.is_none_or(|wanted| wanted == if_id)
    }
}
