//! Files that a process may use from now on (Landlock, Linux 5.13).
//!
//! A [`Ruleset`] names folders and files, and what may be done there. [`rights::keep_only`](crate::rights::keep_only)
//! puts every thread of the process under it, for ever: what it does not name is refused with `EACCES`,
//! whichever user the process runs as. What is open already stays open. Looking at a file (its owner, its mode), and
//! connecting to a Unix socket that has a path, are not refused by it.

use core::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use crate::sys::{
    Handled, landlock_allow_path, landlock_allow_port, landlock_ruleset, landlock_try,
    landlock_version,
};

/// `LANDLOCK_ACCESS_FS_…`, and the version that brought it.
const EXECUTE: u64 = 1;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const REMOVE_DIR: u64 = 1 << 4;
const REMOVE_FILE: u64 = 1 << 5;
const MAKE_REG: u64 = 1 << 8;
/// All of version 1: 13 rights.
const FIRST: u64 = (1 << 13) - 1;
/// Version 2: to rename from folder to folder.
const REFER: u64 = 1 << 13;
/// Version 3.
const TRUNCATE: u64 = 1 << 14;
/// Version 5: `ioctl` on devices that are opened from then on.
const IOCTL_DEV: u64 = 1 << 15;
/// Rights that files have; folders have all.
const OF_FILES: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV;

/// `LANDLOCK_ACCESS_NET_BIND_TCP` and `…_CONNECT_TCP`, of version 4.
const BIND_TCP: u64 = 1;
const CONNECT_TCP: u64 = 1 << 1;
/// `LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET`, of version 6.
const ABSTRACT_SOCKETS: u64 = 1;

/// Rights to a file, or to all that is beneath a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access(u64);

impl Access {
    /// Files are read and folders are listed.
    pub const READ: Self = Self(READ_FILE | READ_DIR);
    /// Files are read and written, but not made.
    pub const WRITE: Self = Self(READ_FILE | READ_DIR | WRITE_FILE | TRUNCATE);
    /// Files are made, read, written, renamed within their folder, and removed.
    pub const KEEP: Self = Self(Self::WRITE.0 | MAKE_REG | REMOVE_FILE);
    /// A device is read, written and set.
    pub const DEVICE: Self = Self(READ_FILE | WRITE_FILE | IOCTL_DEV);
    /// Folders are listed, and empty files are made.
    pub const MAKE_EMPTY: Self = Self(READ_DIR | MAKE_REG);
    /// Files and sockets are removed.
    pub const REMOVE: Self = Self(REMOVE_FILE);
    /// Empty folders are removed.
    pub const REMOVE_FOLDERS: Self = Self(REMOVE_DIR);
}

/// There is no Landlock.
#[derive(Debug)]
pub struct Missing(io::Error);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.raw_os_error() {
            Some(libc::ENOSYS) => f.write_str(
                "this kernel has no Landlock (Linux 5.13, CONFIG_SECURITY_LANDLOCK), or the gateway's sandbox \
                 refuses its system calls",
            ),
            Some(libc::EOPNOTSUPP) => {
                f.write_str("Landlock is not among this kernel's security modules (`lsm=` at its start)")
            }
            _ => write!(f, "Landlock cannot be used here: {}", self.0),
        }
    }
}

impl core::error::Error for Missing {}

/// Version of Landlock that the running kernel has.
///
/// # Errors
/// [`Missing`] if it has none.
pub fn version() -> Result<u32, Missing> {
    landlock_version().map_err(Missing)
}

/// List of what is allowed. All else is refused, as far as the kernel's version knows it.
#[derive(Debug)]
pub struct Ruleset {
    ruleset: OwnedFd,
    handled: Handled,
    version: u32,
}

impl Ruleset {
    /// One that allows nothing.
    ///
    /// # Errors
    /// [`Missing`] if there is no Landlock.
    pub fn new() -> Result<Self, Missing> {
        let version = version()?;
        let from = |first: u32, what: u64| if version >= first { what } else { 0 };
        let handled = Handled {
            files: FIRST | from(2, REFER) | from(3, TRUNCATE) | from(5, IOCTL_DEV),
            net: from(4, BIND_TCP | CONNECT_TCP),
            scope: from(6, ABSTRACT_SOCKETS),
        };
        let ruleset = landlock_ruleset(&handled, version).map_err(Missing)?;
        Ok(Self { ruleset, handled, version })
    }

    /// The version of the kernel's Landlock.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Allows this access to a file, or to all that is beneath a folder. Returns what it was found as, nothing if
    /// there is no such path, or no way there. Symbolic links are followed.
    ///
    /// # Errors
    /// Fails if the kernel refuses the rule.
    pub fn allow(&self, path: &Path, access: Access) -> io::Result<Option<File>> {
        // No more than a name for it.
        let mut options = OpenOptions::new();
        let found = match options.read(true).custom_flags(libc::O_PATH).open(path) {
            Ok(found) => found,
            Err(error) if is_nowhere(error.kind()) => return Ok(None),
            Err(error) => return Err(error),
        };
        let kind = if found.metadata()?.is_dir() { u64::MAX } else { OF_FILES };
        let allowed = access.0 & kind & self.handled.files;
        landlock_allow_path(self.ruleset.as_fd(), found.as_fd(), allowed)?;
        Ok(Some(found))
    }

