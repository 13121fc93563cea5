//! Next hops of packets: what the kernel knows of routes and neighbours, as a table that a port
//! can ask without a lock.
//!
//! The watcher of the kernel publishes a [`Table`] on a [`Board`]. Each port keeps the last one it
//! saw and asks again only when the board's generation has changed. What a table cannot answer is
//! asked for through the board; [`Asks`] is the other end.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Mutex, PoisonError};

use socket2::{Domain, Socket, Type};

use crate::bytes::byte;

/// A link address.
pub type Mac = [u8; 6];

/// Target of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hop {
    /// To the destination itself, through this interface.
    Direct,
    /// To a router, through this interface.
    Via(IpAddr),
    /// Through another interface, or nowhere.
    Elsewhere,
    /// To all hosts of a link, which no router does unless it is told to (RFC 2644).
    Broadcast,
}

/// A route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// An address of the destination network.
    pub network: IpAddr,
    /// Bits of its prefix; more than the address has count as all.
    pub prefix_len: u8,
    /// Next hop of its packets.
    pub hop: Hop,
}

/// A host on the link whose address is known.
#[derive(Debug)]
pub struct Neighbour {
    /// Its IP address.
    pub address: IpAddr,
    /// Its link address.
    pub mac: Mac,
    used: AtomicBool,
}

/// Routes and neighbours of one interface, as far as they are known.
#[derive(Debug)]
pub struct Table {
    own: Mac,
    mtu: u32,
    v4: Vec<Level>,
    v6: Vec<Level>,
    neighbours: Vec<Neighbour>,
}

/// The routes of one prefix length, sorted.
#[derive(Debug)]
struct Level {
    mask: u128,
    routes: Vec<(u128, Hop)>,
}

/// An answer of a [`Table`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Send it there.
    Mac(Mac),
    /// This neighbour's link address must be found first.
    Unresolved(IpAddr),
    /// No route leads there through this interface.
    NoRoute,
    /// No router forwards such a packet (RFC 1812 sections 5.3.5 and 5.3.7).
    NotForwardable,
}

impl Table {
    /// A table for an interface with link address `own` that sends IP packets of up to `mtu` bytes.
    /// Of two routes to one network the first counts; of two neighbours with one address likewise.
    #[must_use]
    pub fn new(own: Mac, mtu: u32, routes: &[Route], neighbours: &[(IpAddr, Mac)]) -> Self {
        let mut known: Vec<_> = neighbours
            .iter()
            .map(|&(address, mac)| Neighbour { address, mac, used: AtomicBool::new(false) })
            .collect();
        known.sort_by_key(|neighbour| neighbour.address);
        known.dedup_by_key(|neighbour| neighbour.address);
        let levels = |v4: bool| levels(routes.iter().filter(|r| r.network.is_ipv4() == v4));
        Self { own, mtu, v4: levels(true), v6: levels(false), neighbours: known }
    }

    /// The interface's own link address.
    #[must_use]
    pub fn own(&self) -> Mac {
        self.own
    }

    /// Largest IP packet that the interface sends, in bytes.
    #[must_use]
    pub fn mtu(&self) -> u32 {
        self.mtu
    }

    /// Answer of the table for a packet to `destination`. No packet is forwarded to all hosts of a
    /// link (RFC 1812 section 5.3.5.1).
    #[must_use]
    pub fn find(&self, destination: IpAddr) -> Found {
        if destination == IpAddr::V4(Ipv4Addr::BROADCAST) {
            return Found::NotForwardable;
        }
        if let Some(mac) = group(destination) {
            return Found::Mac(mac);
        }
        let (levels, bits) = match destination {
            IpAddr::V4(v4) => (&self.v4, u128::from(v4.to_bits()) << 96),
            IpAddr::V6(v6) => (&self.v6, v6.to_bits()),
        };
        let hop = levels.iter().find_map(|level| {
            let network = bits & level.mask;
            let at = level.routes.binary_search_by_key(&network, |route| route.0).ok()?;
            level.routes.get(at).map(|route| route.1)
        });
        let next = match hop {
            Some(Hop::Direct) => destination,
            Some(Hop::Via(router)) => router,
            Some(Hop::Elsewhere) | None => return Found::NoRoute,
            Some(Hop::Broadcast) => return Found::NotForwardable,
        };
        let at = self.neighbours.binary_search_by_key(&next, |neighbour| neighbour.address);
        match at.ok().and_then(|at| self.neighbours.get(at)) {
            Some(neighbour) => {
                neighbour.used.store(true, Ordering::Relaxed);
                Found::Mac(neighbour.mac)
            }
            None => Found::Unresolved(next),
        }
    }

