//! MTUs that change while a gateway runs.
//!
//! An interface that became narrower tells the SAs itself with the first packet that it refuses, as
//! routers do. What is done here concerns all that follows from the size of the interfaces: what SAs
//! begin with, and how wide a TUN interface is.

use std::collections::BTreeMap;

use convoy_control::site::Site;
use convoy_host::{Applied, Change, LinkName, Network, Plan};

use super::plan::{plain_mtu, routed_mtu};

/// Follows the MTUs of this host's interfaces.
#[derive(Debug)]
pub(super) struct Widths {
    /// MTUs at the last look, by interface.
    links: BTreeMap<String, u32>,
    /// Whether something has changed since the way to the peers was looked at.
    is_open: bool,
    /// Largest packet that a frame holds, in bytes.
    room: u16,
    /// What the TUN interface has instead of the MTU it got at the start.
    plain: Option<Applied>,
}

impl Widths {
    /// Looks around.
    pub(super) fn open(room: usize) -> anyhow::Result<Self> {
        let room = u16::try_from(room).unwrap_or(u16::MAX);
        Ok(Self { links: links()?, is_open: false, room, plain: None })
    }

    /// Largest outer packet in bytes on the way to the peers, if interfaces have changed their MTUs
    /// since the last time; `look` says whether they may have.
    ///
    /// # Errors
    /// When the kernel cannot be asked; the next call tries again.
    pub(super) fn news(&mut self, site: &Site, look: bool) -> anyhow::Result<Option<u16>> {
        if look {
            let links = links()?;
            self.is_open |= links != self.links;
            self.warn_of_wide(site, &links);
            self.links = links;
        }
        if !self.is_open {
            return Ok(None);
        }
        // While no route leads to a peer there is nothing to go by.
        let Some(mtu) = routed_mtu(site) else { return Ok(None) };
        self.is_open = false;
        if mtu > self.room && site.wire.mtu.is_none() {
            tracing::warn!(
                "the way to the peers takes packets of {mtu} bytes, but there is room for {}: start \
                 the gateway again to use all of it",
                self.room,
            );
        }
        Ok(Some(mtu.min(self.room)))
    }

    /// Interfaces may hand over larger packets than there was room for at the start.
    fn warn_of_wide(&self, site: &Site, links: &BTreeMap<String, u32>) {
        let plain = Some(&site.plain.interface).filter(|_| site.plain.backend.is_direct());
        let wire = site.wire.interface.as_ref().filter(|_| site.wire.backend.is_direct());
        for name in plain.into_iter().chain(wire) {
            let Some(mtu) = links.get(name) else { continue };
            if *mtu > u32::from(self.room) && self.links.get(name) != Some(mtu) {
                tracing::warn!(
                    "interface {name} takes packets of {mtu} bytes now, but there is room for {}: \
                     larger ones that arrive are lost until the gateway is started again",
                    self.room,
                );
            }
        }
    }

    /// Makes the TUN interface, if there is one, as wide as fits this largest outer packet.
    pub(super) fn set_plain(&mut self, site: &Site, wire_mtu: u16) -> anyhow::Result<()> {
        if site.plain.backend.is_direct() || site.plain.mtu.is_some() {
            return Ok(());
        }
        let (link, mtu) = (LinkName::new(&site.plain.interface)?, plain_mtu(site, wire_mtu));
        // The end of the gateway brings back what was there at the start, not what was in between.
        self.plain.take().map_or(Ok(()), Applied::take_back)?;
        self.plain = Some(Plan::from_iter([Change::Mtu { link, mtu: mtu.into() }]).apply()?);
        Ok(())
    }

    /// Takes back what was done to the TUN interface while the gateway ran.
    pub(super) fn take_back(self) -> Result<(), convoy_host::HostError> {
        self.plain.map_or(Ok(()), Applied::take_back)
    }
}

fn links() -> anyhow::Result<BTreeMap<String, u32>> {
    let links = Network::open()?.links()?;
    Ok(links.into_iter().map(|link| (link.name, link.mtu)).collect())
}
