//! State that daemons negotiated survives a restart, in memory: no key reaches a disk, and no nonce is used
//! twice.
//!
//! A folder on tmpfs or ramfs holds
//!
//! * `journal`: each SA that has keys, and each policy, as the message that a dump shows. It is written
//!   when a request succeeded and before its answer goes out: what a daemon was told is there. What
//!   goes is wiped where it stands. A process that is killed leaves a torn end, which is cut off;
//! * `numbers`: for each SA, in a cell of its own, what its workers change. **Outbound** the ceiling of
//!   its sequence numbers: it is written before [`Lease::grant`](convoy_ipsec::sequence::Lease::grant)
//!   allows them, and an SA begins above it after a restart. **Inbound** the right edge of the
//!   anti-replay window, every few milliseconds, and how far it may have come since (the allowance of
//!   [`crate::lease`], with what it says about it). And its counters, at least once a second, so that
//!   lifetimes go on. An orderly end writes exact numbers;
//! * `edges`: the right edges once more, in memory that workers write themselves before a packet that moved
//!   one goes further ([`Words`]). So a restart knows exactly what was received, and needs no allowance;
//!   it does where a file cannot be mapped;
//! * `lock`, locked while a gateway runs, as is the folder itself.
//!
//! Before it writes, the gateway looks whether folder and files are still those that their path names, unless it did so in the
//! last 5 ms. If not, no more numbers are granted: a later life would not find them.
//!
//! Cells of SAs that went stay, by a keyed hash of their keys, until 2¹⁵ others went (`DEAD_MAX`): a daemon that
//! moves an SA while the gateway restarts cannot have a number used twice either. A key's cell is
//! written before its first packet, and before the journal knows the SA.
//!
//! The memory of tmpfs is swapped out like that of processes: swap must be encrypted or off, as for
//! every program that has keys. The folder must not be copied or put back, as its numbers go on.

mod cell;
mod entries;
mod error;
pub(crate) mod fuzzing;
mod journal;
mod keeper;
mod medium;
#[cfg(test)]
pub(super) mod memory;
mod numbers;
#[cfg(test)]
mod tests;
mod words;

