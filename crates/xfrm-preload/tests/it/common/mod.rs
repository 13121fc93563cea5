//! A server of the test's own behind the library, and programs to run on top of it.

// Not as a part of the crate: linked into a test, its functions would stand before libc's there, too.
#[allow(unreachable_pub)]
#[allow(dead_code, reason = "tests use a part of it")]
#[path = "../../../src/wire.rs"]
mod wire;

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use convoy_xfrm::{
    AckOptions, Acknowledgement, Address, Errno, Flags, Group, Message, Messages, Policy, Refusal,
    Reply, Request, Sa, SadInfo,
};
use nix::cmsg_space;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessageOwned, MsgFlags, Shutdown, SockFlag, SockType, UnixAddr,
    accept4, bind, listen, recvmsg, send, sendmsg, shutdown, socket,
};

/// The library, as cargo built it for these tests.
pub(crate) fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().unwrap();
    let library = folder.join("libconvoy_xfrm_preload.so");
    assert!(library.exists(), "{} is not there", library.display());
    library
}

/// Compiles the client; `None` without a C compiler.
pub(crate) fn client(folder: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/client/client.c");
    let program = folder.join("client");
    let compiled = Command::new("cc")
        .args(["-O2", "-Wall", "-Werror", "-pthread", "-o"])
        .args([&program, &source])
        .status();
    match compiled {
        Ok(status) => {
            assert!(status.success(), "the client does not compile");
            Some(program)
        }
        Err(error) => {
            println!("SKIPPED: no C compiler: {error}");
            None
        }
    }
}

/// The kernel's own netlink sockets, where a program may use them: `None` if namespaces are refused.
pub(crate) fn in_namespace(program: &Path) -> Option<Command> {
    for arguments in [&["-n"][..], &["-rn"]] {
        let probe = Command::new("unshare").args(arguments).arg("true").output();
        if probe.is_ok_and(|output| output.status.success()) {
            let mut command = Command::new("unshare");
            command.args(arguments).arg(program);
            return Some(command);
        }
    }
    println!("SKIPPED: no namespace to ask the kernel in");
    None
}

/// A program on top of the library.
pub(crate) fn preloaded(program: impl AsRef<std::ffi::OsStr>, socket: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", library()).env(wire::SOCKET_VARIABLE, socket);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A program that ends with its test, however that ends.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}{errors}", output.status);
    text
}

/// Waits until something is so.
pub(crate) fn until(what: &str, mut is: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < Duration::from_secs(30), "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Message from the library to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Bind {
        port: u32,
        groups: u32,
        resumed: bool,
    },
    Membership {
        group: u32,
        joins: bool,
    },
    Option {
        number: u32,
        value: u32,
    },
    /// The value of `UDP_ENCAP`, and the port of the socket that came along.
    Steer {
        value: u32,
        port: u16,
    },
}

struct Client {
    connection: OwnedFd,
    port: u32,
    groups: u32,
    options: AckOptions,
}

#[derive(Default)]
struct State {
    clients: Vec<Client>,
    sas: Vec<Sa>,
    policies: Vec<Policy>,
    told: Vec<Told>,
    requests: usize,
    /// Mark that exempts sockets from policies, if it is another one than usual.
    mark: Option<[u32; 2]>,
    /// So many questions for it are not answered.
    ignored: usize,
    /// It does not know this question.
    is_old: bool,
}

/// A server in a kernel's place, as far as these tests need one.
pub(crate) struct Server {
    state: Arc<Mutex<State>>,
    stop: Arc<AtomicBool>,
    /// It serves, and gives the socket back that it listened on.
    thread: Option<JoinHandle<OwnedFd>>,
    path: PathBuf,
}

impl Server {
    pub(crate) fn start(path: &Path) -> Self {
        Self::with(path, false, None)
    }

    /// A server of another user, which only root can make.
    pub(crate) fn of_user(path: &Path, user: u32) -> Self {
        Self::with(path, false, Some(user))
    }

    /// A server that answers nothing.
    pub(crate) fn mute(path: &Path) -> Self {
        Self::with(path, true, None)
    }

