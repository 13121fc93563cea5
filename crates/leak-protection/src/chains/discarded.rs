//! Packets that were answered to be dropped are not asked about again at once: who goes on sending costs the gateway
//! nothing.
//!
//! A flow cannot remember it, for the kernel forgets a flow whose first packet is dropped. So the packet goes on with a mark
//! to a chain that notes its addresses and ports for a while, and drops it.

use convoy_netlink::nft::{
    Place, Tuples,
    expression::{Expression, UDP},
    jump, stop,
};

use super::parts::{Chain, Counted};
use crate::marks::Marks;

/// The chain that drops what was answered so, and the one that notes it.
const KNOWN: &str = "discarded";
const NOTES: &str = "discards";
/// Time that they stay noted, in milliseconds.
const STAY: u64 = 3_000;
/// Sets of noted addresses and ports, of IPv4 and of IPv6.
pub(crate) const DISCARDED: [Tuples; 2] = [
    Tuples { name: "discarded4", is_v4: true, stay: STAY },
    Tuples { name: "discarded6", is_v4: false, stay: STAY },
];
/// Protocols whose packets are noted: TCP and UDP.
pub(crate) const NOTED: [u8; 2] = [6, UDP];

pub(super) fn chains() -> [Chain; 2] {
    let chain = |name, counts, rules| Chain { name, place: Place::Jumps, counts, rules };
    let all = || DISCARDED.into_iter().flat_map(|it| NOTED.map(|protocol| (it, protocol)));
    let known = all().map(|(it, protocol)| [it.have(protocol), stop()].concat());
    // What finds no room is dropped by the last one.
    let noted = all().map(|(it, protocol)| it.remember(protocol));
    [
        chain(KNOWN, Some(Counted::Discarded), known.collect()),
        chain(NOTES, None, noted.chain([stop()]).collect()),
    ]
}

/// Drops what was answered so, ahead of a question.
pub(super) fn known() -> Vec<Expression> {
    vec![jump(KNOWN)]
}

/// Notes and drops what is answered so now.
pub(super) fn noted(marks: Marks) -> Vec<Expression> {
    [marks.discarded().in_mark(), vec![jump(NOTES)]].concat()
}
