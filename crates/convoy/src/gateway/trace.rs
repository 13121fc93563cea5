//! Way of a packet through the host, for `convoy trace`.

use std::net::IpAddr;

use convoy_control::trace::{Decision, Fate, HostWay, Prefixes, Question, RouteTaken};
use convoy_host::{HostError, Mark, Network, RouteBy, RouteTo};
use convoy_leak_protection::{Config, Lead, LeakProtection, Marks, PolicyDirection, Verdict};
use convoy_wire::FlowKey;

use super::verdicts::Database;

/// Verdicts of leak protection on packets between two addresses.
pub(super) struct Protection<'a> {
    pub(super) config: &'a Config,
    pub(super) installed: &'a LeakProtection,
    /// Policies that are asked.
    pub(super) database: Database<'a>,
}

impl Protection<'_> {
    /// True if the kernel asks about packets of a way between a local and a remote address; none if these are not held.
    fn partly_bypassed(&self, way: PolicyDirection, local: IpAddr, remote: IpAddr) -> Option<bool> {
        self.installed.partly_bypassed(way, local, remote)
    }
}

/// A packet that the gateway's TUN interfaces have to do with.
struct Packet<'a> {
    question: &'a Question,
    flow: FlowKey,
    /// The plain interface.
    interface: &'a str,
    /// The interfaces of an `if_id`, which leak protection leaves to routes.
    of_daemons: &'a [&'a str],
}

/// Origin of a packet, and whether it is for this host.
#[derive(Default)]
struct Ends {
    /// This host sends it.
    is_own: bool,
    /// It is for this host.
    is_for_host: bool,
    /// The way back, if it is known.
    back: Option<RouteTo>,
}

/// Judgement of leak protection on a packet before routes lead it.
#[derive(Clone, Copy)]
struct Judged {
    prefixes: Prefixes,
    decision: Decision,
    /// Fate of the packet if it is dropped.
    dropped: Fate,
}

/// Without leak protection.
const UNPROTECTED: Judged =
    Judged { prefixes: Prefixes::Off, decision: Decision::Routed, dropped: Fate::Discarded };

/// Way through the host of a packet that leaves by one of the gateway's TUN interfaces, the plain one first, or comes in
/// in clear.
pub(super) fn host_way(
    protection: Option<&Protection<'_>>,
    interfaces: &[&str],
    question: &Question,
    flow: FlowKey,
) -> HostWay {
    let (interface, of_daemons) = interfaces.split_first().unwrap_or((&"", &[]));
    let packet = Packet { question, flow, interface, of_daemons };
    let ends = Network::open().and_then(|mut network| packet.ends(&mut network, protection));
    let (ends, unseen) = match ends {
        Ok(ends) => (ends, None),
        Err(error) => (Ends::default(), Some(error)),
    };
    let judged = protection.map_or(UNPROTECTED, |it| packet.decide(it, &ends));
    let mark = protection.and_then(|it| packet.marked(it.config, judged, &ends));
    let way = match unseen {
        None => packet.follow(&ends, judged, mark),
        Some(error) => Err(error),
    };
    way.unwrap_or_else(|error| HostWay {
        is_own: ends.is_own,
        from_link: ends.back.map(|back| back.link),
        prefixes: judged.prefixes,
        decision: judged.decision,
        mark: mark.map(shown),
        route: None,
        refused: Some(error.to_string()),
        fate: Fate::NoRoute,
    })
}

/// The way of a packet that came in.
const fn came_in(is_for_host: bool) -> PolicyDirection {
    if is_for_host { PolicyDirection::In } else { PolicyDirection::Forward }
}

fn shown(mark: Mark) -> String {
    format!("{:#010x}/{:#010x}", mark.value, mark.mask)
}

