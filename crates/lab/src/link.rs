//! Virtual Ethernet between namespaces: interfaces, addresses, routes, kernel settings.

use std::{
    fs, io,
    net::IpAddr,
    os::fd::{AsFd as _, AsRawFd as _},
    path::Path,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage as Message,
    address::{AddressAttribute, AddressHeaderFlags, AddressMessage},
    link::{
        AfSpecInet6, AfSpecUnspec, Inet6IfaceFlags, InfoData, InfoKind, InfoVeth, LinkAttribute,
        LinkFlags, LinkInfo, LinkMessage,
    },
    route::{RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType},
};

use convoy_host::netlink::Rtnl;

use crate::{LabError, Namespace, error::Doing as _};

/// Longest time that the kernel may take to notice a cable. It looks once a second at the slowest, on a host with time.
const READY: Duration = Duration::from_secs(60);

/// Interfaces get indices of our own choice, no two alike: the kernel brings up a veth pair without
/// delay only when the indices of its ends differ.
static NEXT_INDEX: AtomicU32 = AtomicU32::new(1000);

/// One end of a virtual cable.
#[derive(Debug)]
pub struct End<'a> {
    /// Receives the interface.
    pub namespace: &'a Namespace,
    /// Its name there, up to 15 bytes.
    pub link: &'a str,
    /// Its addresses, usable at once.
    pub addresses: Vec<IpNet>,
}

/// Joins two namespaces by a virtual Ethernet cable (a veth pair): both interfaces get their
/// addresses and an MTU in bytes, are set up, and are ready for traffic. They never appear in the
/// caller's namespace.
///
/// # Errors
/// [`LabError::System`].
pub fn cable(a: &End<'_>, b: &End<'_>, mtu: u32) -> Result<(), LabError> {
    let attributes = |link: &str| vec![LinkAttribute::IfName(link.into()), LinkAttribute::Mtu(mtu)];
    let mut far = LinkMessage::default();
    far.attributes = attributes(b.link);
    far.attributes.push(LinkAttribute::NetNsFd(b.namespace.as_fd().as_raw_fd()));
    far.header.index = NEXT_INDEX.fetch_add(1, Ordering::Relaxed);
    let mut near = LinkMessage::default();
    near.header.index = NEXT_INDEX.fetch_add(1, Ordering::Relaxed);
    near.attributes = attributes(a.link);
    near.attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(InfoKind::Veth),
        LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(far))),
    ]));
    let mut rtnl = a.namespace.rtnl()?;
    rtnl.change(Message::NewLink(near), NLM_F_CREATE | NLM_F_EXCL)
        .doing(|| format!("create the veth pair {}–{}", a.link, b.link))?;
    for end in [a, b] {
        for address in &end.addresses {
            end.namespace.add_address(end.link, *address)?;
        }
        end.namespace.set_up(end.link)?;
    }
    wait_until_ready(a)?;
    wait_until_ready(b)
}

