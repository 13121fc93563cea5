//! Interfaces for what IKE daemons give an identifier (`if_id`), in the place of a kernel's XFRM
//! interfaces. They outlive the gateway, as those outlive a daemon: routes into them stay, and while no
//! gateway runs what is routed there is dropped, not sent in clear.

use std::collections::{BTreeSet, HashMap};

use convoy_control::site::Site;
use convoy_host::{Change, LinkName, Network, Plan};
use convoy_io::{Port, tun};

use super::carriers::Carriers;
use super::plan::{interface_mtu, net, with_v6};
use super::rights;
use crate::exit::describe;

/// Interfaces with the MTUs that they were given.
#[derive(Debug, Default)]
pub(super) struct Interfaces {
    mtus: HashMap<u32, u16>,
}

/// The alias of interfaces that this gateway has made, in this run or an earlier one.
fn mark(site: &Site) -> String {
    format!("convoy {}", site.name)
}

/// Opens them, for each worker a queue of each.
///
/// # Errors
/// Fails if one cannot be opened, or belongs to somebody else.
pub(super) fn open(site: &Site, carriers: &Carriers) -> anyhow::Result<Vec<Vec<Box<dyn Port>>>> {
    let present = present(site)?;
    let count = site.workers.count;
    let mut workers: Vec<_> = (0..count).map(|_| Vec::new()).collect();
    for interface in site.xfrm_interfaces() {
        let parked = carriers.of(&interface.name);
        let config = tun::Config { queues: count, parked, ..tun::Config::new(&interface.name) };
        let queues = tun::open(&config)
            .map_err(|error| rights::explain(error, rights::Need::Tunnel))
            .map_err(|error| error.context(format!("interface {}", interface.name)))?;
        if !present.contains(&interface.name) {
            let link = LinkName::new(&interface.name)?;
            Plan::from_iter([Change::Alias { link, alias: mark(site) }]).apply()?.leave();
        }
        // Whoever is killed before this leaves no interface that is nobody's.
        queues.first().map_or(Ok(()), tun::stay)?;
        for (worker, queue) in workers.iter_mut().zip(queues) {
            worker.push(Box::new(queue) as Box<dyn Port>);
        }
    }
    Ok(workers)
}

/// Changes to them, in order. One that was there before keeps its MTU unless the site gives one.
///
/// # Errors
/// Fails if an address or the name of an interface is wrong, or the kernel cannot be asked.
pub(super) fn plan(site: &Site, wire_mtu: u16) -> anyhow::Result<Plan> {
    let mut plan = Plan::default();
    let present = present(site)?;
    for interface in site.xfrm_interfaces() {
        let link = LinkName::new(&interface.name)?;
        let is_new = !present.contains(&interface.name);
        if is_new || interface.mtu.is_some() {
            let mtu = interface_mtu(interface, wire_mtu).into();
            plan.push(Change::Mtu { link: link.clone(), mtu });
        }
        for address in &interface.addresses {
            let address = net(address.addr, address.prefix_len)?;
            plan.push(Change::Address { link: link.clone(), address });
        }
        plan.push(Change::LinkUp { link });
    }
    Ok(plan)
}

