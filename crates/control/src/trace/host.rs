//! Way of a packet through the host before the gateway sees it, or instead.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Reason, Trace, Verdict};

/// Way of a packet through the host: by leak protection's prefixes, by what policies say of it where the kernel asks,
/// and by the route that it takes then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostWay {
    /// True if the host sends it itself.
    pub is_own: bool,
    /// The interface that it comes in by; absent for a packet of the host itself, and where that is not known.
    pub from_link: Option<String>,
    /// Class of its addresses for leak protection.
    pub prefixes: Prefixes,
    /// Verdict on it, by its prefixes or by policies that the kernel asks.
    pub decision: Decision,
    /// The mark that it bears then, and its mask, such as `0x00200000/0x00700000`; absent without one.
    pub mark: Option<String>,
    /// The route that it takes; absent where there is none, or it is dropped before.
    pub route: Option<RouteTaken>,
    /// Reason that there is no route, in words.
    pub refused: Option<String>,
    /// Outcome on the host.
    pub fate: Fate,
}

/// Class of a packet's addresses for leak protection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Prefixes {
    /// There is no leak protection.
    Off,
    /// It does not go between near and far networks.
    Neither,
    /// From near to far, and all of that is protected.
    Whole,
    /// From near to far, of which a part passes in clear: the kernel asks.
    Mixed,
    /// From far to near in clear, and nothing of that may come in so.
    WholeInbound,
    /// From far to near in clear, of which a part may: the kernel asks.
    MixedInbound,
    /// From far to near in clear, and what tunnels are made of: ESP, AH, or UDP to a port of the gateway or of IKE.
    Admitted,
}

/// Verdict on a packet, by prefixes or by policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decision {
    /// Nothing: routes lead it.
    Routed,
    /// It goes into the TUN interface.
    Protect,
    /// It passes in clear.
    Bypass,
    /// It is dropped.
    Discard,
}

/// A route that a packet takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteTaken {
    /// The interface.
    pub link: String,
    /// The next hop, unless the destination is on the link.
    pub via: Option<String>,
    /// The routing table.
    pub table: u32,
}

/// Outcome for a packet on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fate {
    /// It goes into the TUN interface, and the gateway decides the rest.
    IntoTunnel,
    /// It leaves in clear.
    InClear,
    /// The host takes it.
    ForHost,
    /// It is protected, and a route or a rule leads it past the TUN interface: leak protection drops it.
    PastInterface,
    /// It comes in in clear from where only tunnels may bring it: leak protection drops it.
    NotInClear,
    /// Policies drop it.
    Discarded,
    /// No route leads it anywhere.
    NoRoute,
}

impl HostWay {
    /// True if the gateway sees the packet.
    const fn reaches_gateway(&self) -> bool {
        matches!(self.fate, Fate::IntoTunnel)
    }
}

impl Trace {
    /// The same on a host that leads the packet so: its fate there comes first.
    #[must_use]
    pub fn on(mut self, way: HostWay) -> Self {
        if !way.reaches_gateway() {
            (self.verdict, self.reason, self.advice) = match way.fate {
                Fate::InClear => (Verdict::InClear, None, None),
                Fate::ForHost => (Verdict::Accepted, None, None),
                fate => {
                    let (name, help, advice) = dropped(fate, way.refused.as_deref());
                    // What the gateway would say to it anyway is worth more than that no route leads to it.
                    match self.reason.take().filter(|_| fate == Fate::NoRoute) {
                        Some(own) => (Verdict::Dropped, Some(own), self.advice.take()),
                        None => {
                            let reason = Reason { name: name.to_owned(), help };
                            (Verdict::Dropped, Some(reason), Some(advice.to_owned()))
                        }
                    }
                }
            };
            // It never gets to one.
            self.sa = None;
        }
        self.host = Some(way);
        self
    }
}

