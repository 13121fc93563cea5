//! Leak protection: no packet that a policy protects leaves in clear, and none comes in so.
//!
//! A gateway's plain side is a TUN interface. What is routed into it leaves as ESP or not at all; but routes can
//! change, and with the gateway the interface goes. [`LeakProtection`] is a table of the packet filter (`nf_tables`)
//! that outlives the gateway. It knows two sets of prefixes ([`PrefixSets`]): *local*, the networks on this side of
//! the tunnels, and *remote*, those behind them. What any local network sends to any remote one is protected.
//!
//! * From local to remote networks, packets leave by the TUN interface alone. Two chains behind all routing (`postrouting`)
//!   drop them elsewhere: one ahead of what changes sources, since policies speak of sources as they were sent, and
//!   one behind it, for what source NAT made a packet from a local network. They ask nothing of routes and `ip rule`s, for
//!   those may be what went wrong.
//! * From remote to local networks, packets come out of the TUN interface alone (RFC 4301 section 5.2). A chain for those that
//!   are for this host (`input`) and one for those that it forwards (`forward`) drop what comes in otherwise. ESP, AH,
//!   ESP in UDP, ICMP errors about these, and Neighbour Discovery of a link get through.
//! * The gateway's own packets get out. They bear a [`Mark`](convoy_host::Mark); no port and no address opens anything.
//!
//! Where policies say more about packets than prefixes do, as when one port of a protected network passes in clear,
//! prefixes are *partly bypassed* ([`PrefixSets::partly_bypassed`]). The kernel asks whoever knows the policies ([`Listener`]) about the
//! first packet of each flow and direction, and keeps the answer in marks ([`Marks`]). What has no answer is dropped by
//! the chains above; while nobody listens, flows that were answered for go on as they were answered. Prefixes that are
//! protected whole are never asked about.
//!
//! The table has as many rules for ten thousand networks as for one. Where the kernel knows owners of tables that
//! outlive them (Linux 6.9), nobody else can change it while the gateway runs, `nft flush ruleset` included.
//!
//! [`SitePolicies`] say which prefixes these are. Those of a site without IKE daemons are two sets
//! ([`SitePolicies::Networks`]): there everything between local and remote networks is held, whichever way it goes. Those of a site
//! that serves daemons ([`SitePolicies::Each`]), and those of the daemons ([`LeakProtection::change`]), come and go one by
//! one, and what none of them means passes. Each is for packets of one [`PolicyDirection`], which
//! has local, remote and partly bypassed prefixes of its own: what leaves, what comes in for this host, and what comes in for others.
//!
//! A second lock of `ip rule`s and routes, ahead of the tables of others, holds what is protected where somebody empties
//! the packet filter while no gateway runs.
//!
//! `unreachable` routes to remote networks lie beneath those into the TUN interface, and outlive these. Without
//! them, the host would send its own packets from whatever address another route gives it once the interface has gone,
//! and an address that no policy names is not held.
//!
//! Packets that no hook of IP sees are not stopped: those of packet sockets (`packet(7)`), of bridges, and of flows
//! that were offloaded into a flow table before.

#![forbid(unsafe_code)]

mod answers;
mod asked;
mod chains;
mod config;
mod error;
mod findings;
mod forgetting;
mod hidden;
mod installation;
mod interference;
mod links;
mod marks;
mod policy_direction;
mod policy_prefixes;
mod prefix_sets;
mod present;
mod protection;
mod questions;
mod queues;
mod ranges;
mod routes;
mod rules;
mod second_lock;
mod sets;
mod site_policies;
mod table;
mod tracked;
mod verdicts;

pub use self::{
    answers::{Answered, Answers, Policies},
    asked::{Asked, AskedTotal},
    config::{Config, Lead},
    error::LeakProtectionError,
    findings::{Finding, Look, Lookup, findings},
    installation::Repaired,
    interference::{Interference, interferences},
    marks::{Marks, Verdict},
    policy_direction::PolicyDirection,
    policy_prefixes::Policy,
    prefix_sets::{PrefixSets, Sides},
    present::{asks, interfaces, is_installed, remote_prefixes, remove, remove_routes},
    protection::{Changed, LeakProtection},
    questions::Questions,
    queues::Listener,
    routes::PROTOCOL,
    sets::Held,
    site_policies::SitePolicies,
    table::Drops,
    tracked::{Fill, Others, Tracked, connections, has_legacy_rules, others},
    verdicts::{Pause, Pauses, Tally, VerdictService},
};
