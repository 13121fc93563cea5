//! Interfaces that share a device with another one.

use netlink_packet_route::{
    RouteNetlinkMessage as Message,
    link::{InfoKind, LinkAttribute, LinkInfo, LinkMessage},
};

use crate::{HostError, Network};

impl Network {
    /// Names of the macvlan and ipvlan interfaces, and those of their kind for virtual machines, that send
    /// and receive by the device of an interface, past the stack and the packet filter of this network
    /// namespace. Those that were moved into other namespaces are not to be seen from here.
    ///
    /// # Errors
    /// [`HostError::Netlink`].
    pub fn sharing(&mut self, link_index: u32) -> Result<Vec<String>, HostError> {
        let list = self.rtnl.dump(&Message::GetLink(LinkMessage::default()))?;
        let all: Vec<_> = list.iter().filter_map(shared).collect();
        // An interface may be such a one itself, beside others of its device.
        let device =
            all.iter().find(|one| one.index == link_index).map_or(link_index, |one| one.device);
        let others = all.into_iter().filter(|one| one.index != link_index && one.device == device);
        Ok(others.map(|one| one.name).collect())
    }
}

/// An interface that has no device of its own.
struct Shared {
    index: u32,
    name: String,
    device: u32,
}

fn shared(message: &Message) -> Option<Shared> {
    let Message::NewLink(message) = message else { return None };
    let mut shared = Shared { index: message.header.index, name: String::new(), device: 0 };
    let mut is_one = false;
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => shared.name.clone_from(name),
            LinkAttribute::Link(device) => shared.device = *device,
            // The device lies in another network namespace, where numbers mean others.
            LinkAttribute::LinkNetNsId(_) => return None,
            LinkAttribute::LinkInfo(infos) => is_one = infos.iter().any(passes_the_stack_by),
            _ => {}
        }
    }
    (is_one && shared.device != 0).then_some(shared)
}

fn passes_the_stack_by(info: &LinkInfo) -> bool {
    use InfoKind::{IpVlan, IpVtap, MacVlan, MacVtap};
    matches!(info, LinkInfo::Kind(IpVlan | IpVtap | MacVlan | MacVtap))
}
