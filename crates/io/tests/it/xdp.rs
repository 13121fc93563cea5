//! AF_XDP ports on virtual cables: against each other, against hosts, against hostile frames.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::process::Command;

use crate::common::wire::{
    FAR, Injector, NEAR, all_at, board, cable, esp_to, forwarded, frame, interface, plug_with,
};
use crate::common::{Namespace, burst_of, esp, fix_checksum, gate, ip_packet, pattern, receive};
use convoy_io::link::{Board, Table, Take, What};
use convoy_io::xdp::{Config, Mode, Steering, XdpPort, open};
use convoy_io::{IoError, Port};
use convoy_packet::{Arena, Burst, FrameSize};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::ForkResult;

const FRAMES: u32 = 8192;
/// Virtual cables can do both.
const MODES: [Mode; 2] = [Mode::Generic, Mode::Native];

fn arena() -> &'static Arena {
    Arena::map(FRAMES, FrameSize::for_packet(2048)).unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Error with the reason, if there can be none here.
fn usable() -> Result<(), String> {
    let [a, _b] = cable(1500)?;
    let (board, _asks) = board(all_at(NEAR, FAR, &[]));
    let config = Config::new(interface(&a, "near"), forwarded(NEAR), board, arena());
    match a.run(move || open(&config)) {
        Err(IoError::Setup { step, source })
            if matches!(
                source.raw_os_error(),
                Some(libc::EPERM | libc::ENOSYS | libc::EAFNOSUPPORT)
            ) =>
        {
            Err(format!("cannot {step}: {source}"))
        }
        Err(other) => panic!("{other}"),
        Ok(_) => Ok(()),
    }
}

fn ports(
    namespace: &Namespace,
    link: &'static str,
    arena: &'static Arena,
    change: impl FnOnce(Config) -> Config,
    (take, table): (Take, Table),
) -> (Vec<XdpPort>, Steering, std::sync::Arc<Board>) {
    let (board, _asks) = board(table);
    let config = change(Config::new(interface(namespace, link), take, board.clone(), arena));
    let (ports, steering) = namespace.run(move || open(&config)).unwrap();
    (ports, steering, board)
}

fn port(
    namespace: &Namespace,
    link: &'static str,
    arena: &'static Arena,
    mode: Mode,
    sees: (Take, Table),
) -> (XdpPort, Steering) {
    let at_most = move |config| Config { at_most: mode, ..config };
    let (mut ports, steering, _) = ports(namespace, link, arena, at_most, sees);
    assert_eq!(steering.mode(), mode);
    (ports.remove(0), steering)
}

fn nothing_is_lost(arena: &Arena) {
    assert_eq!((arena.in_depot(), arena.leaked()), (arena.frames() as usize, 0));
}

#[test]
fn whole_packets_cross_unchanged_and_no_frame_is_lost() {
    or_skip!(usable());
    for mode in MODES {
        let [a, b] = or_skip!(cable(1500));
        let arena = arena();
        let mut pool = arena.pool();
        for (src, dst) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
            let known = [ip(src), ip(dst)];
            let sees = |own, far, local| (esp_to(own, local), all_at(own, far, &known));
            let (mut left, _s) = port(&a, "near", arena, mode, sees(NEAR, FAR, &known[..1]));
            let (mut right, _t) = port(&b, "far", arena, mode, sees(FAR, NEAR, &known[1..]));
            let packets: Vec<_> = (0..250)
                .map(|n| {
                    ip_packet(known[0], known[1], 50, 0xb8, true, &esp(7, n, 20 + n as usize * 5))
                })
                .collect();
            // What the sockets have to receive into is given to them when they are first asked.
            assert_eq!(right.rx(&mut pool, &mut Burst::new()).unwrap(), 0);
            for _ in 0..8 {
                left.tx(&mut pool, &mut burst_of(&mut arena.pool(), &packets)).unwrap();
                let got = receive(&mut right, &mut pool, 250);
                assert!(got == packets, "{:?} {:?}", left.counters(), right.counters());
            }
            let (sent, received) = (left.counters(), right.counters());
            assert_eq!((sent.tx_packets, received.rx_packets), (2000, 2000));
            let lost: u64 = sent.losses().map(|l| l.1).sum();
            assert_eq!((sent.tx_bytes, lost), (received.rx_bytes, 0));
            assert_eq!(left.offloads().native_xdp, mode == Mode::Native);
            assert!(!left.offloads().zero_copy);
        }
        drop(pool);
        nothing_is_lost(arena);
    }
}

#[test]
fn hosts_talk_through_a_gateway_that_sees_every_packet_finished() {
    or_skip!(usable());
    let [a, gateway, b] = or_skip!(gate::hosts());
    let arena = arena();
    let sides = [(1, "left"), (2, "right")].map(|(n, link)| {
        port(&gateway, link, arena, Mode::Native, (forwarded(FAR), gate::table(n)))
    });
    let [(left, s), (right, t)] = sides;
    let ports = gate::talk([&a, &b], [left, right], arena);
    for port in &ports {
        // TCP finds its speed by what the rings cannot hold.
        let counters = port.counters();
        let lost: u64 = counters.losses().map(|l| l.1).sum();
        assert_eq!(lost - counters.rx_kernel_drops, 0, "{counters:?}");
    }
    drop((ports, s, t));
    nothing_is_lost(arena);
}

