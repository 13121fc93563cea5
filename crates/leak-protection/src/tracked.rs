//! Packets that the kernel tracks as flows (conntrack), and the fill of its table of connections.
//!
//! To ask about flows has the kernel track all packets of the network namespace, those of tunnels and of strangers
//! included; and when the table is full it drops whatever it cannot enter.

use std::io;

pub use convoy_netlink::conntrack::Fill;
use convoy_netlink::nft::ruleset::Ruleset;

use crate::{config::Config, error::LeakProtectionError};

/// Beginning of the names of tables that fit TCP connections to tunnels.
const MSS: &str = "convoy-mss-";

/// Packets that are tracked where questions are asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tracked {
    /// All of them, as others on this host may need it: NAT, and firewalls that look at states of flows.
    #[default]
    All,
    /// All but what tunnels are made of: ESP, AH, and IKE on port 500, of this host. A firewall that takes these only
    /// as answers drops them.
    AllButTunnels,
    /// Packets that are asked about, and nothing else.
    Asked,
}

/// Use that others on this host make of flows, or may make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Others {
    /// They have packets tracked.
    pub track: bool,
    /// They change addresses (NAT).
    pub rewrite: bool,
}

/// Use that others on this host make of flows, or may make: by rules of the packet filter in the calling thread's network
/// namespace, or by the old iptables, whose rules cannot be seen.
///
/// # Errors
/// [`LeakProtectionError::Netlink`].
pub fn others(config: &Config) -> Result<Others, LeakProtectionError> {
    let ruleset = Ruleset::read().map_err(LeakProtectionError::Netlink)?;
    let own = config.table();
    let needing = |table: &str| is_others(table, &own);
    let track = has_legacy_rules()
        || ruleset.not_understood > 0
        || !ruleset.flow_tables.is_empty()
        || ruleset.needing_flows.iter().any(|chain| needing(&chain.table));
    let rewrite = legacy_tables().any(|table| table == "nat")
        || ruleset.of_nat.iter().any(|chain| needing(&chain.table));
    Ok(Others { track, rewrite })
}

/// True if there are tables of the old iptables in the calling thread's network namespace, which the kernel keeps apart
/// from those of nftables.
#[must_use]
pub fn has_legacy_rules() -> bool {
    legacy_tables().next().is_some()
}

fn legacy_tables() -> impl Iterator<Item = String> {
    let files = ["ip_tables_names", "ip6_tables_names"].into_iter();
    let read = |name| std::fs::read_to_string(format!("/proc/thread-self/net/{name}"));
    let texts = files.filter_map(move |name| read(name).ok());
    texts.flat_map(|text| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
}

/// Fill of the table of connections, in the calling thread's network namespace; none where nothing is tracked.
///
/// # Errors
/// Fails if `/proc` cannot be read.
pub fn connections() -> io::Result<Option<Fill>> {
    Fill::read()
}

/// True if a table is neither leak protection's own nor one beside it.
pub(crate) fn is_others(table: &str, own: &str) -> bool {
    table != own && !table.starts_with(MSS)
}