impl Interfaces {
    /// Makes them as wide as their SAs leave room: `rooms` has the largest inner packet of each identifier
    /// that has SAs, in bytes. An MTU that the site gives stays.
    ///
    /// # Errors
    /// The first refusal of the kernel; the others are as wide as they should be.
    pub(super) fn follow(&mut self, site: &Site, rooms: &HashMap<u32, u16>) -> anyhow::Result<()> {
        let mut outcome = Ok(());
        for interface in site.xfrm_interfaces().iter().filter(|interface| interface.mtu.is_none()) {
            let Some(room) = rooms.get(&interface.if_id) else { continue };
            let mtu = with_v6(*room);
            if self.mtus.get(&interface.if_id) == Some(&mtu) {
                continue;
            }
            match set_mtu(&interface.name, mtu) {
                Ok(()) => drop(self.mtus.insert(interface.if_id, mtu)),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        outcome
    }
}

fn set_mtu(name: &str, mtu: u16) -> anyhow::Result<()> {
    let link = LinkName::new(name)?;
    Plan::from_iter([Change::Mtu { link, mtu: mtu.into() }]).apply()?.leave();
    tracing::info!("MTU of interface {name} set to {mtu} bytes");
    Ok(())
}

/// Names of this host's interfaces; a site that names none does not ask.
fn present(site: &Site) -> anyhow::Result<BTreeSet<String>> {
    if site.xfrm_interfaces().is_empty() {
        return Ok(BTreeSet::new());
    }
    Ok(Network::open()?.links()?.into_iter().map(|link| link.name).collect())
}

/// Interfaces that are not there any more, or down, in words.
///
/// # Errors
/// Fails if the kernel cannot be asked.
pub(super) fn missing(site: &Site) -> anyhow::Result<Vec<String>> {
    let links = Network::open()?.links()?;
    let say = |name: &String| match links.iter().find(|link| link.name == *name) {
        None => Some(format!("interface {name} was removed: restart the gateway to make it again")),
        Some(link) if !link.up => {
            Some(format!("interface {name} is down, so nothing passes: ip link set {name} up"))
        }
        Some(_) => None,
    };
    Ok(site.xfrm_interfaces().iter().filter_map(|interface| say(&interface.name)).collect())
}

/// Tells at a gateway's end what it leaves.
pub(super) fn tell_left(site: &Site) {
    let names: Vec<&str> =
        site.xfrm_interfaces().iter().map(|interface| interface.name.as_str()).collect();
    if !names.is_empty() {
        tracing::warn!(
            "interface(s) {} stay, and packets routed into them are dropped until the gateway runs again; \
             `convoy open` removes them and the routes into them",
            names.join(", ")
        );
    }
}

/// Removes those that a gateway left, also such as the site names no more. Their names.
///
/// # Errors
/// Fails if one cannot be removed.
pub(super) fn remove(site: &Site) -> anyhow::Result<Vec<String>> {
    let present = present(site)?;
    let names = site.xfrm_interfaces().iter().map(|interface| &interface.name);
    let named = names.filter(|name| present.contains(*name)).cloned();
    named.chain(unnamed(site)?).map(|name| remove_one(&name).map(|()| name)).collect()
}

/// Removes those that the previous run of this gateway made and the site names no more. What cannot be
/// removed stays, and is told; what a program has open belongs to one that lives.
pub(super) fn remove_unnamed(site: &Site) {
    match unnamed(site) {
        Ok(names) => names.iter().for_each(|name| match remove_one(name) {
            Ok(()) => tracing::warn!(
                "removed interface {name} and the routes into it: the site file does not name it any more"
            ),
            Err(error) => tracing::warn!("{}", describe(&error)),
        }),
        Err(error) => tracing::warn!("cannot look for interfaces of the previous run: {}", describe(&error)),
    }
}

/// Interfaces that bear this gateway's mark and that the site does not name.
fn unnamed(site: &Site) -> anyhow::Result<Vec<String>> {
    let is_named = |name: &String| {
        *name == site.plain.interface || site.xfrm_interfaces().iter().any(|its| its.name == *name)
    };
    let links = Network::open()?.links()?.into_iter();
    let marked = links.filter(|link| link.alias == mark(site) && !link.carrier);
    Ok(marked.map(|link| link.name).filter(|name| !is_named(name)).collect())
}

fn remove_one(name: &str) -> anyhow::Result<()> {
    tun::remove(name)
        .map_err(|error| rights::explain(error, rights::Need::Tunnel))
        .map_err(|error| error.context(format!("interface {name}")))
}

/// Interfaces of a site that are not there before its gateway starts.
#[derive(Debug)]
pub struct Absent(Vec<String>);

impl Absent {
    /// Looks for them.
    ///
    /// # Errors
    /// Fails if the kernel cannot be asked.
    pub fn look(site: &Site) -> anyhow::Result<Self> {
        let present = present(site)?;
        let names = site.xfrm_interfaces().iter().map(|interface| interface.name.clone());
        Ok(Self(names.filter(|name| !present.contains(name)).collect()))
    }

    /// Removes those that a start has made which failed, when nothing of it has them open.
    pub fn restore(self) {
        let Ok(links) = Network::open().and_then(|mut network| network.links()) else { return };
        let is_there = |name: &&String| links.iter().any(|link| link.name == **name);
        for name in self.0.iter().filter(is_there) {
            if let Err(error) = remove_one(name) {
                tracing::warn!(
                    "cannot remove an interface after a failed start: {}",
                    describe(&error)
                );
            }
        }
    }
}
