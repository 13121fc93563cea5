//! State of the host, to be compared before and after.

use std::{collections::BTreeSet, fs, io};

use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage as Message,
    address::AddressMessage,
    link::{LinkAttribute, LinkMessage},
    route::{RouteAttribute, RouteMessage},
};

use convoy_host::netlink::{Refusal, Rtnl};

use crate::{LabError, error::Doing as _, namespace::NAMED, sweep::process_ids};

/// Everything a run could leave behind: named namespaces and their mounts; interfaces, addresses
/// and routes of the calling thread's namespace; processes descended from this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostState {
    items: BTreeSet<String>,
}

impl HostState {
    /// Looks at the host as it is now.
    ///
    /// # Errors
    /// [`LabError::System`].
    pub fn snapshot() -> Result<Self, LabError> {
        let mut items = BTreeSet::new();
        if let Ok(folder) = fs::read_dir(NAMED) {
            let names = folder.flatten().map(|e| e.file_name().to_string_lossy().into_owned());
            items.extend(names.map(|name| format!("namespace {name}")));
        }
        let mounts = fs::read_to_string("/proc/thread-self/mounts")
            .doing(|| "read the table of mounts".into())?;
        let targets = mounts.lines().filter_map(|line| line.split(' ').nth(1));
        let named = targets.filter(|target| target.starts_with(NAMED));
        items.extend(named.map(|target| format!("mount {target}")));
        network(&mut items).doing(|| "list interfaces and routes".into())?;
        items.extend(descendants());
        Ok(Self { items })
    }

    /// Lists what a later state has more or less than this one, one line for each difference.
    #[must_use]
    pub fn differences(&self, later: &Self) -> Vec<String> {
        let appeared = later.items.difference(&self.items).map(|item| format!("left: {item}"));
        let vanished = self.items.difference(&later.items).map(|item| format!("gone: {item}"));
        appeared.chain(vanished).collect()
    }
}

fn network(items: &mut BTreeSet<String>) -> io::Result<()> {
    let other = |refusal: Refusal| io::Error::other(refusal);
    let mut rtnl = Rtnl::open()?;
    for link in rtnl.dump(&Message::GetLink(LinkMessage::default())).map_err(other)? {
        if let Message::NewLink(link) = link {
            let name = link.attributes.iter().find_map(|a| match a {
                LinkAttribute::IfName(name) => Some(name.as_str()),
                _ => None,
            });
            let name = name.unwrap_or_default();
            items.insert(format!("interface {}: {name}", link.header.index));
        }
    }
    for address in rtnl.dump(&Message::GetAddress(AddressMessage::default())).map_err(other)? {
        if let Message::NewAddress(mut address) = address {
            use netlink_packet_route::address::AddressAttribute as A;
            address.attributes.retain(|a| matches!(a, A::Address(_) | A::Local(_)));
            items.insert(format!("address {:?} {:?}", address.header, address.attributes));
        }
    }
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        let mut question = RouteMessage::default();
        question.header.address_family = family;
        for route in rtnl.dump(&Message::GetRoute(question)).map_err(other)? {
            if let Message::NewRoute(mut route) = route {
                // Ages and use counts change by themselves.
                route.attributes.retain(|a| !matches!(a, RouteAttribute::CacheInfo(_)));
                items.insert(format!("route {:?} {:?}", route.header, route.attributes));
            }
        }
    }
    Ok(())
}

/// Processes below this one, ended ones excepted.
fn descendants() -> Vec<String> {
    let all: Vec<_> = process_ids().into_iter().filter_map(process).collect();
    let mut family = vec![std::process::id()];
    let mut lines = Vec::new();
    let mut at = 0;
    while let Some(parent) = family.get(at).copied() {
        at += 1;
        for (pid, _, name) in all.iter().filter(|(_, its_parent, _)| *its_parent == parent) {
            family.push(*pid);
            lines.push(format!("process {pid}: {name}"));
        }
    }
    lines
}

/// Process, parent and name, from `/proc/PID/stat` (`proc_pid_stat(5)`).
fn process(pid: u32) -> Option<(u32, u32, String)> {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (front, rest) = line.rsplit_once(") ")?;
    let name = front.split_once(" (")?.1;
    let mut fields = rest.split(' ');
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    (state != "Z").then(|| (pid, parent, name.to_owned()))
}
