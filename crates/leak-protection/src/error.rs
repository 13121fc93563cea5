//! Errors of leak protection.

use convoy_netlink::Refusal;
use ipnet::IpNet;

/// Packets could not be protected from leaking, or not set free.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeakProtectionError {
    /// The kernel could not be asked.
    #[error("cannot talk to the kernel over netlink: {0}")]
    Netlink(#[source] Refusal),
    /// The kernel has no packet filter of this kind.
    #[error("this kernel lacks what the packet filter needs (nf_tables with family inet): {0}")]
    Unsupported(#[source] Refusal),
    /// The process has not the right.
    #[error("the kernel does not let this process {doing}: CAP_NET_ADMIN is needed")]
    Denied {
        /// Operation that was refused.
        doing: &'static str,
    },
    /// The table is another process's.
    #[error(
        "table inet {table} belongs to another running process: another gateway uses this interface; stop that \
         gateway, or name another interface"
    )]
    Held {
        /// Its name.
        table: String,
    },
    /// The packet filter refused.
    #[error("cannot {doing} table inet {table} of the packet filter: {refusal}")]
    Table {
        /// Operation that was refused.
        doing: &'static str,
        /// Its name.
        table: String,
        /// The kernel's reason.
        #[source]
        refusal: Refusal,
    },
    /// The kernel does not hand packets over.
    #[error(
        "cannot open queue {number} of the packet filter (NFQUEUE), by which the kernel requests verdicts on \
         packets of partly bypassed networks: {refusal}{}", queue_hint(.refusal)
    )]
    Queue {
        /// Its number.
        number: u16,
        /// The kernel's reason.
        #[source]
        refusal: Refusal,
    },
    /// Another interface's table marks packets already.
    #[error(
        "leak protection of another interface in this network namespace marks packets already, and only one \
         may: run each gateway in a namespace of its own; if no gateway uses that interface any more, remove \
         its leak protection: convoy open SITE.toml --interface NAME"
    )]
    Asked,
    /// Policies are given in another way than those before, or policies of daemons to a site without any.
    #[error("[xfrm] cannot be added or removed while the gateway runs: restart it")]
    AnotherKind,
    /// Answers that flows remember cannot be cleared.
    #[error(
        "cannot clear verdicts of earlier policies from the table of connections (nf_conntrack_netlink): {0}"
    )]
    Flows(#[source] Refusal),
    /// The rules that lead to routing tables were refused.
    #[error("cannot {doing} the ip rules of leak protection: {refusal}")]
    Rule {
        /// Operation that was refused.
        doing: &'static str,
        /// The kernel's reason.
        #[source]
        refusal: Refusal,
    },
    /// An interface's setting could not be changed.
    #[error(
        "cannot make the reverse path filter of interface {name} use marks: {refusal}; if rp_filter is on \
         there, it drops packets of tunnels: set net.ipv4.conf.{name}.src_valid_mark = 1"
    )]
    Link {
        /// Its name.
        name: String,
        /// The kernel's reason.
        #[source]
        refusal: Refusal,
    },
    /// The routing tables refused.
    #[error("cannot {doing} the route to {network}{}: {refusal}", and_more(*.more))]
    Route {
        /// Operation that was refused.
        doing: &'static str,
        /// Destination of the route.
        network: IpNet,
        /// The kernel's reason.
        #[source]
        refusal: Refusal,
        /// Others that failed.
        more: usize,
    },
}

impl LeakProtectionError {
    /// Error of the kernel, if it refused.
    #[must_use]
    pub const fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Netlink(refusal)
            | Self::Unsupported(refusal)
            | Self::Flows(refusal)
            | Self::Table { refusal, .. }
            | Self::Queue { refusal, .. }
            | Self::Rule { refusal, .. }
            | Self::Link { refusal, .. }
            | Self::Route { refusal, .. } => Some(refusal),
            Self::Denied { .. } | Self::Held { .. } | Self::Asked | Self::AnotherKind => None,
        }
    }

    /// True if the kernel refused because this process has not the right.
    #[must_use]
    pub const fn is_denied(&self) -> bool {
        matches!(self, Self::Denied { .. })
    }
}

fn and_more(count: usize) -> String {
    if count == 0 { String::new() } else { format!(" (and to {count} more)") }
}

fn queue_hint(refusal: &Refusal) -> &'static str {
    match refusal.errno {
        // The kernel says EPERM of another's queue, too.
        nix::libc::EBUSY | nix::libc::EPERM => {
            "; another process listens there, or CAP_NET_ADMIN is missing"
        }
        nix::libc::EINVAL | nix::libc::EOPNOTSUPP => "; the kernel needs nfnetlink_queue",
        _ => "",
    }
}
