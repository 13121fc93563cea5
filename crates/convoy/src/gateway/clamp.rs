//! TCP connections that fit the MTU of tunnels.

use convoy_control::site::Site;
use convoy_host::{Clamp, LinkName};

const NOT_CLAMPED: &str = "cannot clamp the MSS of TCP connections to the MTU of tunnels (needs nf_tables, \
                           nft_rt, nft_exthdr): connections depend on path MTU discovery by ICMP";

/// Fits TCP connections through tunnels to their MTU.
pub(super) fn clamp(site: &Site) -> Option<Clamp> {
    if site.plain.backend.is_direct() {
        return None;
    }
    let tunnels = site.xfrm_interfaces().iter().map(|interface| LinkName::new(&interface.name));
    let outcome = tunnels.collect::<Result<Vec<_>, _>>().and_then(|tunnels| {
        let tun = LinkName::new(&site.plain.interface)?;
        Clamp::raise(&tun, tunnels)
    });
    outcome.inspect_err(|error| tracing::warn!(%error, "{NOT_CLAMPED}")).ok()
}
