//! A folder that serves one process: the folder itself is locked, and what is open in it is compared
//! with what its names lead to.
//!
//! A lock file can be removed, and then locked a second time. The lock here is on the folder
//! (`flock(2)` on its descriptor), so whoever wants a second lock needs a second folder, and that is
//! seen: the path leads somewhere else then.

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{Mode, SFlag, fstatat, mknodat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use convoy_host::Lockable;

/// An extended attribute of folders that were in use: it stays when all files are removed.
const MARK: &str = "user.convoy.used";

/// A file that says the same where the file system keeps no extended attributes, and in a folder that
/// was put in the place of one in use.
const LOST: &str = "records-lost";

const WHY_LOST: &str = "While a gateway ran, it found that the files of its state folder were gone, or that \
                        another folder was in its place. The sequence numbers that it used are not recorded \
                        here: make new keys on both sides, and an empty new folder.\n";

/// A file that every gateway makes in its folders.
pub(crate) const LOCK: &str = "lock";

/// Entry that a file system puts into its own topmost folder.
const OF_FILE_SYSTEM: &str = "lost+found";

/// Error of a folder that was not taken.
#[derive(Debug)]
pub(crate) enum NotTaken {
    /// Another process has it.
    InUse,
    /// It is open to other users and serves somebody else, who put this there. Closed to them, it would no longer.
    OfOthers(String),
    /// The system refused to do this.
    Failed(&'static str, io::Error),
}

/// Fault that a look at a folder found.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    /// It is not as this process left it.
    #[error(transparent)]
    Lost(#[from] Difference),
    /// The system refused to say; it may do so the next time.
    #[error("cannot look at the folder {}: {}", .path.display(), convoy_host::describe_io(.source))]
    Failed { path: PathBuf, source: io::Error },
}

/// Change that this process did not make.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Difference {
    /// The path of the folder leads nowhere.
    #[error("the folder {} is gone: {why}", .path.display())]
    FolderGone { path: PathBuf, why: String },
    /// It leads to another folder.
    #[error("another folder is in the place of {}", .0.display())]
    FolderReplaced(PathBuf),
    /// A file has no name any more.
    #[error("file {name} of the folder {} is gone", .path.display())]
    FileGone { path: PathBuf, name: &'static str },
    /// Its name leads to another file.
    #[error("another file is in the place of {name} in the folder {}", .path.display())]
    FileReplaced { path: PathBuf, name: &'static str },
}

/// True if a folder has the mark of one that was in use, or of one in its place.
pub(crate) fn was_used(path: &Path) -> bool {
    let mut value = [0_u8; 8];
    rustix::fs::getxattr(path, MARK, &mut value).is_ok()
        || path.join(LOST).symlink_metadata().is_ok()
}

/// A folder that is locked as long as this lives.
#[derive(Debug)]
pub(crate) struct Held {
    path: PathBuf,
    root: Arc<Lockable>,
}

impl Held {
    /// Locks a folder that exists. Whoever may read it can lock it, so others may not from here on, if it is new,
    /// empty, or was a gateway's before.
    pub(crate) fn take(path: &Path) -> Result<Self, NotTaken> {
        let root = open(path).map_err(|error| NotTaken::Failed("cannot open", error))?;
        let held = Self { path: path.to_owned(), root: Arc::new(Lockable::new(root)) };
        held.close_to_others()?;
        match held.root.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(NotTaken::InUse),
            Err(TryLockError::Error(error)) => return Err(NotTaken::Failed("cannot lock", error)),
        }
        // Somebody may have put another one there in between.
        held.is_there().map_err(|other| NotTaken::Failed("cannot use", io::Error::other(other)))?;
        Ok(held)
    }

    /// Path at which it was found.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Path of a file, for messages.
    pub(crate) fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Opens a file of the folder to read and write, and makes it if it is not there.
    pub(crate) fn open_or_make(&self, name: &str) -> io::Result<File> {
        self.open(name, OFlag::O_RDWR | OFlag::O_CREAT)
    }

    /// Makes a file that is not there.
    pub(crate) fn make(&self, name: &str) -> io::Result<File> {
        self.open(name, OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL)
    }

    /// Opens a file to read and write; `None` if it is not there.
    pub(crate) fn open_old(&self, name: &str) -> io::Result<Option<File>> {
        match self.open(name, OFlag::O_RDWR) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn open(&self, name: &str, flags: OFlag) -> io::Result<File> {
        // Whoever put something else there shall not have this wait for it.
        let flags = flags | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        let file = openat(self.root.as_fd(), name, flags, Mode::S_IRUSR | Mode::S_IWUSR)?;
        Ok(File::from(file))
    }

    /// True if a file of this name is there.
    pub(crate) fn has(&self, name: &str) -> bool {
        fstatat(self.root.as_fd(), name, AtFlags::AT_SYMLINK_NOFOLLOW).is_ok()
    }

    /// Gives a file another name, whose file it replaces.
    pub(crate) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(renameat(self.root.as_fd(), from, self.root.as_fd(), to)?)
    }

    /// Takes a file away, if it is there.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        match unlinkat(self.root.as_fd(), name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Brings names to stable storage.
    pub(crate) fn sync_names(&self) -> io::Result<()> {
        self.root.sync_all()
    }

    /// Checks that the folder's path still leads to it. Where this process may not follow the path, the
    /// folder must still have one.
    pub(crate) fn is_there(&self) -> Result<(), Trouble> {
        let ours = self.root.metadata().map_err(|source| self.failed(source))?;
        let why = match std::fs::metadata(&self.path) {
            Ok(there) if identity(&ours) == identity(&there) => return Ok(()),
            Ok(_) => return Err(Difference::FolderReplaced(self.path.clone()).into()),
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                    convoy_host::describe_io(&error)
                }
                io::ErrorKind::PermissionDenied if ours.nlink() == 0 => "it was removed".into(),
                io::ErrorKind::PermissionDenied => return Ok(()),
                _ => return Err(self.failed(error)),
            },
        };
        Err(Difference::FolderGone { path: self.path.clone(), why }.into())
    }

    /// Checks that the name of an open file still leads to it. Where this process may not look names
    /// up, the file must still have one.
    pub(crate) fn is_named(&self, name: &'static str, file: &File) -> Result<(), Trouble> {
        let path = || self.path.clone();
        let ours = file.metadata().map_err(|source| self.failed(source))?;
        let difference = match fstatat(self.root.as_fd(), name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(there) if identity(&ours) == (there.st_dev, there.st_ino) => return Ok(()),
            Ok(_) => Difference::FileReplaced { path: path(), name },
            Err(Errno::EACCES) if ours.nlink() > 0 => return Ok(()),
            Err(Errno::ENOENT | Errno::EACCES) => Difference::FileGone { path: path(), name },
            Err(error) => return Err(self.failed(error.into())),
        };
        Err(difference.into())
    }

    fn failed(&self, source: io::Error) -> Trouble {
        Trouble::Failed { path: self.path.clone(), source }
    }

    /// Marks the folder as one that is in use, so that it is not taken for a new one when its files are
    /// gone. Not every file system can do that.
    pub(crate) fn mark(&self) {
        let _ =
            rustix::fs::fsetxattr(self.root.as_fd(), MARK, b"1", rustix::fs::XattrFlags::empty());
    }

    /// True if it was in use before.
    pub(crate) fn is_marked(&self) -> bool {
        let mut value = [0_u8; 8];
        rustix::fs::fgetxattr(self.root.as_fd(), MARK, &mut value).is_ok() || self.has(LOST)
    }

    /// Leaves a sign for who starts next in the folder to which the path leads now, if there is one that
    /// holds nothing called `name` and nobody has locked. To be called again and again: the folder may be
    /// made, or emptied, later.
    pub(crate) fn leave_sign(&self, name: &str) {
        let there = match self.is_there() {
            Ok(()) => Arc::clone(&self.root),
            Err(_) => {
                let Ok(root) = open(&self.path) else { return };
                Arc::new(Lockable::new(root))
            }
        };
        let there = Self { path: self.path.clone(), root: there };
        let is_free = || self.is_there().is_ok() || there.root.try_lock().is_ok();
        if there.has(name) || there.is_signed() || !is_free() {
            return;
        }
        there.mark();
        if there.has(LOST) {
            return;
        }
        match there.make(LOST) {
            Ok(mut file) => {
                let _ = io::Write::write_all(&mut file, WHY_LOST.as_bytes());
                let _ = file.sync_all().and_then(|()| there.sync_names());
            }
            // A running gateway may write nothing there (Landlock); the name is what counts.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let mode = Mode::S_IRUSR | Mode::S_IWUSR;
                let _ = mknodat(there.root.as_fd(), LOST, SFlag::S_IFREG, mode, 0);
                let _ = there.sync_names();
            }
            Err(_) => {}
        }
    }

    /// Leaves a folder of this process's user to that user alone.
    fn close_to_others(&self) -> Result<(), NotTaken> {
        let Ok(meta) = self.root.metadata() else { return Ok(()) };
        let mode = meta.mode() & 0o777;
        if meta.uid() != nix::unistd::geteuid().as_raw() || mode & 0o077 == 0 {
            return Ok(());
        }
        if let Some(name) = self.name_of_others() {
            return Err(NotTaken::OfOthers(name));
        }
        let path = self.path.display();
        match self.root.set_permissions(std::fs::Permissions::from_mode(0o700)) {
            Ok(()) => tracing::info!(
                "changed the mode of folder {path} from {mode:o} to 700: other users could have locked it"
            ),
            Err(error) => tracing::warn!(
                "cannot change the mode of folder {path} to 700: {}; other users can lock the folder and so \
                 prevent the start of a gateway: chmod 700 {path}",
                convoy_host::describe_io(&error)
            ),
        }
        Ok(())
    }

    /// Something in a folder that was never a gateway's.
    fn name_of_others(&self) -> Option<String> {
        let is_file =
            |found: nix::libc::stat| found.st_mode & nix::libc::S_IFMT == nix::libc::S_IFREG;
        let lock = fstatat(self.root.as_fd(), LOCK, AtFlags::AT_SYMLINK_NOFOLLOW);
        if lock.is_ok_and(is_file) || self.is_marked() {
            return None;
        }
        let names = std::fs::read_dir(&self.path).ok()?.flatten();
        let mut names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.find(|name| name != OF_FILE_SYSTEM)
    }

    /// True if all parts of a sign are there, as far as the file system has them.
    fn is_signed(&self) -> bool {
        let mark = rustix::fs::fgetxattr(self.root.as_fd(), MARK, &mut [0_u8; 8]);
        self.has(LOST) && mark != Err(rustix::io::Errno::NODATA)
    }
}

