//! The XFRM socket: what applications see, who may use it, and what hostile ones achieve.

mod databases;
mod golden;
mod kernel;
mod load;
mod peer;
mod programs;
mod recorded;

use std::io::Write;
use std::net::UdpSocket;
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, Once};

use convoy_control::xfrm::{Multicast, Server, SocketError};
use convoy_wire::Spi;
use convoy_xfrm::{
    Action, Address, Addresses, AllocSpi, Datagram, Errno, Flags, FlushSa, Group, Limits, Mode,
    Network, Policy, PolicyDirection, PolicyInfo, ProtocolFilter, Reply, Request, Sa, SaDump,
    SaProtocol, SaQuery, Selector, Share, Usage,
};

use databases::Databases;
use peer::{BIND, MARK, MEMBERSHIP, OPTION, Peer, STEER, as_bytes, count, message, until};

/// A server with databases behind it.
struct Running {
    databases: Arc<Databases>,
    multicast: Multicast,
    server: Server,
    folder: tempfile::TempDir,
}

impl Running {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (databases, multicast) = (Arc::<Databases>::default(), Multicast::new().unwrap());
        let path = folder.path().join("run/xfrm.sock");
        let server = Server::start(&path, databases.clone(), multicast.clone()).unwrap();
        Self { databases, multicast, server, folder }
    }

    fn path(&self) -> &Path {
        self.server.path()
    }

    fn peer(&self) -> Peer {
        Peer::bound(self.path(), 77, 0)
    }

    /// Does something while the server's thread waits for its service.
    fn while_busy(&self, action: impl FnOnce()) {
        let asking = self.peer();
        let before = self.databases.requests.load(SeqCst);
        let policies = self.databases.policies();
        asking.send(&as_bytes(&Request::GetSpdInfo(Default::default()), 1, Flags::default()));
        until("it waits", || self.databases.requests.load(SeqCst) > before);
        action();
        drop(policies);
        assert!(matches!(asking.next().1, Reply::NewSpdInfo(_)));
    }

    /// Tells those who listen for expiries something with this number.
    fn emit(&self, seq: u32) {
        self.multicast.send(Group::Expire, event(seq));
    }
}

fn event(seq: u32) -> Datagram {
    let flush = FlushSa { protocol: ProtocolFilter(50), ..FlushSa::default() };
    Reply::FlushSa(flush).build(Address { seq, ..Address::default() }).unwrap()
}

fn allocation(spi: u32) -> AllocSpi {
    AllocSpi {
        destination: [192, 0, 2, 1].into(),
        source: [192, 0, 2, 9].into(),
        protocol: SaProtocol::Esp,
        mode: Mode::Tunnel,
        seq: 0,
        reqid: spi,
        min: spi,
        max: spi,
        mark: Default::default(),
        if_id: 0,
        direction: None,
        cpu: None,
        others: Default::default(),
    }
}

/// An SA that holds an SPI, and needs no key.
fn sa(spi: u32) -> Sa {
    allocation(spi).larval(Spi::new(spi), 0, 0)
}

fn policy(number: u32) -> Policy {
    let [a, b, c, d] = number.to_be_bytes();
    let network = |address: [u8; 4]| Network { address: address.into(), prefix_len: 32 };
    let (source, destination) = (network([10 | a, b, c, d]), network([192, 0, 2, 1]));
    let addresses = Addresses::Networks { source, destination };
    let info = PolicyInfo {
        selector: Selector { addresses, ..Selector::ANY },
        limits: Limits::NONE,
        usage: Usage::default(),
        priority: 5,
        index: 0,
        direction: PolicyDirection::Out,
        action: Action::Allow,
        flags: 0,
        share: Share::Any,
    };
    Policy {
        info,
        templates: Vec::new(),
        security: None,
        policy_type: None,
        mark: Default::default(),
        if_id: 0,
        offload: None,
        others: Default::default(),
    }
}

fn allocate(spi: u32) -> Request {
    Request::AllocSpi(Box::new(allocation(spi)))
}

fn delete(spi: u32) -> Request {
    Request::DelSa(SaQuery { key: sa(spi).key(), others: Default::default() })
}

