//! What a kernel with a fence lets through is what the claims and exceptions say, whatever they are.

use std::{collections::BTreeSet, net::IpAddr, thread, time::Duration};

use convoy_host::{
    Claim, IpNet, Treatment,
    fence::{Exceptions, Pair},
};

use super::{
    net, raise,
    world::{self, Door, Listener, World},
};

/// Where may be sent from where no policy is, as long as no claim names it.
const LINK_LOCAL: &str = "169.254.0.0/16";

/// Hosts on the LAN, hosts behind the wire, and networks that hold some of them.
struct Places {
    lan: [&'static str; 2],
    wire: &'static [&'static str],
    networks: &'static [&'static str],
}

const PLACES: [Places; 2] = [
    Places {
        lan: ["10.1.0.2", "10.1.0.3"],
        wire: &["10.2.0.2", "10.2.0.3", "10.3.0.2", "169.254.7.2"],
        networks: &[
            "0.0.0.0/0",
            "10.0.0.0/8",
            "10.1.0.0/16",
            "10.1.0.0/24",
            "10.1.0.2/32",
            "10.2.0.0/15",
            "10.2.0.0/16",
            "10.2.0.2/31",
            "10.2.0.3/32",
            "10.3.0.2/32",
            LINK_LOCAL,
            "169.254.7.0/24",
        ],
    },
    Places {
        lan: ["2001:db8:0:1::2", "2001:db8:0:1::3"],
        wire: &["2001:db8:2::2", "2001:db8:2::3", "2001:db8:3::2"],
        networks: &[
            "::/0",
            "2001:db8::/32",
            "2001:db8:0:1::/64",
            "2001:db8:0:1::2/128",
            "2001:db8:2::/47",
            "2001:db8:2::/48",
            "2001:db8:2::2/127",
            "2001:db8:2::3/128",
            "2001:db8:3::2/128",
        ],
    },
];

/// A fence as it is described.
#[derive(Debug, Default)]
struct Described {
    claims: Vec<Claim>,
    exceptions: Exceptions,
}

impl Described {
    /// What the longest prefix says of an address that claims of some kinds name, and how long it is.
    fn says(
        &self,
        address: IpAddr,
        is_one: impl Fn(Treatment) -> bool,
        is_closed: impl Fn(Treatment) -> bool,
    ) -> (u8, bool) {
        let claims = self.claims.iter().filter(|claim| is_one(claim.treatment));
        let claims = claims.filter(|claim| claim.network.contains(&address));
        let says = claims.map(|claim| (claim.network.prefix_len(), is_closed(claim.treatment)));
        says.max().unwrap_or_default()
    }

    /// Whether an address is closed, to what comes out of tunnels or to others, and whether a claim names it
    /// closely enough to tell it from others around.
    fn is_closed(&self, address: IpAddr, is_from_tun: bool) -> (bool, bool) {
        let is_one = |treatment| match treatment {
            Treatment::Guarded | Treatment::Sender => false,
            Treatment::Local => is_from_tun,
            _ => true,
        };
        let is_protected = |treatment| matches!(treatment, Treatment::Protected { .. });
        let (len, is_closed) = self.says(address, is_one, is_protected);
        (is_closed, len >= 16 || !net(LINK_LOCAL).contains(&address))
    }

    fn is_guarded(&self, address: IpAddr) -> bool {
        let (len, is_guarded) = self.says(address, |t| t == Treatment::Guarded, |_| true);
        is_guarded && (len >= 16 || !net(LINK_LOCAL).contains(&address))
    }

    fn is_sender(&self, address: IpAddr) -> bool {
        self.says(address, |t| t == Treatment::Sender, |_| true).1
    }