/// Waits until the kernel has noticed the cable. Before that it may drop what is sent, and IPv6
/// neither answers its neighbours nor has a link-local address to ask them from.
fn wait_until_ready(end: &End<'_>) -> Result<(), LabError> {
    let begun = Instant::now();
    while !is_ready(&end.namespace.link(end.link)?) {
        if begun.elapsed() > READY {
            return Err(io::Error::from(io::ErrorKind::TimedOut))
                .doing(|| format!("wait until interface {} is ready", end.link));
        }
        thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

fn is_ready(link: &LinkMessage) -> bool {
    let families = link.attributes.iter().filter_map(|attribute| match attribute {
        LinkAttribute::AfSpecUnspec(families) => Some(families),
        _ => None,
    });
    // An interface without IPv6 has no flags of it.
    let v6_waits = families.flatten().any(|family| {
        match family {
        AfSpecUnspec::Inet6(list) => list.iter().any(|item| {
            matches!(item, AfSpecInet6::Flags(flags) if !flags.contains(Inet6IfaceFlags::Ready))
        }),
        _ => false,
    }
    });
    link.header.flags.contains(LinkFlags::Running) && !v6_waits
}

impl Namespace {
    /// A routing socket in this namespace.
    pub(crate) fn rtnl(&self) -> Result<Rtnl, LabError> {
        self.run(Rtnl::open)?.doing(|| "open a netlink socket".into())
    }

    /// Loopback up, IPv6 on, addresses usable at once, no reverse path filter, no router
    /// advertisements: what a laboratory expects of a fresh namespace.
    pub(crate) fn make_usable(&self) -> Result<(), LabError> {
        self.set_sysctl("net/ipv4/conf/all/rp_filter", "0")?;
        self.set_sysctl("net/ipv4/conf/default/rp_filter", "0")?;
        // A kernel without IPv6 has none of these.
        for scope in ["all", "default"] {
            for (leaf, value) in [("disable_ipv6", "0"), ("accept_dad", "0"), ("accept_ra", "0")] {
                let key = format!("net/ipv6/conf/{scope}/{leaf}");
                match self.set_sysctl(&key, value) {
                    Err(LabError::System { error, .. })
                        if error.kind() == io::ErrorKind::NotFound => {}
                    other => other?,
                }
            }
        }
        self.set_up("lo")
    }

    /// Sets a kernel setting of this namespace, named by its path below `/proc/sys`.
    ///
    /// # Errors
    /// [`LabError::System`].
    pub fn set_sysctl(&self, key: &str, value: &str) -> Result<(), LabError> {
        let file = Path::new("/proc/sys").join(key);
        self.run(|| fs::write(file, value))?.doing(|| format!("set {key} to {value}"))
    }

    /// Makes the namespace a router for both families.
    ///
    /// # Errors
    /// [`LabError::System`].
    pub fn forward(&self) -> Result<(), LabError> {
        self.set_sysctl("net/ipv4/ip_forward", "1")?;
        self.set_sysctl("net/ipv6/conf/all/forwarding", "1")
    }

    /// Index of an interface.
    ///
    /// # Errors
    /// [`LabError::System`] when there is none of that name.
    pub fn link_index(&self, link: &str) -> Result<u32, LabError> {
        Ok(self.link(link)?.header.index)
    }

    fn link(&self, link: &str) -> Result<LinkMessage, LabError> {
        let mut question = LinkMessage::default();
        question.attributes.push(LinkAttribute::IfName(link.into()));
        let answer = self.rtnl()?.query(Message::GetLink(question));
        match answer.doing(|| format!("find interface {link}"))? {
            Some(Message::NewLink(found)) => Ok(found),
            _ => Err(io::Error::from_raw_os_error(nix::libc::ENODEV))
                .doing(|| format!("find interface {link}")),
        }
    }

    /// Sets an interface up.
    ///
    /// # Errors
    /// [`LabError::System`].
    pub fn set_up(&self, link: &str) -> Result<(), LabError> {
        let mut message = LinkMessage::default();
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        self.change_link(link, message, || format!("set interface {link} up"))
    }

    /// Sets an interface down.
    ///
    /// # Errors
    /// [`LabError::System`].
    pub fn set_down(&self, link: &str) -> Result<(), LabError> {
        let mut message = LinkMessage::default();
        message.header.change_mask = LinkFlags::Up;
        self.change_link(link, message, || format!("set interface {link} down"))
    }

    /// Sets an interface's MTU in bytes.
    ///
    /// # Errors
    /// [`LabError::System`].
    pub fn set_mtu(&self, link: &str, mtu: u32) -> Result<(), LabError> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::Mtu(mtu));
        self.change_link(link, message, || format!("set the MTU of {link} to {mtu}"))
    }

    /// Bounds how many packets the kernel may hand to an interface as one (`gso_max_segs`). With 1,
    /// everything sent is cut into real packets first, so that a capture shows what a wire would
    /// carry; 65535 is the normal value.
    ///
    /// # Errors
    /// [`LabError::System`].
    pub fn set_segments(&self, link: &str, most: u32) -> Result<(), LabError> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::GsoMaxSegs(most));
        self.change_link(link, message, || format!("limit segmentation of {link} to {most}"))
    }

    /// Sets how many packets the kernel keeps for an interface whose owner is busy.
    ///
    /// # Errors
    /// [`LabError::System`].
    pub fn set_queue_length(&self, link: &str, packets: u32) -> Result<(), LabError> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::TxQueueLen(packets));
        self.change_link(link, message, || format!("set the queue of {link} to {packets}"))
    }

    fn change_link(
        &self,
        link: &str,
        mut message: LinkMessage,
        doing: impl Fn() -> String,
    ) -> Result<(), LabError> {
        message.header.index = self.link_index(link)?;
        self.rtnl()?.change(Message::SetLink(message), 0).doing(doing)
    }

    /// Gives an interface an address, without duplicate address detection.
    ///
    /// # Errors
    /// [`LabError::System`], also when it has that address already.
    pub fn add_address(&self, link: &str, address: IpNet) -> Result<(), LabError> {
        let mut message = AddressMessage::default();
        message.header.family = family(address.addr());
        message.header.prefix_len = address.prefix_len();
        message.header.index = self.link_index(link)?;
        if address.addr().is_ipv6() {
            message.header.flags = AddressHeaderFlags::Nodad;
        }
        message.attributes.push(AddressAttribute::Local(address.addr()));
        message.attributes.push(AddressAttribute::Address(address.addr()));
        self.rtnl()?
            .change(Message::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL)
            .doing(|| format!("add address {address} to {link}"))
    }

    /// Takes an address from an interface.
    ///
    /// # Errors
    /// [`LabError::System`], also when it does not have that address.
    pub fn remove_address(&self, link: &str, address: IpNet) -> Result<(), LabError> {
        let mut message = AddressMessage::default();
        message.header.family = family(address.addr());
        message.header.prefix_len = address.prefix_len();
        message.header.index = self.link_index(link)?;
        message.attributes.push(AddressAttribute::Local(address.addr()));
        message.attributes.push(AddressAttribute::Address(address.addr()));
        self.rtnl()?
            .change(Message::DelAddress(message), 0)
            .doing(|| format!("remove address {address} from {link}"))
    }

    /// Adds a route to a network by way of a next hop.
    ///
    /// # Errors
    /// [`LabError::System`].
    pub fn add_route(&self, to: IpNet, via: IpAddr) -> Result<(), LabError> {
        self.rtnl()?
            .change(Message::NewRoute(route(to, via)), NLM_F_CREATE | NLM_F_EXCL)
            .doing(|| format!("add the route to {to} by way of {via}"))
    }

    /// Removes a route that [`Namespace::add_route`] added.
    ///
    /// # Errors
    /// [`LabError::System`], also when it is not there.
    pub fn remove_route(&self, to: IpNet, via: IpAddr) -> Result<(), LabError> {
        self.rtnl()?
            .change(Message::DelRoute(route(to, via)), 0)
            .doing(|| format!("remove the route to {to} by way of {via}"))
    }
}

fn route(to: IpNet, via: IpAddr) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header = RouteHeader {
        address_family: family(to.addr()),
        destination_prefix_length: to.prefix_len(),
        table: RouteHeader::RT_TABLE_MAIN,
        protocol: RouteProtocol::Static,
        scope: RouteScope::Universe,
        kind: RouteType::Unicast,
        ..RouteHeader::default()
    };
    message.attributes.push(RouteAttribute::Destination(to.network().into()));
    message.attributes.push(RouteAttribute::Gateway(via.into()));
    message
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}