use std::collections::HashMap;
use std::fs::{DirBuilder, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;

use nix::sys::statfs::{FsType, TMPFS_MAGIC, statfs};

pub use error::KeepError;
pub use journal::Earlier;
pub(super) use journal::{Found, Journal, Kind};
pub(super) use keeper::Keeper;
use medium::Leaf;
pub(super) use medium::Medium;
pub(super) use numbers::{Admission, Kept, Numbering, Past};
pub use words::Words;

use convoy_host::Lockable;

use crate::folder;
use crate::held::{Held, LOCK, NotTaken};
use crate::lease::HashKey;

/// `RAMFS_MAGIC`, which nix has no name for.
const RAMFS_MAGIC: FsType = FsType(0x8584_58f6);

const EDGES: &str = "edges";

/// Keys that are remembered after their SAs went; in the memory of the process so many of each direction.
///
/// A daemon that moves an SA removes it and adds it again with its key, and moves many at once: so many as a
/// gateway rekeys in minutes. In cells of 128 bytes they take 4 MiB.
pub(super) const DEAD_MAX: usize = 1 << 15;

/// A folder in memory that keeps what daemons negotiated, held by this process.
#[derive(Debug)]
pub struct Keep {
    /// `None` in tests without a folder.
    folder: Option<Folder>,
    pub(super) journal: Journal,
    pub(super) keeper: Keeper,
    pub(super) past: Before,
}

/// State that the previous run left.
#[derive(Debug)]
pub(super) struct Before {
    /// By which keys have their names in cells.
    pub(super) hash: Option<HashKey>,
    /// SAs in the order in which they came, and policies likewise.
    pub(super) sas: Vec<Found>,
    pub(super) policies: Vec<Found>,
    /// By serial number.
    pub(super) cells: HashMap<u64, Past>,
    pub(super) earlier: Earlier,
    /// True if it left networks closed that it had no policies for.
    pub(super) is_closed: bool,
}

impl Keep {
    /// Takes a folder, which is made if it is not there, and reads what the previous run left.
    ///
    /// # Errors
    /// [`KeepError::NotInMemory`] where files reach a disk; [`KeepError::InUse`] while another gateway
    /// has the folder.
    ///
    /// `map` makes memory of a file that outlives this process; what goes wrong there costs exactness.
    pub fn open(
        path: &Path,
        map: impl FnOnce(&Path) -> io::Result<Box<dyn Words>>,
    ) -> Result<Self, KeepError> {
        let folder = Folder::open(path)?;
        let leaf = |name, fresh| {
            Leaf::open(&folder.held, name, fresh).map_err(failed("cannot open", &path.join(name)))
        };
        let journal = leaf("journal", "journal.new")?;
        let numbers = leaf("numbers", "numbers.new")?;
        let words = folder.words(map)?;
        Self::from_media(Some(folder), Box::new(journal), Box::new(numbers), words)
            .map_err(failed("cannot use", path))
    }

    pub(super) fn from_media(
        folder: Option<Folder>,
        journal: Box<dyn Medium>,
        numbers: Box<dyn Medium>,
        words: Option<Box<dyn Words>>,
    ) -> io::Result<Self> {
        let (journal, loaded) = Journal::open(journal)?;
        let (mut numbers, past) = numbers::Numbers::open(numbers, words, loaded.is_fresh)?;
        let cells = past.into_iter().map(|past| (past.cell.serial, past)).collect();
        let mut sas = Vec::new();
        let (mut policies, mut is_closed) = (Vec::new(), false);
        for found in loaded.records {
            match found.kind {
                Kind::Sa => sas.push(found),
                Kind::Policy => policies.push(found),
                Kind::Closed => is_closed = true,
            }
        }
        // Those that changed stand behind others that came later.
        sas.sort_unstable_by_key(|found| found.id);
        numbers.begin_behind(sas.last().map_or(0, |found| found.id));
        let (hash, earlier) = (Some(loaded.hash), loaded.earlier);
        let past = Before { hash, sas, policies, cells, earlier, is_closed };
        Ok(Self { folder, journal, keeper: Keeper::start(numbers)?, past })
    }

    /// The orderly end, when no worker runs any more: a restart skips no number. The folder goes if
    /// nothing is kept, unless it is to say that nothing was (`says_so`).
    ///
    /// # Errors
    /// Fails if it cannot be written; what is kept is then as after a crash, which is safe.
    pub(super) fn finish(mut self, says_so: bool) -> io::Result<()> {
        self.keeper.finish()?;
        if self.journal.is_empty() && !says_so {
            self.journal.destroy()?;
            self.keeper.destroy()?;
            if let Some(folder) = self.folder.take() {
                folder.remove()?;
            }
        }
        Ok(())
    }
}

/// A folder that is locked.
#[derive(Debug)]
pub(super) struct Folder {
    /// Locked as well: versions before this one know no other lock. Unlocked first, so that whoever gets the
    /// folder gets this.
    _lock: Lockable,
    held: Arc<Held>,
}

impl Folder {
    fn open(path: &Path) -> Result<Self, KeepError> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        if let Some(parent) = parent {
            folder::make(parent).map_err(failed("cannot make", parent))?;
        }
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed("cannot make", path)(error));
            }
            made => {
                let checked = Self::check(path);
                if checked.is_err() && made.is_ok() {
                    let _ = std::fs::remove_dir(path);
                }
                checked?;
            }
        }
        let held = Held::take(path).map_err(|why| match why {
            NotTaken::InUse => KeepError::InUse(path.to_owned()),
            NotTaken::OfOthers(name) => KeepError::OfOthers { path: path.to_owned(), name },
            NotTaken::Failed(what, source) => KeepError::Io { what, path: path.to_owned(), source },
        })?;
        let private = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(path, private).map_err(failed("cannot use", path))?;
        let name = held.path_of(LOCK);
        let lock = held.open_or_make(LOCK).map(Lockable::new);
        let lock = lock.map_err(failed("cannot open", &name))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { held: Arc::new(held), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(KeepError::InUse(path.to_owned())),
            Err(TryLockError::Error(error)) => Err(failed("cannot lock", &name)(error)),
        }
    }

    /// Checks that keys may be here: in memory, and for this user alone.
    fn check(path: &Path) -> Result<(), KeepError> {
        let kind = statfs(path).map_err(|errno| failed("cannot look at", path)(errno.into()))?;
        if ![TMPFS_MAGIC, RAMFS_MAGIC].contains(&kind.filesystem_type()) {
            return Err(KeepError::NotInMemory(path.to_owned()));
        }
        let meta = std::fs::symlink_metadata(path).map_err(failed("cannot look at", path))?;
        if !meta.is_dir() || meta.uid() != nix::unistd::geteuid().as_raw() {
            return Err(KeepError::NotOurs(path.to_owned()));
        }
        match folder::look(path).into_iter().find(|open| !open.is_doubtful_only()) {
            Some(open) => Err(KeepError::Open { path: path.to_owned(), open }),
            None => Ok(()),
        }
    }

    /// The memory that workers write. Without it, nothing may be left that a later life believes.
    fn words(
        &self,
        map: impl FnOnce(&Path) -> io::Result<Box<dyn Words>>,
    ) -> Result<Option<Box<dyn Words>>, KeepError> {
        let path = self.held.path_of(EDGES);
        match map(&path) {
            Ok(words) => Ok(Some(words)),
            Err(error) => {
                tracing::warn!(
                    "cannot map {}: {error}; after a crash some packets from peers are refused",
                    path.display()
                );
                self.held.remove(EDGES).map_err(failed("cannot remove", &path))?;
                Ok(None)
            }
        }
    }

    fn remove(self) -> io::Result<()> {
        self.held.remove(EDGES)?;
        self.held.remove(LOCK)?;
        self.held.is_there().map_err(io::Error::other)?;
        match std::fs::remove_dir(self.held.path()) {
            // A folder above is closed to this user since other rights were given up; an empty one may stay.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            done => done,
        }
    }
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> KeepError {
    let path = path.to_owned();
    move |source| KeepError::Io { what, path, source }
}
