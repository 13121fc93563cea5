//! Packets that no policy is about, but which bear marks of others; and ICMP errors that quote what a tunnel brought.

use convoy_leak_protection::Verdict;
use nix::libc;

use super::{Counts as _, FAR, all_goes_into, far, policy, protected, raise, refusal};
use crate::world::{Tun, World, packet4, packet6};

/// All bits of marks but those of exempt packets.
const BITS: &str = "0x00ffffff";

/// Has others mark every packet and flow ahead of leak protection, and count behind it what still bears the mark.
fn mark_everything(world: &World) -> Result<String, String> {
    let mut words = "add table inet others ; ".to_owned();
    for (chain, kind, hook) in [("in", "filter", "prerouting"), ("out", "route", "output")] {
        words += &format!(
            "add chain inet others {chain} {{ type {kind} hook {hook} priority mangle ; }} ; \
             add rule inet others {chain} meta mark set {BITS} ; add rule inet others {chain} ct mark set {BITS} ; "
        );
    }
    words += &format!(
        "add chain inet others behind {{ type filter hook postrouting priority 310 ; }} ; \
         add rule inet others behind udp dport 7 meta mark {BITS} ct mark {BITS} counter"
    );
    world.gateway.command("nft", &words)
}

fn still_marked(world: &World) -> u64 {
    let shown = world.gateway.command("nft", "list chain inet others behind").unwrap();
    let (_, counted) = shown.split_once("counter packets ").unwrap();
    counted.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn packets_that_no_policy_is_about_keep_the_marks_of_others() {
    let Some(world) = World::new() else { return };
    if let Err(error) = mark_everything(&world) {
        return crate::world::skipped(&format!("nobody marks packets here: {error}"));
    }
    let mut tun = world.tun();
    let mut fence = raise(&world);
    let mut expected = 0;
    let others_pass = |expected: &mut u64, when: &str| {
        for sender in world.senders() {
            world.listener.flush(&sender);
            *expected += 1;
        }
        assert_eq!(still_marked(&world), *expected, "{when}");
    };
    others_pass(&mut expected, "without policies");
    fence.come(&far());
    others_pass(&mut expected, "beside protected networks");
    // What others wrote is no answer.
    all_goes_into(&mut tun, &world);
    expected += 4;
    fence.come(&[policy("10.1.0.0/24", "10.2.7.0/24", Verdict::Bypass)]);
    fence.come(&[policy("2001:db8:0:1::/64", "2001:db8:2:7::/64", Verdict::Bypass)]);
    assert!(fence.asks());
    others_pass(&mut expected, "beside mixed networks");
}

/// A packet whose hop limit ends at the gateway.
fn last_hop(from: &str, to: &str, tag: &[u8]) -> Vec<u8> {
    if from.contains(':') {
        let mut packet = packet6(from, to, tag);
        packet[7] = 1;
        return packet;
    }
    let mut packet = packet4(from, to, tag);
    let less = u16::from(packet[8] - 1) << 8;
    packet[8] = 1;
    // A sum of complements (RFC 1624).
    let (sum, carry) = u16::from_be_bytes([packet[10], packet[11]]).overflowing_add(less);
    packet[10..12].copy_from_slice(&(sum + u16::from(carry)).to_be_bytes());
    packet
}

#[test]
fn errors_about_what_a_tunnel_brought_do_not_quote_it_in_clear() {
    let Some(world) = World::new() else { return };
    world.take_any_packet();
    let settings = "/proc/sys/net/ipv4/conf/convoy0/rp_filter";
    let mut tun = world.tun();
    world.gateway.run(|| std::fs::write(settings, "0").unwrap());
    let mut fence = raise(&world);
    let pairs = [("10.2.0.9", "10.1.0.2"), ("2001:db8:2::9", "2001:db8:0:1::2")];
    let is_quoted = |tun: &mut Tun, (from, to): (&str, &str)| {
        let tag = world.listener.tag();
        tun.write(&last_hop(from, to, &tag));
        // What the gateway sends next comes behind the error.
        let sender = world.senders().into_iter().find(|it| it.is_v4() != from.contains(':'));
        world.listener.flush(&sender.unwrap());
        world.listener.count(&tag) > 0
    };
    // The oracle hears it.
    for pair in pairs {
        assert!(is_quoted(&mut tun, pair), "{pair:?}");
    }
    fence.come(&[policy("10.1.0.0/24", FAR[0], Verdict::Protect)]);
    fence.come(&[policy("2001:db8:0:1::/64", FAR[1], Verdict::Protect)]);
    for pair in pairs {
        assert!(!is_quoted(&mut tun, pair), "{pair:?} is quoted in clear");
    }
    let drops = fence.drops().unwrap().unwrap();
    assert_eq!((drops.outbound, drops.quoting, drops.past_interface()), (2, 2, 0));
    // What goes back into the interface that it came out of is redirected.
    let tag = world.listener.tag();
    tun.write(&packet4("10.1.0.99", "10.2.0.9", &tag));
    assert!(tun.brings(&tag));
    world.listener.flush(&world.senders()[0]);
    assert_eq!(world.listener.count(&tag), 0, "a redirect quotes it in clear");
    // With questions as well: nobody answered that these pass.
    fence.come(&[policy("10.1.0.0/24", "10.2.0.0/24", Verdict::Bypass)]);
    fence.come(&[policy("2001:db8:0:1::/64", "2001:db8:2::/64", Verdict::Bypass)]);
    for pair in pairs {
        assert!(!is_quoted(&mut tun, pair), "{pair:?} is quoted in clear");
    }
}

#[test]
fn who_sends_to_a_tunnel_is_told_of_errors() {
    let Some(world) = World::new() else { return };
    let _tun = world.tun();
    let mut fence = raise(&world);
    fence.come(&FAR.map(protected));
    let [_, lan4, ..] = world.senders();
    lan4.socket.set_ttl(1).unwrap();
    assert_eq!(refusal(&lan4), libc::EHOSTUNREACH, "time exceeded");
}
