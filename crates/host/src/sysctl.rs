//! Kernel settings below `/proc/sys/net`.

use std::{
    fmt,
    fs::{File, OpenOptions},
    io::{self, Read as _, Seek as _, Write as _},
    path::Path,
};

use serde::{Deserialize, Serialize};

use crate::LinkName;

/// An address family, for settings that exist once for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Interfaces that a per-interface setting is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// All interfaces; for most settings the kernel combines it with the interface's own value.
    All,
    /// Interfaces that appear later.
    Default,
    /// One interface.
    Link(LinkName),
}

impl Scope {
    fn segment(&self) -> &str {
        match self {
            Self::All => "all",
            Self::Default => "default",
            Self::Link(link) => link.as_str(),
        }
    }
}

/// A kernel setting of this network namespace, named by its path below `/proc/sys`, for example
/// `net/ipv4/conf/eth0/rp_filter`. (Slashes, not dots: interface names may contain dots.)
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Sysctl(String);

impl Sysctl {
    /// Forwarding of packets that arrive on the given interfaces. For IPv6 the kernel forwards only
    /// when it is on for [`Scope::All`].
    #[must_use]
    pub fn forwarding(family: Family, scope: &Scope) -> Self {
        Self::conf(family, scope, "forwarding")
    }

    /// IPv4 reverse path filter (RFC 3704): 0 off, 1 strict, 2 loose. The kernel takes the larger of
    /// the interface's value and that of [`Scope::All`].
    #[must_use]
    pub fn rp_filter(scope: &Scope) -> Self {
        Self::conf(Family::V4, scope, "rp_filter")
    }

    /// Forwarding of packets to all hosts of a link (RFC 2644). The kernel forwards them when it is on
    /// for the interface and for [`Scope::All`].
    #[must_use]
    pub fn broadcast_forwarding(scope: &Scope) -> Self {
        Self::conf(Family::V4, scope, "bc_forwarding")
    }

    /// Seconds that IPsec waits for the keys of an SA that it asked for (`xfrm_acq_expires`).
    #[must_use]
    pub fn acquire_expires() -> Self {
        Self("net/core/xfrm_acq_expires".to_owned())
    }

    /// Switch of IPv6: off (1) or on (0).
    #[must_use]
    pub fn disable_ipv6(scope: &Scope) -> Self {
        Self::conf(Family::V6, scope, "disable_ipv6")
    }

    fn conf(family: Family, scope: &Scope, leaf: &str) -> Self {
        let family = match family {
            Family::V4 => "ipv4",
            Family::V6 => "ipv6",
        };
        Self(format!("net/{family}/conf/{}/{leaf}", scope.segment()))
    }

    /// The path below `/proc/sys`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The setting's value in the calling thread's namespace.
    ///
    /// # Errors
    /// As reading the file: not found when the kernel or the interface has no such setting.
    pub fn read(&self) -> io::Result<String> {
        Ok(std::fs::read_to_string(self.file())?.trim_end().to_owned())
    }

    fn file(&self) -> std::path::PathBuf {
        Path::new("/proc/sys").join(&self.0)
    }

    pub(crate) fn open(&self) -> io::Result<OpenSysctl> {
        Ok(OpenSysctl(OpenOptions::new().read(true).write(true).open(self.file())?))
    }
}

impl TryFrom<String> for Sysctl {
    type Error = String;

    fn try_from(path: String) -> Result<Self, String> {
        let mut parts = path.split('/');
        let net = parts.next() == Some("net");
        let mut rest = parts.peekable();
        if net && rest.peek().is_some() && rest.all(|p| !matches!(p, "" | "." | "..")) {
            Ok(Self(path))
        } else {
            Err(format!("{path:?} is no setting below /proc/sys/net, such as net/ipv4/ip_forward"))
        }
    }
}

impl From<Sysctl> for String {
    fn from(sysctl: Sysctl) -> Self {
        sysctl.0
    }
}

impl fmt::Display for Sysctl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An open setting. It stays that of the namespace it was opened in, whichever thread uses it.
#[derive(Debug)]
pub(crate) struct OpenSysctl(File);

impl OpenSysctl {
    pub(crate) fn read(&mut self) -> io::Result<String> {
        let mut value = String::new();
        self.0.rewind()?;
        self.0.read_to_string(&mut value)?;
        Ok(value.trim_end().to_owned())
    }

    pub(crate) fn write(&mut self, value: &str) -> io::Result<()> {
        self.0.rewind()?;
        self.0.write_all(value.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_below_net_are_settings() {
        for good in ["net/ipv4/ip_forward", "net/ipv4/conf/wan.100/rp_filter"] {
            assert!(Sysctl::try_from(good.to_owned()).is_ok(), "{good}");
        }
        for bad in
            ["", "net", "kernel/panic", "net/../kernel/panic", "/net/ipv4/ip_forward", "net//"]
        {
            assert!(Sysctl::try_from(bad.to_owned()).is_err(), "{bad} was taken");
        }
    }

    #[test]
    fn an_interface_with_a_dot_keeps_its_name() {
        let scope = Scope::Link(LinkName::new("wan.100").unwrap());
        assert_eq!(
            Sysctl::forwarding(Family::V6, &scope).as_str(),
            "net/ipv6/conf/wan.100/forwarding"
        );
    }
}
