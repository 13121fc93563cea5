//! Effects of others on marks and flows are found on a real host.

#[allow(dead_code, reason = "others need the rest")]
use convoy_host::LinkName;
use convoy_leak_protection::{
    Config, Interference, Lead, LeakProtection, PrefixSets, interferences,
};
use convoy_netlink::nft::expression::Expression;
use convoy_netlink::nft::flow::Bits;
use convoy_netlink::nft::{self, Nft, Order, Place, TableFlags};
use netlink_packet_core::{DefaultNla, Emitable as _};
use netlink_packet_netfilter::nftables::{InetHookNumber, NfTablesMessage};

use crate::world::Space;

fn config(leads: Lead) -> Config {
    Config { leads, ..Config::new(LinkName::new("convoy0").unwrap()) }
}

fn chain(name: &str, place: Place, rule: Vec<Expression>) -> Vec<Order> {
    nft::chain("others", name, place, vec![rule])
}

fn writes(mask: u32) -> Bits {
    Bits { mask, value: mask }
}

fn words(space: &Space, leads: Lead, asks: bool) -> Vec<String> {
    let found = space.run(|| interferences(&config(leads), asks).unwrap());
    found.iter().map(ToString::to_string).collect()
}

#[test]
fn rules_that_write_or_select_the_same_bits_are_found() {
    let Ok(space) = Space::new() else {
        return crate::world::skipped("cannot make a network namespace here");
    };
    assert_eq!(words(&space, Lead::ByMark, true), [""; 0]);
    // Its own table is none of others'.
    let _own =
        space.run(|| LeakProtection::install(config(Lead::ByMark), PrefixSets::default())).unwrap();
    assert_eq!(words(&space, Lead::ByMark, true), [""; 0]);
    let at = Place::At;
    let mut orders = nft::table("others", TableFlags::empty(), false);
    // What is marked anew behind these, and bits that nobody uses, are no harm.
    orders.extend(chain(
        "early",
        at(InetHookNumber::PreRouting, -150),
        writes(0x00f0_0000).into_mark(),
    ));
    orders.extend(chain("free", at(InetHookNumber::Forward, 0), writes(0x0000_00ff).into_mark()));
    space.run(|| Nft::open().unwrap().commit(orders).unwrap());
    for rule in ["fwmark 0x1 table 7", "fwmark 0x1/0xff table 7", "not fwmark 0xca6c table 7"] {
        space.ip(&format!("rule add {rule} priority 5000"));
    }
    assert_eq!(words(&space, Lead::ByMark, true), [""; 0]);
    let mut orders = nft::table("others", TableFlags::empty(), false);
    orders.extend(chain(
        "forwards",
        at(InetHookNumber::Forward, 0),
        writes(0x00c0_0001).into_mark(),
    ));
    orders.extend(chain(
        "flows",
        at(InetHookNumber::PreRouting, -150),
        writes(0x0001_0000).into_flow(),
    ));
    orders.extend(chain("exempts", Place::Routing(-150), writes(0x0100_0000).into_mark()));
    space.run(|| Nft::open().unwrap().commit(orders).unwrap());
    space.ip("rule add fwmark 0x80000/0xff0000 table 7 priority 5210");
    space.ip("-6 rule add fwmark 0xc5000000 table 7 priority 5211");
    let found = words(&space, Lead::ByMark, true);
    let expected = [
        "table inet others, exempts writes bits 0x01000000 of packets' marks, which are marks.exempt",
        "table inet others, forwards writes bits 0x00c00000 of packets' marks, which are marks.packets",
        "table inet others, flows writes bits 0x00010000 of flows' marks",
        "ip -4 rule 5210 selects packets by fwmark 0x80000/0xff0000, of which 0x00f00000 are marks.packets",
        "ip -6 rule 5211 selects packets by fwmark 0xc5000000/0xffffffff, of which 0xc5000000 are marks.exempt",
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (said, expected) in found.iter().zip(expected) {
        assert!(said.contains(expected) && said.contains("[marks]"), "{said}\n{expected}");
    }
    // A site that neither asks nor leads by marks uses the exempt mark alone.
    let found = words(&space, Lead::ByDestination, false);
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(found.iter().all(|said| said.contains("marks.exempt")), "{found:#?}");
}

/// Rules of both IP versions, and in chains that others jump to, as other programs make them.
#[test]
fn rules_that_nft_made_are_found() {
    let Ok(space) = Space::new() else {
        return crate::world::skipped("cannot make a network namespace here");
    };
    if let Err(error) = space.command("nft", "add table ip others") {
        return crate::world::skipped(&format!("nft: {error}"));
    }
    for words in [
        "add chain ip others marks",
        "add chain ip others early { type filter hook prerouting priority -150 ; }",
        "add rule ip others marks meta mark set mark or 0x00100000",
        "add rule ip others early jump marks",
        "add table ip6 others",
        "add chain ip6 others out { type route hook output priority 0 ; }",
        "add chain ip6 others in { type filter hook input priority 0 ; }",
        "add rule ip6 others in meta mark set 0xc5f00000",
        "add rule ip6 others out ct mark set 0x100",
    ] {
        space.command("nft", words).unwrap();
    }
    let flows = "table ip6 others, out writes bits 0x000fff00 of flows' marks";
    let found = words(&space, Lead::ByMark, true);
    assert!(found.len() == 1 && found[0].contains(flows), "{found:#?}");
    for words in [
        "add chain ip others passing { type filter hook forward priority 0 ; }",
        "add rule ip others passing goto marks",
        "add rule ip6 others out meta mark set ct mark",
    ] {
        space.command("nft", words).unwrap();
    }
    let found = words(&space, Lead::ByMark, true);
    let expected = [
        "table ip others, marks writes bits 0x00100000 of packets' marks, which are marks.packets",
        "table ip6 others, out writes bits 0x00f00000 of packets' marks, which are marks.packets",
        "table ip6 others, out writes bits 0xff000000 of packets' marks, which are marks.exempt",
        flows,
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (said, expected) in found.iter().zip(expected) {
        assert!(said.contains(expected), "{said}\n{expected}");
    }
}

#[test]
fn rules_that_iptables_made_are_found() {
    let Ok(space) = Space::new() else {
        return crate::world::skipped("cannot make a network namespace here");
    };
    let iptables = |words: &str| space.command("iptables-nft", &format!("-w -t mangle {words}"));
    // Marked anew behind it, as Tailscale's is.
    if let Err(error) = iptables("-N others") {
        return crate::world::skipped(&format!("iptables-nft: {error}"));
    }
    iptables("-A others -j MARK --set-xmark 0x40000/0xff0000").unwrap();
    iptables("-A PREROUTING -j others").unwrap();
    assert_eq!(words(&space, Lead::ByDestination, true), [""; 0]);
    iptables("-A OUTPUT -j CONNMARK --restore-mark").unwrap();
    let found = words(&space, Lead::ByDestination, false);
    let said =
        "table ip mangle, OUTPUT writes bits 0xff000000 of packets' marks, which are marks.exempt";
    assert!(found.len() == 1 && found[0].contains(said), "{found:#?}");
}

/// `flowtable fast { hook ingress priority 0; devices = { lo }; }`
fn flow_table() -> Order {
    let named = |kind, text: &str| DefaultNla::new(kind, [text.as_bytes(), &[0]].concat());
    let number = |kind, number: u32| DefaultNla::new(kind, number.to_be_bytes().to_vec());
    let nested = |kind: u16, inner: Vec<DefaultNla>| {
        let mut bytes = vec![0; inner.as_slice().buffer_len()];
        inner.as_slice().emit(&mut bytes);
        DefaultNla::new(kind | 1 << 15, bytes)
    };
    let hook = vec![number(1, 0), number(2, 0), nested(3, vec![named(1, "lo")])];
    let attributes = vec![named(1, "others"), named(2, "fast"), nested(3, hook)];
    Order::make(NfTablesMessage::NewFlowTable(attributes))
}

#[test]
fn tables_of_offloaded_flows_are_found() {
    let Ok(space) = Space::new() else {
        return crate::world::skipped("cannot make a network namespace here");
    };
    let mut orders = nft::table("others", TableFlags::empty(), false);
    orders.push(flow_table());
    if let Err(error) = space.run(|| Nft::open().unwrap().commit(orders)) {
        return crate::world::skipped(&format!("no flow tables here: {error}"));
    }
    let found = words(&space, Lead::ByDestination, false);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("table inet others, fast offloads flows"), "{found:?}");
}

#[test]
fn rules_that_keep_flows_from_sight_are_found() {
    let Ok(space) = Space::new() else {
        return crate::world::skipped("cannot make a network namespace here");
    };
    let mut orders = nft::table("others", TableFlags::empty(), false);
    let raw = Place::At(InetHookNumber::PreRouting, -300);
    orders.extend(chain("raw", raw, vec![nft::flow::untracked()]));
    if let Err(error) = space.run(|| Nft::open().unwrap().commit(orders)) {
        return crate::world::skipped(&format!(
            "no rules that keep packets from being tracked here: {error}"
        ));
    }
    let found = space.run(|| interferences(&config(Lead::ByDestination), true).unwrap());
    assert!(matches!(&found[..], [Interference::Untracked { .. }]), "{found:?}");
    assert!(found[0].to_string().contains("table inet others, raw"), "{}", found[0]);
    assert_eq!(words(&space, Lead::ByDestination, false), [""; 0], "nothing is asked");
}

#[test]
fn rules_that_ask_for_the_ipsec_of_the_kernel_are_found_with_those_that_do_it() {
    for (program, words) in [
        ("nft", "add rule ip others forwards meta ipsec exists accept"),
        ("nft", "add rule ip others forwards rt ipsec exists accept"),
        ("nft", "add rule ip others forwards ipsec in reqid 1 accept"),
        ("iptables-nft", "-A FORWARD -m policy --dir in --pol ipsec -j ACCEPT"),
    ] {
        let Ok(space) = Space::new() else {
            return crate::world::skipped("cannot make a network namespace here");
        };
        let chain = "add table ip others ; add chain ip others forwards { type filter hook forward priority 0 ; }";
        let made = match program {
            "nft" => space.command("nft", chain).map(drop),
            _ => Ok(()),
        };
        if let Err(error) = made.and_then(|()| space.command(program, words).map(drop)) {
            crate::world::skipped(&format!("{program} {words}: {error}"));
            continue;
        }
        let found = crate::interference::words(&space, Lead::ByMark, false);
        assert_eq!(found.len(), 1, "{words}: {found:?}");
        assert!(found[0].contains("iifname \"convoy0\""), "{found:?}");
    }
}
