//! Media of images: a folder of a file system, or anything that can forget as one does.

use std::fs::{File, Metadata, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use zeroize::Zeroizing;

use convoy_host::Lockable;

use super::error::LeaseError;
use super::hash::HashKey;
use crate::held::{Difference, Held, LOCK, NotTaken, Trouble};

/// One of the two places an image can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// The first.
    A,
    /// The second.
    B,
}

impl Slot {
    /// Name of its file in a state folder.
    #[must_use]
    pub fn file_name(self) -> &'static str {
        match self {
            Self::A => "leases-a",
            Self::B => "leases-b",
        }
    }

    /// The other one.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

/// Two places for images, which forget at a power failure what was not synced.
pub trait Storage: Send + std::fmt::Debug {
    /// Content of a slot; `None` when it was never written.
    ///
    /// # Errors
    /// As the medium says.
    fn read(&mut self, slot: Slot) -> io::Result<Option<Vec<u8>>>;

    /// Compares what is open with what its names lead to. Writes and syncs do so themselves.
    ///
    /// # Errors
    /// Fails if something is gone or another; from then on all calls fail. If the system refused to
    /// say, this call alone fails.
    fn look(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Writes an image over what a slot holds. Until [`Storage::sync`] returned, a power failure
    /// may leave any mixture of old and new there; the other slot is not touched.
    ///
    /// # Errors
    /// As the medium says; the slot may then hold a mixture.
    fn write(&mut self, slot: Slot, bytes: &[u8]) -> io::Result<()>;

    /// Brings a slot to stable storage.
    ///
    /// # Errors
    /// As the medium says. What was written counts as lost then: it must be written again before
    /// the next sync, because a kernel may report a failed write-back only once.
    fn sync(&mut self, slot: Slot) -> io::Result<()>;
}

/// The state folder: locked while this lives.
#[derive(Debug)]
pub(super) struct Folder {
    /// Locked as well: versions before this one know no other lock. Unlocked first, so that whoever gets the
    /// folder gets this.
    _lock: Lockable,
    held: Held,
    hash_key: Option<File>,
    files: [Option<File>; 2],
    /// True if files were made whose names are not synced.
    names_dirty: bool,
    /// Folder or file that was noticed to be gone or another. What was written since then is nowhere
    /// that a later life looks, so that nothing is written any more.
    lost: Option<Difference>,
}

/// A folder, its key, and whether both were made just now.
pub(super) struct Opened {
    pub(super) folder: Folder,
    pub(super) key: HashKey,
}

/// The file of the key by which records are found.
pub(super) const HASH_KEY: &str = "hash-key";
/// Its name while it is made.
pub(super) const FRESH_KEY: &str = "hash-key.new";

impl Folder {
    /// Locks a folder and opens its key; makes both key and empty images in a new folder.
    pub(super) fn open(
        dir: &Path,
        empty: impl Fn(&HashKey, u64, &Metadata) -> Vec<u8>,
    ) -> Result<Opened, LeaseError> {
        let held = Held::take(dir).map_err(|why| not_taken(dir, why))?;
        let lock = lock(&held)?;
        let mut folder = Self {
            held,
            _lock: lock,
            hash_key: None,
            files: [None, None],
            names_dirty: false,
            lost: None,
        };
        let key = match folder.read_key()? {
            Some(key) => key,
            None => folder.create(empty)?,
        };
        if !folder.any_image() {
            return Err(LeaseError::RecordsLost { dir: dir.to_owned() });
        }
        // Also one that a version made which left no mark.
        folder.held.mark();
        Ok(Opened { folder, key })
    }

    /// Of the key's file.
    pub(super) fn hash_key(&self) -> Option<Metadata> {
        self.hash_key.as_ref().and_then(|file| file.metadata().ok())
    }

    fn any_image(&self) -> bool {
        [Slot::A, Slot::B].iter().any(|slot| self.held.has(slot.file_name()))
    }

    fn read_key(&mut self) -> Result<Option<HashKey>, LeaseError> {
        let path = self.held.path_of(HASH_KEY);
        let failed = io_error("cannot read", &path);
        let mut bytes = Zeroizing::new(Vec::new());
        let read = self.held.open_old(HASH_KEY).and_then(|file| {
            file.map(|mut file| file.read_to_end(&mut bytes).map(|_| file)).transpose()
        });
        self.hash_key = read.map_err(failed)?;
        match self.hash_key {
            None => Ok(None),
            Some(_) => {
                let key = HashKey::from_file(&bytes);
                key.map(Some).ok_or(LeaseError::HashKeyDamaged { path })
            }
        }
    }

