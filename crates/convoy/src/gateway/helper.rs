//! Work that a gateway leaves to a process that holds nothing else: it changes the owner of daemons' sockets, and opens
//! the kernel's log.
//!
//! Sockets share a port only if one user owns them, so the UDP socket of a daemon of another user becomes one of
//! the gateway's user. That takes `CAP_CHOWN`, by which any file becomes the gateway's. So a gateway does not
//! keep it: a process with nothing of the gateway in its memory gets sockets by a Unix socket, and takes over
//! what is a UDP socket. The start makes it where the gateway has the right at first; where it has not, as under
//! the unit, systemd makes it for whoever connects to [`SOCKET`]. It ends when its socket is closed.

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use convoy_control::site::Site;
use convoy_io::{IoError, udp};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::thread::{CapabilitySet, capabilities};

use crate::privileges;

/// The hidden verb of the process.
const VERB: &str = "helper";

/// Path at which systemd starts one for whoever connects.
const SOCKET: &str = "/run/convoy-helper.sock";

/// Longest time of an answer; on a busy machine, a start takes seconds.
const PATIENCE: Duration = Duration::from_secs(20);

/// An answer: 0, or an error number.
type Outcome = [u8; 4];

/// Process that does a part of a gateway's work, where there is one.
#[derive(Debug, Default)]
pub struct Helper(Mutex<Option<Process>>);

impl Helper {
    /// Starts the process, or connects to one, if the site needs what only that can do. The threads of a gateway do
    /// not exist yet.
    pub(crate) fn start(site: &Site) -> Self {
        let own = capabilities(None).map_or(CapabilitySet::empty(), |own| own.permitted);
        let process = match own.contains(CapabilitySet::CHOWN) {
            true if site.xfrm.is_none() => return Self::default(),
            true => Process::spawn().map(Some),
            false => Process::connect(),
        };
        Self(Mutex::new(process.inspect_err(cannot_share).ok().flatten()))
    }

    /// Waits until the process has given up what it does not need. A log that nobody has asked for is closed.
    pub(crate) fn settle(&self) {
        drop(self.kernel_log());
    }

    /// The kernel's log, if the process could open it. To be asked once.
    pub(crate) fn kernel_log(&self) -> Option<File> {
        let mut process = self.process();
        if let Some(Err(error)) = process.as_mut().map(Process::settle) {
            cannot_share(&error);
            *process = None;
        }
        process.as_mut().and_then(|process| process.log.take())
    }

    /// Lets a socket share its port with sockets of this process.
    ///
    /// # Errors
    /// Refuses what is no UDP socket, and one of another user if its owner cannot be changed.
    pub(super) fn make_shareable(&self, socket: BorrowedFd<'_>) -> Result<(), IoError> {
        udp::make_shareable(socket, &|socket| self.take_over(socket))
    }

    fn take_over(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let mut guard = self.process();
        let Some(process) = guard.as_mut() else {
            let owner = udp::owner_of(socket)?;
            let why = format!(
                "it belongs to user {owner}, and this gateway has no helper to change that: run the daemon as \
                 the gateway's user, or start the gateway with CAP_CHOWN or with convoy-helper.socket"
            );
            return Err(io::Error::new(ErrorKind::PermissionDenied, why));
        };
        let outcome = process.send(socket).and_then(|()| process.outcome());
        if outcome.is_err() && !process.answers {
            // What comes late would be taken for the answer to the next.
            *guard = None;
        }
        outcome
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn cannot_share(error: &io::Error) {
    tracing::warn!(%error, "cannot share UDP sockets of IKE daemons of other users");
}

/// The process, and the way to it.
#[derive(Debug)]
struct Process {
    stream: Option<UnixStream>,
    /// If it is a child of this one.
    child: Option<Child>,
    /// True if it has said that it gave up what it does not need, and if it answered the last time.
    is_settled: bool,
    answers: bool,
    log: Option<File>,
}

impl Process {
    fn new(stream: UnixStream, child: Option<Child>) -> io::Result<Self> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream: Some(stream), child, is_settled: false, answers: true, log: None })
    }

    fn spawn() -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("convoy").arg(VERB).env_clear().current_dir("/");
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
        Self::new(ours, Some(command.spawn()?))
    }

    /// Connects to one of systemd's, if there are any for this user.
    fn connect() -> io::Result<Option<Self>> {
        let stream = match UnixStream::connect(SOCKET) {
            Ok(stream) => stream,
            Err(error) => match error.kind() {
                ErrorKind::NotFound | ErrorKind::PermissionDenied => return Ok(None),
                _ => return Err(io::Error::new(error.kind(), format!("{SOCKET}: {error}"))),
            },
        };
        // Sockets of daemons are for root, and nobody else.
        let server = getsockopt(&stream, PeerCredentials)?.uid();
        if server != 0 {
            let why = format!("{SOCKET} is served by user {server}, and not by root");
            return Err(io::Error::new(ErrorKind::PermissionDenied, why));
        }
        Self::new(stream, None).map(Some)
    }

    fn stream(&self) -> io::Result<&UnixStream> {
        self.stream.as_ref().ok_or_else(|| ErrorKind::NotConnected.into())
    }

    /// Waits for the first answer, which may bring the kernel's log.
    fn settle(&mut self) -> io::Result<()> {
        if !self.is_settled {
            self.outcome()?;
            self.is_settled = true;
        }
        Ok(())
    }

    fn send(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.answers = false;
        send(self.stream()?, &[0], Some(socket))
    }

    /// Waits for an answer.
    fn outcome(&mut self) -> io::Result<()> {
        self.answers = false;
        let mut outcome = Outcome::default();
        let (count, passed) = receive(self.stream()?, &mut outcome)?;
        if count != outcome.len() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.answers = true;
        self.log = passed.map(File::from).or_else(|| self.log.take());
        match i32::from_ne_bytes(outcome) {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

impl Drop for Process {
    /// Ends the process and waits for that, so that none outlives a gateway that ends in order.
    fn drop(&mut self) {
        self.stream = None;
        let _ = self.child.as_mut().map(Child::wait);
    }
}

/// The process: takes over what comes to its standard input, for the user at the other end.
///
/// # Errors
/// Fails if that is no Unix socket, or what the process does not need cannot be given up.
pub(crate) fn serve() -> io::Result<()> {
    let mut stream = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let user = getsockopt(&stream, PeerCredentials)?.uid();
    let log = convoy_host::open_kernel_log().ok();
    privileges::keep_only_chown()?;
    send(&stream, &Outcome::default(), log.as_ref().map(AsFd::as_fd))?;
    drop(log);
    loop {
        let (count, socket) = receive(&stream, &mut [0])?;
        if count == 0 {
            return Ok(());
        }
        let taken = socket.ok_or_else(|| rustix::io::Errno::BADF.into());
        let taken = taken.and_then(|socket| udp::take_over(socket.as_fd(), user));
        let errno = taken.err().map_or(0, |error| error.raw_os_error().unwrap_or(libc::EINVAL));
        stream.write_all(&errno.to_ne_bytes())?;
    }
}

/// Sends bytes, and a descriptor with them.
fn send(stream: &UnixStream, bytes: &[u8], passed: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let passed: Vec<_> = passed.into_iter().collect();
    if !passed.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(&passed));
    }
    sendmsg(stream, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives bytes, at most as many as there is room, and a descriptor if one came with them; no bytes at the end.
fn receive(stream: &UnixStream, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let parts = &mut [IoSliceMut::new(bytes)];
    let count = recvmsg(stream, parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?.bytes;
    let passed = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut all) => all.next(),
        _ => None,
    });
    Ok((count, passed))
}
