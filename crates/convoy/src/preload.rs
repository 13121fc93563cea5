//! The library that leads XFRM sockets to Convoy, and the socket that it leads them to.

use std::env;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use convoy_control::peer::server_of;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::exit::Stop;

/// The variable that names the library.
pub(crate) const PRELOAD_VARIABLE: &str = "CONVOY_XFRM_PRELOAD";
/// As installed, and as cargo names it.
const NAMES: [&str; 2] = ["libconvoy_xfrm.so", "libconvoy_xfrm_preload.so"];

/// The library that leads XFRM sockets to Convoy.
pub(crate) fn find_library() -> anyhow::Result<PathBuf> {
    let named = env::var_os(PRELOAD_VARIABLE).filter(|named| !named.is_empty());
    // Who has rights that his caller lacks runs nothing of that one's choice.
    if let Some(named) = named.filter(|_| !convoy_io::rights::is_secure()) {
        let named = PathBuf::from(named);
        return fs::canonicalize(&named).map_err(|error| {
            Stop::usage(format!("{PRELOAD_VARIABLE}: {}: {error}", named.display()))
        });
    }
    let own = env::current_exe()?;
    let places = places(own.parent().unwrap_or_else(|| Path::new("/")));
    places.iter().find(|place| place.is_file()).cloned().ok_or_else(|| {
        let places: Vec<_> = places.iter().map(|place| format!("  {}", place.display())).collect();
        Stop::usage(format!(
            "the library that leads XFRM sockets to Convoy is in none of\n{}\n\
             `make install` puts it there; {PRELOAD_VARIABLE} names it elsewhere",
            places.join("\n")
        ))
    })
}

/// Paths at which the library may be: beside the program, and where it is installed.
fn places(folder: &Path) -> Vec<PathBuf> {
    let prefix = folder.parent().unwrap_or(folder);
    let beside = NAMES.map(|name| folder.join(name));
    let installed = ["lib/convoy", "lib"].map(|lib| prefix.join(lib).join(NAMES[0]));
    beside.into_iter().chain(installed).collect()
}

/// Process that listens at a socket of the kind that XFRM is served on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listener {
    /// Its process; `None`: not to be seen.
    pid: Option<i32>,
}

impl Listener {
    /// File of its network namespace, if that is another one than this process's. One that this
    /// user may not look at counts as this process's.
    pub(crate) fn elsewhere(self) -> Option<PathBuf> {
        let its = PathBuf::from(format!("/proc/{}/ns/net", self.pid?));
        let own = fs::read_link("/proc/self/ns/net").ok()?;
        (fs::read_link(&its).ok()? != own).then_some(its)
    }
}

/// Finds the listener at a socket, if it is of the kind that XFRM is served on.
///
/// # Errors
/// The system's, and [`Stranger`](convoy_control::peer::Stranger) where the library would talk to nobody.
pub(crate) fn probe(path: &Path) -> io::Result<Listener> {
    let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None)?;
    // A gateway with much to do is one, too.
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::unix(path)?) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Listener { pid: None }),
        outcome => {
            outcome?;
            let pid = server_of(&socket, path).map_err(io::Error::other)?;
            Ok(Listener { pid })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_looked_for_beside_and_below_the_prefix() {
        let places = places(Path::new("/opt/convoy/bin"));
        assert!(places.contains(&PathBuf::from("/opt/convoy/bin/libconvoy_xfrm.so")));
        assert!(places.contains(&PathBuf::from("/opt/convoy/lib/convoy/libconvoy_xfrm.so")));
    }
}