    /// Makes key and images. The key gets its name last: a folder without it but with `hash-key.new`
    /// was never used, and is made anew.
    fn create(
        &mut self,
        empty: impl Fn(&HashKey, u64, &Metadata) -> Vec<u8>,
    ) -> Result<HashKey, LeaseError> {
        let dir = self.held.path().to_owned();
        if !self.held.has(FRESH_KEY) {
            if self.any_image() {
                return Err(LeaseError::HashKeyLost { dir });
            }
            if self.held.is_marked() {
                return Err(LeaseError::Emptied { dir });
            }
        }
        let key = HashKey::random().map_err(LeaseError::Random)?;
        let fresh = self.held.path_of(FRESH_KEY);
        let write = |mut file: File| {
            file.write_all(&key.to_file()).and_then(|()| file.sync_all()).map(|()| file)
        };
        let made = self.held.remove(FRESH_KEY).and_then(|()| self.held.make(FRESH_KEY));
        let file = made.and_then(write).map_err(io_error("cannot write", &fresh))?;
        let meta = file.metadata().map_err(io_error("cannot look at", &fresh))?;
        self.held.sync_names().map_err(io_error("cannot sync", &dir))?;
        for (slot, generation) in [(Slot::A, 1), (Slot::B, 2)] {
            let written =
                self.write(slot, &empty(&key, generation, &meta)).and_then(|()| self.sync(slot));
            let path = self.held.path_of(slot.file_name());
            written.map_err(io_error("cannot write", &path))?;
        }
        let path = self.held.path_of(HASH_KEY);
        self.held.rename(FRESH_KEY, HASH_KEY).map_err(io_error("cannot write", &path))?;
        self.hash_key = Some(file);
        self.held.sync_names().map_err(io_error("cannot sync", &dir))?;
        Ok(key)
    }

    fn file(&mut self, slot: Slot) -> io::Result<&File> {
        let place = match slot {
            Slot::A => &mut self.files[0],
            Slot::B => &mut self.files[1],
        };
        if place.is_none() {
            let name = slot.file_name();
            self.names_dirty |= !self.held.has(name);
            *place = Some(self.held.open_or_make(name)?);
        }
        place.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Compares what is open with what its names lead to.
    fn compare(&self) -> Result<(), Trouble> {
        self.held.is_there()?;
        let images = [Slot::A, Slot::B].into_iter().zip(&self.files);
        let images = images.map(|(slot, file)| (slot.file_name(), file));
        for (name, file) in images.chain([(HASH_KEY, &self.hash_key)]) {
            if let Some(file) = file {
                self.held.is_named(name, file)?;
            }
        }
        Ok(())
    }
}

impl Storage for Folder {
    fn read(&mut self, slot: Slot) -> io::Result<Option<Vec<u8>>> {
        let Some(mut file) = self.held.open_old(slot.file_name())? else { return Ok(None) };
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    fn look(&mut self) -> io::Result<()> {
        if self.lost.is_none() {
            match self.compare() {
                Ok(()) => return Ok(()),
                Err(Trouble::Lost(difference)) => self.lost = Some(difference),
                Err(failed @ Trouble::Failed { .. }) => return Err(io::Error::other(failed)),
            }
        }
        // At each look, as others may still be removing files, or make the folder anew.
        self.held.leave_sign(HASH_KEY);
        match &self.lost {
            None => Ok(()),
            Some(difference) => Err(io::Error::other(Lost(difference.to_string()))),
        }
    }

    fn write(&mut self, slot: Slot, bytes: &[u8]) -> io::Result<()> {
        self.look()?;
        // Images only grow, and bytes behind an image do not count, so nothing is cut off.
        self.file(slot)?.write_all_at(bytes, 0)
    }

    fn sync(&mut self, slot: Slot) -> io::Result<()> {
        self.file(slot)?.sync_data()?;
        if self.names_dirty {
            self.held.sync_names()?;
            self.names_dirty = false;
        }
        // What was synced counts only where the next run finds it.
        self.look()
    }
}

/// Error of a write to a folder that was lost, with the remedy.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0}: end the gateway, and write new keys on both sides (convoy init) with an empty new folder; only \
     when all was put back as it was may the gateway start again with its keys"
)]
pub(super) struct Lost(String);

/// Takes the lock of versions before; this one goes with the process as well, however it ends.
fn lock(held: &Held) -> Result<Lockable, LeaseError> {
    let path = held.path_of(LOCK);
    let file =
        held.open_or_make(LOCK).map(Lockable::new).map_err(io_error("cannot open", &path))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(not_taken(held.path(), NotTaken::InUse)),
        Err(TryLockError::Error(error)) => return Err(io_error("cannot lock", &path)(error)),
    }
    // Only for a message, so nothing depends on its success.
    let _ = file.set_len(0);
    let _ = file.write_all_at(format!("{}\n", std::process::id()).as_bytes(), 0);
    Ok(file)
}

fn not_taken(dir: &Path, why: NotTaken) -> LeaseError {
    let dir = dir.to_owned();
    match why {
        NotTaken::InUse if is_free(&dir.join(LOCK)) => LeaseError::FolderLocked { dir },
        NotTaken::InUse => {
            let text = std::fs::read_to_string(dir.join(LOCK)).unwrap_or_default();
            LeaseError::Locked { pid: text.trim().parse().ok(), dir }
        }
        NotTaken::OfOthers(name) => LeaseError::OfOthers { dir, name },
        NotTaken::Failed(_, source) if source.kind() == io::ErrorKind::NotFound => {
            LeaseError::Missing { dir }
        }
        NotTaken::Failed(what, source) => LeaseError::Io { what, path: dir, source },
    }
}

/// True if a file is there that nobody has locked, as every gateway has its own.
fn is_free(path: &Path) -> bool {
    File::open(path).map(Lockable::new).is_ok_and(|file| file.try_lock_shared().is_ok())
}

fn io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LeaseError {
    let path = path.to_owned();
    move |source| LeaseError::Io { what, path, source }
}
