//! Settings of leak protection.

use convoy_host::{LinkName, Mark};

use crate::questions::Questions;

/// Beginning of the names of tables.
pub(crate) const TABLE_PREFIX: &str = "convoy-";

/// Settings of leak protection around one interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The TUN interface; it need not exist yet. The table is named after it.
    pub tun: LinkName,
    /// Mark of the gateway's own packets.
    pub mark: Mark,
    /// The user of the gateway. Packets with its mark are exempt if a socket of this user or of root sent them: many
    /// programs that everybody may run can set marks (from Linux 5.17 on, those with `CAP_NET_RAW`).
    pub user: u32,
    /// UDP port that ESP comes to.
    pub udp_port: u16,
    /// Means by which packets are led into the TUN interface.
    pub leads: Lead,
    /// An interface whose packets the gateway itself forwards, and never the kernel. Then the TUN interface is for what the
    /// host itself sends to remote networks, and leak protection leads it there.
    pub forwarding: Option<LinkName>,
    /// Settings of questions about packets of partly bypassed prefixes, if there are any.
    pub questions: Questions,
}

impl Config {
    /// Leak protection around an interface, with the mark 0xc5000000/0xff000000 of this process's user, and UDP port
    /// 4500.
    #[must_use]
    pub fn new(tun: LinkName) -> Self {
        let (leads, questions) = (Lead::ByDestination, Questions::new());
        let user = nix::unistd::geteuid().as_raw();
        let forwarding = None;
        Self { tun, mark: Mark::GATEWAY, user, udp_port: 4500, leads, forwarding, questions }
    }

    /// The table, as in `nft list table inet convoy-convoy0`.
    #[must_use]
    pub fn table(&self) -> String {
        format!("{}{}", TABLE_PREFIX, self.tun)
    }
}

/// Means by which packets are led into the TUN interface.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Lead {
    /// By routes to remote networks, which others lay. Where questions are asked, leak protection lays them.
    #[default]
    ByDestination,
    /// By marks, which leak protection writes on packets from local to remote networks; others route to remote networks as they like.
    ByMark,
}

impl Lead {
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::ByDestination => Self::ByMark,
            Self::ByMark => Self::ByDestination,
        }
    }
}