/// All that is logged by this process.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn log() -> String {
    static LOG: Mutex<Option<Log>> = Mutex::new(None);
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let log = Log::default();
        *LOG.lock().unwrap() = Some(log.clone());
        let subscriber = tracing_subscriber::fmt().with_ansi(false);
        subscriber.with_writer(move || log.clone()).init();
    });
    let log = LOG.lock().unwrap().clone().unwrap();
    let bytes = log.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn the_socket_is_its_owners_and_goes_with_the_server() {
    let running = Running::new();
    let path = running.path().to_owned();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let again = Server::start(&path, running.databases.clone(), running.multicast.clone());
    assert!(matches!(again.unwrap_err(), SocketError::InUse(_)));
    let peer = running.peer();
    assert_eq!(peer.counts(1), 0);
    let Running { server, folder, databases, multicast } = running;
    drop(server);
    assert!(peer.is_over());
    assert_eq!(std::fs::read_dir(folder.path().join("run")).unwrap().count(), 0);
    let server = Server::start(&path, databases, multicast).unwrap();
    assert_eq!(Peer::new(&path).counts(1), 0);
    drop(server);
}

#[test]
fn others_than_root_and_the_owner_are_refused_and_named() {
    let _ = log();
    let running = Running::new();
    let path = running.path().to_owned();
    // As if the path's mode did not keep them away.
    for (path, mode) in [(&path, 0o666), (&running.folder.path().to_owned(), 0o755)] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: another user: only root can become one");
        return;
    }
    std::thread::spawn(move || {
        let nobody = rustix::process::Uid::from_raw(65534);
        // Of this thread only.
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
        for _ in 0..20 {
            let peer = Peer::new(&path);
            let _ = peer.try_send(&as_bytes(&allocate(256), 1, Flags::ACK));
            assert!(peer.is_over());
        }
    })
    .join()
    .unwrap();
    assert_eq!(running.databases.requests.load(SeqCst), 0);
    let text = log();
    let named = format!("(pid {}) of user 65534", std::process::id());
    assert_eq!(text.matches(&named).count(), 1, "{text}");
    assert_eq!(running.peer().counts(1), 0);
    let client = running.databases.client.lock().unwrap().clone().unwrap();
    assert_eq!((client.pid as u32, client.uid), (std::process::id(), 0));
    let name = std::fs::read_to_string("/proc/self/comm").unwrap();
    assert_eq!(&*client.command, name.trim());
}

#[test]
fn answers_have_the_port_and_words_that_were_asked_for() {
    let running = Running::new();
    let peer = Peer::new(running.path());
    let mut asked = as_bytes(&count(), 1, Flags::default());
    let port_of = |peer: &Peer| u32::from_ne_bytes(peer.receive()[12..16].try_into().unwrap());
    asked[12] = 5;
    peer.send(&asked);
    assert_eq!(port_of(&peer), 5, "before there is an address, the sender's");
    peer.tell(BIND, &[1, 4711, 0, 0]);
    peer.send(&asked);
    assert_eq!(port_of(&peer), 4711);
    // How much of the request comes back, and whether words do.
    let refused = as_bytes(&Request::Migrate, 2, Flags::default());
    let lens: Vec<usize> = [(9, 1), (10, 1), (11, 1), (10, 0), (11, 0)]
        .into_iter()
        .map(|(number, on)| {
            peer.tell(OPTION, &[number, on]);
            peer.send(&refused);
            peer.receive().len()
        })
        .collect();
    let (whole, words) = (20 + refused.len(), 4 + "not in these tests".len() + 1 + 1);
    assert_eq!(lens, [whole, 36, 36 + words, whole + words, whole]);
}

#[test]
fn events_come_before_the_answer_and_only_to_those_who_joined() {
    let running = Running::new();
    let (owner, other) = (running.peer(), running.peer());
    owner.tell(MEMBERSHIP, &[3, 1]);
    let added = owner.ask(9, &Request::NewSa(Box::new(sa(256)))).unwrap_err();
    assert_eq!(added, Errno::EINVAL, "it has no algorithms");
    owner.ask(10, &allocate(256)).unwrap();
    let told = owner.ask(11, &delete(256)).unwrap();
    assert!(matches!(told[..], [Reply::DelSa(_)]), "{told:?}");
    owner.tell(MEMBERSHIP, &[3, 0]);
    owner.ask(12, &allocate(256)).unwrap();
    assert!(owner.ask(13, &delete(256)).unwrap().is_empty());
    assert!(!other.is_readable(0));
    // A new address leaves and joins as well.
    other.tell(BIND, &[1, 5, Group::Expire.bit(), 0]);
    assert_eq!(other.counts(1), 0);
    running.emit(21);
    assert_eq!(other.next().0, 21);
    other.tell(BIND, &[1, 5, 0, 0]);
    assert_eq!(other.counts(2), 0);
    running.emit(22);
    assert_eq!(running.peer().counts(1), 0);
    assert!(!other.is_readable(20));
    // What is sent from elsewhere while a request is carried out counts as its event.
    *running.databases.multicast.lock().unwrap() = Some(running.multicast.clone());
    owner.tell(MEMBERSHIP, &[2, 1]);
    for seq in 0..200 {
        let told = owner.ask(seq, &count()).unwrap();
        assert!(matches!(told[..], [Reply::FlushSa(_), Reply::NewSadInfo(_)]), "{told:?}");
    }
}

