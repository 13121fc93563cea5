//! TUN interfaces as the routing socket knows them, and what is done to an interface that nobody else is to
//! meet before it is ready.

use std::os::fd::AsRawFd as _;

use netlink_packet_core::Nla as _;
use netlink_packet_route::{
    RouteNetlinkMessage as Message,
    link::{InfoData, InfoTun, LinkAttribute, LinkInfo, LinkMessage},
};

use crate::{HostError, Netns, Network, change::attribute_message, netlink::Refusal};

/// Attributes of a TUN interface in `linux/if_link.h`.
const IFLA_TUN_OWNER: u16 = 1;
const IFLA_TUN_PERSIST: u16 = 6;
const IFLA_TUN_NUM_QUEUES: u16 = 8;
const IFLA_TUN_NUM_DISABLED_QUEUES: u16 = 9;

/// Owner of a TUN interface with several queues, and its open queues, whoever has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TunState {
    /// The user who may open queues; none: everybody may.
    pub owner: Option<u32>,
    /// It stays when all its queues are closed.
    pub stays: bool,
    /// Number of queues that carry packets.
    pub attached: u32,
    /// Number of queues that whoever has them has taken out, and may put back.
    pub disabled: u32,
}

impl Network {
    /// Owner and queues of a TUN interface, as they were at one moment; none where there is no such
    /// interface, it has but one queue by its kind, or the kernel does not say (Linux before 4.17).
    ///
    /// # Errors
    /// [`HostError::Netlink`].
    pub fn tun_state(&mut self, index: u32) -> Result<Option<TunState>, HostError> {
        let mut question = LinkMessage::default();
        question.header.index = index;
        match self.rtnl.query(Message::GetLink(question)) {
            Ok(Some(Message::NewLink(answer))) => Ok(state_of(&answer)),
            Ok(_) | Err(Refusal { errno: nix::libc::ENODEV, .. }) => Ok(None),
            Err(other) => Err(other.into()),
        }
    }

    /// Gives an interface another name; a `%d` in it is replaced by the first free number.
    ///
    /// # Errors
    /// [`HostError::Netlink`]; of kind `AlreadyExists` where another interface has the name.
    pub fn rename(&mut self, index: u32, name: &str) -> Result<(), HostError> {
        self.set(index, LinkAttribute::IfName(name.to_owned()))
    }

    /// Moves an interface to another network namespace, where it is down at first.
    ///
    /// # Errors
    /// [`HostError::Netlink`].
    pub fn hand_over(&mut self, index: u32, to: &Netns) -> Result<(), HostError> {
        self.set(index, LinkAttribute::NetNsFd(to.file().as_raw_fd()))
    }

    /// Deletes an interface, whoever has it open.
    ///
    /// # Errors
    /// [`HostError::Netlink`].
    pub fn delete(&mut self, index: u32) -> Result<(), HostError> {
        let mut order = LinkMessage::default();
        order.header.index = index;
        Ok(self.rtnl.change(Message::DelLink(order), 0)?)
    }

    fn set(&mut self, index: u32, attribute: LinkAttribute) -> Result<(), HostError> {
        Ok(self.rtnl.change(Message::SetLink(attribute_message(index, attribute)), 0)?)
    }
}

fn state_of(link: &LinkMessage) -> Option<TunState> {
    let infos = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::LinkInfo(infos) => Some(infos),
        _ => None,
    })?;
    let tun = infos.iter().find_map(|info| match info {
        LinkInfo::Data(InfoData::Tun(tun)) => Some(tun),
        _ => None,
    })?;
    let number = |wanted: u16| value(tun, wanted).map(u32::from_ne_bytes);
    Some(TunState {
        owner: number(IFLA_TUN_OWNER),
        stays: value(tun, IFLA_TUN_PERSIST)? != [0],
        attached: number(IFLA_TUN_NUM_QUEUES)?,
        disabled: number(IFLA_TUN_NUM_DISABLED_QUEUES)?,
    })
}

/// The value of an attribute that has `N` bytes.
fn value<const N: usize>(tun: &[InfoTun], wanted: u16) -> Option<[u8; N]> {
    let found = tun.iter().find(|info| info.kind() == wanted)?;
    let mut bytes = [0; N];
    (found.value_len() == N).then(|| found.emit_value(&mut bytes))?;
    Some(bytes)
}
