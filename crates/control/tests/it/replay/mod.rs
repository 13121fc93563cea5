//! Requests of unmodified daemons, made again for thousands of tunnels over the real socket.

mod trace;

use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use convoy_control::xfrm::{
    Answer, Client, Cursor, Host, Kernel, Moment, Multicast, Server, Service, Setting,
};
use convoy_crypto::Cpu;
use convoy_engine::registry::Drivers;
use convoy_ipsec::clock::Now;
use convoy_ipsec::snapshot::{Published, Snapshot, Writer};
use convoy_ipsec::spd::SpdId;
use convoy_xfrm::{Address, Datagram, Flags, Messages, Refusal, Reply, Request, SaDump};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
};

use trace::{CHARON, Exchange, PLUTO, Trace, Tunnel};

/// The gateway of a trace, by its address.
#[derive(Debug)]
struct ThisHost(IpAddr);

impl Host for ThisHost {
    fn is_local(&self, address: IpAddr) -> bool {
        address == self.0
    }

    fn source_for(&self, _: IpAddr) -> Option<IpAddr> {
        Some(self.0)
    }
}

fn moment() -> Moment {
    Moment { unix_ns: 1_700_000_000_000_000_000, worker: Now(1_000_000_000) }
}

struct Databases(Mutex<(Kernel, Writer)>);

impl Service for Databases {
    fn answer(&self, client: &Client, request: Request, to: Address) -> Result<Answer, Refusal> {
        let (kernel, writer) = &mut *self.0.lock().unwrap();
        kernel.execute(writer, client, request, to, moment()).map(|done| done.answer)
    }

    fn dump(&self, cursor: &mut Cursor, to: Address, room: usize) -> Vec<Datagram> {
        self.0.lock().unwrap().0.dump(cursor, to, room, moment())
    }

    fn steer(&self, _: &Client, _: OwnedFd, _: u32) -> Result<(), Refusal> {
        Ok(())
    }
}

/// A kernel behind its socket, and what workers would see.
struct Running {
    databases: Arc<Databases>,
    published: Arc<Published>,
    server: Server,
    _folder: tempfile::TempDir,
}

impl Running {
    fn new(here: IpAddr) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let writer = Writer::new(Snapshot::default());
        let published = writer.published().clone();
        let setting = Setting {
            interfaces: Vec::new(),
            drivers: Drivers::new(&Cpu::detect().unwrap()),
            spd: SpdId::default(),
            workers: 2,
            worker_rules: Vec::new(),
            udp_port: 4500,
            wire_mtu: 1500,
            legacy: false,
        };
        let kernel = Kernel::new(setting, &published, Box::new(ThisHost(here))).unwrap();
        let databases = Arc::new(Databases(Mutex::new((kernel, writer))));
        let path = folder.path().join("xfrm.sock");
        let server = Server::start(&path, databases.clone(), Multicast::new().unwrap()).unwrap();
        Self { databases, published, server, _folder: folder }
    }

    /// SAs, and policies in, out and forward.
    fn counts(&self) -> (usize, [u32; 3]) {
        let (sas, policies) = self.databases.0.lock().unwrap().0.counts();
        (sas, [policies.inbound, policies.outbound, policies.forward])
    }
}

struct Daemon(OwnedFd);

impl Daemon {
    fn new(path: &Path) -> Self {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
        Self(socket)
    }

    fn send(&self, bytes: &[u8]) {
        assert_eq!(send(&self.0, bytes, SendFlags::NOSIGNAL), Ok(bytes.len()));
    }

    fn receive(&self) -> Vec<u8> {
        let mut entries = [PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::IN)];
        let patience = Timespec { tv_sec: 30, tv_nsec: 0 };
        assert!(poll(&mut entries, Some(&patience)).unwrap() > 0, "no answer");
        let mut bytes = vec![0; 1 << 16];
        let (count, _) = recv(&self.0, &mut bytes, RecvFlags::empty()).unwrap();
        bytes.truncate(count);
        bytes
    }

    /// Goes through a part of the trace.
    fn play(&self, tunnel: &mut Tunnel<'_>, part: &[Exchange]) {
        for exchange in part {
            let done = tunnel.ask(exchange, |asked| {
                self.send(asked);
                Ok(self.receive())
            });
            done.unwrap_or_else(|error| panic!("{error}"));
        }
    }

    /// Number of messages in a dump.
    fn dump(&self, request: &Request) -> usize {
        self.send(request.build(1, Flags::default()).as_bytes());
        let mut count = 0;
        loop {
            let bytes = self.receive();
            match Reply::parse(&Messages::new(&bytes).next().unwrap()).unwrap() {
                Reply::Done(None) => return count,
                Reply::NewSa(_) | Reply::NewPolicy(_) => count += 1,
                other => panic!("{other:?}"),
            }
        }
    }
}

