//! Making one change, and taking it back.

use std::collections::HashMap;
use std::io;

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage as Message, route::RouteMessage, rule::RuleMessage,
};

use crate::{
    Cause, Change, HostError, LinkName, Network, Route, RouteEntry, Sysctl,
    change::{address_message, alias_message, guard_message, mtu_message, up_message},
    netlink::Refusal,
    sysctl::OpenSysctl,
};

/// Data to take back a change that was really made. Interfaces are remembered by index: a later
/// interface of the same name is none of ours.
#[derive(Debug)]
pub(crate) enum Undo {
    LinkUp { index: u32 },
    Mtu { index: u32, set: u32, old: u32 },
    Alias { index: u32, set: String, old: String },
    Address { index: u32, address: IpNet },
    Route { message: Box<RouteMessage> },
    Guard { messages: Vec<RuleMessage> },
    Sysctl { file: OpenSysctl, set: String, old: String },
}

/// Makes a change. None when everything was already so, and there is nothing to take back.
pub(crate) fn make(network: &mut Network, change: &Change) -> Result<Option<Undo>, Cause> {
    match change {
        Change::LinkUp { link } => link_up(network, link),
        Change::Mtu { link, mtu } => set_mtu(network, link, *mtu),
        Change::Alias { link, alias } => set_alias(network, link, alias),
        Change::Address { link, address } => add_address(network, link, *address),
        Change::Route(route) => add_route(network, route),
        Change::Guard { link } => guard(network, link),
        Change::Sysctl { key, value } => set_sysctl(key, value),
    }
}

/// One that is there already is of an earlier run that was killed, and is taken over.
fn guard(network: &mut Network, name: &LinkName) -> Result<Option<Undo>, Cause> {
    network.link(name)?;
    let mut messages = Vec::new();
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        let message = guard_message(name, family);
        let order = Message::NewRule(message.clone());
        match network.rtnl.change(order, NLM_F_CREATE | NLM_F_EXCL) {
            Ok(()) | Err(Refusal { errno: nix::libc::EEXIST, .. }) => messages.push(message),
            // Without the family there is nothing to forward.
            Err(Refusal { errno: nix::libc::EAFNOSUPPORT | nix::libc::EOPNOTSUPP, .. })
                if family == AddressFamily::Inet6 => {}
            Err(other) => {
                Undo::Guard { messages }.take_back(network)?;
                return Err(other.into());
            }
        }
    }
    Ok(Some(Undo::Guard { messages }))
}

fn link_up(network: &mut Network, name: &LinkName) -> Result<Option<Undo>, Cause> {
    let link = network.link(name)?;
    if link.up {
        return Ok(None);
    }
    network.rtnl.change(Message::SetLink(up_message(link.index, true)), 0)?;
    Ok(Some(Undo::LinkUp { index: link.index }))
}

fn set_mtu(network: &mut Network, name: &LinkName, mtu: u32) -> Result<Option<Undo>, Cause> {
    let link = network.link(name)?;
    if link.mtu == mtu {
        return Ok(None);
    }
    let index = link.index;
    match network.rtnl.change(Message::SetLink(mtu_message(index, mtu)), 0) {
        Ok(()) => Ok(Some(Undo::Mtu { index, set: mtu, old: link.mtu })),
        Err(Refusal { errno: nix::libc::EINVAL | nix::libc::ERANGE, said }) => {
            Err(match link.mtu_range {
                Some((min, max)) => Cause::MtuRange { min, max },
                None => Cause::Other { errno: nix::libc::EINVAL, said },
            })
        }
        Err(other) => Err(other.into()),
    }
}

fn set_alias(network: &mut Network, name: &LinkName, alias: &str) -> Result<Option<Undo>, Cause> {
    let link = network.link(name)?;
    if link.alias == alias {
        return Ok(None);
    }
    network.rtnl.change(Message::SetLink(alias_message(link.index, alias)), 0)?;
    Ok(Some(Undo::Alias { index: link.index, set: alias.to_owned(), old: link.alias }))
}

fn add_address(
    network: &mut Network,
    name: &LinkName,
    address: IpNet,
) -> Result<Option<Undo>, Cause> {
    let index = network.link(name)?.index;
    let order = Message::NewAddress(address_message(index, address));
    match network.rtnl.change(order, NLM_F_CREATE | NLM_F_EXCL) {
        Ok(()) => Ok(Some(Undo::Address { index, address })),
        // IPv6 has an address once for an interface, whatever the prefix.
        Err(Refusal { errno: nix::libc::EEXIST, .. }) => {
            let there = network.addresses(Some(index))?;
            match there.iter().find(|net| net.addr() == address.addr() && **net != address) {
                Some(other) if !there.contains(&address) => {
                    Err(Cause::Conflict(format!("the same address as {other}")))
                }
                _ => Ok(None),
            }
        }
        Err(other) => Err(other.into()),
    }
}

fn add_route(network: &mut Network, route: &Route) -> Result<Option<Undo>, Cause> {
    let index = network.link(&route.link)?.index;
    let message = route.message(index);
    let order = Message::NewRoute(message.clone());
    match network.rtnl.change(order, NLM_F_CREATE | NLM_F_EXCL) {
        Ok(()) => Ok(Some(Undo::Route { message: Box::new(message) })),
        Err(Refusal { errno: nix::libc::EEXIST, said }) => match rival(network, route)? {
            Some((other, _)) if other == Some(index) => Ok(None),
            Some((_, words)) => Err(Cause::Conflict(words)),
            None => Err(Cause::Other { errno: nix::libc::EEXIST, said }),
        },
        Err(Refusal { errno: nix::libc::ENETUNREACH | nix::libc::EHOSTUNREACH, .. })
            if route.via.is_some() =>
        {
            Err(Cause::GatewayUnreachable)
        }
        Err(refusal) => match route.source {
            Some(source) if refusal.errno == nix::libc::EINVAL && !is_local(network, source)? => {
                Err(Cause::SourceNotLocal(source))
            }
            _ => Err(refusal.into()),
        },
    }
}

