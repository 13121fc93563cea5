//! Which packets the kernel tracks as flows (conntrack), and how full its table of connections is.
//!
//! To ask about flows has the kernel track all packets of the network namespace, those of tunnels and of strangers
//! included; and when the table is full it drops whatever it cannot enter.

use std::io;

pub use convoy_netlink::conntrack::Fill;
use convoy_netlink::nft::ruleset::Ruleset;

use crate::{Config, LeakProtectionError, interference::is_others};

/// Which packets are tracked where questions are asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tracked {
    /// All of them, as others on this host may need it: NAT, and firewalls that look at states of flows.
    #[default]
    All,
    /// All but what tunnels are made of: ESP, AH, and IKE on port 500, of this host. A firewall that takes these only
    /// as answers drops them.
    AllButTunnels,
    /// What is asked about, and nothing else.
    Asked,
}

/// Whether others on this host have packets tracked, or may: by rules of the packet filter in the calling thread's
/// network namespace, or by the old iptables, whose rules cannot be seen.
///
/// # Errors
/// [`LeakProtectionError::Netlink`].
pub fn others_track(config: &Config) -> Result<bool, LeakProtectionError> {
    if has_legacy_rules() {
        return Ok(true);
    }
    let ruleset = Ruleset::read().map_err(LeakProtectionError::Netlink)?;
    let own = config.table();
    let needing = |table: &str| is_others(table, &own);
    Ok(ruleset.not_understood > 0
        || !ruleset.flow_tables.is_empty()
        || ruleset.needing_flows.iter().any(|chain| needing(&chain.table)))
}

/// Whether there are tables of the old iptables in the calling thread's network namespace, which the kernel keeps apart
/// from those of nftables.
#[must_use]
pub fn has_legacy_rules() -> bool {
    let files = ["ip_tables_names", "ip6_tables_names"];
    let read = |name| std::fs::read_to_string(format!("/proc/thread-self/net/{name}"));
    files.into_iter().any(|name| read(name).is_ok_and(|text| !text.trim().is_empty()))
}

/// How full the table of connections is, in the calling thread's network namespace; none where nothing is tracked.
///
/// # Errors
/// Those of `/proc`.
pub fn connections() -> io::Result<Option<Fill>> {
    Fill::read()
}
