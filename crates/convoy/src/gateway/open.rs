//! Ends leak protection that a gateway left which does not run.

use convoy_control::site::Site;
use convoy_host::LinkName;

use super::interfaces;
use super::leak_protection::configured;

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
