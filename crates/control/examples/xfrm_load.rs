//! Loads tunnels into a running gateway as an IKE daemon does, one request after another, and says how
//! long that took. `xfrm_load SOCKET TUNNELS [flush]`; each tunnel is two SAs and three policies.
//!
//! Run it against a gateway of its own: `flush` takes all SAs and policies away again.

use std::error::Error;
use std::net::IpAddr;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use convoy_wire::Spi;
use convoy_xfrm::{
    Action, Addresses, Aead, AlgorithmName, AllocSpi, Failures, Flags, FlushPolicy, FlushSa, Key,
    Limits, Mark, Messages, Mode, Network, Others, Policy, PolicyDirection, PolicyInfo, Reply,
    Request, Sa, SaFlags, SaInfo, SaProtocol, Selector, Share, Template, Usage,
};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, send, socket,
};

const HERE: [u8; 4] = [192, 0, 2, 1];
const THERE: [u8; 4] = [192, 0, 2, 2];

struct Daemon {
    socket: OwnedFd,
    seq: u32,
}

impl Daemon {
    fn connect(path: &str) -> Result<Self, Box<dyn Error>> {
        let socket =
            socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)?;
        connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
        Ok(Self { socket, seq: 0 })
    }

    /// Asks, and waits for the last message that answers.
    fn ask(&mut self, request: &Request) -> Result<Option<Spi>, Box<dyn Error>> {
        self.seq += 1;
        let allocates = matches!(request, Request::AllocSpi(_));
        let flags = if allocates { Flags::default() } else { Flags::ACK };
        let asked = request.build(self.seq, flags);
        send(self.socket.as_raw_fd(), asked.as_bytes(), MsgFlags::MSG_NOSIGNAL)?;
        let mut buffer = [0; 4096];
        let count = recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
        let bytes = buffer.get(..count).unwrap_or_default();
        let message = Messages::new(bytes).next().ok_or("no answer")?;
        match Reply::parse(&message)? {
            Reply::NewSa(sa) => Ok(sa.info.spi),
            Reply::Acknowledgement(ack) => match ack.refusal {
                None => Ok(None),
                Some(refusal) => Err(refusal.into()),
            },
            _ => Err("not an answer".into()),
        }
    }
}

fn sa(n: u32, spi: Option<Spi>, outbound: bool) -> Option<Sa> {
    let (source, destination) = if outbound { (HERE, THERE) } else { (THERE, HERE) };
    let mut key = [u8::from(outbound); 20];
    key.iter_mut().zip(n.to_be_bytes()).for_each(|(to, from)| *to = from);
    let mut sa = Sa::new(SaInfo {
        selector: Selector::ANY,
        destination: destination.into(),
        source: source.into(),
        spi,
        protocol: SaProtocol::Esp,
        limits: Limits::NONE,
        usage: Usage::default(),
        failures: Failures::default(),
        seq: 0,
        reqid: n,
        mode: Mode::Tunnel,
        replay_window: 32,
        flags: SaFlags::AF_UNSPEC,
    });
    sa.transform = convoy_xfrm::Transform::Aead(Aead {
        name: AlgorithmName::new("rfc4106(gcm(aes))")?,
        key: Key::new(&key)?,
        icv_bits: 128,
    });
    Some(sa)
}

fn policy(n: u32, direction: PolicyDirection) -> Policy {
    let [_, a, b, c] = n.to_be_bytes();
    let far = Network { address: IpAddr::from([10, 128 | a, b, c]), prefix_len: 32 };
    let near = Network { address: IpAddr::from([10, 1, 0, 0]), prefix_len: 16 };
    let outbound = direction == PolicyDirection::Out;
    let (source, destination) = if outbound { (near, far) } else { (far, near) };
    let (from, to) = if outbound { (HERE, THERE) } else { (THERE, HERE) };
    let template = Template {
        protocol: SaProtocol::Esp,
        spi: None,
        source: from.into(),
        destination: to.into(),
        reqid: n,
        mode: Mode::Tunnel,
        share: Share::Any,
        optional: false,
        algorithms: [u32::MAX; 3],
    };
    Policy {
        info: PolicyInfo {
            selector: Selector {
                addresses: Addresses::Networks { source, destination },
                ..Selector::ANY
            },
            limits: Limits::NONE,
            usage: Usage::default(),
            priority: 375_423,
            index: 0,
            direction,
            action: Action::Allow,
            flags: 0,
            share: Share::Any,
        },
        templates: vec![template],
        security: None,
        policy_type: None,
        mark: Mark::default(),
        if_id: 0,
        offload: None,
        others: Others::default(),
    }
}

/// What charon asks for a CHILD_SA.
fn tunnel(daemon: &mut Daemon, n: u32) -> Result<(), Box<dyn Error>> {
    let spi = daemon.ask(&Request::AllocSpi(Box::new(AllocSpi {
        destination: HERE.into(),
        source: THERE.into(),
        protocol: SaProtocol::Esp,
        mode: Mode::Tunnel,
        seq: 0,
        reqid: n,
        min: 0xc000_0000,
        max: 0xcfff_ffff,
        mark: Mark::default(),
        if_id: 0,
        direction: None,
        cpu: None,
        others: Others::default(),
    })))?;
    let incomplete = "no such algorithm or key";
    daemon.ask(&Request::UpdSa(Box::new(sa(n, spi, false).ok_or(incomplete)?)))?;
    daemon.ask(&Request::NewSa(Box::new(sa(n, Spi::new(n + 4096), true).ok_or(incomplete)?)))?;
    for direction in [PolicyDirection::In, PolicyDirection::Forward, PolicyDirection::Out] {
        daemon.ask(&Request::NewPolicy(Box::new(policy(n, direction))))?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: xfrm_load SOCKET TUNNELS [flush]";
    let path = arguments.next().ok_or(usage)?;
    let tunnels: u32 = arguments.next().ok_or(usage)?.parse()?;
    let mut daemon = Daemon::connect(&path)?;
    let begin = Instant::now();
    let mut slowest = Duration::ZERO;
    for n in 1..=tunnels {
        let before = Instant::now();
        tunnel(&mut daemon, n)?;
        slowest = slowest.max(before.elapsed());
    }
    let took = begin.elapsed();
    println!(
        "{} SAs and {} policies in {:.2} s: {:.0} us a request, the slowest tunnel {:.1} ms",
        2 * tunnels,
        3 * tunnels,
        took.as_secs_f64(),
        took.as_secs_f64() * 1e6 / f64::from(6 * tunnels),
        slowest.as_secs_f64() * 1e3,
    );
    if arguments.next().is_some() {
        let begin = Instant::now();
        daemon.ask(&Request::FlushPolicy(FlushPolicy::default()))?;
        daemon.ask(&Request::FlushSa(FlushSa::default()))?;
        println!("flushed in {:.2} s", begin.elapsed().as_secs_f64());
    }
    Ok(())
}