#[test]
fn events_between_two_servers_are_told_as_lost() {
    let running = Running::new();
    let listening = Peer::new(running.path());
    listening.tell(BIND, &[1, 4711, 2, 1]);
    let overrun = message(4, 1, 0, &[]);
    let heard = listening.receive();
    assert_eq!((&heard[..12], &heard[12..]), (&overrun[..12], &4711_u32.to_ne_bytes()[..]));
    running.emit(1);
    assert_eq!(listening.next().0, 1);
    let silent = Peer::new(running.path());
    silent.tell(BIND, &[1, 4712, 0, 1]);
    assert_eq!(silent.counts(1), 0);
}

#[test]
fn the_mark_that_exempts_sockets_is_told_to_who_asks() {
    let running = Running::new();
    let peer = Peer::new(running.path());
    peer.send(&message(MARK, 1, 0, &[]));
    let told = message(MARK, 1, 0, &[0xc500_0000, 0xff00_0000]);
    assert_eq!(peer.receive(), told);
    // Before and behind other messages.
    peer.send(&message(BIND, 1, 0, &[1, 7, 0, 0]));
    peer.send(&message(MARK, 1, 0, &[]));
    assert_eq!(peer.receive()[16..], told[16..]);
    peer.send(&message(MARK, 1, 0, &[1]));
    assert!(peer.receive().is_empty(), "one of another version ends");
}

