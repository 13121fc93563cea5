//! MTUs that change while a gateway runs.
//!
//! An interface that became narrower tells the SAs itself with the first packet that it refuses, as
//! routers do. What is done here concerns all that follows from the size of the interfaces: what SAs
//! begin with, and how wide a TUN interface is.

use std::collections::BTreeMap;

use convoy_control::site::{Backend, Site};
use convoy_host::{Applied, Change, LinkName, Network, Plan};
use convoy_io::xdp;

use super::on_change::OnChange;
use super::paths::routed_mtu;
use super::plan::plain_mtu_with;

/// Follows the MTUs of this host's interfaces.
#[derive(Debug)]
pub(super) struct Widths {
    /// MTUs at the last look, by interface.
    links: BTreeMap<String, u32>,
    /// True if something has changed since the way to the peers was looked at and what followed was
    /// done.
    is_open: bool,
    /// True if the TUN interface has not got the MTU yet that follows.
    is_plain_due: bool,
    /// Error of the last attempt, in words.
    trouble: OnChange<Option<String>>,
    /// Largest packet that a frame holds, in bytes.
    room: u16,
    /// The MTU on the way to the peers of which the log said that there is no room.
    told_wide: Option<u16>,
    /// Change of the TUN interface's MTU since the start.
    plain: Option<Applied>,
    /// Largest inner packet of the SAs that daemons brought, in bytes.
    daemons: Option<u16>,
}

impl Widths {
    /// Looks around.
    pub(super) fn open(room: usize) -> anyhow::Result<Self> {
        let room = u16::try_from(room).unwrap_or(u16::MAX);
        // What SAs begin with was decided before this.
        let is_open = true;
        let links = links()?;
        Ok(Self {
            links,
            is_open,
            is_plain_due: false,
            trouble: OnChange::default(),
            room,
            told_wide: None,
            plain: None,
            daemons: None,
        })
    }

    /// Largest packet that a frame holds, in bytes.
    pub(super) const fn room(&self) -> u16 {
        self.room
    }

    /// Makes the TUN interface fit SAs of daemons that have room for inner packets of so many bytes.
    pub(super) fn fit_daemons(
        &mut self,
        room: u16,
        site: &Site,
        wire_mtu: u16,
    ) -> anyhow::Result<()> {
        self.is_plain_due |= self.daemons != Some(room);
        self.daemons = Some(room);
        self.set_plain(site, wire_mtu)
    }

    /// Has the way to the peers looked at next time, whether interfaces have changed or not.
    pub(super) fn look_again(&mut self) {
        self.is_open = true;
    }

    /// The TUN interface is to get another MTU, as soon as that is possible.
    pub(super) fn plain_is_due(&mut self) {
        self.is_plain_due = true;
    }

    /// The TUN interface is another one, as wide as it was at the start.
    pub(super) fn plain_is_new(&mut self) {
        if let Some(before) = self.plain.take() {
            before.leave();
            self.is_plain_due = true;
            self.look_again();
        }
    }

    /// Takes down how it went: what went wrong is said once and tried again.
    pub(super) fn note(&mut self, trouble: Option<String>) {
        if trouble.is_some() {
            self.look_again();
        }
        self.trouble
            .tell(trouble.map(|words| format!("cannot follow the MTUs of interfaces: {words}")));
    }

    /// Largest outer packet in bytes on the way to the peers of the site's own SAs, if interfaces have changed their
    /// MTUs since the last time, or routes may have; `look` says whether interfaces may have.
    ///
    /// # Errors
    /// Fails if the kernel cannot be asked; the next call tries again.
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
        let is_wide = mtu > self.room && site.wire.mtu.is_none();
        if is_wide && self.told_wide.replace(mtu) != Some(mtu) {
            tracing::warn!(
                "path MTU to the peers is {mtu} bytes, but the gateway's frames hold {}: restart the gateway \
                 to use all of it",
                self.room,
            );
        }
        Ok(Some(mtu.min(self.room)))
    }

    /// Interfaces may hand over larger packets than there was room for at the start.
    fn warn_of_wide(&self, site: &Site, links: &BTreeMap<String, u32>) {
        let plain = Some(&site.plain.interface).filter(|_| site.plain.backend.is_direct());
        let wire = site.wire.interface.as_ref().filter(|_| site.wire.backend.is_direct());
        let sides = [(plain, site.plain.backend), (wire, site.wire.backend)];
        for (name, backend) in sides.into_iter().filter_map(|(name, by)| Some((name?, by))) {
            let Some(mtu) = links.get(name) else { continue };
            let room = match backend {
                Backend::AfXdp => usize::from(self.room).min(xdp::LARGEST_PACKET),
                _ => self.room.into(),
            };
            if *mtu as usize > room && self.links.get(name) != Some(mtu) {
                tracing::warn!(
                    "MTU of interface {name} is {mtu} bytes now, but the gateway's frames hold {room}: larger \
                     packets that arrive are lost{}",
                    // Beyond this, no start helps.
                    if room < self.room.into() { "" } else { " until the gateway is restarted" },
                );
            }
        }
    }

    /// Makes the TUN interface, if there is one and it is due, as wide as fits this largest outer
    /// packet.
    pub(super) fn set_plain(&mut self, site: &Site, wire_mtu: u16) -> anyhow::Result<()> {
        let is_fixed = site.plain.backend.is_direct() || site.plain.mtu.is_some();
        if is_fixed || !self.is_plain_due {
            return Ok(());
        }
        let link = LinkName::new(&site.plain.interface)?;
        let mtu = plain_mtu_with(site, wire_mtu, self.daemons);
        // The end of the gateway brings back what was there at the start, not what was in between.
        self.plain.take().map_or(Ok(()), Applied::take_back)?;
        self.plain = Some(Plan::from_iter([Change::Mtu { link, mtu: mtu.into() }]).apply()?);
        self.is_plain_due = false;
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
