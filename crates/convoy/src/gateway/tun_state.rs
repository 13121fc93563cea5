//! States of the TUN interface in which nothing passes, although the gateway has it.

use convoy_host::{HostError, LinkName, Network};
use convoy_io::tun::Device;

/// Fault of the interface, with the remedy, in words; none if it is as it should be, or gone.
pub(super) fn trouble(device: &Device) -> Option<String> {
    let (name, now) = (device.name(), device.name_now()?);
    let link = Network::open().and_then(|mut network| network.link(&LinkName::new(&now)?));
    match link {
        Err(HostError::NoSuchLink { .. }) => Some(format!(
            "interface {now} is in another network namespace, so nothing passes: start the gateway again"
        )),
        Ok(_) if now != name => Some(format!(
            "interface {name} is called {now} now, so nothing passes: ip link set {now} down; ip link set {now} \
             name {name}; ip link set {name} up"
        )),
        Ok(link) if !link.up => {
            Some(format!("interface {name} is down, so nothing passes: ip link set {name} up"))
        }
        // What cannot be seen is not told of.
        Ok(_) | Err(_) => None,
    }
}
