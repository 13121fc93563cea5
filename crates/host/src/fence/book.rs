//! Which networks are closed and which are open: claims counted, and what follows from them.

use std::{collections::BTreeMap, net::IpAddr};

use ipnet::IpNet;

use super::{Claim, Treatment};
use crate::netlink::nft::number;

/// Whose packets are meant: the same destination may be treated in two ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    /// Those of the host and those it forwards.
    Out,
    /// Those that came out of the TUN interface, that is, out of a tunnel.
    FromTun,
    /// Those that arrive from closed addresses. Routes know nothing of these, nor of what follows.
    Guarded,
    /// Those of the host and those it forwards, as if multicast, broadcast and link-local addresses were
    /// like others.
    Nearby,
    /// Those who send to such addresses.
    Sender,
}

/// Those that routes follow.
pub(super) const VIEWS: [View; 2] = [View::Out, View::FromTun];

/// What is to be done with packets to a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// They go into the TUN interface or nowhere. `into` is false while nobody who lives now has
    /// asked for them: then they go nowhere.
    Closed { into: bool, source: Option<IpAddr> },
    /// They go where the host's other tables say.
    Open,
}

/// What the claims on one network add up to.
#[derive(Debug, Default)]
struct Entry {
    /// Claims by the source address that they prefer.
    protected: BTreeMap<Option<IpAddr>, u32>,
    bypassed: u32,
    local: u32,
    guarded: u32,
    senders: u32,
    /// Multicast, broadcast or link-local: open as far as its view says, as long as no claim names it.
    is_nearby: bool,
    /// Of an earlier life: protected, guarded, senders, and protected as one of those nearby.
    adopted: [bool; 4],
}

/// What goes nowhere.
const NOWHERE: Option<State> = Some(State::Closed { into: false, source: None });

impl Entry {
    fn state(&self, view: View) -> Option<State> {
        let [protected, guarded, sender, is_closed] = self.adopted;
        let protected = protected || is_closed && view == View::Nearby;
        let nearby = self.is_nearby.then_some(State::Open);
        match view {
            View::Guarded => return if self.guarded > 0 || guarded { NOWHERE } else { nearby },
            View::Sender => return NOWHERE.filter(|_| self.senders > 0 || sender),
            View::Out | View::FromTun | View::Nearby => {}
        }
        let into = !self.protected.is_empty();
        let is_local = view == View::FromTun && self.local > 0;
        if into || protected {
            let source = self.protected.keys().find_map(|source| *source);
            Some(State::Closed { into, source: source.filter(|_| view == View::Out) })
        } else if self.bypassed > 0 || is_local {
            Some(State::Open)
        } else {
            // What tunnels bring is forwarded, as with others.
            nearby.filter(|_| view == View::Out)
        }
    }

    fn states(&self) -> [Option<State>; 5] {
        let all = [View::Out, View::FromTun, View::Guarded, View::Nearby, View::Sender];
        all.map(|view| self.state(view))
    }

    fn is_unused(&self) -> bool {
        self.protected.is_empty()
            && self.bypassed == 0
            && self.local == 0
            && self.guarded == 0
            && self.senders == 0
            && !self.is_nearby
            && self.adopted == [false; 4]
    }

    fn count(&mut self, treatment: Treatment, add: bool) {
        let change = |n: u32| if add { n.saturating_add(1) } else { n.saturating_sub(1) };
        match treatment {
            Treatment::Protected { source } => {
                let count = self.protected.entry(source).or_insert(0);
                *count = change(*count);
                self.protected.retain(|_, count| *count > 0);
            }
            Treatment::Bypassed => self.bypassed = change(self.bypassed),
            Treatment::Local => self.local = change(self.local),
            Treatment::Guarded => self.guarded = change(self.guarded),
            Treatment::Sender => self.senders = change(self.senders),
        }
    }
}

/// All claims, by network.
#[derive(Debug, Default)]
pub(super) struct Book {
    entries: BTreeMap<IpNet, Entry>,
}