impl Packet<'_> {
    /// Its sender and its recipient.
    fn ends(
        &self,
        network: &mut Network,
        protection: Option<&Protection<'_>>,
    ) -> Result<Ends, HostError> {
        let Question { from, to, .. } = *self.question;
        let own = network.addresses(None)?;
        let has = |address: IpAddr| own.iter().any(|own| own.addr() == address);
        let (is_own, is_for_host) = (has(from), has(to));
        if is_own {
            return Ok(Ends { is_own, is_for_host, back: None });
        }
        // Who answers to it leads back the way that it came. What comes from a remote network in clear goes back in clear.
        let way = came_in(is_for_host);
        let inbound = protection.filter(|it| {
            let is_outward = || it.partly_bypassed(PolicyDirection::Out, from, to).is_some();
            it.partly_bypassed(way, to, from).is_some() && (is_for_host || !is_outward())
        });
        let mark = inbound
            .and_then(|it| it.config.questions.marks.of_answer(Verdict::Bypass)?.value.into());
        let back = network.route_by(from, RouteBy { mark, ..RouteBy::default() }).ok();
        let back = back.filter(|back| inbound.is_none() || back.link != self.interface);
        Ok(Ends { is_own, is_for_host, back })
    }

    /// The mark that chains give it.
    fn marked(&self, config: &Config, judged: Judged, ends: &Ends) -> Option<Mark> {
        let marks = config.questions.marks;
        let verdict = match judged.decision {
            Decision::Protect => Verdict::Protect,
            Decision::Bypass if ends.is_for_host => return Some(marks.of_arrival()),
            Decision::Bypass => Verdict::Bypass,
            Decision::Routed | Decision::Discard => return None,
        };
        // Routes lead what is protected whole, unless marks do.
        let is_marked = config.leads == Lead::ByMark || judged.prefixes != Prefixes::Whole;
        let comes_in_elsewhere = ends.back.is_some() && !self.is_out_of_tunnel(ends);
        let of = if comes_in_elsewhere { Marks::of_forwarded } else { Marks::of_answer };
        of(marks, verdict).filter(|_| is_marked)
    }

    /// True if it comes in by the interface.
    fn is_out_of_tunnel(&self, ends: &Ends) -> bool {
        !ends.is_own && ends.back.as_ref().is_some_and(|back| back.link == self.interface)
    }

    /// Judges it by leak protection's prefixes and the policies that are asked.
    fn decide(&self, protection: &Protection<'_>, ends: &Ends) -> Judged {
        let Question { from, to, protocol, ports, .. } = *self.question;
        let Protection { config, database, .. } = protection;
        let verdict = |way| match database.judge(way, &self.flow).1 {
            Verdict::Protect => Decision::Protect,
            Verdict::Bypass => Decision::Bypass,
            Verdict::Discard => Decision::Discard,
        };
        let judged = |prefixes, decision| Judged { prefixes, decision, dropped: Fate::Discarded };
        let outward = protection.partly_bypassed(PolicyDirection::Out, from, to);
        let way = came_in(ends.is_for_host);
        let inward = protection
            .partly_bypassed(way, to, from)
            .filter(|_| !ends.is_own && !self.is_out_of_tunnel(ends));
        if let Some(asks) = inward {
            let is_admitted = config.admits(protocol, ports.map(|(_, to)| to));
            if ends.is_for_host && is_admitted {
                return judged(Prefixes::Admitted, Decision::Routed);
            }
            let prefixes = if asks { Prefixes::MixedInbound } else { Prefixes::WholeInbound };
            if !asks || verdict(way) != Decision::Bypass {
                return Judged { prefixes, decision: Decision::Discard, dropped: Fate::NotInClear };
            }
            if ends.is_for_host {
                return judged(prefixes, Decision::Bypass);
            }
            // Who is asked answers for both ways.
            let prefixes = if outward.is_some() { Prefixes::Mixed } else { prefixes };
            return judged(prefixes, verdict(PolicyDirection::Out));
        }
        match outward.filter(|_| !ends.is_for_host) {
            None => judged(Prefixes::Neither, Decision::Routed),
            Some(false) => judged(Prefixes::Whole, Decision::Protect),
            Some(true) => judged(Prefixes::Mixed, verdict(PolicyDirection::Out)),
        }
    }

    /// Way on which routes lead it then.
    fn follow(
        &self,
        ends: &Ends,
        judged: Judged,
        mark: Option<Mark>,
    ) -> Result<HostWay, HostError> {
        let Question { from, to, .. } = *self.question;
        let mut network = Network::open()?;
        let (is_own, back) = (ends.is_own, ends.back.as_ref());
        let way = |route: Option<&RouteTo>, refused, fate| HostWay {
            is_own,
            from_link: back.map(|back| back.link.clone()),
            prefixes: judged.prefixes,
            decision: judged.decision,
            mark: mark.map(shown),
            route: route.map(taken),
            refused,
            fate,
        };
        if judged.decision == Decision::Discard {
            return Ok(way(None, None, judged.dropped));
        }
        // A source that is not its own is asked about only together with where it comes from.
        let from = Some(from).filter(|_| is_own || back.is_some());
        let by = RouteBy { from, link: back.map(|back| back.link_index), mark: None };
        // Its own packets need some route before they are marked.
        let first = if is_own { network.route_by(to, by).map(drop) } else { Ok(()) };
        let mark = mark.map(|mark| mark.value);
        let route = first.and_then(|()| network.route_by(to, RouteBy { mark, ..by }));
        Ok(match route {
            Err(HostError::NoRoute { cause, .. }) => {
                way(None, Some(cause.to_string()), Fate::NoRoute)
            }
            Err(error) => return Err(error),
            Ok(route) => {
                let fate = self.fate(&route, judged.decision);
                way(Some(&route), None, fate)
            }
        })
    }

    fn fate(&self, route: &RouteTo, decision: Decision) -> Fate {
        match decision {
            _ if route.link == self.interface => Fate::IntoTunnel,
            _ if self.of_daemons.contains(&route.link.as_str()) => Fate::IntoTunnel,
            _ if route.local => Fate::ForHost,
            Decision::Protect => Fate::PastInterface,
            _ => Fate::InClear,
        }
    }
}

fn taken(route: &RouteTo) -> RouteTaken {
    let via = route.via.map(|via| via.to_string());
    RouteTaken { link: route.link.clone(), via, table: route.table }
}
