//! Errors of a folder that can keep nothing, with what to do.

use std::io;
use std::path::PathBuf;

use crate::folder::Open;

/// A folder cannot keep the state that daemons negotiated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeepError {
    /// Its files reach a disk.
    #[error("folder {} is not in memory (tmpfs or ramfs), and keys of daemons must not reach a disk: name a folder of such a file system as `state` of [xfrm]", .0.display())]
    NotInMemory(PathBuf),
    /// Another gateway has it.
    #[error("folder {} belongs to a running gateway: stop that one, or name another folder as `state` of [xfrm]", .0.display())]
    InUse(PathBuf),
    /// Others could read or change what is in it.
    #[error("{} is no folder of the gateway's user: remove it, or name another one as `state` of [xfrm]", .0.display())]
    NotOurs(PathBuf),
    /// Other users can read it, and something is in it that no gateway made.
    #[error(
        "{} is open to other users, and its mode is not changed because it contains {name}, which is not a \
         file of a gateway: name a new or empty folder for the gateway alone as `state` of [xfrm]",
        .path.display()
    )]
    OfOthers {
        /// The folder.
        path: PathBuf,
        /// Name of an entry in it that no gateway made.
        name: String,
    },
    /// Other users can write to it, or put another one in its place.
    #[error("folder {}: {open}: {}", .path.display(), .open.help())]
    Open {
        /// The folder.
        path: PathBuf,
        /// Folder or link on the way to it that they can change.
        open: Open,
    },
    /// The operating system refused.
    #[error("{what} {}: {}", .path.display(), convoy_host::describe_io(.source))]
    Io {
        /// Operation that failed, in words.
        what: &'static str,
        /// On which path.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
}
