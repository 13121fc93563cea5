//! Ends leak protection that a gateway left which does not run.

use anyhow::Context as _;
use convoy_control::site::Site;
use convoy_host::{HostError, LinkName, Network};
use convoy_leak_protection::Config;

use super::interfaces;
use super::leak_protection::configured;
use crate::exit::describe;

/// A network namespace in which nothing was closed around a site's interface before a gateway starts.
#[derive(Debug)]
pub struct Unprotected(Option<Config>);

impl Unprotected {
    /// Looks whether that is so. Where it cannot be seen, an earlier run may have closed something.
    ///
    /// # Errors
    /// [`HostError`](convoy_host::HostError) for an interface name that is none.
    pub fn look(site: &Site) -> anyhow::Result<Self> {
        let config = || Ok::<_, HostError>(configured(site, LinkName::new(site.plain.tun())?));
        let is_free =
            convoy_leak_protection::is_installed(config()?).is_ok_and(|is_installed| !is_installed);
        Ok(Self(if is_free { Some(config()?) } else { None }))
    }

    /// Opens what a start has closed that failed before the first packet. What an earlier run closed stays.
    pub fn restore(self) {
        let Some(config) = self.0 else { return };
        match convoy_leak_protection::remove(config) {
            Ok(true) => tracing::warn!(
                "the start failed: removed the leak protection that it had installed"
            ),
            Ok(false) => {}
            Err(error) => tracing::warn!(
                "the start failed, and the leak protection that it installed cannot be removed: {}; `convoy \
                 open` removes it",
                describe(&error.into())
            ),
        }
    }
}

/// Things of a gateway that does not run which are gone.
#[derive(Debug)]
pub struct Opened {
    /// True if something was closed: a packet filter, or routes and rules.
    pub was_closed: bool,
    /// Interfaces for SAs of daemons, and with them the routes into them.
    pub interfaces: Vec<String>,
    /// The interface from which the kernel did not forward because the gateway did it, if there is one.
    pub guarded: Option<String>,
}

/// Takes away what a gateway that does not run left closed around its interface, or another one, and interfaces for
/// SAs of daemons.
///
/// # Errors
/// Fails if it cannot; the rest is gone all the same.
pub fn open(site: &Site, interface: Option<&str>) -> anyhow::Result<Opened> {
    let own = site.plain.tun();
    let tun = LinkName::new(interface.unwrap_or(&own))?;
    let is_its_own = tun.as_str() == own;
    let interfaces = if is_its_own { interfaces::remove(site) } else { Ok(Vec::new()) };
    let guarded = if is_its_own { remove_guard(site) } else { Ok(None) };
    // Whichever kind of gateway it was.
    let was_closed =
        convoy_leak_protection::remove(configured(site, tun)).context("leak protection")?;
    Ok(Opened { was_closed, interfaces: interfaces?, guarded: guarded? })
}

/// Has the kernel forward again what arrives on the plain interface.
fn remove_guard(site: &Site) -> anyhow::Result<Option<String>> {
    if !site.plain.backend.is_direct() {
        return Ok(None);
    }
    let link = LinkName::new(&site.plain.interface)?;
    let was_there = Network::open()?.remove_guard(&link).context("ip rules")?;
    Ok(was_there.then(|| link.to_string()))
}
