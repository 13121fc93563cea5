//! Check that paths are wide enough for what SAs carry.

use std::collections::HashSet;
use std::net::IpAddr;

use convoy_ipsec::sa::{IpsecProtocol, Mode};
use convoy_ipsec::suite::AhSuite;
use convoy_wire::IpVersion;

use super::model::{Association, Wire};
use super::policy;
use super::reader::Report;
use super::sa::{Built, Draft};

/// Every IPv6 path carries packets of so many bytes (RFC 8200 section 5).
const V6_LEAST: u16 = 1280;

/// Warns of tunnels over IPv6 in which not even the packets pass that every IPv6 path has to carry:
/// their senders make them no smaller, and no router may cut what is around them.
pub(super) fn ipv6_in_ipv6(
    policies: &[policy::Draft],
    sas: &[Draft],
    wire: Option<&Wire>,
    report: &mut Report<'_>,
) {
    let carriers: HashSet<&str> = policies.iter().filter_map(carrier_of_ipv6).collect();
    for sa in sas {
        let Some(Built::Outbound(built)) = &sa.built else { continue };
        let Some(path) = built.path_mtu.or_else(|| wire.and_then(|wire| wire.mtu)) else {
            continue;
        };
        let common = &built.association;
        if common.mode != Mode::Tunnel || common.endpoints.local.is_ipv4() {
            continue;
        }
        let needed = outer_len(common, V6_LEAST.into());
        if needed > path.into() && carriers.contains(&*common.name) {
            let what = format!(
                "its path takes {path} bytes, so IPv6 packets of {V6_LEAST} bytes cannot pass; their \
                 senders need not make them smaller (RFC 8200 section 5)",
            );
            let help =
                format!("use it on paths of at least {needed} bytes, or over IPv4 addresses");
            report.warn(&sa.place, what, help);
        }
    }
}

/// The SA that a policy gives IPv6 packets to.
fn carrier_of_ipv6(policy: &policy::Draft) -> Option<&str> {
    let has_v6 = policy.built.as_ref()?.remote.iter().any(|range| range.first().is_ipv6());
    policy.sa_out.as_ref().filter(|_| has_v6).map(|name| name.value.as_str())
}

/// Length of the outer packet around an inner one of a tunnel, in bytes (RFC 4303 section 2, RFC 4302
/// section 2).
fn outer_len(sa: &Association, inner: usize) -> usize {
    let (outer, ip) = match sa.endpoints.local {
        IpAddr::V4(_) => (IpVersion::V4, 20),
        IpAddr::V6(_) => (IpVersion::V6, 40),
    };
    let udp = if sa.encap.is_some() { 8 } else { 0 };
    let inside = match sa.protocol {
        IpsecProtocol::Esp => sa.key.esp().layout().sealed_len(inner),
        IpsecProtocol::Ah => {
            inner + AhSuite::new(sa.key.suite()).map_or(0, |suite| suite.header_len(outer))
        }
    };
    ip + udp + inside
}