    /// Allows to serve at a port of TCP.
    ///
    /// # Errors
    /// Fails if the kernel refuses the rule.
    pub fn allow_tcp(&self, port: u16) -> io::Result<()> {
        match self.handled.net & BIND_TCP {
            0 => Ok(()),
            allowed => landlock_allow_port(self.ruleset.as_fd(), port, allowed),
        }
    }

    /// Tries to put a thread under it; more than sixteen rulesets one below the other the kernel refuses.
    ///
    /// # Errors
    /// [`Missing`] if the kernel refuses.
    pub fn try_out(&self) -> Result<(), Missing> {
        // In a thread that ends with that.
        let tried = std::thread::scope(|scope| scope.spawn(|| self.restrict_thread()).join());
        tried.unwrap_or_else(|_| Err(Missing(ErrorKind::Other.into())))
    }

    /// Puts the calling thread under it, and those that it starts later.
    ///
    /// # Errors
    /// [`Missing`] if the kernel refuses that.
    pub fn restrict_thread(&self) -> Result<(), Missing> {
        landlock_try(self.as_fd()).map_err(Missing)
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.ruleset.as_fd()
    }
}

/// True if a path cannot be reached: what this process cannot reach, it cannot use later either.
fn is_nowhere(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::PermissionDenied)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

    use super::*;

    /// In a thread of its own, so that nothing else is under the ruleset.
    fn under(ruleset: &Ruleset, test: impl FnOnce() + Send) {
        let outcome = std::thread::scope(|scope| {
            let restricted = scope.spawn(|| {
                ruleset.restrict_thread().unwrap();
                test();
            });
            restricted.join()
        });
        outcome.unwrap();
    }

    fn refused<T>(outcome: io::Result<T>) {
        assert_eq!(outcome.map(drop).unwrap_err().kind(), ErrorKind::PermissionDenied);
    }

    #[test]
    fn what_a_ruleset_names_may_be_used_and_nothing_else() {
        let ruleset = match Ruleset::new() {
            Ok(ruleset) => ruleset,
            Err(why) => return println!("SKIPPED: {why}"),
        };
        let folder = tempfile::tempdir().unwrap();
        let [kept, read, marked, other] = ["kept", "read", "marked", "other"].map(|name| {
            let path = folder.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("file"), name).unwrap();
            path
        });
        assert!(ruleset.allow(&kept, Access::KEEP).unwrap().is_some());
        assert!(ruleset.allow(&read, Access::READ).unwrap().is_some());
        assert!(ruleset.allow(&marked, Access::MAKE_EMPTY).unwrap().is_some());
        // A right of folders alone is none of a file.
        assert!(ruleset.allow(&other.join("file"), Access::KEEP).unwrap().is_some());
        assert!(ruleset.allow(&folder.path().join("nowhere"), Access::READ).unwrap().is_none());
        assert!(ruleset.allow(&kept.join("file/below"), Access::READ).unwrap().is_none());
        ruleset.try_out().unwrap();
        // No other thread was put under it by that.
        fs::write(read.join("fresh"), "x").unwrap();
        under(&ruleset, || {
            let fresh = kept.join("fresh");
            fs::write(&fresh, "x").unwrap();
            fs::rename(&fresh, kept.join("file")).unwrap();
            assert_eq!(fs::read(kept.join("file")).unwrap(), b"x");
            fs::remove_file(kept.join("file")).unwrap();
            refused(fs::create_dir(kept.join("folder")));
            assert_eq!(fs::read(read.join("file")).unwrap(), b"read");
            refused(fs::write(read.join("file"), "x"));
            refused(fs::write(read.join("new"), "x"));
            refused(fs::remove_file(read.join("file")));
            assert_eq!(fs::read_dir(&marked).unwrap().count(), 1);
            refused(fs::read(marked.join("file")));
            refused(fs::write(marked.join("new"), "x"));
            fs::write(other.join("file"), "x").unwrap();
            refused(fs::read_dir(&other));
            refused(fs::read("/etc/passwd"));
        });
    }

    #[test]
    fn sockets_without_a_path_and_ports_are_kept_from_the_thread() {
        let ruleset = match Ruleset::new() {
            Ok(ruleset) if ruleset.version() >= 6 => ruleset,
            Ok(old) => return println!("SKIPPED: Landlock {} knows no sockets", old.version()),
            Err(why) => return println!("SKIPPED: {why}"),
        };
        let name = format!("convoy-landlock-{}", std::process::id());
        let name = SocketAddr::from_abstract_name(name).unwrap();
        let _service = UnixListener::bind_addr(&name).unwrap();
        let served = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = served.local_addr().unwrap();
        drop(UnixStream::connect_addr(&name).unwrap());
        ruleset.allow_tcp(address.port()).unwrap();
        under(&ruleset, || {
            refused(UnixStream::connect_addr(&name));
            refused(std::net::TcpStream::connect(address));
            refused(std::net::TcpListener::bind("127.0.0.1:0"));
            let taken = std::net::TcpListener::bind(address).map(drop).unwrap_err();
            assert_eq!(taken.kind(), ErrorKind::AddrInUse);
        });
    }
}