    /// The neighbours that were asked for since the table was made.
    pub fn used(&self) -> impl Iterator<Item = IpAddr> + '_ {
        let used = |n: &&Neighbour| n.used.load(Ordering::Relaxed);
        self.neighbours.iter().filter(used).map(|neighbour| neighbour.address)
    }
}

/// Routes by falling prefix length.
fn levels<'a>(routes: impl Iterator<Item = &'a Route>) -> Vec<Level> {
    let mut levels: Vec<Level> = Vec::new();
    for route in routes {
        let (bits, width) = match route.network {
            IpAddr::V4(v4) => (u128::from(v4.to_bits()) << 96, 32),
            IpAddr::V6(v6) => (v6.to_bits(), 128),
        };
        let len = u32::from(route.prefix_len.min(width));
        let mask = u128::MAX.checked_shl(128 - len).unwrap_or(0);
        let entry = (bits & mask, route.hop);
        match levels.iter_mut().find(|level| level.mask == mask) {
            Some(level) => level.routes.push(entry),
            None => levels.push(Level { mask, routes: vec![entry] }),
        }
    }
    levels.sort_by_key(|level| core::cmp::Reverse(level.mask));
    for level in &mut levels {
        level.routes.sort_by_key(|route| route.0);
        level.routes.dedup_by_key(|route| route.0);
    }
    levels
}

/// The link address of a multicast group (RFC 1112 section 6.4, RFC 2464 section 7).
fn group(destination: IpAddr) -> Option<Mac> {
    match destination {
        IpAddr::V4(v4) if v4.is_multicast() => {
            let [_, b, c, d] = v4.octets();
            Some([1, 0, 0x5e, b & 0x7f, c, d])
        }
        IpAddr::V6(v6) if v6.is_multicast() => {
            let [.., a, b, c, d] = v6.octets();
            Some([0x33, 0x33, a, b, c, d])
        }
        _ => None,
    }
}

/// Place where tables are published for the ports of one interface.
#[derive(Debug)]
pub struct Board {
    generation: AtomicU64,
    table: Mutex<Arc<Table>>,
    asks: UnixDatagram,
}

/// The addresses that ports asked for.
#[derive(Debug)]
pub struct Asks(UnixDatagram);

impl Board {
    /// A board with a first table, and the end at which ports' questions arrive.
    ///
    /// # Errors
    /// Fails if there are no descriptors left.
    pub fn new(table: Table) -> io::Result<(Arc<Self>, Asks)> {
        // Of a kind that is no good for sending to other sockets of this host.
        let (asks, asked) = Socket::pair(Domain::UNIX, Type::SEQPACKET, None)?;
        let [asks, asked] = [asks, asked].map(|end| UnixDatagram::from(OwnedFd::from(end)));
        asks.set_nonblocking(true)?;
        asked.set_nonblocking(true)?;
        let table = Mutex::new(Arc::new(table));
        Ok((Arc::new(Self { generation: AtomicU64::new(1), table, asks }), Asks(asked)))
    }

