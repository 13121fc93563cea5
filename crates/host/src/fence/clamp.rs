//! TCP connections through tunnels begin with segments that fit: the maximum segment size (MSS) in the
//! SYNs of forwarded connections is lowered to what the interfaces of tunnels take.
//!
//! Those behind the gateway would learn their path MTU otherwise from ICMP, which others filter. The
//! kernel works the value out of the MTU of the routes to both ends (`rt mtu` in nft(8)), so it follows
//! the interface's MTU, and never raises what a SYN says.

use std::collections::BTreeSet;

use netlink_packet_core::DefaultNla;
use netlink_packet_netfilter::nftables::{
    DataAttribute, Expressions, InetHookNumber, ListAttribute, MetaKey, NfTablesMessage, Operator,
    SetAttribute, SetElementAttribute, SetMessage, TableFlags,
};

use super::Fence;
use crate::{
    HostError, LinkName,
    netlink::{
        Refusal,
        nft::{
            self, LAST, Nft, Order, chain, elements,
            expression::{
                Expression, NAME_LEN, TRANSPORT, and, compare, equal, found_in, meta, name, payload,
            },
        },
    },
};

const CHAIN: &str = "clamp";
const SET: &str = "tunnels";
/// nft(8)'s number for names of interfaces, so that it can print them.
const IFNAME: u32 = 41;
/// Offset of TCP's flags in its header, and SYN among them (RFC 9293 section 3.1).
const FLAGS_AT: u32 = 13;
const SYN: u8 = 2;
const TCP: u8 = 6;
/// Option kind, and where in the option the value stands (RFC 9293 section 3.2).
const MAXIMUM_SEGMENT_SIZE: u8 = 2;
const VALUE_AT: u32 = 2;
const VALUE_LEN: u32 = 2;
/// `NFT_REG_1`.
const REGISTER: u32 = 1;
/// `NFT_RT_TCPMSS`, `NFT_BYTEORDER_HTON`, `NFT_EXTHDR_OP_TCPOPT`.
const RT_TCPMSS: u32 = 3;
const TO_NETWORK: u32 = 1;
const TCP_OPTION: u32 = 1;

impl Fence {
    /// Has the MSS of connections through these interfaces clamped as well as of those through the TUN
    /// interface, instead of those named the last time. They need not exist yet.
    ///
    /// # Errors
    /// [`HostError::Fence`]. Without a packet filter, or where it cannot clamp
    /// ([`Fence::clamp_trouble`]), nothing is done.
    pub fn clamp(&mut self, links: impl IntoIterator<Item = LinkName>) -> Result<(), HostError> {
        let links = links.into_iter().chain([self.config.tun.clone()]).collect();
        let Ok(filter) = &mut self.filter else { return Ok(()) };
        let outcome = filter.clamp(links);
        outcome.map_err(|refusal| super::failed("name the interfaces of tunnels", refusal, 0))
    }

    /// Why the MSS is not clamped although there is a packet filter, if that is so: the kernel has no
    /// `nft_rt` or `nft_exthdr`.
    #[must_use]
    pub fn clamp_trouble(&self) -> Option<&Refusal> {
        self.filter.as_ref().ok()?.clamp_trouble()
    }
}

/// The MSS of connections through a TUN interface, clamped where there is no [`Fence`]. Dropping it ends
/// that, and so does the end of the process where the kernel knows owners of tables (5.12).
#[derive(Debug)]
pub struct Clamp {
    nft: Nft,
    table: String,
}