    fn with(path: &Path, mute: bool, user: Option<u32>) -> Self {
        let flags = SockFlag::SOCK_CLOEXEC;
        let listener = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).unwrap();
        bind(listener.as_raw_fd(), &UnixAddr::new(path).unwrap()).unwrap();
        // Who listens is who called this, whoever serves later.
        let begin = || {
            user.into_iter().for_each(become_user);
            listen(&listener, Backlog::new(64).unwrap()).unwrap();
        };
        std::thread::scope(|scope| scope.spawn(begin).join().unwrap());
        let state = Arc::new(Mutex::new(State::default()));
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let (state, stop) = (state.clone(), stop.clone());
            move || {
                serve(&listener, &state, &stop, mute);
                listener
            }
        });
        Self { state, stop, thread: Some(thread), path: path.to_owned() }
    }

    /// A server whose mark for sockets that are exempt is this one.
    pub(crate) fn marked(path: &Path, mark: [u32; 2]) -> Self {
        let server = Self::start(path);
        server.state.lock().unwrap().mark = Some(mark);
        server
    }

    /// Changes its mark, and has it miss so many questions for it.
    pub(crate) fn mark(&self, mark: [u32; 2], ignored: usize) {
        let mut state = self.state.lock().unwrap();
        (state.mark, state.ignored) = (Some(mark), ignored);
    }

    /// A server that does not know what mark exempts sockets.
    pub(crate) fn old(path: &Path) -> Self {
        let server = Self::start(path);
        server.state.lock().unwrap().is_old = true;
        server
    }

    pub(crate) fn told(&self) -> Vec<Told> {
        self.state.lock().unwrap().told.clone()
    }

    pub(crate) fn requests(&self) -> usize {
        self.state.lock().unwrap().requests
    }

    /// Sends a flush of the SAs with this number to all who listen for expiries.
    pub(crate) fn emit(&self, seq: u32) {
        let others = convoy_xfrm::Others::default();
        let flush = convoy_xfrm::FlushSa { protocol: convoy_xfrm::ProtocolFilter(50), others };
        let event = Reply::FlushSa(flush).build(Address { seq, ..Address::default() }).unwrap();
        let state = self.state.lock().unwrap();
        for client in &state.clients {
            if client.groups & Group::Expire.bit() != 0 {
                send(client.connection.as_raw_fd(), event.as_bytes(), MsgFlags::MSG_DONTWAIT)
                    .unwrap();
            }
        }
    }
}

/// Makes this thread, and no other, that of another user.
fn become_user(user: u32) {
    // SAFETY: takes numbers only.
    let result = unsafe { libc::syscall(libc::SYS_setresuid, user, user, user) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// As when it is killed: all its descriptors are closed, the path stays.
impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
        let served = self.thread.take().unwrap().join();
        // Processes that were just started may still have copies of the descriptors.
        if let Ok(state) = self.state.lock() {
            for client in &state.clients {
                let _ = shutdown(client.connection.as_raw_fd(), Shutdown::Both);
            }
        }
        if let Ok(listener) = &served {
            end_waiting(listener);
        }
        // A second panic would hide what the first one says.
        if !std::thread::panicking() {
            drop(served.unwrap());
            std::fs::remove_file(&self.path).unwrap();
        }
    }
}

/// Ends the connections that nobody accepted yet: a copy of the listening socket would keep them open.
fn end_waiting(listener: &OwnedFd) {
    let waits = || {
        let mut entry = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        poll(&mut entry, PollTimeout::ZERO) == Ok(1)
    };
    while waits() {
        let Ok(fd) = accept4(listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC) else { return };
        let _ = shutdown(fd, Shutdown::Both);
        // SAFETY: the descriptor is new.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
    }
    // Who connects now is refused.
    let _ = shutdown(listener.as_raw_fd(), Shutdown::Both);
}

