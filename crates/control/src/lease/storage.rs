//! Where images lie: a folder of a file system, or anything that can forget as one does.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::error::LeaseError;
use super::hash::HashKey;

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
    /// What a slot holds; `None` when it was never written.
    ///
    /// # Errors
    /// As the medium says.
    fn read(&mut self, slot: Slot) -> io::Result<Option<Vec<u8>>>;

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
    dir: PathBuf,
    /// Held open for its lock.
    _lock: File,
    files: [Option<File>; 2],
    /// Whether files were made whose names are not synced.
    names_dirty: bool,
}

/// A folder, its key, and whether both were made just now.
pub(super) struct Opened {
    pub(super) folder: Folder,
    pub(super) key: HashKey,
}

impl Folder {
    /// Locks a folder and opens its key; makes both key and empty images in a new folder.
    pub(super) fn open(
        dir: &Path,
        empty: impl Fn(&HashKey, u64) -> Vec<u8>,
    ) -> Result<Opened, LeaseError> {
        let lock = lock(dir)?;
        let mut folder =
            Self { dir: dir.to_owned(), _lock: lock, files: [None, None], names_dirty: false };
        let path = dir.join("hash-key");
        let key = match read_file(&path)? {
            Some(bytes) => HashKey::from_file(&bytes).ok_or(LeaseError::HashKeyDamaged { path })?,
            None => folder.create(&path, empty)?,
        };
        if !folder.any_image() {
            return Err(LeaseError::RecordsLost { dir: dir.to_owned() });
        }
        Ok(Opened { folder, key })
    }

    fn any_image(&self) -> bool {
        [Slot::A, Slot::B].iter().any(|slot| self.path(*slot).exists())
    }

    /// Makes key and images. The key gets its name last: a folder without it but with `hash-key.new`
    /// was never used, and is made anew.
    fn create(
        &mut self,
        path: &Path,
        empty: impl Fn(&HashKey, u64) -> Vec<u8>,
    ) -> Result<HashKey, LeaseError> {
        let fresh = self.dir.join("hash-key.new");
        if self.any_image() && !fresh.exists() {
            return Err(LeaseError::HashKeyLost { dir: self.dir.clone() });
        }
        let key = HashKey::random().map_err(LeaseError::Random)?;
        let write = |file: &mut File| file.write_all(&key.to_file()).and_then(|()| file.sync_all());
        let _ = std::fs::remove_file(&fresh);
        options()
            .create_new(true)
            .open(&fresh)
            .and_then(|mut file| write(&mut file))
            .map_err(io_error("cannot write", &fresh))?;
        self.sync_names().map_err(io_error("cannot sync", &self.dir))?;
        for (slot, generation) in [(Slot::A, 1), (Slot::B, 2)] {
            let written = self.write(slot, &empty(&key, generation)).and_then(|()| self.sync(slot));
            written.map_err(io_error("cannot write", &self.path(slot)))?;
        }
        std::fs::rename(&fresh, path).map_err(io_error("cannot write", path))?;
        self.sync_names().map_err(io_error("cannot sync", &self.dir))?;
        Ok(key)
    }

    fn path(&self, slot: Slot) -> PathBuf {
        self.dir.join(slot.file_name())
    }

    fn file(&mut self, slot: Slot) -> io::Result<&File> {
        let path = self.path(slot);
        let place = match slot {
            Slot::A => &mut self.files[0],
            Slot::B => &mut self.files[1],
        };
        if place.is_none() {
            self.names_dirty |= !path.exists();
            *place = Some(options().create(true).truncate(false).open(path)?);
        }
        place.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync_names(&mut self) -> io::Result<()> {
        File::open(&self.dir)?.sync_all()
    }
}

impl Storage for Folder {
    fn read(&mut self, slot: Slot) -> io::Result<Option<Vec<u8>>> {
        match std::fs::read(self.path(slot)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn write(&mut self, slot: Slot, bytes: &[u8]) -> io::Result<()> {
        // Images only grow, and bytes behind an image do not count, so nothing is cut off.
        self.file(slot)?.write_all_at(bytes, 0)
    }

    fn sync(&mut self, slot: Slot) -> io::Result<()> {
        self.file(slot)?.sync_data()?;
        if self.names_dirty {
            self.sync_names()?;
            self.names_dirty = false;
        }
        Ok(())
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options
}

/// Takes the folder for this process; the lock goes with the process, however it ends.
fn lock(dir: &Path) -> Result<File, LeaseError> {
    let path = dir.join("lock");
    let mut file = options()
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(io_error("cannot open", &path))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            let _ = file.read_to_string(&mut text);
            return Err(LeaseError::Locked { dir: dir.to_owned(), pid: text.trim().parse().ok() });
        }
        Err(TryLockError::Error(error)) => return Err(io_error("cannot lock", &path)(error)),
    }
    // Only for the message above, so nothing depends on its success.
    let _ = file.set_len(0);
    let _ = file.write_all_at(format!("{}\n", std::process::id()).as_bytes(), 0);
    Ok(file)
}

fn read_file(path: &Path) -> Result<Option<zeroize::Zeroizing<Vec<u8>>>, LeaseError> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(zeroize::Zeroizing::new(bytes))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_error("cannot read", path)(error)),
    }
}

fn io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LeaseError {
    let path = path.to_owned();
    move |source| LeaseError::Io { what, path, source }
}
