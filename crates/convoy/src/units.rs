//! Units of IKE daemons, and the drop-ins that lead them to Convoy.

use std::path::Path;

use clap::ValueEnum;

/// Folders of units below a root, in systemd's order.
pub(crate) const UNIT_FOLDERS: [&str; 4] = [
    "etc/systemd/system",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
];

/// IKE daemon whose service can be led to Convoy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Daemon {
    /// strongSwan: charon, by `swanctl` or by `ipsec.conf`.
    Strongswan,
    /// Libreswan: pluto.
    Libreswan,
}

impl Daemon {
    /// All of them.
    pub(crate) const ALL: [Self; 2] = [Self::Strongswan, Self::Libreswan];

    /// The name on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Strongswan => "strongswan",
            Self::Libreswan => "libreswan",
        }
    }

    /// Names of its services in distributions, without `.service`.
    pub(crate) const fn units(self) -> &'static [&'static str] {
        match self {
            Self::Strongswan => &["strongswan", "strongswan-starter"],
            Self::Libreswan => &["ipsec"],
        }
    }
}

/// File of a unit's drop-in, relative to a folder of units.
pub(crate) fn drop_in(unit: &str) -> String {
    format!("{unit}.service.d/50-convoy.conf")
}

/// The first folder of units below `root` that has a file.
pub(crate) fn folder_with(root: &Path, name: &str) -> Option<&'static str> {
    UNIT_FOLDERS.into_iter().find(|folder| root.join(folder).join(name).exists())
}
