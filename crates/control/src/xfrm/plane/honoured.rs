//! Demands that SAs and policies of daemons may make. All else is refused: to leave something out in silence
//! would protect less, or let in more, than was meant.

use std::net::{IpAddr, Ipv4Addr};

use convoy_crypto::Suite;
use convoy_ipsec::replay::{MAX_WINDOW, MIN_WINDOW};
use convoy_ipsec::selector::Direction;
use convoy_xfrm::{
    Addresses, EXTRA_DONT_ENCAP_DSCP, Errno, Limits, Mark, Mode, Network, Offload, Policy,
    PolicyInfo, PolicyType, PortMask, Refusal, Sa, SaFlags, SaProtocol, Selector, Template,
    attribute_name,
};

use super::interfaces::Interfaces;
use super::surroundings::{Surroundings, local_port};

/// Of the flag `icmp` (RFC 4301 section 6.2), which strongSwan sets with `icmp = yes` alone.
const NO_ICMP: &str = "Convoy chooses no SA by the packet that an ICMP error quotes";
/// Of `XFRMA_SA_PCPU` and `XFRM_POLICY_CPU_ACQUIRE`, which strongSwan sets with `per_cpu_sas`.
const NO_CPUS: &str =
    "Convoy has no SAs per processor (per_cpu_sas): the SAs of a site are spread over its workers";
/// `UDP_ENCAP_ESPINUDP`.
const ESP_IN_UDP: u16 = 2;

fn unsupported(text: &'static str) -> Refusal {
    Refusal::new(Errno::EOPNOTSUPP, text)
}

fn invalid(text: &'static str) -> Refusal {
    Refusal::new(Errno::EINVAL, text)
}

