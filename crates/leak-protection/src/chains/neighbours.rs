//! Neighbour Discovery (RFC 4861), which passes without protection as far as it stays on a link.
//!
//! Its packets have the hop limit 255, which no router passes on. What the kernel sends of it goes to a neighbour, and what
//! a bridge passes on stays on the link as well. A program may send the like to anybody, so of what programs send only
//! that to addresses of the link alone passes; the rest is as other packets are.

use convoy_netlink::nft::{
    Place, back,
    expression::{
        ACCEPT, Expression, NETWORK, and, equal, is_neighbour_discovery, is_of_process, payload,
        verdict,
    },
    jump,
};

use super::parts::Chain;

const NEIGHBOURS: &str = "neighbours";
/// Offset of the destination in an IPv6 header.
const DESTINATION: u32 = 24;

/// The chain that knows who sent what leaves.
pub(super) fn chain() -> Chain {
    let to = |mask: [u8; 2], network: [u8; 2]| {
        let to = [payload(NETWORK, DESTINATION, 2), and(&mask), equal(network.to_vec())];
        [&to[..], &[verdict(ACCEPT)]].concat()
    };
    let rules = vec![
        // fe80::/10 and ff02::/16.
        to([0xff, 0xc0], [0xfe, 0x80]),
        to([0xff, 0xff], [0xff, 0x02]),
        vec![is_of_process(), back()],
        vec![verdict(ACCEPT)],
    ];
    Chain { name: NEIGHBOURS, place: Place::Jumps, counts: None, rules }
}

/// Accepts, of what leaves, what stays on a link.
pub(super) fn leaving() -> Vec<Expression> {
    [is_neighbour_discovery(), vec![jump(NEIGHBOURS)]].concat()
}

/// Accepts what came by no router, and was passed on by none.
pub(super) fn of_link() -> Vec<Expression> {
    [is_neighbour_discovery(), vec![verdict(ACCEPT)]].concat()
}
