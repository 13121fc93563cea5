//! Errors of reading and changing the host, in a network engineer's words.

use std::{fmt, io, net::IpAddr, path::PathBuf};

use crate::{Change, LinkName, netlink::Refusal};

/// Failure to read or change something on the host.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The routing socket could not be opened or answered nonsense.
    #[error("cannot talk to the kernel over netlink: {0}")]
    Netlink(#[source] io::Error),
    /// The text cannot be an interface's name.
    #[error(
        "{name:?} cannot be an interface name: 1 to 15 bytes without '/', ':' or white space are"
    )]
    BadLinkName {
        /// The text.
        name: String,
    },
    /// There is no such interface here.
    #[error("interface {link} does not exist in this network namespace")]
    NoSuchLink {
        /// The name looked for.
        link: LinkName,
    },
    /// No route leads to the address.
    #[error("no route to {to}: {cause}")]
    NoRoute {
        /// The destination.
        to: IpAddr,
        /// Reason for the failure.
        cause: Cause,
    },
    /// A change of a plan failed; the changes before it were undone.
    #[error("cannot {change}: {cause}{}", Undone(.left))]
    Change {
        /// The change that failed.
        change: Box<Change>,
        /// Reason for the failure.
        cause: Cause,
        /// Changes before it that could not be undone; empty when all was taken back.
        left: Vec<Leftover>,
    },
    /// Some changes could not be taken back.
    #[error("not all changes were undone{}", Undone(.left))]
    Left {
        /// Changes that remain on the host.
        left: Vec<Leftover>,
    },
    /// The packet filter refused.
    #[error("cannot {doing}: {cause}")]
    PacketFilter {
        /// Action that failed.
        doing: &'static str,
        /// Reason for the failure.
        cause: Cause,
    },
    /// A network namespace could not be opened.
    #[error("cannot open network namespace {}: {}", .path.display(), namespace_words(.error))]
    OpenNamespace {
        /// The file that stands for it.
        path: PathBuf,
        /// Reason for the failure.
        #[source]
        error: io::Error,
    },
    /// A network namespace could not be entered.
    #[error("cannot enter network namespace {}: {}", .path.display(), namespace_words(.error))]
    EnterNamespace {
        /// The file that stands for it.
        path: PathBuf,
        /// Reason for the failure.
        #[source]
        error: io::Error,
    },
    /// A network namespace could not be made.
    #[error("cannot make a network namespace: {}", namespace_words(.error))]
    MakeNamespace {
        /// Reason for the failure.
        #[source]
        error: io::Error,
    },
    /// A process with several threads would be torn between two namespaces.
    #[error(
        "cannot move the whole process to another network namespace: it already has {threads} threads"
    )]
    Threads {
        /// Threads of the process.
        threads: usize,
    },
}

impl HostError {
    /// The kernel's reason, as an error of input and output.
    #[must_use]
    pub fn into_io(self) -> io::Error {
        match self {
            Self::Netlink(error)
            | Self::OpenNamespace { error, .. }
            | Self::EnterNamespace { error, .. }
            | Self::MakeNamespace { error } => error,
            Self::NoSuchLink { .. } => io::Error::from_raw_os_error(nix::libc::ENODEV),
            other => io::Error::other(other.to_string()),
        }
    }

    /// True if the kernel refused because this process has not the right.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        match self {
            Self::Netlink(error) => error.kind() == io::ErrorKind::PermissionDenied,
            Self::NoRoute { cause, .. }
            | Self::Change { cause, .. }
            | Self::PacketFilter { cause, .. } => *cause == Cause::NotPermitted,
            _ => false,
        }
    }
}

impl From<Refusal> for HostError {
    fn from(refusal: Refusal) -> Self {
        Self::Netlink(io::Error::from_raw_os_error(refusal.errno))
    }
}

/// Something that was changed and could not be taken back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    /// The change that remains.
    pub change: Change,
    /// Reason for which it remains.
    pub cause: Cause,
}

impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "could not undo \"{}\": {}", self.change, self.cause)
    }
}

struct Undone<'a>(&'a [Leftover]);

impl fmt::Display for Undone<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|left| write!(f, "; {left}"))
    }
}

/// Reason for a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The interface does not exist in this namespace.
    NoSuchLink(LinkName),
    /// The process lacks `CAP_NET_ADMIN` in this namespace.
    NotPermitted,
    /// The interface is down, and the change needs it up.
    LinkDown,
    /// Something else already stands where the change should go; in words.
    Conflict(String),
    /// The next hop is on no connected network.
    GatewayUnreachable,
    /// The preferred source address is not one of the host's.
    SourceNotLocal(IpAddr),
    /// The address family is switched off, or missing from the kernel.
    FamilyOff,
    /// The MTU is outside the interface's range, in bytes.
    MtuRange {
        /// Smallest the interface takes.
        min: u32,
        /// Largest the interface takes.
        max: u32,
    },
    /// No such kernel setting.
    NoSuchSetting,
    /// `/proc/sys` is mounted read-only, as in most containers.
    ReadOnly,
    /// Someone else changed it since; it now reads as given and was left alone.
    ChangedSince(String),
    /// Anything else: the error number and the kernel's own words.
    Other {
        /// The error number.
        errno: i32,
        /// The kernel's words, if it gave any.
        said: Option<String>,
    },
}

impl From<Refusal> for Cause {
    fn from(refusal: Refusal) -> Self {
        match refusal.errno {
            nix::libc::EPERM => Self::NotPermitted,
            nix::libc::ENETDOWN => Self::LinkDown,
            // EACCES is what IPv6 says on an interface with disable_ipv6 set.
            nix::libc::EACCES | nix::libc::EAFNOSUPPORT | nix::libc::EOPNOTSUPP => Self::FamilyOff,
            errno => Self::Other { errno, said: refusal.said },
        }
    }
}

impl From<io::Error> for Cause {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(nix::libc::EPERM | nix::libc::EACCES) => Self::NotPermitted,
            Some(nix::libc::EROFS) => Self::ReadOnly,
            Some(nix::libc::ENOENT) => Self::NoSuchSetting,
            errno => Self::Other {
                errno: errno.unwrap_or(nix::libc::EIO),
                said: errno.is_none().then(|| error.to_string()),
            },
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchLink(link) => {
                write!(f, "interface {link} does not exist in this network namespace")
            }
            Self::NotPermitted => f.write_str(
                "not permitted: run as root or with CAP_NET_ADMIN in this network namespace",
            ),
            Self::LinkDown => f.write_str("the interface is down"),
            Self::Conflict(with) => write!(f, "{with} is already there"),
            Self::GatewayUnreachable => {
                f.write_str("the next hop is not on a network this host is connected to")
            }
            Self::SourceNotLocal(source) => {
                write!(f, "source address {source} is not an address of this host")
            }
            Self::FamilyOff => {
                f.write_str("the address family is switched off or missing from this kernel")
            }
            Self::MtuRange { min, max } => write!(f, "the interface takes {min} to {max} bytes"),
            Self::NoSuchSetting => f.write_str("this kernel has no such setting here"),
            Self::ReadOnly => f.write_str("/proc/sys is read-only here (as in most containers)"),
            Self::ChangedSince(now) => write!(f, "changed by another process since, to {now}"),
            Self::Other { errno, said } => {
                write!(f, "{}", io::Error::from_raw_os_error(*errno))?;
                said.as_ref().map_or(Ok(()), |said| write!(f, " ({said})"))
            }
        }
    }
}

fn namespace_words(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(nix::libc::ENOENT) => "there is no namespace of that name".into(),
        Some(nix::libc::EPERM | nix::libc::EACCES) => {
            "not permitted: run as root or with CAP_SYS_ADMIN".into()
        }
        Some(nix::libc::EINVAL) => "the file is no network namespace".into(),
        _ => error.to_string(),
    }
}