#[test]
fn sockets_are_handed_over() {
    let running = Running::new();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = udp.local_addr().unwrap().port();
    let steer = |encap: u32, with: bool| {
        let peer = Peer::new(running.path());
        let message = message(STEER, 1, 0, &[encap]);
        if with {
            // More than one is of no use.
            peer.hand_over(&message, &[udp.as_fd(); 3]);
        } else {
            peer.send(&message);
        }
        match peer.next().1 {
            Reply::Acknowledgement(ack) => ack.refusal.map(|refusal| refusal.errno),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(steer(2, true), None);
    assert_eq!(steer(0, true), None);
    assert_eq!(steer(7, true), Some(Errno::ENOPROTOOPT));
    assert_eq!(*running.databases.steered.lock().unwrap(), [(port, 2), (port, 0), (port, 7)]);
    assert_eq!(steer(2, false), Some(Errno(9)));
    // Descriptors that nobody asked for are closed.
    let peer = running.peer();
    let (ours, theirs) = std::io::pipe().unwrap();
    for seq in 1..200 {
        peer.hand_over(&as_bytes(&count(), seq, Flags::ACK), &[theirs.as_fd(); 8]);
        while !matches!(peer.next(), (at, Reply::Acknowledgement(_)) if at == seq) {}
    }
    drop(theirs);
    assert_eq!(std::io::Read::read(&mut &ours, &mut [0]).unwrap(), 0);
}

#[test]
fn what_no_library_says_ends_the_connection() {
    let running = Running::new();
    let ends = |bytes: &[u8]| {
        let peer = running.peer();
        peer.send(bytes);
        peer.is_over()
    };
    assert!(ends(&[]), "an empty datagram");
    assert!(ends(&message(BIND, 1, 0, &[2, 1, 0, 0])), "another version");
    assert!(ends(&message(BIND, 1, 0, &[1])), "half an address");
    assert!(ends(&vec![0; (1 << 16) + 1]), "more than is taken");
    let full = message(0x23, 5, 1, &[0; (1 << 14) - 4]);
    let peer = running.peer();
    peer.send(&full);
    assert!(matches!(peer.next().1, Reply::NewSadInfo(_)), "the longest that is taken");
}

#[test]
fn what_was_asked_before_the_end_is_done() {
    let running = Running::new();
    for round in 0..20 {
        let peer = running.peer();
        peer.tell(MEMBERSHIP, &[3, 1]);
        let spis = 1000 + 20 * round..1020 + 20 * round;
        spis.for_each(|spi| peer.send(&as_bytes(&allocate(spi), 1, Flags::ACK)));
        // Answers are left unread.
        drop(peer);
    }
    until("done", || running.databases.sas().len() == 400);
    // All of it while the server is elsewhere, so that it reads first and has an answer unread.
    let peer = running.peer();
    assert!(peer.ask(1, &allocate(2000)).is_ok());
    peer.send(&as_bytes(&allocate(2001), 2, Flags::ACK));
    assert!(peer.is_readable(30_000));
    running.while_busy(|| {
        (2002..2040).for_each(|spi| peer.send(&as_bytes(&allocate(spi), 3, Flags::ACK)));
        drop(peer);
    });
    until("done", || running.databases.sas().len() == 440);
    assert_eq!(running.peer().counts(1), 440);
}

#[test]
fn dumps_end_and_requests_behind_them_are_answered_after_them() {
    let running = Running::new();
    let peer = running.peer();
    (0..300).for_each(|spi| assert!(peer.ask(1, &allocate(1000 + spi)).is_ok()));
    let dump = as_bytes(&Request::DumpSa(SaDump::default()), 2, Flags::ACK);
    let question = as_bytes(&count(), 3, Flags::default());
    peer.send(&[dump.clone(), question].concat());
    peer.send(&dump);
    for multi in [true, false, true] {
        let Reply::NewSadInfo(info) = (if multi {
            for _ in 0..300 {
                let bytes = peer.receive();
                assert_eq!((bytes[4], bytes[6], bytes[8], bytes[12]), (0x10, 2, 2, 77));
            }
            let done = peer.receive();
            assert_eq!((done.len(), done[4], done[6], done[8]), (20, 3, 2, 2));
            continue;
        } else {
            peer.next().1
        }) else {
            panic!()
        };
        assert_eq!(info.count, 300);
    }
    assert!(!peer.is_readable(20));
}

#[test]
fn there_is_a_last_connection() {
    let running = Running::new();
    let mut all: Vec<Peer> = Vec::new();
    let path: PathBuf = running.path().to_owned();
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    if limit.current.is_some_and(|limit| limit < 2500) {
        println!("SKIPPED: too many connections: the limit of open files is too low");
        return;
    }
    let is_served =
        |peer: &Peer| peer.try_send(&as_bytes(&count(), 1, Flags::default())) && !peer.is_over();
    for _ in 0..1024 {
        all.push(Peer::new(&path));
    }
    assert!(all.iter().all(is_served));
    assert!(!is_served(&Peer::new(&path)));
    drop(all.pop());
    until("there is room again", || is_served(&Peer::new(&path)));
    assert!(all.iter().all(is_served));
}

/// As a kernel ignores them, and says so.
#[test]
fn bytes_behind_the_attributes_of_a_request_are_told_once() {
    let _ = log();
    let running = Running::new();
    let peer = running.peer();
    let whole = as_bytes(&count(), 1, Flags::ACK);
    let told = || log().matches("bytes behind the last attribute").count();
    for end in [&[][..], &[4, 0, 27, 0]] {
        let mut request = [&whole[..], end].concat();
        request[0] += end.len() as u8;
        peer.send(&request);
        assert!(matches!(peer.next().1, Reply::NewSadInfo(_)));
        assert!(matches!(peer.next().1, Reply::Acknowledgement(_)));
    }
    assert_eq!(told(), 0, "{}", log());
    let mut torn = [&whole[..], &[9, 0, 27, 0, 7]].concat();
    torn[0] += 5;
    for _ in 0..20 {
        peer.send(&torn);
        assert!(matches!(peer.next().1, Reply::NewSadInfo(_)));
        assert!(matches!(peer.next().1, Reply::Acknowledgement(_)));
    }
    let pid = std::process::id();
    let line = format!("(pid {pid}): 5 bytes behind the last attribute of a GETSADINFO request");
    assert_eq!((told(), log().matches(&line).count()), (1, 1), "{}", log());
}
