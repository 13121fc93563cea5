//! Check of who serves at the other end of a UNIX socket: root and one's own user are asked, and
//! nobody else.

use std::fmt;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;

/// A server that is neither root's nor one's own user's. Whoever can make files in a socket's folder can listen
/// there while the gateway is away, and would get what is said and give what answers he likes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stranger {
    path: PathBuf,
    /// Process and user; `None`: the kernel does not say.
    server: Option<(i32, u32)>,
    own: u32,
}

impl std::error::Error for Stranger {}

impl fmt::Display for Stranger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "socket {}", self.path.display())?;
        if let Ok(meta) = std::fs::metadata(&self.path) {
            write!(f, " (owner {}, mode {:04o})", meta.uid(), meta.mode() & 0o7777)?;
        }
        match self.server {
            Some((process, user)) => {
                write!(f, " is served by process {process} ({}) of user {user}", command(process))?;
            }
            None => write!(f, " is served by an unknown process")?,
        }
        let own = self.own;
        let right = if own == 0 { "root".to_owned() } else { format!("root or of user {own}") };
        write!(
            f,
            ", and nothing was sent to it: use a gateway of {right}, whose socket is in a folder that no other \
             user can write to"
        )
    }
}

/// The process that listens at the other end of a connection; `None` if it is not to be seen from here, in another
/// PID namespace.
///
/// # Errors
/// [`Stranger`], who may be told nothing.
pub fn server_of(connection: impl AsFd, path: &Path) -> Result<Option<i32>, Stranger> {
    let own = nix::unistd::geteuid().as_raw();
    let server = getsockopt(&connection, PeerCredentials).ok().map(|peer| (peer.pid(), peer.uid()));
    match server {
        Some((process, user)) if user == 0 || user == own => {
            Ok(Some(process).filter(|process| *process > 0))
        }
        _ => Err(Stranger { path: path.to_owned(), server, own }),
    }
}

/// The name of a process, without what might disturb a log.
pub(crate) fn command(pid: i32) -> Arc<str> {
    let bytes = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    printable(&bytes)
}

fn printable(bytes: &[u8]) -> Arc<str> {
    let text = String::from_utf8_lossy(bytes.trim_ascii_end());
    if text.is_empty() {
        return "?".into();
    }
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect::<String>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_processes_cannot_forge_lines() {
        assert_eq!(&*printable(b"charon\n"), "charon");
        assert_eq!(&*printable(b"x\n2026 \x1b[31m\n"), "x?2026 ?[31m");
        assert_eq!(&*printable(b""), "?");
        assert_eq!(&*command(i32::MAX), "?");
    }

    #[test]
    fn a_stranger_is_told_with_what_would_be_right() {
        let stranger =
            |own| Stranger { path: "/nowhere/x.sock".into(), server: Some((i32::MAX, 7)), own };
        assert_eq!(
            stranger(0).to_string(),
            "socket /nowhere/x.sock is served by process 2147483647 (?) of user 7, and nothing was sent to it: use a \
             gateway of root, whose socket is in a folder that no other user can write to"
        );
        assert!(stranger(5).to_string().contains("a gateway of root or of user 5, "));
    }
}
