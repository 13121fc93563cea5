//! Search for rules that need packets to be tracked as flows (conntrack).

use netlink_packet_netfilter::nftables::Expressions;

use super::{super::jump::TARGET_NAME, of_target, text, value, word};

/// Expressions that look at flows or change them.
const EXPRESSIONS: [&str; 7] =
    ["ct", "connlimit", "flow_offload", "masq", "nat", "redir", "synproxy"];
/// Matches and targets of iptables that do (`nft_compat`).
const MATCHES: [&str; 9] = [
    "cluster",
    "connbytes",
    "connlabel",
    "connlimit",
    "connmark",
    "conntrack",
    "helper",
    "nfacct",
    "state",
];
const TARGETS: [&str; 10] = [
    "CLUSTERIP",
    "CONNMARK",
    "CONNSECMARK",
    "DNAT",
    "MASQUERADE",
    "NETMAP",
    "REDIRECT",
    "SAME",
    "SNAT",
    "SYNPROXY",
];
/// `NFTA_OBJREF_IMM_TYPE`, and `NFT_OBJECT_CT_HELPER`, `_CONNLIMIT`, `_CT_TIMEOUT`, `_CT_EXPECT`, `_SYNPROXY` there.
const OBJECT_TYPE: u16 = 1;
const OBJECTS: [u32; 5] = [3, 5, 7, 9, 10];

/// True if a step of a rule needs flows. One that is not known may.
pub(super) fn are_needed(expression: &Expressions) -> bool {
    let (kind, attributes) = match expression {
        Expressions::Other { expression_type, attributes } => {
            (expression_type.as_str(), attributes)
        }
        Expressions::Unknown(_) => return true,
        _ => return false,
    };
    let name = || value(attributes, TARGET_NAME).and_then(|name| text(&name)).unwrap_or_default();
    match kind {
        "match" => MATCHES.contains(&name().as_str()),
        // A zone and a helper are given by it, too.
        "target" if name() == "CT" => of_target(attributes).is_empty(),
        "target" => TARGETS.contains(&name().as_str()),
        "objref" => {
            let kind = value(attributes, OBJECT_TYPE).and_then(|kind| word(&kind));
            // A map of objects does not say what is in it.
            kind.is_none_or(|kind| OBJECTS.contains(&u32::from_be(kind)))
        }
        _ => EXPRESSIONS.contains(&kind),
    }
}
