//! A file in memory, as far as what is kept needs one.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

/// Bytes that a process leaves behind when it is killed: all that was written, and of the last write
/// a part that begins where it did.
pub(in crate::xfrm) trait Medium: Send + fmt::Debug {
    /// All of it.
    fn read(&mut self) -> io::Result<Zeroizing<Vec<u8>>>;

    /// Fills `into` from `at` on.
    fn read_at(&mut self, at: u64, into: &mut [u8]) -> io::Result<()>;

    /// Writes over what is there, or behind it.
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Leaves nothing behind `len`.
    fn cut(&mut self, len: u64) -> io::Result<()>;

    /// Puts `bytes` in the place of all there is, wholly or not at all; what was there is wiped.
    fn replace(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Wipes it and takes it away.
    fn remove(&mut self) -> io::Result<()>;
}

/// A file of a folder.
#[derive(Debug)]
pub(super) struct Leaf {
    path: PathBuf,
    file: File,
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

impl Leaf {
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        let file = open(&path)?;
        // Left by a process that was killed before it had its name.
        match std::fs::remove_file(fresh(&path)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        Ok(Self { path, file })
    }
}

fn fresh(path: &Path) -> PathBuf {
    path.with_extension("new")
}

/// Writes zeros over all of a file.
fn wipe(file: &File) -> io::Result<()> {
    const ZEROS: [u8; 4096] = [0; 4096];
    let len = file.metadata()?.len();
    let mut at = 0;
    while at < len {
        let part = usize::try_from(len - at).unwrap_or(usize::MAX).min(ZEROS.len());
        file.write_all_at(ZEROS.get(..part).unwrap_or_default(), at)?;
        at += part as u64;
    }
    Ok(())
}

impl Medium for Leaf {
    fn read(&mut self) -> io::Result<Zeroizing<Vec<u8>>> {
        let len = usize::try_from(self.file.metadata()?.len()).map_err(io::Error::other)?;
        let mut bytes = Zeroizing::new(vec![0; len]);
        self.file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    fn read_at(&mut self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, at)
    }

    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, at)
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        let path = fresh(&self.path);
        let file = open(&path)?;
        file.set_len(0)?;
        file.write_all_at(bytes, 0)?;
        std::fs::rename(&path, &self.path)?;
        let old = std::mem::replace(&mut self.file, file);
        wipe(&old)
    }

    fn remove(&mut self) -> io::Result<()> {
        wipe(&self.file)?;
        std::fs::remove_file(&self.path)
    }
}