#[test]
fn hostile_frames_are_counted_and_harm_nothing() {
    or_skip!(usable());
    for mode in MODES {
        let [a, b] = or_skip!(cable(1500));
        let arena = arena();
        let mut pool = arena.pool();
        let sees = (forwarded(NEAR), all_at(NEAR, FAR, &[]));
        let (mut near, steering) = port(&a, "near", arena, mode, sees);
        assert_eq!(near.rx(&mut pool, &mut Burst::new()).unwrap(), 0);
        let injector = Injector::new(&b, "far");
        let good = ip_packet(ip("10.0.0.2"), ip("10.0.0.1"), 50, 0, true, &esp(1, 1, 100));
        let other = |at: usize, bytes: &[u8]| {
            let mut frame = frame(&good);
            frame[at..at + bytes.len()].copy_from_slice(bytes);
            frame
        };
        let mut tagged = frame(&good);
        tagged.splice(12..12, [0x81, 0, 0, 5]);
        let cases = [
            (frame(&good), "good"),
            (other(14, &[0x60]), "rx_malformed"),
            (other(14, &[0]), "rx_malformed"),
            (other(24, &[0xab]), "rx_checksum"),
            (other(33, &[2]), "rx_checksum"),
            (other(14, &[0x46]), "rx_checksum"),
            (tagged, ""),
            (other(0, &[2, 0, 0, 0, 0, 9]), ""),
            (other(0, &[0xff; 6]), ""),
            (other(12, &[8, 6]), ""),
            (other(12, &[0, 46]), ""),
            (frame(&[])[..14].to_vec(), ""),
        ];
        let mut expected = BTreeMap::new();
        for (frame, counted) in &cases {
            if injector.send(frame) && !counted.is_empty() {
                *expected.entry(*counted).or_insert(0_u64) += 1;
            }
        }
        assert!(injector.send(&frame(&good)));
        assert_eq!(receive(&mut near, &mut pool, 2), [good.clone(), good.clone()]);
        expected.remove("good");
        let losses: BTreeMap<_, _> = near.counters().losses().filter(|l| l.1 > 0).collect();
        assert_eq!(losses, expected, "{mode}");

        let (mut burst, mut out, mut seed) = (Burst::new(), 0, 1_u64);
        for round in 0..3000_usize {
            let mut bytes = vec![0; 15 + round % 1500];
            pattern(seed, 0, &mut bytes);
            seed = seed.wrapping_mul(31).wrapping_add(round as u64);
            if round % 3 > 0 {
                bytes[..6].copy_from_slice(&NEAR);
                bytes[12..14].copy_from_slice(if round % 3 == 1 { &[8, 0] } else { &[0x86, 0xdd] });
            }
            if round % 5 > 0 {
                bytes[14] = if round % 3 == 1 { 0x45 } else { 0x60 };
            }
            if round % 3 == 1 && bytes.len() >= 34 {
                fix_checksum(&mut bytes[14..34]);
            }
            injector.send(&bytes);
            near.rx(&mut pool, &mut burst).unwrap();
            for packet in burst.as_slice() {
                assert!(matches!(packet.data()[0] >> 4, 4 | 6) && packet.len() <= 1500);
                out += 1;
            }
            burst.release(&mut pool);
        }
        assert!(out > 1000, "{out}: {:?}", near.counters());
        drop((near, steering, pool));
        nothing_is_lost(arena);
    }
}

#[test]
fn what_is_not_taken_reaches_the_kernel_and_all_of_it_afterwards() {
    or_skip!(usable());
    let [a, b] = or_skip!(cable(1500));
    a.ip("addr add 10.0.0.1/24 dev near");
    b.ip("addr add 10.0.0.2/24 dev far");
    let ping = |to: &'static str| {
        b.run(move || {
            Command::new("ping").args(["-c1", "-W2", to]).output().unwrap().status.success()
        })
    };
    let arena = arena();
    let mut pool = arena.pool();
    let mut take = forwarded(NEAR);
    take.what = What::Forwarded { except: vec![ip("10.0.0.1")] };
    let (mut near, steering) =
        port(&a, "near", arena, Mode::Native, (take, all_at(NEAR, FAR, &[])));
    // ARP and the echo request are the kernel's.
    assert!(ping("10.0.0.1"));
    assert_eq!(near.rx(&mut pool, &mut Burst::new()).unwrap(), 0);
    let injector = Injector::new(&b, "far");
    let packet = |to: &str| ip_packet(ip("10.0.0.2"), ip(to), 50, 0, true, &esp(1, 1, 100));
    assert!(injector.send(&frame(&packet("10.0.0.1"))));
    assert!(injector.send(&frame(&packet("10.0.0.7"))));
    assert_eq!(receive(&mut near, &mut pool, 1), [packet("10.0.0.7")]);
    steering.update(&forwarded(NEAR)).unwrap();
    assert!(injector.send(&frame(&packet("10.0.0.1"))));
    assert_eq!(receive(&mut near, &mut pool, 1), [packet("10.0.0.1")]);
    // A second program does not take the place of the first.
    let (board, _asks) = board(all_at(NEAR, FAR, &[]));
    let config = Config::new(interface(&a, "near"), forwarded(NEAR), board, arena);
    let refused = a.run(move || open(&config)).unwrap_err();
    assert!(refused.to_string().starts_with("cannot attach the xdp program"), "{refused}");
    assert!(!ping("10.0.0.1"));
    drop((near, steering));
    assert!(ping("10.0.0.1"));
    drop(pool);
    nothing_is_lost(arena);
}