fn serve(listener: &OwnedFd, state: &Mutex<State>, stop: &AtomicBool, mute: bool) {
    while !stop.load(SeqCst) {
        let mut state = state.lock().unwrap();
        let ready: Vec<bool> = {
            let mut entries = vec![PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
            entries.extend(
                state.clients.iter().map(|c| PollFd::new(c.connection.as_fd(), PollFlags::POLLIN)),
            );
            poll(&mut entries, PollTimeout::from(1_u8)).unwrap();
            entries.iter().map(|entry| entry.any().unwrap()).collect()
        };
        for at in (0..state.clients.len()).rev().filter(|at| ready[at + 1]) {
            if !state.hear(at, mute) {
                state.clients.remove(at);
            }
        }
        if ready[0] {
            let fd = accept4(listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC).unwrap();
            // SAFETY: the descriptor is new.
            let connection = unsafe { OwnedFd::from_raw_fd(fd) };
            let options = AckOptions::default();
            state.clients.push(Client { connection, port: 0, groups: 0, options });
        }
        drop(state);
        std::thread::yield_now();
    }
}

impl State {
    /// Reads a datagram; `false` at the end of the connection.
    fn hear(&mut self, at: usize, mute: bool) -> bool {
        let mut bytes = vec![0; 1 << 16];
        let mut rights = cmsg_space!(std::os::fd::RawFd);
        let fd = self.clients[at].connection.as_raw_fd();
        let (len, passed) = {
            let mut parts = [IoSliceMut::new(&mut bytes)];
            let Ok(received) =
                recvmsg::<()>(fd, &mut parts, Some(&mut rights), MsgFlags::MSG_CMSG_CLOEXEC)
            else {
                return false;
            };
            let passed = received.cmsgs().unwrap().find_map(|message| match message {
                ControlMessageOwned::ScmRights(fds) => fds.first().copied(),
                _ => None,
            });
            // SAFETY: the descriptor is new.
            let passed = passed.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
            (received.bytes, passed)
        };
        for message in Messages::new(&bytes[..len]) {
            let control = wire::BIND..if self.is_old { wire::MARK } else { wire::FIRST_XFRM_TYPE };
            if control.contains(&message.header().number) {
                self.obey(at, &message, passed.as_ref());
            } else {
                self.requests += 1;
                if !mute {
                    self.carry_out(at, &message);
                }
            }
        }
        len > 0
    }

    fn obey(&mut self, at: usize, message: &Message<'_>, passed: Option<&OwnedFd>) {
        let numbers: Vec<u32> = message.as_bytes()[wire::HEADER_LEN..]
            .chunks_exact(4)
            .map(|bytes| u32::from_ne_bytes(bytes.try_into().unwrap()))
            .collect();
        let client = &mut self.clients[at];
        let told = match (message.header().number, &numbers[..]) {
            (wire::BIND, &[wire::VERSION, port, groups, flags]) => {
                (client.port, client.groups) = (port, groups);
                let resumed = flags == wire::RESUMED;
                if resumed && groups != 0 {
                    let overrun = wire::Control::new(wire::OVERRUN, 0, &[]);
                    self.say(at, overrun.as_bytes());
                }
                Told::Bind { port, groups, resumed }
            }
            (wire::MEMBERSHIP, &[group, joins]) => {
                let bit = 1 << (group - 1);
                client.groups = if joins == 1 { client.groups | bit } else { client.groups & !bit };
                Told::Membership { group, joins: joins == 1 }
            }
            (wire::OPTION, &[number, value]) => {
                match number {
                    10 => client.options.capped = value == 1,
                    11 => client.options.extended = value == 1,
                    _ => {}
                }
                Told::Option { number, value }
            }
            (wire::STEER, &[value]) => {
                let socket = passed.unwrap().try_clone().unwrap();
                let port = std::net::UdpSocket::from(socket).local_addr().unwrap().port();
                self.say(at, &wire::refusal(0, 0, 0));
                Told::Steer { value, port }
            }
            (wire::MARK, &[]) if self.ignored > 0 => {
                self.ignored -= 1;
                return;
            }
            (wire::MARK, &[]) => {
                let mark = self.mark.unwrap_or([0xc500_0000, 0xff00_0000]);
                let answer = wire::Control::new(wire::MARK, 0, &mark);
                return self.say(at, answer.as_bytes());
            }
            other => panic!("not of the protocol: {other:?}"),
        };
        self.told.push(told);
    }

    fn say(&self, at: usize, bytes: &[u8]) {
        let fd = self.clients[at].connection.as_raw_fd();
        match sendmsg::<()>(fd, &[IoSlice::new(bytes)], &[], MsgFlags::MSG_NOSIGNAL, None) {
            // Whoever asked has gone, as a program may that is cancelled or that waited long.
            Err(nix::errno::Errno::EPIPE) => {}
            sent => drop(sent.unwrap()),
        }
    }

    fn carry_out(&mut self, at: usize, message: &Message<'_>) {
        let (port, options) = (self.clients[at].port, self.clients[at].options);
        let header = *message.header();
        let to = Address { seq: header.seq, port, multi: false };
        let multi = Address { multi: true, ..to };
        let outcome = match Request::parse(message) {
            Ok(Some(Request::NewSa(sa))) => {
                self.sas.push(*sa);
                Ok(())
            }
            Ok(Some(Request::NewPolicy(policy))) => {
                self.policies.push(*policy);
                Ok(())
            }
            Ok(Some(Request::DumpSa(_))) => {
                let answers: Vec<_> = self.sas.iter().map(|sa| sa.answer(false, multi)).collect();
                return self.dump(at, &answers, multi);
            }
            Ok(Some(Request::DumpPolicy)) => {
                let answers: Vec<_> =
                    self.policies.iter().map(|policy| policy.answer(false, multi)).collect();
                return self.dump(at, &answers, multi);
            }
            Ok(Some(Request::GetSadInfo(query))) => {
                let count = self.sas.len() as u32;
                let info = SadInfo { flags: query.flags, count, buckets: (8, 1 << 20) };
                let answer = Reply::NewSadInfo(info).build(to).unwrap();
                return self.say(at, answer.as_bytes());
            }
            Ok(Some(Request::FlushSa(_))) => {
                self.sas.clear();
                Ok(())
            }
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err(Refusal::new(Errno(libc::EOPNOTSUPP), "not in this test")),
            Err(refusal) => Err(refusal),
        };
        if outcome.is_err() || header.flags.any(Flags::ACK) {
            let answer = Acknowledgement::build(message, outcome.as_ref().copied(), port, options);
            self.say(at, answer.as_bytes());
        }
    }

    fn dump(&self, at: usize, answers: &[convoy_xfrm::Datagram], to: Address) {
        for answer in answers {
            self.say(at, answer.as_bytes());
        }
        let done = Reply::Done(None).build(to).unwrap();
        self.say(at, done.as_bytes());
    }
}
