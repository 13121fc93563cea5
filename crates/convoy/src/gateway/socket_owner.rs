//! Who changes the owner of daemons' sockets: a process of its own, which holds nothing else.
//!
//! Sockets share a port only if one user owns them, so the UDP socket of a daemon of another user becomes one of
//! the gateway's user. That takes `CAP_CHOWN`, by which any file becomes the gateway's. So a gateway does not
//! keep it: a process that the start makes, with nothing of the gateway in its memory, gets sockets by a Unix
//! socket, and takes over what is a UDP socket. It ends when that socket is closed.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use convoy_control::site::Site;
use convoy_io::{IoError, udp};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::thread::{CapabilitySet, capabilities};

use crate::privileges;

/// The hidden verb of the process.
const VERB: &str = "own-sockets";

/// How long an answer may take; on a busy machine, a start takes seconds.
const PATIENCE: Duration = Duration::from_secs(20);

/// An answer: 0, or an error number.
type Outcome = [u8; 4];

/// Changes the owner of daemons' sockets, if the gateway was started with the right to.
#[derive(Debug, Default)]
pub struct SocketOwner(Mutex<Option<Helper>>);

impl SocketOwner {
    /// Starts the process, if the site serves daemons and this one has the right that it needs. The threads of
    /// a gateway do not exist yet.
    pub(crate) fn start(site: &Site) -> Self {
        let may_own =
            capabilities(None).is_ok_and(|own| own.permitted.contains(CapabilitySet::CHOWN));
        if site.xfrm.is_none() || !may_own {
            return Self::default();
        }
        let helper = Helper::start().inspect_err(|error| {
            tracing::warn!(%error, "UDP sockets of daemons of other users cannot be shared");
        });
        Self(Mutex::new(helper.ok()))
    }

    /// Waits until the process has given up what it does not need.
    pub(crate) fn settle(&self) {
        let mut helper = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Err(error)) = helper.as_mut().map(Helper::outcome) {
            tracing::warn!(%error, "UDP sockets of daemons of other users cannot be shared");
            *helper = None;
        }
    }

    /// Lets a socket share its port with sockets of this process.
    ///
    /// # Errors
    /// What is no UDP socket, and one of another user if its owner cannot be changed.
    pub(super) fn make_shareable(&self, socket: BorrowedFd<'_>) -> Result<(), IoError> {
        udp::make_shareable(socket, &|socket| self.take_over(socket))
    }

    fn take_over(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let mut helper = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(process) = helper.as_mut() else {
            let owner = udp::owner_of(socket)?;
            let why = format!(
                "it belongs to user {owner}, and this gateway was started without CAP_CHOWN, or the process \
                 that it was for has ended: start the daemon as the gateway's user, or the gateway with CAP_CHOWN"
            );
            return Err(io::Error::new(ErrorKind::PermissionDenied, why));
        };
        let outcome = process.send(socket).and_then(|()| process.outcome());
        if outcome.is_err() && !process.answers {
            // What comes late would be taken for the answer to the next.
            *helper = None;
        }
        outcome
    }
}

/// The process, and the way to it.
#[derive(Debug)]
struct Helper {
    stream: Option<UnixStream>,
    child: Child,
    /// Whether it answered the last time.
    answers: bool,
}

impl Helper {
    fn start() -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_read_timeout(Some(PATIENCE))?;
        ours.set_write_timeout(Some(PATIENCE))?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("convoy").arg(VERB).env_clear().current_dir("/");
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self { stream: Some(ours), child: command.spawn()?, answers: true })
    }

    fn stream(&self) -> io::Result<&UnixStream> {
        self.stream.as_ref().ok_or_else(|| ErrorKind::NotConnected.into())
    }

    fn send(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.answers = false;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let sockets = [socket];
        ancillary.push(SendAncillaryMessage::ScmRights(&sockets));
        let flags = SendFlags::NOSIGNAL;
        sendmsg(self.stream()?, &[IoSlice::new(&[0])], &mut ancillary, flags)?;
        Ok(())
    }

    /// Waits for an answer.
    fn outcome(&mut self) -> io::Result<()> {
        self.answers = false;
        let mut outcome = Outcome::default();
        self.stream()?.read_exact(&mut outcome)?;
        self.answers = true;
        match i32::from_ne_bytes(outcome) {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

impl Drop for Helper {
    /// Ends the process and waits for that, so that none outlives a gateway that ends in order.
    fn drop(&mut self) {
        self.stream = None;
        let _ = self.child.wait();
    }
}

/// The process: takes over what comes to its standard input.
///
/// # Errors
/// When that is no Unix socket, or what the process does not need cannot be given up.
pub(crate) fn serve() -> io::Result<()> {
    let mut stream = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let user = udp::own_user()?;
    privileges::keep_only_chown()?;
    stream.write_all(&Outcome::default())?;
    while let Some(socket) = receive(&stream)? {
        let taken = socket.ok_or_else(|| rustix::io::Errno::BADF.into());
        let taken = taken.and_then(|socket| udp::take_over(socket.as_fd(), user));
        let errno = taken.err().map_or(0, |error| error.raw_os_error().unwrap_or(libc::EINVAL));
        stream.write_all(&errno.to_ne_bytes())?;
    }
    Ok(())
}

/// The next socket; none within when there was none with the byte, none at all at the end.
fn receive(stream: &UnixStream) -> io::Result<Option<Option<OwnedFd>>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let parts = &mut [IoSliceMut::new(&mut byte)];
    if recvmsg(stream, parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?.bytes == 0 {
        return Ok(None);
    }
    Ok(Some(ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut all) => all.next(),
        _ => None,
    })))
}
