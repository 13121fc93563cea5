//! Errors of leases, and their remedies.

use std::io;
use std::path::PathBuf;

use super::binding::Foreign;

/// Sequence numbers cannot be leased.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseError {
    /// Another gateway uses the folder.
    #[error("state folder {} is in use by process {}: stop that gateway first, or give this one its own folder", .dir.display(), Pid(*.pid))]
    Locked {
        /// The folder.
        dir: PathBuf,
        /// The process that holds it, if it could be read.
        pid: Option<u32>,
    },
    /// Some process has locked the folder, but not the file that gateways lock in it.
    #[error("another process holds a lock on state folder {}: end that process (lslocks names it), or give this gateway its own folder", .dir.display())]
    FolderLocked {
        /// The folder.
        dir: PathBuf,
    },
    /// Other users can read the folder, and something is in it that no gateway made.
    #[error(
        "state folder {} is open to other users, and its mode is not changed because it contains {name}, which \
         is not a file of a gateway: name a new or empty folder for the gateway alone as state_dir",
        .dir.display()
    )]
    OfOthers {
        /// The folder.
        dir: PathBuf,
        /// Name of what no gateway made.
        name: String,
    },
    /// The key by which records are found is gone, so nobody can tell which numbers were used.
    #[error("state folder {} has records but not their key file hash-key: without it used sequence numbers are unknown; {}", .dir.display(), NEW_KEYS)]
    HashKeyLost {
        /// The folder.
        dir: PathBuf,
    },
    /// The key by which records are found is damaged.
    #[error("file {} is damaged: without it used sequence numbers are unknown; {}", .path.display(), NEW_KEYS)]
    HashKeyDamaged {
        /// The file.
        path: PathBuf,
    },
    /// The folder was in use, but its records are gone.
    #[error("state folder {} was in use but its records leases-a and leases-b are gone: used sequence numbers are unknown; {}", .dir.display(), NEW_KEYS)]
    RecordsLost {
        /// The folder.
        dir: PathBuf,
    },
    /// The folder was in use, but all of its files are gone.
    #[error(
        "state folder {} was in use, but its files are gone: used sequence numbers are unknown; {}; where the folder cannot be replaced, as a mount point, let it be used again once there are new keys: setfattr -x user.convoy.used {}; rm -f {}/records-lost",
        .dir.display(), NEW_KEYS, .dir.display(), .dir.display()
    )]
    Emptied {
        /// The folder.
        dir: PathBuf,
    },
    /// There is no folder.
    #[error(
        "state folder {} does not exist: create it (mkdir -m 700) if its keys were never used; else {}",
        .dir.display(),
        NEW_KEYS
    )]
    Missing {
        /// The folder.
        dir: PathBuf,
    },
    /// The records were written on another machine.
    #[error(
        "the state folder's records were written on another machine: its {what} is not the one of this machine, and both would use the same sequence numbers; {}",
        NEW_KEYS
    )]
    OtherMachine {
        /// Identifier that differs.
        what: &'static str,
    },
    /// Nothing that the records are tied to can be read.
    #[error(
        "the state folder's records are tied to a machine by its {what}, which cannot be read here: make it readable, as it was when they were written; if this is another machine, {}",
        NEW_KEYS
    )]
    MachineUnknown {
        /// Identifier that cannot be read.
        what: &'static str,
    },
    /// The folder is a copy of the one that was in use.
    #[error(
        "the state folder is a copy, or was restored from one: sequence numbers used since, or beside it, are unknown; use the original, or {}",
        NEW_KEYS
    )]
    Copied,
    /// Neither copy of the records can be believed.
    #[error(
        "both copies of the records (leases-a, leases-b) are damaged: used sequence numbers are unknown; {}",
        NEW_KEYS
    )]
    Corrupt,
    /// The records were written by another version of Convoy.
    #[error(
        "the records have format {found}, this program knows format {known}: use the version of convoy that wrote them, or {}",
        NEW_KEYS
    )]
    Version {
        /// Version in the file.
        found: u32,
        /// Version of this program.
        known: u32,
    },
    /// A key is in use already.
    #[error(
        "a key of SA '{name}' is in use by another SA of this gateway: one key in two SAs repeats nonces; give each its own key"
    )]
    KeyInUse {
        /// Name of the SA that asked.
        name: String,
    },
    /// A key was used in the other direction, perhaps long ago.
    #[error(
        "the key of SA '{name}' was used in the other direction before, so its sequence numbers were used by the other side: give each direction its own key for good; `convoy init` makes fresh ones"
    )]
    KeyTurned {
        /// Name of the SA that asked.
        name: String,
    },
    /// A key was in use when this machine became a copy.
    #[error(
        "the key of SA '{name}' was in use when this virtual machine was resumed from a snapshot or cloned, and its copy may use the same sequence numbers: write new keys on both sides (convoy init)"
    )]
    KeySpent {
        /// Name of the SA that asked.
        name: String,
    },
    /// The operating system refused.
    #[error("{what} {}: {}", .path.display(), convoy_host::describe_io(.source))]
    Io {
        /// Action that failed.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The records could not be brought to the disk, so nothing was leased.
    #[error("cannot write lease records: {}; no sequence numbers were leased", convoy_host::describe_io(.0))]
    Write(io::Error),
    /// No random numbers.
    #[error("the system gives no random numbers: {0}")]
    Random(getrandom::Error),
}

impl LeaseError {
    pub(super) fn foreign(why: Foreign) -> Self {
        match why {
            Foreign::Machine(what) => Self::OtherMachine { what },
            Foreign::Unknown(what) => Self::MachineUnknown { what },
            Foreign::Copied => Self::Copied,
        }
    }
}

const NEW_KEYS: &str =
    "write new keys on both sides (convoy init) and put an empty new folder in its place";

struct Pid(Option<u32>);

impl std::fmt::Display for Pid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(pid) => pid.fmt(f),
            None => f.write_str("(unknown)"),
        }
    }
}
