//! The IPv4 setting of interfaces by which the reverse path filter looks at marks (`src_valid_mark`).
//!
//! The filter (`rp_filter`, RFC 3704) asks by which interface a packet's source is reached. Where marks lead, what came
//! out of a tunnel bears one, and the way back is found by it alone. Where the kernel asks, what comes from remote networks in
//! clear has its way back by its mark, too: packets without one are led into the TUN interface, or nowhere.
//!
//! The setting is written by routing messages (`IFLA_INET_CONF`): below `/proc/sys` a sandbox may let nobody write.

use convoy_host::LinkName;
use convoy_netlink::{Refusal, Rtnl};
use netlink_packet_core::{DefaultNla, Emitable as _, NLA_F_NESTED};
use netlink_packet_route::{
    RouteNetlinkMessage as Message,
    link::{AfSpecInet, AfSpecUnspec, LinkAttribute, LinkFlags, LinkMessage},
};

use crate::{config::Config, error::LeakProtectionError};

/// `IFLA_INET_CONF` of `if_link.h`, and `IPV4_DEVCONF_SRC_VMARK` of `ip.h`.
const INET_CONF: u16 = 1;
const SRC_VALID_MARK: u16 = 24;

/// Interfaces whose filters are to look at marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LooksAtMarks {
    /// Filters of no interface.
    Nowhere,
    /// That of the TUN interface.
    Tun,
    /// Filters of all interfaces.
    Everywhere,
}

/// The interfaces of a network namespace.
#[derive(Debug)]
pub(crate) struct Links {
    rtnl: Rtnl,
    tun: LinkName,
}

impl Links {
    /// Opens the interfaces of the calling thread's network namespace.
    pub(crate) fn open(config: &Config) -> Result<Self, LeakProtectionError> {
        let rtnl = Rtnl::open().map_err(|error| LeakProtectionError::Netlink(error.into()))?;
        Ok(Self { rtnl, tun: config.tun.clone() })
    }

    /// Has their reverse path filters look at marks. Others' settings stay, and it is never taken back: without a mark
    /// the filter does the same either way.
    pub(crate) fn look_at_marks(
        &mut self,
        where_to: LooksAtMarks,
    ) -> Result<(), LeakProtectionError> {
        if where_to == LooksAtMarks::Nowhere {
            return Ok(());
        }
        let links = self.rtnl.dump(&Message::GetLink(LinkMessage::default()));
        for message in links.map_err(LeakProtectionError::Netlink)? {
            let Message::NewLink(link) = message else { continue };
            let Some(name) = name_of(&link) else { continue };
            let is_meant = where_to == LooksAtMarks::Everywhere || name == self.tun.as_str();
            let is_loopback = link.header.flags.contains(LinkFlags::Loopback);
            if !is_meant || is_loopback || looks_at_marks(&link) != Some(false) {
                continue;
            }
            let name = name.to_owned();
            match self.rtnl.change(Message::SetLink(order(link.header.index)), 0) {
                // It has gone, or has no IPv4 any more.
                Ok(())
                | Err(Refusal { errno: nix::libc::ENODEV | nix::libc::EAFNOSUPPORT, .. }) => {}
                Err(refusal) => return Err(LeakProtectionError::Link { name, refusal }),
            }
        }
        Ok(())
    }
}

fn name_of(link: &LinkMessage) -> Option<&str> {
    link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name.as_str()),
        _ => None,
    })
}

/// True if the interface's own setting is on; none if it has no IPv4.
fn looks_at_marks(link: &LinkMessage) -> Option<bool> {
    let specs = link.attributes.iter().filter_map(|attribute| match attribute {
        LinkAttribute::AfSpecUnspec(specs) => Some(specs),
        _ => None,
    });
    let inet = specs.flatten().filter_map(|spec| match spec {
        AfSpecUnspec::Inet(inet) => Some(inet),
        _ => None,
    });
    inet.flatten().find_map(|inet| match inet {
        AfSpecInet::DevConf(conf) => Some(conf.src_vmark != 0),
        _ => None,
    })
}

/// The message that turns it on, and says nothing of other settings.
fn order(index: u32) -> LinkMessage {
    let setting = DefaultNla::new(SRC_VALID_MARK, 1_u32.to_ne_bytes().to_vec());
    let mut settings = vec![0; setting.buffer_len()];
    setting.emit(&mut settings);
    let inet = AfSpecInet::Other(DefaultNla::new(INET_CONF | NLA_F_NESTED, settings));
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.attributes.push(LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet(vec![inet])]));
    message
}