/// Name, meaning, and what would help.
fn dropped(fate: Fate, refused: Option<&str>) -> (&'static str, String, &'static str) {
    match fate {
        Fate::PastInterface => (
            "leak-protection",
            "it is protected, and a route or an ip rule leads it past the TUN interface".into(),
            "remove that route or rule, or have it come behind Convoy's: convoy doctor names those that it finds",
        ),
        Fate::NotInClear => (
            "leak-protection",
            "it comes in in clear from a network behind a tunnel (RFC 4301 section 5.2)".into(),
            "have the peer protect it; or add a policy with \"bypass\" if it may come in clear",
        ),
        Fate::NoRoute => {
            let why = refused.map_or_else(String::new, |why| format!(": {why}"));
            let help = format!("the host does not route it{why}");
            (
                "no-route",
                help,
                "look at `ip route get`, and at rp_filter of the interface that it comes in by",
            )
        }
        _ => (
            "policy-discard",
            "the kernel requests a verdict, and policies drop the packet".into(),
            "change the policy, or put one before it that passes or protects it",
        ),
    }
}

impl fmt::Display for Prefixes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "leak protection is off",
            Self::Neither => "not between local and remote networks of policies",
            Self::Whole => "local to remote, all protected",
            Self::Mixed => "local to remote, partly bypassed: the kernel requests a verdict",
            Self::WholeInbound => "remote to local, in clear",
            Self::MixedInbound => {
                "remote to local, in clear, partly bypassed: the kernel requests a verdict"
            }
            Self::Admitted => "remote to local, in clear, as outer packets of tunnels are",
        })
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Routed => "no verdict, by routes",
            Self::Protect => "protect",
            Self::Bypass => "pass in clear",
            Self::Discard => "drop",
        })
    }
}

impl fmt::Display for RouteTaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(via) = &self.via {
            write!(f, "via {via} ")?;
        }
        write!(f, "dev {} (table {})", self.link, self.table)
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::IntoTunnel => "into the TUN interface",
            Self::InClear => "leaves in clear",
            Self::ForHost => "the host takes it",
            Self::PastInterface => "dropped: a route or rule leads it past the TUN interface",
            Self::NotInClear => "dropped: it comes in in clear",
            Self::Discarded => "dropped: by a policy",
            Self::NoRoute => "dropped: the host does not route it",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Question;
    use super::*;

    #[test]
    fn a_reason_of_the_gateway_keeps_its_advice_where_no_route_leads() {
        let [from, to] = [[10, 1, 0, 5], [10, 2, 0, 5]].map(std::net::IpAddr::from);
        let packet = Question {
            from,
            to,
            protocol: 1,
            ports: Some((8, 0)),
            bytes: 84,
            dont_fragment: true,
            spi: None,
            if_id: 0,
        };
        let way = |fate| HostWay {
            is_own: true,
            from_link: None,
            prefixes: Prefixes::Whole,
            decision: Decision::Protect,
            mark: None,
            route: None,
            refused: None,
            fate,
        };
        let trace = |reason: Option<&str>, fate| {
            let own = reason.map(|name| Reason { name: name.to_owned(), help: "of it".to_owned() });
            let trace = Trace {
                schema: 1,
                packet,
                verdict: Verdict::Dropped,
                advice: own.as_ref().map(|_| "on it".to_owned()),
                reason: own,
                policy: None,
                sa: None,
                onward: None,
                host: None,
            };
            let told = trace.on(way(fate));
            (told.reason.unwrap().name, told.advice.unwrap())
        };
        assert_eq!(trace(Some("no-sa"), Fate::NoRoute), ("no-sa".to_owned(), "on it".to_owned()));
        let (name, advice) = trace(None, Fate::NoRoute);
        assert!(name == "no-route" && advice.contains("ip route get"), "{advice}");
        let (name, advice) = trace(Some("no-sa"), Fate::PastInterface);
        assert!(name == "leak-protection" && advice.contains("convoy doctor"), "{advice}");
    }
}
