//! Ends leak protection that a gateway left which does not run.

use convoy_control::site::Site;
use convoy_host::{HostError, LinkName};
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
        let is_free = convoy_leak_protection::stands(config()?).is_ok_and(|stands| !stands);
        Ok(Self(if is_free { Some(config()?) } else { None }))
    }

    /// Opens what a start has closed that failed before the first packet. What an earlier run closed stays.
    pub fn restore(self) {
        let Some(config) = self.0 else { return };
        match convoy_leak_protection::take_away(config) {
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

/// Takes away what a gateway that does not run left closed around its interface, or another one, and interfaces for
/// SAs of daemons. Whether there was a packet filter.
///
/// # Errors
/// Fails if it cannot.
pub fn open(site: &Site, interface: Option<&str>) -> anyhow::Result<bool> {
    let own = site.plain.tun();
    let tun = LinkName::new(interface.unwrap_or(&own))?;
    let is_its_own = tun.as_str() == own;
    let removed = if is_its_own { interfaces::remove(site) } else { Ok(()) };
    // Whichever kind of gateway it was.
    let stood = convoy_leak_protection::remove(configured(site, tun))?;
    removed.map(|()| stood)
}
