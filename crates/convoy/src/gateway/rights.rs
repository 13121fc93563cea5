//! Says which right is missing when the kernel refuses.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};

use convoy_io::{IoError, tun};

/// Object that was to be opened.
#[derive(Clone, Copy, Debug)]
pub(super) enum Need {
    /// The TUN interface.
    Tun,
    /// A TUN interface for SAs of daemons.
    Tunnel,
    /// A raw socket at an address.
    Raw(IpAddr),
    /// A UDP socket at an address.
    Udp(SocketAddr),
    /// An interface, through packet sockets.
    Interface,
}

/// Adds to a refusal what would help.
pub(super) fn explain(error: IoError, need: Need) -> anyhow::Error {
    let help = match &error {
        IoError::Setup { step, .. } if *step == tun::JOINED => Some(
            "a program of another user attaches to each TUN interface while it is made: find and stop that \
             program (`lsof /dev/net/tun`), or start the gateway with CAP_SYS_ADMIN, so that it makes the \
             interface out of reach"
                .into(),
        ),
        IoError::Setup { source, .. } => help(source.kind(), need),
        _ => None,
    };
    match help {
        Some(help) => anyhow::Error::new(error).context(help),
        None => error.into(),
    }
}

fn help(kind: ErrorKind, need: Need) -> Option<String> {
    Some(match (kind, need) {
        (ErrorKind::PermissionDenied, Need::Tun | Need::Tunnel) => {
            "a TUN interface needs CAP_NET_ADMIN: run as root, or give it by \
             `setcap cap_net_admin,cap_net_raw+ep` on the convoy program"
                .into()
        }
        (ErrorKind::NotFound, Need::Tun | Need::Tunnel) => {
            "this system has no /dev/net/tun: load the kernel module tun, or pass the device into \
             the container"
                .into()
        }
        (ErrorKind::ResourceBusy | ErrorKind::AlreadyExists, Need::Tun) => {
            "the plain interface is in use by another program: stop it, or name another \
             `interface` in [plain]"
                .into()
        }
        (ErrorKind::InvalidInput, Need::Tun) => {
            "the plain interface exists and is no TUN interface that can be used: remove it, or \
             name another `interface` in [plain]"
                .into()
        }
        (ErrorKind::ResourceBusy | ErrorKind::AlreadyExists, Need::Tunnel) => {
            "another program uses it, such as a second gateway: stop it, or use another `name` in \
             [[xfrm.interface]]"
                .into()
        }
        (ErrorKind::InvalidInput, Need::Tunnel) => {
            "it exists and is no TUN interface that can be used: remove it, or use another `name` in \
             [[xfrm.interface]]"
                .into()
        }
        (ErrorKind::PermissionDenied, Need::Raw(_)) => {
            "native ESP needs CAP_NET_RAW: run as root, give it by `setcap \
             cap_net_admin,cap_net_raw+ep` on the convoy program, or use `encap = \"udp\"`"
                .into()
        }
        (ErrorKind::PermissionDenied, Need::Interface) => {
            "a direct interface needs CAP_NET_RAW and CAP_NET_ADMIN, and with `af_xdp` CAP_BPF: run as \
             root, or give them by `setcap cap_net_admin,cap_net_raw,cap_bpf+ep` on the convoy program"
                .into()
        }
        (ErrorKind::ResourceBusy, Need::Interface) => {
            "another xdp program is on the interface: take it off, or use `backend = \"af_packet\"`"
                .into()
        }
        (ErrorKind::PermissionDenied, Need::Udp(at)) => {
            format!("UDP port {} needs CAP_NET_BIND_SERVICE or root", at.port())
        }
        (ErrorKind::AddrNotAvailable, Need::Raw(local)) => {
            format!("{local}, the local address of an SA, is not an address of this host")
        }
        (ErrorKind::AddrNotAvailable, Need::Udp(at)) => {
            format!("{}, the local address of an SA, is not an address of this host", at.ip())
        }
        (ErrorKind::AddrInUse, Need::Udp(at)) => {
            format!("UDP port {at} is in use, perhaps by an IKE daemon or another gateway")
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::describe;

    #[test]
    fn the_missing_capability_is_named() {
        let refused = || IoError::Setup {
            step: "open a raw socket for esp",
            source: ErrorKind::PermissionDenied.into(),
        };
        let text = |need| describe(&explain(refused(), need));
        assert!(text(Need::Tun).contains("CAP_NET_ADMIN"));
        assert!(text(Need::Raw([192, 0, 2, 1].into())).contains("CAP_NET_RAW"));
        assert!(text(Need::Tun).ends_with("permission denied"), "{}", text(Need::Tun));
    }

    #[test]
    fn an_interface_of_another_kind_is_told() {
        let refused = IoError::Setup {
            step: "open a queue of the tun device",
            source: std::io::Error::from_raw_os_error(22),
        };
        let text = describe(&explain(refused, Need::Tun));
        assert!(text.contains("name another `interface`"), "{text}");
    }
}