fn report(what: &str, tunnels: &[Tunnel<'_>], took: Duration) {
    let each = took.as_secs_f64() * 1e6 / tunnels.len() as f64;
    println!("{} tunnels {what} in {:.2} s: {each:.0} us each", tunnels.len(), took.as_secs_f64());
}

/// Ten thousand tunnels of a daemon come, are shown, and go.
fn come_and_go(recorded: &'static str) {
    const COUNT: u32 = 10_000;
    let trace = Trace::read(recorded).unwrap();
    let running = Running::new(trace.here);
    let daemon = Daemon::new(running.server.path());
    let mut tunnels: Vec<_> =
        (0..COUNT).map(|number| Tunnel::new(&trace, number).unwrap()).collect();
    daemon.play(&mut tunnels[0], trace.part("start").unwrap());
    // Policies that the daemon makes before it has a tunnel.
    let (sas, first) = running.counts();
    assert_eq!(sas, 0);
    let shown = running.published.current().spd().len();
    let begin = Instant::now();
    let part = trace.part("tunnel 1 comes").unwrap();
    tunnels.iter_mut().for_each(|tunnel| daemon.play(tunnel, part));
    report("came", &tunnels, begin.elapsed());
    let count = COUNT as usize;
    assert_eq!(running.counts(), (2 * count, first.map(|policies| policies + COUNT)));
    assert_eq!(running.published.current().len(), (count, count));
    let policies = running.published.current().spd().len();
    assert_eq!(policies, shown + 3 * count, "in and fwd are apart");
    let begin = Instant::now();
    assert_eq!(daemon.dump(&Request::DumpSa(SaDump::default())), 2 * count);
    let policies = first.iter().sum::<u32>() as usize;
    assert_eq!(daemon.dump(&Request::DumpPolicy), policies + 3 * count);
    report("were shown", &tunnels, begin.elapsed());
    let begin = Instant::now();
    let part = trace.part("tunnel 1 goes").unwrap();
    tunnels.iter_mut().for_each(|tunnel| daemon.play(tunnel, part));
    report("went", &tunnels, begin.elapsed());
    assert_eq!(running.counts(), (0, first));
    assert!(running.published.current().is_empty());
    assert_eq!(running.published.current().spd().len(), shown);
}

#[test]
fn ten_thousand_tunnels_of_charon_come_and_go() {
    come_and_go(CHARON);
}

#[test]
fn ten_thousand_tunnels_of_pluto_come_and_go() {
    come_and_go(PLUTO);
}

/// Tunnels of a daemon get new keys. How many SAs each has then, outbound and inbound?
fn get_new_keys(recorded: &'static str, sas_each: (usize, usize)) {
    const COUNT: u32 = 1000;
    let trace = Trace::read(recorded).unwrap();
    let running = Running::new(trace.here);
    let daemon = Daemon::new(running.server.path());
    let mut tunnels: Vec<_> =
        (0..COUNT).map(|number| Tunnel::new(&trace, number).unwrap()).collect();
    for name in ["tunnel 2 comes", "tunnel 2 gets a new key"] {
        let begin = Instant::now();
        let part = trace.part(name).unwrap();
        tunnels.iter_mut().for_each(|tunnel| daemon.play(tunnel, part));
        report(name, &tunnels, begin.elapsed());
    }
    let count = COUNT as usize;
    let (outbound, inbound) = (sas_each.0 * count, sas_each.1 * count);
    assert_eq!(running.counts(), (outbound + inbound, [COUNT; 3]));
    assert_eq!(running.published.current().len(), (outbound, inbound));
}

/// Charon asks how they are, makes new SAs, and takes the old outbound ones away; inbound ones stay for a while.
#[test]
fn tunnels_of_charon_get_new_keys() {
    get_new_keys(CHARON, (1, 2));
}

/// Pluto makes new SAs and takes the old ones away once its peer has agreed.
#[test]
fn tunnels_of_pluto_get_new_keys() {
    get_new_keys(PLUTO, (1, 1));
}