    /// Whether a packet leaves in clear; of some that is not known.
    fn passes(&self, door: Door, from: IpAddr, to: IpAddr) -> Option<bool> {
        let has = |pairs: &BTreeSet<Pair>| {
            pairs.iter().any(|pair| pair.from.contains(&from) && pair.to.contains(&to))
        };
        let Exceptions { open, admitted, withheld } = &self.exceptions;
        let (is_closed, is_named) = self.is_closed(to, door == Door::Tun);
        let is_open = !is_closed || !is_named && !self.is_sender(from);
        Some(match door {
            Door::Tun => !has(withheld) && !is_closed,
            // It is routed before its source is read.
            Door::Host if is_closed && has(open) => return None,
            Door::Host => is_open,
            Door::Gateway => true,
            Door::Lan | Door::Wire => {
                let is_from_closed = self.is_closed(from, false).0;
                let is_refused = is_from_closed && self.is_guarded(to) && !has(admitted);
                !is_refused && (has(open) || is_open)
            }
        })
    }
}

#[test]
fn what_gets_through_is_what_claims_and_exceptions_say() {
    let Some(world) = World::new() else { return };
    world.take_any_packet();
    let lan_listener = world.lan.run(Listener::start);
    let mut tun = world.tun();
    let mut fence = raise(&world);
    assert!(fence.takes_exceptions());
    let mut random = world::random(3);
    let mut described = Described::default();
    let mut unheard = Vec::new();
    for round in 0..60 {
        let places = &PLACES[round % 2];
        let network = |random: &mut dyn FnMut(usize) -> usize| -> IpNet {
            let places = &PLACES[random(2)];
            net(places.networks[random(places.networks.len())])
        };
        // Some claims more, some fewer, and other exceptions.
        let treatments = [
            Treatment::Protected { source: None },
            Treatment::Protected { source: None },
            Treatment::Bypassed,
            Treatment::Local,
            Treatment::Guarded,
            Treatment::Sender,
        ];
        let add: Vec<_> = (0..random(4))
            .map(|_| Claim { network: network(&mut random), treatment: treatments[random(6)] })
            .collect();
        let mut remove = Vec::new();
        while !described.claims.is_empty() && (described.claims.len() > 8 || random(3) == 0) {
            remove.push(described.claims.swap_remove(random(described.claims.len())));
        }
        fence.change(&add, &remove).unwrap();
        described.claims.extend(add);
        let mut pairs = || -> BTreeSet<Pair> {
            let places = &PLACES[random(2)].networks;
            let mut network = || net(places[random(places.len())]);
            (0..2).map(|_| Pair { from: network(), to: network() }).collect()
        };
        described.exceptions = Exceptions { open: pairs(), admitted: pairs(), withheld: pairs() };
        fence.except(described.exceptions.clone()).unwrap();
        let all = || places.lan.into_iter().chain(places.wire.iter().copied());
        for (door, from, to) in Door::ALL
            .into_iter()
            .flat_map(|door| all().flat_map(move |from| all().map(move |to| (door, from, to))))
        {
            let is_to_lan = places.lan.contains(&to);
            // Each side keeps to itself what is for itself.
            if door == Door::Lan && is_to_lan || door == Door::Wire && !is_to_lan {
                continue;
            }
            let listener = if is_to_lan { &lan_listener } else { &world.listener };
            // Apart from those of the other listener.
            let tag = world.listener.tag();
            let packet = match from.contains(':') {
                true => world::packet6(from, to, &tag),
                false => world::packet4(from, to, &tag),
            };
            let [from, to]: [IpAddr; 2] = [from, to].map(|text| text.parse().unwrap());
            world.send(door, &mut tun, &packet, to);
            let what = || format!("{door:?}: {from} to {to}, {described:#?}");
            match described.passes(door, from, to) {
                None => {}
                Some(true) => listener.await_tag(&tag, &what()),
                Some(false) => unheard.push((is_to_lan, tag, what())),
            }
        }
        while tun.read().is_some() {}
    }
    thread::sleep(Duration::from_millis(200));
    for (is_to_lan, tag, what) in &unheard {
        let listener = if *is_to_lan { &lan_listener } else { &world.listener };
        assert_eq!(listener.count(tag), 0, "gets through: {what}");
    }
    assert!(unheard.len() > 100, "{}", unheard.len());
}
