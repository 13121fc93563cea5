//! TCP connections through tunnels begin with segments that fit: the maximum segment size (MSS) in the
//! SYNs of forwarded connections is lowered to what the interfaces of tunnels take.
//!
//! Those behind the gateway would learn their path MTU otherwise from ICMP, which others filter. The
//! kernel works the value out of the MTU of the routes to both ends (`rt mtu` in nft(8)), so it follows
//! the interface's MTU, and never raises what a SYN says.

use std::collections::BTreeSet;

use netlink_packet_core::DefaultNla;
use netlink_packet_netfilter::nftables::{
    DataAttribute, Expressions, Immediate, InetHookNumber, MetaKey, NfTablesMessage, Operator,
    Register, SetAttribute, SetMessage, TableFlags,
};

use crate::{
    Cause, HostError, LinkName,
    netlink::{
        Refusal,
        nft::{
            self, LAST, Nft, Order, Place, chain,
            elements::{self, Change, Element, KEY_MAX},
            expression::{
                Expression, NAME_LEN, TRANSPORT, V4, V6, and, compare, equal, found_in, meta, name,
                payload,
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
/// Bytes of headers of IP and TCP without options: an MTU less these is a segment (RFC 9293 section 3.7.1).
const HEADERS4: u32 = 40;
const HEADERS6: u32 = 60;
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

/// The MSS of connections through tunnels, clamped. Dropping it ends that, and so does the end of the process where the kernel knows owners of tables (5.12).
#[derive(Debug)]
pub struct Clamp {
    nft: Nft,
    table: String,
    tun: LinkName,
    /// Largest packet that the TUN interface takes, in bytes, where that was said.
    mtu: Option<u32>,
}

impl Clamp {
    /// Clamps connections through a TUN interface and other interfaces of tunnels, by a table of its own in the
    /// calling thread's namespace, in place of what a previous run left. The interfaces need not exist yet.
    ///
    /// # Errors
    /// [`HostError::PacketFilter`]: there is no packet filter, or it cannot do this.
    pub fn raise(
        tun: &LinkName,
        others: impl IntoIterator<Item = LinkName>,
    ) -> Result<Self, HostError> {
        let refused = |refusal: Refusal| HostError::PacketFilter {
            doing: "clamp the MSS of connections",
            cause: Cause::from(refusal),
        };
        let nft = Nft::open().map_err(refused)?;
        let table = format!("convoy-mss-{tun}");
        let mut clamp = Self { nft, table, tun: tun.clone(), mtu: None };
        let links = others.into_iter().chain([tun.clone()]).collect();
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

    /// Clamps what comes out of the TUN interface to its MTU in bytes, also where no route tells the kernel that
    /// answers go back there.
    ///
    /// # Errors
    /// As [`Clamp::raise`]; it is as it was then.
    pub fn fit(&mut self, mtu: u32) -> Result<(), HostError> {
        if self.mtu == Some(mtu) {
            return Ok(());
        }
        let of_ip = [(V4, HEADERS4), (V6, HEADERS6)];
        let sized = of_ip.into_iter().filter_map(|(version, headers)| {
            let size = u16::try_from(mtu.checked_sub(headers)?).ok()?;
            Some(out_of(&self.tun, version, size))
        });
        let rules = sized.chain(of_routes()).map(|words| nft::rule(&self.table, CHAIN, words));
        let orders = core::iter::once(nft::emptying(&self.table, CHAIN)).chain(rules).collect();
        let outcome = self.nft.commit(orders);
        outcome.map_err(|refusal| HostError::PacketFilter {
            doing: "clamp the MSS of connections to an MTU",
            cause: Cause::from(refusal),
        })?;
        self.mtu = Some(mtu);
        Ok(())
    }
}

impl Drop for Clamp {
    fn drop(&mut self) {
        // The process that took it away before has done it.
        let _ = self.nft.commit(vec![nft::removal(&self.table)]);
    }
}

/// The set of interfaces, and the chain, as many rules for a thousand interfaces as for one.
fn set_and_rules(table: &str, links: &BTreeSet<LinkName>) -> Vec<Order> {
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
    orders.extend(chain(
        table,
        CHAIN,
        Place::At(InetHookNumber::Forward, LAST),
        of_routes().to_vec(),
    ));
    orders.extend(named(table, links));
    orders
}

fn named(table: &str, links: &BTreeSet<LinkName>) -> Vec<Order> {
    let element = |link: &LinkName| {
        let name = name(link.as_str());
        let key = core::array::from_fn(|at| name.get(at).copied().unwrap_or_default());
        Element { key, is_end: false }
    };
    elements::orders(table, SET, KEY_MAX, links.iter().map(element), Change::Add)
}

/// Clamps to what the routes to both ends take.
fn of_routes() -> [Vec<Expression>; 2] {
    [MetaKey::Iifname, MetaKey::Oifname].map(|interface| {
        [vec![meta(interface), found_in(SET)], syn(), size_of_routes(), vec![write_option()]]
            .concat()
    })
}

/// Clamps what comes out of an interface to a size.
fn out_of(link: &LinkName, version: u8, size: u16) -> Vec<Expression> {
    let of_link = vec![meta(MetaKey::Iifname), equal(name(link.as_str()))];
    let of_version = vec![meta(MetaKey::Nfproto), equal(vec![version])];
    let size = Expressions::Immediate(vec![
        Immediate::DestinationRegister(Register::Reg1),
        Immediate::Data(DataAttribute::Value(size.to_be_bytes().to_vec())),
    ]);
    [of_link, of_version, syn(), vec![size.into(), write_option()]].concat()
}

/// The first segment of each side of a connection.
fn syn() -> Vec<Expression> {
    vec![
        meta(MetaKey::L4Proto),
        equal(vec![TCP]),
        payload(TRANSPORT, FLAGS_AT, 1),
        and(&[SYN]),
        compare(Operator::NotEqual, vec![0]),
    ]
}

fn size_of_routes() -> Vec<Expression> {
    vec![
        // DREG and KEY.
        other("rt", &[(1, REGISTER), (2, RT_TCPMSS)]),
        // SREG, DREG, OP, LEN and SIZE.
        other(
            "byteorder",
            &[(1, REGISTER), (2, REGISTER), (3, TO_NETWORK), (4, VALUE_LEN), (5, VALUE_LEN)],
        ),
    ]
}

/// Writes the register into the option, if there is one; the kernel mends the checksum.
fn write_option() -> Expression {
    // TYPE, OFFSET, LEN, OP and SREG.
    let numbers = [(3, VALUE_AT), (4, VALUE_LEN), (6, TCP_OPTION), (7, REGISTER)];
    let kind = DefaultNla::new(2, vec![MAXIMUM_SEGMENT_SIZE]);
    let attributes =
        core::iter::once(kind).chain(numbers.map(|(kind, value)| number(kind, value))).collect();
    Expressions::Other { expression_type: "exthdr".into(), attributes }.into()
}

fn other(expression: &str, numbers: &[(u16, u32)]) -> Expression {
    let attributes = numbers.iter().map(|(kind, value)| number(*kind, *value)).collect();
    Expressions::Other { expression_type: expression.into(), attributes }.into()
}

fn number(kind: u16, value: u32) -> DefaultNla {
    DefaultNla::new(kind, value.to_be_bytes().to_vec())
}