/// The first of these that is true is why.
fn refuse(reasons: &[(bool, &'static str)]) -> Result<(), Refusal> {
    let found = reasons.iter().find(|(applies, _)| *applies);
    found.map_or(Ok(()), |(_, text)| Err(unsupported(text)))
}

/// Of an identifier that no interface has.
pub(super) fn no_interface() -> Refusal {
    unsupported("No [[xfrm.interface]] of the site file has this if_id")
}

fn known(others: &convoy_xfrm::Others) -> Result<(), Refusal> {
    match others.numbers().first() {
        None => Ok(()),
        Some(number) => {
            let what = attribute_name(*number)
                .map_or_else(|| format!("number {number}"), ToOwned::to_owned);
            Err(Refusal::new(Errno::EOPNOTSUPP, format!("Convoy does not know attribute {what}")))
        }
    }
}

/// Refuses a suite that the site does not allow.
///
/// # Errors
/// `ENOSYS`, as for one that a kernel does not have.
pub(super) fn suite(suite: Suite, around: &Surroundings) -> Result<(), Refusal> {
    if around.legacy || !suite.is_legacy() {
        return Ok(());
    }
    let text = format!(
        "{suite} is for old peers only, and off: `legacy = true` in the site file allows it"
    );
    Err(Refusal::new(Errno::ENOSYS, text))
}

/// Refuses an SA with keys that asks for what workers cannot do.
///
/// # Errors
/// `EOPNOTSUPP` and what is too much; `EINVAL` for what does not go together; `EPROTONOSUPPORT` for modes.
pub(super) fn sa(sa: &Sa, direction: Direction, around: &Surroundings) -> Result<(), Refusal> {
    let udp_port = around.udp_port;
    let info = &sa.info;
    if !matches!(info.mode, Mode::Tunnel | Mode::Transport) {
        return Err(Refusal::new(Errno::EPROTONOSUPPORT, "Requested mode not found"));
    }
    known(&sa.others)?;
    refuse(&[
        (sa.mark != Mark::default(), "Convoy has no marks on SAs"),
        (sa.output_mark != Mark::default(), "Convoy sets no marks on an SA's packets"),
        (sa.security.is_some(), "Convoy has no security labels"),
        (sa.offload.is_some_and(Offload::is_whole), "Convoy gives no SA to a device"),
        (sa.cpu.is_some(), NO_CPUS),
        (
            [info.source, info.destination].iter().any(is_multicast),
            "Convoy has no SAs of multicast groups",
        ),
        (
            [info.source, info.destination].iter().any(is_link_local),
            "Convoy has no SAs of link-local addresses: no SA names a link",
        ),
        (sa.care_of.is_some(), "Convoy has no care-of addresses"),
        (info.flags.any(SaFlags::DECAP_DSCP), "Convoy does not copy the outer DSCP inwards"),
        (info.flags.any(SaFlags::WILD_RECEIVE), "Convoy takes packets for one address per SA"),
        (info.flags.any(SaFlags::ICMP), NO_ICMP),
        (sa.extra_flags & !EXTRA_DONT_ENCAP_DSCP != 0, "Convoy never lets sequence numbers wrap"),
    ])?;
    // As `net/xfrm/xfrm_device.c`.
    if sa.offload.is_some_and(|offload| !offload.is_known()) {
        return Err(invalid("Unrecognized flags in offload request"));
    }
    if sa.offload.is_some() && sa.tfc_padding.is_some_and(|bytes| bytes > 0) {
        return Err(invalid("TFC padding can't be offloaded"));
    }
    around.interfaces.id(sa.if_id).ok_or_else(no_interface)?;
    if !selects_all(sa) {
        return Err(unsupported("Convoy has no selectors of SAs narrower than their addresses"));
    }
    match sa.encap {
        Some(_) if info.protocol == SaProtocol::Ah => {
            return Err(invalid("AH is not compatible with encapsulation"));
        }
        Some(encap) if encap.kind != ESP_IN_UDP => {
            return Err(unsupported("Convoy encapsulates ESP in UDP only (UDP_ENCAP_ESPINUDP)"));
        }
        Some(encap) if local_port(direction, &encap) != udp_port => {
            let text = format!(
                "Convoy serves UDP port {udp_port} (wire.udp_port), not this SA's: have the daemon use it \
                 (port_nat_t of strongSwan)"
            );
            return Err(Refusal::new(Errno::EINVAL, text));
        }
        _ => {}
    }
    if window(sa) > MAX_WINDOW {
        return Err(invalid("Replay window is too large"));
    }
    Ok(())
}

/// The anti-replay window that an inbound SA gets, in packets: at least what was asked for.
pub(super) fn window(sa: &Sa) -> u32 {
    let esn = sa.state.replay_esn.as_ref().map(|esn| esn.window);
    match esn.unwrap_or_else(|| sa.info.replay_window.into()) {
        0 => 0,
        packets => packets.max(MIN_WINDOW),
    }
}

/// True if an SA's own selector names the host that its packets come from, and no other.
pub(super) fn selects_source(sa: &Sa) -> bool {
    let Addresses::Networks { source, .. } = sa.info.selector.addresses else { return false };
    source.prefix_len == bits(source)
}

/// True if an SA's own selector leaves out nothing that workers let through.
fn selects_all(sa: &Sa) -> bool {
    let Selector { addresses, source_port, destination_port, protocol, interface, .. } =
        sa.info.selector;
    let Addresses::Networks { source, destination } = addresses else { return true };
    let narrows =
        protocol != 0 || interface != 0 || source_port.mask != 0 || destination_port.mask != 0;
    let all = |network: Network, address| {
        let host = network.address == address && network.prefix_len == bits(network);
        network.prefix_len == 0 || (sa.info.mode == Mode::Transport && host)
    };
    !narrows && all(source, sa.info.source) && all(destination, sa.info.destination)
}

fn is_multicast(address: &IpAddr) -> bool {
    address.is_multicast() || *address == IpAddr::V4(Ipv4Addr::BROADCAST)
}

/// Of IPv6: these need a link beside them, which no SA names.
fn is_link_local(address: &IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

fn bits(network: Network) -> u8 {
    if network.address.is_ipv4() { 32 } else { 128 }
}

/// Refuses a policy that asks for what workers cannot do.
///
/// # Errors
/// As of [`sa`].
pub(super) fn policy(policy: &Policy, interfaces: &Interfaces) -> Result<(), Refusal> {
    known(&policy.others)?;
    interfaces.id(policy.if_id).ok_or_else(no_interface)?;
    let one_way = |template: &Template| matches!(template.mode, Mode::Tunnel | Mode::Transport);
    refuse(&[
        (policy.mark != Mark::default(), "Convoy has no marks on policies"),
        (policy.security.is_some(), "Convoy has no security labels"),
        (policy.offload.is_some(), "Convoy gives no policy to a device"),
        (policy.info.flags & PolicyInfo::ICMP != 0, NO_ICMP),
        (policy.info.flags & PolicyInfo::CPU_ACQUIRE != 0, NO_CPUS),
        (policy.info.selector.interface != 0, "Convoy has no policies of one interface"),
        (policy.policy_type == Some(PolicyType::Sub), "Convoy has no sub policies"),
        (has_limits(&policy.info.limits), "Convoy has no policies that end"),
        (policy.templates.len() > 1, "Convoy has no bundles: a policy names one SA"),
        (!policy.templates.iter().all(one_way), "Convoy has tunnel and transport mode only"),
        (
            policy.templates.iter().any(|template| template.optional),
            "Convoy has no optional templates: packets would pass in clear",
        ),
        (
            policy.templates.iter().any(|t| t.algorithms.iter().any(|bits| *bits != u32::MAX)),
            "Convoy chooses no algorithms by template",
        ),
    ])?;
    let is_ours =
        |template: &Template| matches!(template.protocol, SaProtocol::Esp | SaProtocol::Ah);
    if !policy.templates.iter().all(is_ours) {
        return Err(Refusal::new(Errno::EPROTONOSUPPORT, "Requested type not found"));
    }
    Ok(())
}

fn has_limits(limits: &Limits) -> bool {
    let counts = [limits.bytes, limits.packets].iter().any(|limit| limit.hard != Limits::UNLIMITED);
    let times = [limits.add_seconds, limits.use_seconds].iter().any(|limit| limit.hard != 0);
    counts || times
}

/// The ports that a value and a mask mean, first and last.
///
/// # Errors
/// `EOPNOTSUPP` when they are not one range.
pub(super) fn ports(ports: PortMask) -> Result<(u16, u16), Refusal> {
    if ports.mask.leading_ones() + ports.mask.trailing_zeros().min(16) < 16 {
        return Err(unsupported("Convoy has masks of ports that begin with ones only"));
    }
    let first = ports.value & ports.mask;
    Ok((first, first | !ports.mask))
}
