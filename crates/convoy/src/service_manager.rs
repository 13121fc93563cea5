//! Tells systemd how far a gateway is (`sd_notify(3)`), if that started it, and has it keep descriptors.
//!
//! The socket is opened and connected at the start: later a gateway may open none of its kind.

use std::env;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// Names the service manager's socket: a path, or a name that begins with `@` for one without.
const VARIABLE: &str = "NOTIFY_SOCKET";

/// The way to the service manager; nothing where there is none.
#[derive(Debug)]
pub(crate) struct ServiceManager(Option<UnixDatagram>);

impl ServiceManager {
    /// Finds the one that started this process.
    pub(crate) fn find() -> Self {
        let Some(name) = env::var_os(VARIABLE).filter(|name| !name.is_empty()) else {
            return Self(None);
        };
        let way = connect(name.as_bytes());
        if let Err(error) = &way {
            tracing::warn!(%error, "cannot tell the service manager that the gateway is ready or ends");
        }
        Self(way.ok())
    }

    pub(crate) fn tell_ready(&self) {
        self.tell("READY=1");
    }

    pub(crate) fn tell_stopping(&self) {
        self.tell("STOPPING=1");
    }

    /// True if somebody listens.
    pub(crate) fn is_there(&self) -> bool {
        self.0.is_some()
    }

    /// Has it keep a descriptor under a name for the next run of this service (`FDSTORE`). It may keep none.
    pub(crate) fn keep(&self, name: &str, descriptor: BorrowedFd<'_>) {
        self.tell_with(&format!("FDSTORE=1\nFDNAME={name}"), Some(descriptor));
    }

    /// Has it let go of the descriptors of a name.
    pub(crate) fn let_go(&self, name: &str) {
        self.tell(&format!("FDSTOREREMOVE=1\nFDNAME={name}"));
    }

    fn tell(&self, state: &str) {
        self.tell_with(state, None);
    }

    fn tell_with(&self, state: &str, descriptor: Option<BorrowedFd<'_>>) {
        if let Some(Err(error)) = self.0.as_ref().map(|way| send(way, state, descriptor)) {
            tracing::warn!(%error, "cannot tell the service manager: {}", state.replace('\n', " "));
        }
    }
}

fn send(way: &UnixDatagram, state: &str, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let passed: Vec<_> = descriptor.into_iter().collect();
    if !passed.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(&passed));
    }
    let parts = [IoSlice::new(state.as_bytes())];
    sendmsg(way, &parts, &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn connect(name: &[u8]) -> io::Result<UnixDatagram> {
    let address = match name.split_first() {
        Some((b'@', rest)) => SocketAddr::from_abstract_name(rest)?,
        _ => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(name))?,
    };
    let way = UnixDatagram::unbound()?;
    way.connect_addr(&address)?;
    Ok(way)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_manager_hears_at_a_path_and_at_a_name_without_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let hidden = format!("@convoy-test-{}", std::process::id());
        let without_path = SocketAddr::from_abstract_name(&hidden.as_bytes()[1..]).unwrap();
        let at_path = SocketAddr::from_pathname(&path).unwrap();
        for (name, address) in [(path.to_str().unwrap(), at_path), (&hidden, without_path)] {
            let manager = UnixDatagram::bind_addr(&address).unwrap();
            let told = ServiceManager(Some(connect(name.as_bytes()).unwrap()));
            told.tell_ready();
            told.tell_stopping();
            let mut bytes = [0; 64];
            for expected in ["READY=1", "STOPPING=1"] {
                let count = manager.recv(&mut bytes).unwrap();
                assert_eq!(&bytes[..count], expected.as_bytes());
            }
        }
        assert!(connect(b"/nowhere/at/all").is_err());
    }
}