impl Book {
    /// Makes a claim or takes it back; whether anything is to be done with packets to its network that was
    /// not before.
    pub(super) fn count(&mut self, claim: &Claim, add: bool) -> bool {
        let network = claim.network.trunc();
        if !add && !self.entries.contains_key(&network) {
            return false;
        }
        let entry = self.entries.entry(network).or_default();
        let before = entry.states();
        entry.count(claim.treatment, add);
        let is_other = entry.states() != before;
        if entry.is_unused() {
            self.entries.remove(&network);
        }
        is_other
    }

    /// Leaves networks open to what the host itself sends, unless a claim names them, or has them like all
    /// others.
    pub(super) fn leave_open(&mut self, networks: &[IpNet], is_open: bool) {
        for network in networks {
            self.entries.entry(network.trunc()).or_default().is_nearby = is_open;
        }
        self.entries.retain(|_, entry| !entry.is_unused());
    }

    /// Takes over what an earlier life left closed to one view: [`View::FromTun`] is as [`View::Out`].
    ///
    /// What it left open is not taken over: nobody knows any more against whom it was weighed.
    pub(super) fn adopt(&mut self, network: IpNet, view: View) {
        let adopted = &mut self.entries.entry(network.trunc()).or_default().adopted;
        let [protected, guarded, sender, nearby] = adopted;
        match view {
            View::Out | View::FromTun => *protected = true,
            View::Guarded => *guarded = true,
            View::Sender => *sender = true,
            View::Nearby => *nearby = true,
        }
    }

    /// Forgets what was taken over; the networks that were concerned.
    pub(super) fn settle(&mut self) -> Vec<IpNet> {
        let mut concerned = Vec::new();
        self.entries.retain(|network, entry| {
            if core::mem::take(&mut entry.adopted) != [false; 4] {
                concerned.push(*network);
            }
            !entry.is_unused()
        });
        concerned
    }

    /// Networks that are closed because an earlier life left them so.
    pub(super) fn left_behind(&self) -> impl Iterator<Item = IpNet> {
        let is_left = |entry: &Entry| {
            let [protected, guarded, sender, _] = entry.adopted;
            protected && entry.protected.is_empty()
                || guarded && entry.guarded == 0
                || sender && entry.senders == 0
        };
        self.entries.iter().filter(move |(_, entry)| is_left(entry)).map(|(network, _)| *network)
    }

    pub(super) fn networks(&self) -> impl Iterator<Item = IpNet> {
        self.entries.keys().copied()
    }

    pub(super) fn state(&self, network: &IpNet, view: View) -> Option<State> {
        self.entries.get(network)?.state(view)
    }

    /// Ranges within `network` to which packets are not to leave in clear: the longest prefix that
    /// says something about an address decides.
    pub(super) fn closed_within(&self, network: IpNet, view: View) -> Vec<(u128, u128)> {
        let mut closed = Vec::new();
        // Prefixes that contain the place reached, with what each says.
        let mut around = vec![(last(&network), self.is_closed_around(network, view))];
        let mut at = first(&network);
        let mut fill = |from: &mut u128, to: u128, is_closed: bool| {
            if *from <= to {
                if is_closed {
                    closed.push((*from, to));
                }
                *from = to.saturating_add(1);
            }
        };
        let inner = self.entries.range(network..).map(|(inner, entry)| (*inner, entry));
        for (inner, entry) in inner.take_while(|(inner, _)| network.contains(inner)) {
            let Some(state) = entry.state(view) else { continue };
            while let [.., _, (end, is_closed)] = around[..]
                && end < first(&inner)
            {
                fill(&mut at, end, is_closed);
                around.pop();
            }
            if let Some((_, is_closed)) = around.last()
                && let Some(before) = first(&inner).checked_sub(1)
            {
                fill(&mut at, before, *is_closed);
            }
            around.push((last(&inner), matches!(state, State::Closed { .. })));
        }
        while let Some((end, is_closed)) = around.pop() {
            fill(&mut at, end, is_closed);
            if end == u128::MAX {
                break;
            }
        }
        closed
    }

    /// What the prefixes around a network say about it, and it itself.
    fn is_closed_around(&self, network: IpNet, view: View) -> bool {
        let mut around = Some(network);
        while let Some(prefix) = around {
            if let Some(state) = self.state(&prefix, view) {
                return matches!(state, State::Closed { .. });
            }
            around = prefix.supernet();
        }
        false
    }
}