/// Opens a folder.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(OFlag::O_DIRECTORY.bits()).open(path)
}

/// Device and inode number, which tell a file from all others that exist.
fn identity(meta: &Metadata) -> (u64, u64) {
    (meta.dev(), meta.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_itself_is_locked_whatever_is_removed_from_it() {
        let folder = tempfile::tempdir().unwrap();
        let held = Held::take(folder.path()).unwrap();
        drop(held.open_or_make("lock").unwrap());
        std::fs::remove_file(folder.path().join("lock")).unwrap();
        assert!(matches!(Held::take(folder.path()), Err(NotTaken::InUse)));
        drop(held);
        Held::take(folder.path()).unwrap();
    }

    #[test]
    fn a_folder_that_serves_others_is_refused_and_not_closed_to_them() {
        let folder = tempfile::tempdir().unwrap();
        let mode = || std::fs::metadata(folder.path()).unwrap().mode() & 0o7777;
        let open = |mode| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(folder.path(), mode).unwrap();
        };
        // As below /var and /run, where a folder is called as the file.
        std::fs::create_dir(folder.path().join(LOCK)).unwrap();
        for before in [0o755, 0o1777, 0o750] {
            open(before);
            let refused = Held::take(folder.path());
            assert!(matches!(&refused, Err(NotTaken::OfOthers(name)) if name == LOCK));
            assert_eq!(mode(), before);
        }
        // What only this user reads is not changed, so it may be used.
        open(0o700);
        Held::take(folder.path()).unwrap();
        std::fs::remove_dir(folder.path().join(LOCK)).unwrap();
        std::fs::create_dir(folder.path().join(OF_FILE_SYSTEM)).unwrap();
        // Empty, and then a gateway's.
        for _ in 0..2 {
            open(0o755);
            let held = Held::take(folder.path()).unwrap();
            assert_eq!(mode(), 0o700);
            held.open_or_make(LOCK).unwrap();
            held.open_or_make("one").unwrap();
        }
    }

    #[test]
    fn what_is_gone_or_another_is_noticed() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("state");
        std::fs::create_dir(&path).unwrap();
        let held = Held::take(&path).unwrap();
        let file = held.open_or_make("one").unwrap();
        held.is_named("one", &file).unwrap();
        std::fs::rename(path.join("one"), path.join("two")).unwrap();
        let gone = held.is_named("one", &file).unwrap_err();
        assert!(matches!(gone, Trouble::Lost(Difference::FileGone { name: "one", .. })), "{gone}");
        std::fs::copy(path.join("two"), path.join("one")).unwrap();
        let other = held.is_named("one", &file).unwrap_err();
        let is_other = matches!(other, Trouble::Lost(Difference::FileReplaced { name: "one", .. }));
        assert!(is_other, "{other}");
        let aside = parent.path().join("aside");
        std::fs::rename(&path, &aside).unwrap();
        let gone = held.is_there().unwrap_err();
        assert!(gone.to_string().contains("no such file or directory"), "{gone}");
        std::fs::create_dir(&path).unwrap();
        let other = held.is_there().unwrap_err();
        assert!(matches!(other, Trouble::Lost(Difference::FolderReplaced(_))), "{other}");
        std::fs::remove_dir(&path).unwrap();
        std::fs::rename(&aside, &path).unwrap();
        held.is_there().unwrap();
    }

    /// As a gateway of root that has given up all rights but those of its user, below the folder of
    /// another user.
    #[test]
    fn a_path_that_may_not_be_followed_is_no_loss_but_what_has_no_name_is_one() {
        if !nix::unistd::geteuid().is_root() {
            return println!("SKIPPED: only root can make folders of other users");
        }
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("state");
        std::fs::create_dir(&path).unwrap();
        let held = Held::take(&path).unwrap();
        let file = held.open_or_make("one").unwrap();
        for folder in [&path, parent.path()] {
            std::os::unix::fs::chown(folder, Some(54_321), None).unwrap();
            std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700)).unwrap();
        }
        let look = || {
            let look = || {
                rustix::thread::set_capabilities(
                    None,
                    rustix::thread::CapabilitySets {
                        effective: rustix::thread::CapabilitySet::empty(),
                        permitted: rustix::thread::CapabilitySet::empty(),
                        inheritable: rustix::thread::CapabilitySet::empty(),
                    },
                )
                .unwrap();
                assert!(std::fs::metadata(&path).is_err(), "it cannot be followed");
                (held.is_there(), held.is_named("one", &file))
            };
            std::thread::scope(|scope| scope.spawn(look).join().unwrap())
        };
        let (folder, name) = look();
        folder.unwrap();
        name.unwrap();
        std::fs::remove_file(path.join("one")).unwrap();
        let (folder, name) = look();
        folder.unwrap();
        let gone = name.unwrap_err();
        assert!(matches!(gone, Trouble::Lost(Difference::FileGone { .. })), "{gone}");
        std::fs::remove_dir(&path).unwrap();
        let gone = look().0.unwrap_err();
        assert!(gone.to_string().ends_with("is gone: it was removed"), "{gone}");
    }

    #[test]
    fn a_path_that_fails_for_another_reason_is_no_loss() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("state");
        std::fs::create_dir(&path).unwrap();
        let held = Held::take(&path).unwrap();
        let aside = parent.path().join("aside");
        std::fs::rename(&path, &aside).unwrap();
        std::os::unix::fs::symlink(&path, &path).unwrap();
        let failed = held.is_there().unwrap_err();
        assert!(matches!(failed, Trouble::Failed { .. }), "{failed}");
        std::fs::remove_file(&path).unwrap();
        std::fs::rename(&aside, &path).unwrap();
        held.is_there().unwrap();
    }

    #[test]
    fn a_sign_is_left_where_the_path_leads_but_not_beside_what_others_keep() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("state");
        let put_aside = |to: &str| {
            std::fs::rename(&path, parent.path().join(to)).unwrap();
            std::fs::create_dir(&path).unwrap();
        };
        std::fs::create_dir(&path).unwrap();
        let held = Held::take(&path).unwrap();
        assert!(!held.is_marked());
        put_aside("first");
        held.leave_sign("records");
        assert!(Held::take(&path).unwrap().is_marked());
        put_aside("second");
        std::fs::write(path.join("records"), "of others").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
        held.leave_sign("records");
        assert!(!Held::take(&path).unwrap().is_marked());
        put_aside("third");
        let others = Held::take(&path).unwrap();
        held.leave_sign("records");
        assert!(!others.is_marked());
        // Once they are gone, and whatever is taken from it.
        drop(others);
        for _ in 0..2 {
            held.leave_sign("records");
            assert!(path.join(LOST).exists() && Held::take(&path).unwrap().is_marked());
            std::fs::remove_file(path.join(LOST)).unwrap();
        }
    }
}