impl Clamp {
    /// Clamps, by a table of its own in the calling thread's namespace, in place of what an earlier life
    /// left. The interface need not exist yet.
    ///
    /// # Errors
    /// [`HostError::Fence`]: there is no packet filter, or it cannot do this.
    pub fn raise(tun: &LinkName) -> Result<Self, HostError> {
        let refused = |refusal| super::failed("clamp the MSS of connections", refusal, 0);
        let nft = Nft::open().map_err(refused)?;
        let mut clamp = Self { nft, table: format!("convoy-mss-{tun}") };
        let links = [tun.clone()].into();
        let (owned, none) = (TableFlags::Owner, TableFlags::empty());
        let mut outcome = Ok(());
        for (flags, replace) in [(owned, true), (owned, false), (none, true), (none, false)] {
            let mut orders = nft::table(&clamp.table, flags, replace);
            orders.extend(set_and_rules(&clamp.table, &links));
            outcome = clamp.nft.commit(orders);
            match &outcome {
                Err(Refusal { errno: nix::libc::EOPNOTSUPP | nix::libc::EINVAL, .. }) => {}
                _ => break,
            }
        }
        outcome.map_err(refused).map(|()| clamp)
    }
}

impl Drop for Clamp {
    fn drop(&mut self) {
        // Whoever took it away before has done it.
        let _ = self.nft.commit(vec![nft::removal(&self.table)]);
    }
}

/// The set of interfaces, and the chain, as many rules for a thousand interfaces as for one.
pub(super) fn set_and_rules(table: &str, links: &BTreeSet<LinkName>) -> Vec<Order> {
    let set = SetMessage {
        attributes: vec![
            SetAttribute::Table(table.into()),
            SetAttribute::Name(SET.into()),
            SetAttribute::KeyType(IFNAME),
            SetAttribute::KeyLen(NAME_LEN as u32),
            SetAttribute::Id(1),
        ],
    };
    let mut orders = vec![Order::make(NfTablesMessage::NewSet(set))];
    let rules = [MetaKey::Iifname, MetaKey::Oifname].map(rule).to_vec();
    orders.extend(chain(table, CHAIN, (InetHookNumber::Forward, LAST), rules));
    orders.extend(named(table, links));
    orders
}

/// Other interfaces in place of those in the set.
pub(super) fn change(table: &str, links: &BTreeSet<LinkName>) -> Vec<Order> {
    core::iter::once(elements::none(table, SET)).chain(named(table, links)).collect()
}

fn named(table: &str, links: &BTreeSet<LinkName>) -> Vec<Order> {
    let element = |link: &LinkName| {
        let name = DataAttribute::Value(name(link.as_str()));
        ListAttribute::Element(vec![SetElementAttribute::Key(name)])
    };
    elements::orders(table, SET, links.iter().map(element).collect(), true)
}

fn rule(interface: MetaKey) -> Vec<Expression> {
    vec![
        meta(interface),
        found_in(SET),
        meta(MetaKey::L4Proto),
        equal(vec![TCP]),
        payload(TRANSPORT, FLAGS_AT, 1),
        and(&[SYN]),
        compare(Operator::NotEqual, vec![0]),
        // DREG and KEY.
        other("rt", &[(1, REGISTER), (2, RT_TCPMSS)]),
        // SREG, DREG, OP, LEN and SIZE.
        other(
            "byteorder",
            &[(1, REGISTER), (2, REGISTER), (3, TO_NETWORK), (4, VALUE_LEN), (5, VALUE_LEN)],
        ),
        write_option(),
    ]
}

/// Writes the register into the option, if there is one; the kernel mends the checksum.
fn write_option() -> Expression {
    // TYPE, OFFSET, LEN, OP and SREG.
    let numbers = [(3, VALUE_AT), (4, VALUE_LEN), (6, TCP_OPTION), (7, REGISTER)];
    let kind = DefaultNla::new(2, vec![MAXIMUM_SEGMENT_SIZE]);
    let attributes = core::iter::once(kind).chain(numbers.map(number)).collect();
    Expressions::Other { expression_type: "exthdr".into(), attributes }.into()
}

fn other(expression: &str, numbers: &[(u16, u32)]) -> Expression {
    let attributes = numbers.iter().copied().map(number).collect();
    Expressions::Other { expression_type: expression.into(), attributes }.into()
}

fn number((kind, value): (u16, u32)) -> DefaultNla {
    DefaultNla::new(kind, value.to_be_bytes().to_vec())
}
