//! Tells systemd how far a gateway is (`sd_notify(3)`), if that started it.
//!
//! The socket is opened and connected at the start: later a gateway may open none of its kind.

use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

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

    fn tell(&self, state: &str) {
        if let Some(Err(error)) = self.0.as_ref().map(|way| way.send(state.as_bytes())) {
            tracing::warn!(%error, "cannot tell the service manager that the gateway is ready or ends");
        }
    }
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
