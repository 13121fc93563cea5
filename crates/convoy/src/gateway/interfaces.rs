//! Interfaces for what IKE daemons give an identifier (`if_id`), in the place of a kernel's XFRM
//! interfaces. They outlive the gateway, as those outlive a daemon: routes into them stay, and while no
//! gateway runs what is routed there is dropped, not sent in clear.

use std::collections::HashMap;

use convoy_control::site::{Site, XfrmInterface};
use convoy_host::{Change, LinkName, Network, Plan};
use convoy_io::{Port, tun};

use super::plan::{interface_mtu, net};
use super::rights;

/// Interfaces with the MTUs that they were given.
#[derive(Debug, Default)]
pub(super) struct Interfaces {
    mtus: HashMap<u32, u16>,
}

/// The interfaces of a site.
pub(super) fn of(site: &Site) -> &[XfrmInterface] {
    site.xfrm.as_ref().map_or(&[], |xfrm| &xfrm.interfaces)
}

/// Opens them, for each worker a queue of each.
///
/// # Errors
/// When one cannot be opened, or belongs to somebody else.
pub(super) fn open(site: &Site) -> anyhow::Result<Vec<Vec<Box<dyn Port>>>> {
    let count = site.workers.count;
    let mut workers: Vec<_> = (0..count).map(|_| Vec::new()).collect();
    for interface in of(site) {
        let config =
            tun::Config { queues: count, persist: true, ..tun::Config::new(&interface.name) };
        let queues = tun::open(&config)
            .map_err(|error| rights::explain(error, rights::Need::Tun))
            .map_err(|error| error.context(format!("interface {}", interface.name)))?;
        for (worker, queue) in workers.iter_mut().zip(queues) {
            worker.push(Box::new(queue) as Box<dyn Port>);
        }
    }
    Ok(workers)
}

/// What is done to them, in order.
///
/// # Errors
/// When an address cannot be.
pub(super) fn plan(site: &Site, wire_mtu: u16) -> anyhow::Result<Plan> {
    let mut plan = Plan::default();
    for interface in of(site) {
        let link = LinkName::new(&interface.name)?;
        plan.push(Change::Mtu {
            link: link.clone(),
            mtu: interface_mtu(interface, wire_mtu).into(),
        });
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
    /// When the kernel refuses.
    pub(super) fn follow(&mut self, site: &Site, rooms: &HashMap<u32, u16>) -> anyhow::Result<()> {
        for interface in of(site).iter().filter(|interface| interface.mtu.is_none()) {
            let Some(room) = rooms.get(&interface.if_id) else { continue };
            let mtu = super::plan::with_v6(interface, *room);
            if self.mtus.get(&interface.if_id) == Some(&mtu) {
                continue;
            }
            let link = LinkName::new(&interface.name)?;
            Plan::from_iter([Change::Mtu { link, mtu: mtu.into() }]).apply()?.leave();
            tracing::info!("interface {} takes packets of {mtu} bytes", interface.name);
            self.mtus.insert(interface.if_id, mtu);
        }
        Ok(())
    }
}

/// Removes those that a gateway left.
///
/// # Errors
/// When one cannot be removed.
pub(super) fn remove(site: &Site) -> anyhow::Result<()> {
    let links = Network::open()?.links()?;
    let is_there = |name: &str| links.iter().any(|link| link.name == name);
    for interface in of(site).iter().filter(|interface| is_there(&interface.name)) {
        tun::remove(&interface.name)
            .map_err(|error| rights::explain(error, rights::Need::Tun))
            .map_err(|error| error.context(format!("interface {}", interface.name)))?;
    }
    Ok(())
}