#[test]
fn the_interface_is_free_again_while_a_child_still_has_every_descriptor() {
    or_skip!(usable());
    let [a, _b] = or_skip!(cable(1500));
    let arena = arena();
    let sees = || (forwarded(NEAR), all_at(NEAR, FAR, &[]));
    let (first, steering) = port(&a, "near", arena, Mode::Generic, sees());
    // SAFETY: the child calls nothing but `pause`.
    let child = match unsafe { nix::unistd::fork() }.unwrap() {
        ForkResult::Child => loop {
            // SAFETY: takes nothing, and is safe in the child of a process with threads.
            unsafe { libc::pause() };
        },
        ForkResult::Parent { child } => child,
    };
    drop(steering);
    let (board, _asks) = board(all_at(NEAR, FAR, &[]));
    let config = Config::new(interface(&a, "near"), forwarded(NEAR), board, arena);
    let again = a.run(move || open(&config).map(drop));
    kill(child, Signal::SIGKILL).unwrap();
    waitpid(child, None).unwrap();
    drop(first);
    let (_port, _steering) = port(&a, "near", arena, Mode::Generic, sees());
    // The sockets are still the first port's, as far as the kernel knows.
    let error = again.unwrap_err().to_string();
    assert!(error.starts_with("cannot bind an xdp socket"), "{error}");
}

#[test]
fn several_workers_and_queues_share_the_packets() {
    or_skip!(usable());
    for workers in [1, 2_u16] {
        let [a, b] = or_skip!((|| Ok::<_, String>([Namespace::new()?, Namespace::new()?]))());
        plug_with(&a, "near", &b, "far", 1500, 2);
        b.ip("addr add 10.0.0.2/24 dev far");
        a.ip("link set near up");
        b.ip("link set far up");
        b.ip("route add 10.9.0.0/16 via 10.0.0.1");
        b.ip("neigh replace 10.0.0.1 lladdr 02:00:00:00:00:01 dev far");
        let arena = arena();
        let mut pool = arena.pool();
        let more = |config| Config { workers, ..config };
        let sees = (forwarded(NEAR), all_at(NEAR, FAR, &[]));
        let (mut near, _steering, _board) = ports(&a, "near", arena, more, sees);
        assert_eq!(near.len(), usize::from(workers));
        for port in &mut near {
            assert_eq!(port.rx(&mut pool, &mut Burst::new()).unwrap(), 0);
        }
        // Flows go by different queues.
        b.run(|| {
            for port in 0..200_u16 {
                let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
                socket.send_to(&[1], ("10.9.0.1", 1000 + port)).unwrap();
            }
        });
        let mut seen: Vec<usize> = vec![0; near.len()];
        let mut burst = Burst::new();
        let begun = std::time::Instant::now();
        while seen.iter().sum::<usize>() < 200 && begun.elapsed().as_secs() < 20 {
            for (port, seen) in near.iter_mut().zip(&mut seen) {
                port.rx(&mut pool, &mut burst).unwrap();
                *seen += burst.len();
                burst.release(&mut pool);
            }
        }
        assert_eq!(seen.iter().sum::<usize>(), 200, "{seen:?}");
        drop((near, pool));
        nothing_is_lost(arena);
    }
}

#[test]
fn errors_say_what_would_be_right() {
    or_skip!(usable());
    let [a, _b] = or_skip!(cable(9000));
    let (board, _asks) = board(all_at(NEAR, FAR, &[]));
    let refused = |change: &dyn Fn(Config) -> Config| {
        let config = Config::new(interface(&a, "near"), forwarded(NEAR), board.clone(), arena());
        let config = change(config);
        a.run(move || open(&config)).unwrap_err().to_string()
    };
    assert_eq!(
        refused(&|config| config),
        "af_xdp cannot receive packets of 9000 bytes into frames of 4096: set the MTUs of all \
         interfaces and paths to at most 3506"
    );
    let large = || Arena::map(8, FrameSize::for_packet(9000)).unwrap();
    assert!(refused(&|config| Config { arena: large(), ..config }).contains("frames of 16384"));
    a.ip("link set near mtu 1500");
    assert_eq!(
        refused(&|config| Config { workers: 2, ..config }),
        "the interface has 1 receive queue(s) for 2 workers: give it more (ethtool -L NAME combined \
         2) or use fewer workers"
    );
}