    /// Publishes a table. Ports see it at their next packet.
    pub fn publish(&self, table: Table) {
        *self.lock() = Arc::new(table);
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// The table as it is now.
    #[must_use]
    pub fn table(&self) -> Arc<Table> {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Arc<Table>> {
        // A table is replaced whole.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a neighbour. When the watcher does not keep up with the questions this one is lost, and asked
    /// again with the next packet.
    pub(crate) fn ask(&self, address: IpAddr) {
        let _ = match address {
            IpAddr::V4(v4) => self.asks.send(&v4.octets()),
            IpAddr::V6(v6) => self.asks.send(&v6.octets()),
        };
    }
}

impl Asks {
    /// The next question, without waiting.
    pub fn next(&self) -> Option<IpAddr> {
        let mut bytes = [0; 16];
        match self.0.recv(&mut bytes).ok()? {
            4 => bytes.first_chunk::<4>().map(|v4| IpAddr::from(*v4)),
            16 => Some(bytes.into()),
            _ => None,
        }
    }
}

impl AsFd for Asks {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Slots of a port's cache.
const SLOTS: usize = 256;

/// One port's view of a board.
#[derive(Debug)]
pub(crate) struct NextHops {
    board: Arc<Board>,
    generation: u64,
    table: Arc<Table>,
    /// Answers of this table, by a hash of the destination.
    cache: Box<[Option<(IpAddr, Mac)>; SLOTS]>,
}

impl NextHops {
    pub(crate) fn new(board: Arc<Board>) -> Self {
        let generation = board.generation.load(Ordering::Acquire);
        let table = board.table();
        Self { board, generation, table, cache: Box::new([None; SLOTS]) }
    }

    /// Looks whether there is a new table. Costs one load when there is none.
    #[inline]
    pub(crate) fn refresh(&mut self) -> bool {
        let generation = self.board.generation.load(Ordering::Acquire);
        if generation == self.generation {
            return false;
        }
        // The holder of the lock is about to publish a newer one still.
        let Ok(table) = self.board.table.try_lock() else { return false };
        self.table = Arc::clone(&table);
        drop(table);
        self.generation = generation;
        *self.cache = [None; SLOTS];
        true
    }

    /// Number of the table now in use.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn own(&self) -> Mac {
        self.table.own
    }

    /// Largest IP packet that the interface sends, in bytes.
    #[inline]
    pub(crate) fn mtu(&self) -> u32 {
        self.table.mtu
    }

    /// Answer of the table for `packet`; `None` if it is no IP packet. One that no router may forward goes
    /// nowhere.
    #[inline]
    pub(crate) fn resolve(&mut self, packet: &[u8]) -> Option<Found> {
        let destination = destination(packet)?;
        if is_martian(packet) {
            return Some(Found::NotForwardable);
        }
        let slot = self.cache.get_mut(slot(destination))?;
        if let Some((address, mac)) = slot
            && *address == destination
        {
            return Some(Found::Mac(*mac));
        }
        let found = self.table.find(destination);
        if let Found::Mac(mac) = found {
            *slot = Some((destination, mac));
        }
        Some(found)
    }

    pub(crate) fn ask(&self, address: IpAddr) {
        self.board.ask(address);
    }
}

/// Destination address of a packet, if it is an IP packet.
#[inline]
pub(super) fn destination(packet: &[u8]) -> Option<IpAddr> {
    match byte(packet, 0) >> 4 {
        4 => Some(IpAddr::from(*packet.get(16..)?.first_chunk::<4>()?)),
        6 => Some(IpAddr::from(*packet.get(24..)?.first_chunk::<16>()?)),
        _ => None,
    }
}

/// True if no router forwards an IP packet from its source or to its destination: this network, loopback,
/// reserved addresses and that of all hosts, as a source also a group (RFC 1812 section 5.3.7); over IPv6 the
/// unspecified, loopback and link-local addresses, as a source also a group (RFC 4291 sections 2.5.2 to 2.7).
#[inline]
fn is_martian(packet: &[u8]) -> bool {
    if byte(packet, 0) >> 4 == 4 {
        // Groups are destinations, and so is the broadcast address, of which the table knows.
        return matches!(byte(packet, 12), 0 | 127 | 224..)
            || matches!(byte(packet, 16), 0 | 127 | 240..);
    }
    let (Some(source), Some(destination)) = (v6_at(packet, 8), v6_at(packet, 24)) else {
        return true;
    };
    let is_of_link = |it: Ipv6Addr| it.to_bits() <= 1 || it.is_unicast_link_local();
    is_of_link(source) || source.is_multicast() || is_of_link(destination)
}

/// The IPv6 address at an offset.
#[inline]
fn v6_at(packet: &[u8], at: usize) -> Option<Ipv6Addr> {
    packet.get(at..)?.first_chunk::<16>().map(|bytes| Ipv6Addr::from(*bytes))
}

#[inline]
fn slot(destination: IpAddr) -> usize {
    let bits = match destination {
        IpAddr::V4(v4) => u64::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits() as u64 ^ (v6.to_bits() >> 64) as u64,
    };
    // Fibonacci hashing: the best bits are the highest.
    (bits.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn route(network: &str, prefix_len: u8, hop: Hop) -> Route {
        Route { network: ip(network), prefix_len, hop }
    }

    fn table() -> Table {
        let routes = [
            route("0.0.0.0", 0, Hop::Via(ip("10.1.0.254"))),
            route("10.1.0.0", 24, Hop::Direct),
            route("10.1.0.64", 26, Hop::Elsewhere),
            route("2001:db8:1::", 64, Hop::Direct),
            route("2001:db8:2::", 48, Hop::Via(ip("fe80::9"))),
        ];
        let neighbours = [
            (ip("10.1.0.2"), [2; 6]),
            (ip("10.1.0.254"), [254; 6]),
            (ip("fe80::9"), [9; 6]),
            (ip("10.1.0.70"), [70; 6]),
        ];
        Table::new([1; 6], 1500, &routes, &neighbours)
    }

    #[test]
    fn broadcasts_and_martian_sources_are_not_forwarded() {
        let broadcast = route("10.1.0.255", 32, Hop::Broadcast);
        let routes = [route("10.1.0.0", 24, Hop::Direct), broadcast];
        let table = Table::new([1; 6], 1500, &routes, &[(ip("10.1.0.255"), [0xff; 6])]);
        assert_eq!(table.find(ip("10.1.0.255")), Found::NotForwardable);
        assert_eq!(table.find(ip("255.255.255.255")), Found::NotForwardable);
        let between = |source: [u8; 4], destination: [u8; 4]| {
            let mut packet = vec![0x45; 20];
            packet[12..16].copy_from_slice(&source);
            packet[16..].copy_from_slice(&destination);
            packet
        };
        let v4 = |source| between(source, [10, 1, 0, 2]);
        for source in [[0, 0, 0, 1], [127, 0, 0, 1], [224, 0, 0, 1], [255; 4]] {
            assert!(is_martian(&v4(source)), "{source:?}");
        }
        assert!(
            [[1, 1, 1, 1], [126, 0, 0, 1], [223, 255, 0, 1]].iter().all(|s| !is_martian(&v4(*s)))
        );
        let to_v4 = |destination| is_martian(&between([10, 1, 0, 3], destination));
        assert!([[0, 0, 0, 1], [127, 0, 0, 1], [240, 0, 0, 1]].into_iter().all(to_v4));
        assert!(![[1, 1, 1, 1], [223, 1, 1, 1], [224, 0, 0, 5]].into_iter().any(to_v4));
        let between = |source: &str, destination: &str| {
            let mut packet = vec![0x60; 40];
            packet[8..24].copy_from_slice(&source.parse::<Ipv6Addr>().unwrap().octets());
            packet[24..].copy_from_slice(&destination.parse::<Ipv6Addr>().unwrap().octets());
            packet
        };
        let v6 = |source| between(source, "2001:db8::2");
        let to_v6 = |destination: &&str| is_martian(&between("2001:db8::3", destination));
        assert!(["::", "::1", "fe80::1"].iter().all(to_v6));
        assert!(!["::2", "2001:db8::1", "ff02::1"].iter().any(to_v6));
        assert!(["::", "::1", "fe80::1", "febf::1", "ff02::1"].iter().all(|s| is_martian(&v6(s))));
        assert!(["::2", "fec0::1", "2001:db8::1"].iter().all(|s| !is_martian(&v6(s))));
    }

    #[test]
    fn the_longest_prefix_decides_and_routers_stand_for_what_is_behind_them() {
        let table = table();
        assert_eq!(table.find(ip("10.1.0.2")), Found::Mac([2; 6]));
        assert_eq!(table.find(ip("10.1.0.3")), Found::Unresolved(ip("10.1.0.3")));
        assert_eq!(table.find(ip("10.1.0.70")), Found::NoRoute);
        assert_eq!(table.find(ip("192.0.2.1")), Found::Mac([254; 6]));
        assert_eq!(table.find(ip("2001:db8:2::7")), Found::Mac([9; 6]));
        assert_eq!(table.find(ip("2001:db8:1::7")), Found::Unresolved(ip("2001:db8:1::7")));
        assert_eq!(table.find(ip("2001:db8:3::7")), Found::NoRoute);
        let mut used: Vec<_> = table.used().collect();
        used.sort();
        assert_eq!(used, [ip("10.1.0.2"), ip("10.1.0.254"), ip("fe80::9")]);
    }

    #[test]
    fn groups_have_addresses_of_their_own() {
        let table = table();
        assert_eq!(table.find(ip("239.129.2.3")), Found::Mac([1, 0, 0x5e, 1, 2, 3]));
        assert_eq!(table.find(ip("ff02::1:2")), Found::Mac([0x33, 0x33, 0, 1, 0, 2]));
    }

    #[test]
    fn ports_see_what_is_published_and_ask_for_what_is_missing() {
        let (board, asks) = Board::new(table()).unwrap();
        let mut hops = NextHops::new(board.clone());
        let mut packet = [0; 20];
        packet[0] = 0x45;
        packet[12..16].copy_from_slice(&[10, 2, 0, 2]);
        packet[16..].copy_from_slice(&[10, 1, 0, 3]);
        let Some(Found::Unresolved(missing)) = hops.resolve(&packet) else { panic!() };
        hops.ask(missing);
        assert_eq!((asks.next(), asks.next()), (Some(missing), None));
        assert!(!hops.refresh());
        let routes = [route("10.1.0.0", 24, Hop::Direct)];
        board.publish(Table::new([1; 6], 1500, &routes, &[(missing, [3; 6])]));
        assert!(hops.refresh() && !hops.refresh());
        for _ in 0..2 {
            assert_eq!(hops.resolve(&packet), Some(Found::Mac([3; 6])));
        }
        board.publish(Table::new([1; 6], 1500, &routes, &[]));
        assert!(hops.refresh());
        assert_eq!(hops.resolve(&packet), Some(Found::Unresolved(missing)));
        assert!((0..20).all(|len| hops.resolve(&packet[..len]).is_none()));
    }

    proptest! {
        #[test]
        fn the_table_finds_what_a_linear_search_finds(
            routes in proptest::collection::vec((any::<u32>(), 0_u8..=32, 0_u8..3), 0..60),
            wanted in any::<u32>(),
        ) {
            // Few networks, so that they nest.
            let routes: Vec<_> = routes
                .iter()
                .map(|(bits, len, hop)| Route {
                    network: Ipv4Addr::from_bits(bits & 0x8181_0303).into(),
                    prefix_len: *len,
                    hop: [Hop::Direct, Hop::Via([10, 0, 0, 1].into()), Hop::Elsewhere][usize::from(*hop)],
                })
                .collect();
            let destination = Ipv4Addr::from_bits(wanted & 0x8181_0307);
            let covers = |route: &&Route| {
                let IpAddr::V4(network) = route.network else { return false };
                let mask = u32::MAX.checked_shl(32 - u32::from(route.prefix_len)).unwrap_or(0);
                network.to_bits() & mask == destination.to_bits() & mask
            };
            let longest = routes.iter().filter(covers).map(|r| r.prefix_len).max();
            let best = routes.iter().filter(covers).find(|r| Some(r.prefix_len) == longest);
            let expected = match best.map(|r| r.hop) {
                Some(Hop::Direct) => Found::Unresolved(destination.into()),
                Some(Hop::Via(router)) => Found::Unresolved(router),
                _ => Found::NoRoute,
            };
            prop_assert_eq!(Table::new([0; 6], 1500, &routes, &[]).find(destination.into()), expected);
        }
    }
}