pub(super) fn first(network: &IpNet) -> u128 {
    number(network.network())
}

pub(super) fn last(network: &IpNet) -> u128 {
    number(network.broadcast())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn protected(network: &str) -> Claim {
        Claim::protected(network.parse().unwrap(), None)
    }

    fn bypassed(network: &str) -> Claim {
        Claim { network: network.parse().unwrap(), treatment: Treatment::Bypassed }
    }

    fn book(claims: &[Claim]) -> Book {
        let mut book = Book::default();
        for claim in claims {
            let _ = book.count(claim, true);
        }
        book
    }

    /// Asks of every address of a small network apart.
    fn by_hand(book: &Book, network: IpNet, view: View) -> Vec<(u128, u128)> {
        let mut ranges: Vec<(u128, u128)> = Vec::new();
        for address in network.hosts().chain([network.network(), network.broadcast()]) {
            let length = if address.is_ipv4() { 32 } else { 128 };
            if book.is_closed_around(IpNet::new(address, length).unwrap(), view) {
                ranges.push((number(address), number(address)));
            }
        }
        ranges.sort_unstable();
        ranges.dedup();
        joined(ranges)
    }

    fn joined(ranges: Vec<(u128, u128)>) -> Vec<(u128, u128)> {
        let mut joined: Vec<(u128, u128)> = Vec::new();
        for (from, to) in ranges {
            match joined.last_mut() {
                Some(previous) if from <= previous.1.saturating_add(1) => previous.1 = to,
                _ => joined.push((from, to)),
            }
        }
        joined
    }

    #[test]
    fn the_longest_prefix_decides_at_every_address() {
        let books = [
            vec![],
            vec![protected("0.0.0.0/0")],
            vec![protected("10.0.0.0/24"), bypassed("10.0.0.0/25"), protected("10.0.0.8/29")],
            vec![bypassed("10.0.0.0/8"), protected("10.0.0.128/25"), bypassed("10.0.0.255/32")],
            vec![protected("10.0.0.0/32"), protected("10.0.0.1/32"), protected("10.0.0.254/31")],
            vec![protected("10.0.0.0/23"), bypassed("10.0.0.64/26"), bypassed("10.0.0.128/26")],
            vec![protected("10.0.0.0/24"), bypassed("10.0.0.0/24"), bypassed("10.0.0.0/30")],
        ];
        let network: IpNet = "10.0.0.0/24".parse().unwrap();
        for claims in books {
            let book = book(&claims);
            for view in VIEWS {
                let found = joined(book.closed_within(network, view));
                assert_eq!(found, by_hand(&book, network, view), "{claims:?}");
            }
        }
    }

    #[test]
    fn ranges_reach_the_ends_of_the_address_space() {
        let all = book(&[protected("::/0"), bypassed("ff00::/8"), protected("0.0.0.0/0")]);
        let multicast = u128::from("ff00::".parse::<std::net::Ipv6Addr>().unwrap());
        assert_eq!(
            all.closed_within("::/0".parse().unwrap(), View::Out),
            [(0, multicast.checked_sub(1).unwrap())]
        );
        let whole = all.closed_within("0.0.0.0/0".parse().unwrap(), View::Out);
        assert_eq!(whole, [(0, u32::MAX.into())]);
        let top = book(&[protected("ff00::/8")]);
        assert_eq!(top.closed_within("::/0".parse().unwrap(), View::Out), [(multicast, u128::MAX)]);
    }

    #[test]
    fn networks_behind_the_gateway_are_open_only_to_what_tunnels_bring() {
        let net = "10.1.0.0/16".parse().unwrap();
        let mut book = book(&[protected("10.0.0.0/8")]);
        assert!(book.count(&Claim { network: net, treatment: Treatment::Local }, true));
        assert_eq!(book.closed_within(net, View::Out).len(), 1);
        assert_eq!(book.closed_within(net, View::FromTun), []);
    }

    #[test]
    fn nearby_networks_are_open_to_the_host_alone_unless_a_claim_names_them() {
        let net: IpNet = "169.254.0.0/16".parse().unwrap();
        let mut book = book(&[protected("0.0.0.0/0")]);
        book.leave_open(&[net], true);
        let is_closed = |book: &Book| {
            [View::Out, View::FromTun, View::Nearby]
                .map(|view| !book.closed_within(net, view).is_empty())
        };
        assert_eq!(is_closed(&book), [false, true, true]);
        assert!(book.count(&bypassed("169.254.0.0/16"), true));
        assert_eq!(is_closed(&book), [false; 3]);
        assert!(book.count(&bypassed("169.254.0.0/16"), false));
        assert!(book.count(&protected("169.254.0.0/16"), true));
        assert_eq!(is_closed(&book), [true; 3]);
        assert!(book.count(&protected("169.254.0.0/16"), false));
        assert_eq!(is_closed(&book), [false, true, true]);
        book.leave_open(&[net], false);
        assert_eq!(is_closed(&book), [true; 3]);
        assert_eq!(book.networks().count(), 1);
    }

    #[test]
    fn a_network_stays_as_long_as_one_claim_does() {
        let net: IpNet = "10.0.0.0/24".parse().unwrap();
        let from = |source: &str| Claim::protected(net, Some(source.parse().unwrap()));
        let mut book = book(&[from("192.0.2.2"), from("192.0.2.1"), from("192.0.2.1")]);
        let source = |book: &Book| match book.state(&net, View::Out) {
            Some(State::Closed { source, .. }) => source.map(|s| s.to_string()),
            _ => None,
        };
        assert_eq!(source(&book).as_deref(), Some("192.0.2.1"));
        assert!(!book.count(&from("192.0.2.1"), false), "nothing is to be done");
        assert_eq!(source(&book).as_deref(), Some("192.0.2.1"));
        assert!(book.count(&from("192.0.2.1"), false));
        assert_eq!(source(&book).as_deref(), Some("192.0.2.2"));
        assert!(book.count(&from("192.0.2.2"), false));
        assert_eq!(book.state(&net, View::Out), None);
        assert_eq!(book.networks().count(), 0);
        assert!(!book.count(&from("192.0.2.2"), false));
        assert_eq!(book.networks().count(), 0);
        let guarded = Claim { network: net, treatment: Treatment::Guarded };
        assert!(book.count(&guarded, true) && !book.count(&guarded, true));
    }

    #[test]
    fn an_opening_claims_nothing_of_what_was_left_closed() {
        let net: IpNet = "10.0.0.0/24".parse().unwrap();
        let mut book = Book::default();
        book.adopt(net, View::Out);
        for treatment in [Treatment::Bypassed, Treatment::Local, Treatment::Guarded] {
            let _ = book.count(&Claim { network: net, treatment }, true);
            assert_eq!(book.left_behind().collect::<Vec<_>>(), [net]);
        }
        let _ = book.count(&protected("10.0.0.0/24"), true);
        assert_eq!(book.left_behind().count(), 0);
        book.adopt(net, View::Sender);
        assert_eq!(book.left_behind().collect::<Vec<_>>(), [net]);
        let _ = book.count(&Claim { network: net, treatment: Treatment::Sender }, true);
        assert_eq!(book.left_behind().count(), 0);
    }

    #[test]
    fn what_was_taken_over_leads_nowhere_until_it_is_claimed_or_forgotten() {
        let net: IpNet = "10.0.0.0/24".parse().unwrap();
        let mut book = Book::default();
        book.adopt(net, View::Out);
        assert_eq!(book.state(&net, View::Out), Some(State::Closed { into: false, source: None }));
        assert_eq!(book.left_behind().collect::<Vec<_>>(), [net]);
        assert!(book.count(&protected("10.0.0.0/24"), true));
        assert_eq!(book.state(&net, View::Out), Some(State::Closed { into: true, source: None }));
        assert!(book.count(&protected("10.0.0.0/24"), false));
        assert_eq!(book.state(&net, View::Out), Some(State::Closed { into: false, source: None }));
        assert_eq!(book.settle(), [net]);
        assert_eq!(book.state(&net, View::Out), None);
    }
}