/// The route in whose place the new one would go: its interface if it has the same next hop, and
/// the whole in words.
fn rival(network: &mut Network, route: &Route) -> Result<Option<(Option<u32>, String)>, Cause> {
    let found = network.routes()?.into_iter().find(|entry| place_of(entry) == place_for(route));
    let Some(entry) = found else { return Ok(None) };
    let words = in_words(network, &entry)?;
    let same_hop = entry.via == route.via;
    Ok(Some((entry.link_index.filter(|_| same_hop), words)))
}

/// Destination, table and metric, which no two routes have in common.
fn place_of(entry: &RouteEntry) -> (IpNet, u32, u32) {
    (entry.to, entry.table, entry.metric)
}

fn place_for(route: &Route) -> (IpNet, u32, u32) {
    (route.to.trunc(), route.table_or_main(), route.metric_or_default())
}

/// A route that cannot be made, as another one is in its place.
#[derive(Debug)]
pub struct Conflict<'r> {
    /// The route.
    pub route: &'r Route,
    /// Index of the other one's interface, if it has one.
    pub link_index: Option<u32>,
    /// The other one, in words.
    pub other: String,
}

impl Network {
    /// Finds the routes that cannot be made.
    ///
    /// # Errors
    /// [`HostError::Netlink`].
    pub fn conflicts<'r>(&mut self, wanted: &'r [Route]) -> Result<Vec<Conflict<'r>>, HostError> {
        let there: HashMap<_, _> =
            self.routes()?.into_iter().map(|entry| (place_of(&entry), entry)).collect();
        let mut conflicts = Vec::new();
        for route in wanted {
            let Some(other) = there.get(&place_for(route)) else { continue };
            let own = self.link(&route.link).ok().map(|link| link.index);
            if own.is_none() || other.link_index != own || other.via != route.via {
                let (link_index, other) = (other.link_index, in_words(self, other)?);
                conflicts.push(Conflict { route, link_index, other });
            }
        }
        Ok(conflicts)
    }
}

fn in_words(network: &mut Network, entry: &RouteEntry) -> Result<String, HostError> {
    let link = match entry.link_index {
        Some(index) => network.link_by_index(index)?.map(|link| link.name),
        None => None,
    };
    let mut words = format!("another route to {}", entry.to);
    if let Some(link) = link {
        words += &format!(" through {link}");
    }
    if let Some(via) = entry.via {
        words += &format!(", next hop {via}");
    }
    Ok(words)
}

fn is_local(network: &mut Network, address: std::net::IpAddr) -> Result<bool, Cause> {
    Ok(network.addresses(None)?.iter().any(|net| net.addr() == address))
}

fn set_sysctl(key: &Sysctl, value: &str) -> Result<Option<Undo>, Cause> {
    // A setting that already reads as wanted needs no permission.
    if key.read()? == value {
        return Ok(None);
    }
    let mut file = key.open()?;
    let old = file.read()?;
    file.write(value)?;
    // The kernel may write the value in its own way ("01" reads as "1").
    let set = file.read()?;
    Ok(Some(Undo::Sysctl { file, set, old }))
}

impl Undo {
    /// Takes the change back. What has vanished meanwhile, such as an interface, counts as taken
    /// back; what someone else has changed since is left alone and reported.
    pub(crate) fn take_back(self, network: &mut Network) -> Result<(), Cause> {
        match self {
            Self::LinkUp { index } => order(network, Message::SetLink(up_message(index, false))),
            Self::Mtu { index, set, old } => match network.link_by_index(index)? {
                Some(link) if link.mtu == set => {
                    order(network, Message::SetLink(mtu_message(index, old)))
                }
                Some(link) if link.mtu != old => Err(Cause::ChangedSince(link.mtu.to_string())),
                _ => Ok(()),
            },
            Self::Alias { index, set, old } => match network.link_by_index(index)? {
                Some(link) if link.alias == set => {
                    order(network, Message::SetLink(alias_message(index, &old)))
                }
                Some(link) if link.alias != old => Err(Cause::ChangedSince(link.alias)),
                _ => Ok(()),
            },
            Self::Address { index, address } => {
                order(network, Message::DelAddress(address_message(index, address)))
            }
            Self::Route { message } => order(network, Message::DelRoute(*message)),
            Self::Guard { messages } => {
                let undone = messages.into_iter().map(|m| order(network, Message::DelRule(m)));
                undone.fold(Ok(()), Result::and)
            }
            Self::Sysctl { file, set, old } => match restore(file, &set, &old) {
                // The interface the setting belonged to is gone.
                Err(Cause::NoSuchSetting) => Ok(()),
                other => other,
            },
        }
    }
}

fn order(network: &mut Network, order: Message) -> Result<(), Cause> {
    match network.rtnl.change(order, 0) {
        Ok(()) => Ok(()),
        Err(Refusal {
            errno:
                nix::libc::ENODEV | nix::libc::ENOENT | nix::libc::ESRCH | nix::libc::EADDRNOTAVAIL,
            ..
        }) => Ok(()),
        Err(other) => Err(other.into()),
    }
}

fn restore(mut file: OpenSysctl, set: &str, old: &str) -> Result<(), Cause> {
    let now = file.read()?;
    if now == old {
        return Ok(());
    }
    if now != set {
        return Err(Cause::ChangedSince(now));
    }
    file.write(old).map_err(|e: io::Error| e.into())
}
