//! Pairs of words in a file of a file system in memory, which outlive a process that is killed.
//!
//! What a process stored into such a mapping is in the file at once, whenever and however it ends: both
//! are the same pages (`tmpfs`, `mmap(2)`). The file's space is reserved before it is mapped, so that a
//! full file system is an error here and not a signal at a store. Who may write to the file could cut it
//! off, which would be one: it belongs into a folder of this user alone.

use core::sync::atomic::AtomicU64;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;

use super::check;

/// Words from one pair to the next, so that no two share a cache line.
const STRIDE: usize = 8;
/// Pairs that are mapped at once.
const CHUNK: usize = 1024;
const CHUNK_BYTES: usize = CHUNK * STRIDE * size_of::<u64>();
/// Most pairs that are there.
const PAIRS_MAX: usize = 1 << 20;

type Chunk = [[AtomicU64; STRIDE]; CHUNK];

/// A file of pairs of words, by number. Those of this life begin with zeros; those of the life before
/// can be asked for.
#[derive(Debug)]
pub struct Words {
    file: File,
    /// They stay mapped as long as the process lives, as others hold their words.
    chunks: Vec<&'static Chunk>,
    earlier: Vec<[u64; 2]>,
    path: PathBuf,
}

impl Words {
    /// Reads what the life before left in a file, and makes a new one beside it. Until
    /// [`Words::begin`] that of the life before stays where it is.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or a new one cannot be made.
    pub fn open(path: &Path) -> io::Result<Self> {
        // Whoever put something else there shall not have this wait for it.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let earlier = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
            Ok(file) => read(file)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        // Nothing that is old can be taken for new: what is stored into it later nobody finds.
        let fresh = fresh(path);
        match std::fs::remove_file(&fresh) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(&fresh)?;
        Ok(Self { file, chunks: Vec::new(), earlier, path: path.to_owned() })
    }

    /// Puts the new file into the place of that of the life before, whose words nobody finds any more. To
    /// be called when they are kept elsewhere, and before anything is stored here.
    ///
    /// # Errors
    /// Fails if it cannot be put there.
    pub fn begin(&mut self) -> io::Result<()> {
        std::fs::rename(fresh(&self.path), &self.path)
    }

    /// Pairs of the life before, by number.
    #[must_use]
    pub fn earlier(&self) -> &[[u64; 2]] {
        &self.earlier
    }

    /// The pair of a number below 2²⁰.
    ///
    /// # Errors
    /// Fails if the file cannot grow or be mapped.
    pub fn pair(&mut self, number: u32) -> io::Result<[&'static AtomicU64; 2]> {
        let number = number as usize;
        if number >= PAIRS_MAX {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        while self.chunks.len() <= number / CHUNK {
            let chunk = map(&self.file, self.chunks.len() * CHUNK_BYTES)?;
            self.chunks.push(chunk);
        }
        let pair = self.chunks.get(number / CHUNK).and_then(|chunk| chunk.get(number % CHUNK));
        let Some([first, second, ..]) = pair else { return Err(io::ErrorKind::NotFound.into()) };
        Ok([first, second])
    }
}

fn fresh(path: &Path) -> PathBuf {
    path.with_extension("new")
}

/// The pairs of a file; what lies behind the last whole one does not count.
fn read(file: File) -> io::Result<Vec<[u64; 2]>> {
    let mut bytes = Vec::new();
    file.take((PAIRS_MAX * STRIDE * size_of::<u64>()) as u64).read_to_end(&mut bytes)?;
    let words = bytes.as_chunks::<8>().0.iter().map(|bytes| u64::from_ne_bytes(*bytes));
    let words: Vec<_> = words.collect();
    let pairs = words.as_chunks::<STRIDE>().0.iter();
    Ok(pairs.map(|[first, second, ..]| [*first, *second]).collect())
}

/// Maps the part of a file that begins at a byte, and has its space reserved.
fn map(file: &File, at: usize) -> io::Result<&'static Chunk> {
    let at = i64::try_from(at).map_err(io::Error::other)?;
    // SAFETY: the call takes no memory of this process.
    check(unsafe { libc::fallocate(file.as_raw_fd(), 0, at, CHUNK_BYTES as i64) })?;
    let (access, how) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: a fresh mapping at an address of the kernel's choice touches nothing that exists.
    let map = unsafe { libc::mmap(null_mut(), CHUNK_BYTES, access, how, file.as_raw_fd(), at) };
    if map == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the mapping has as many bytes, is aligned to a page and is never unmapped; all access it
    // atomically, and any bytes are a value.
    Ok(unsafe { &*map.cast::<Chunk>() })
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::Ordering;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir_in("/dev/shm").unwrap()
    }

    #[test]
    fn the_next_life_finds_what_was_stored() {
        let folder = folder();
        let path = folder.path().join("edges");
        let mut words = Words::open(&path).unwrap();
        words.begin().unwrap();
        assert_eq!(words.earlier(), [[0; 2]; 0]);
        let far = u32::try_from(CHUNK * 2 + 3).unwrap();
        for (number, value) in [(0, 7), (1, 8), (far, 9)] {
            let [first, second] = words.pair(number).unwrap();
            first.store(value, Ordering::Release);
            second.store(u64::MAX - value, Ordering::Release);
        }
        assert_eq!(words.pair(1).unwrap()[0].load(Ordering::Relaxed), 8);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        // As it would be after a kill: nothing was closed.
        let mut next = Words::open(&path).unwrap();
        let found = |number: u32| next.earlier()[number as usize];
        assert_eq!([found(0), found(1)], [[7, u64::MAX - 7], [8, u64::MAX - 8]]);
        assert_eq!((found(2), found(far)), ([0; 2], [9, u64::MAX - 9]));
        assert_eq!(next.pair(0).unwrap()[0].load(Ordering::Relaxed), 0);
        next.begin().unwrap();
        // Who still stores into the file of a life before is not found.
        words.pair(5).unwrap()[0].store(1, Ordering::Release);
        assert!(Words::open(&path).unwrap().earlier().iter().all(|pair| *pair == [0; 2]));
    }

    /// A process may be killed before it has kept elsewhere what it read.
    #[test]
    fn what_was_stored_is_found_again_until_somebody_begins_anew() {
        let folder = folder();
        let path = folder.path().join("edges");
        let mut words = Words::open(&path).unwrap();
        words.begin().unwrap();
        words.pair(0).unwrap()[0].store(7, Ordering::Release);
        for _ in 0..3 {
            assert_eq!(Words::open(&path).unwrap().earlier()[0], [7, 0]);
        }
        Words::open(&path).unwrap().begin().unwrap();
        assert_eq!(Words::open(&path).unwrap().earlier(), [[0; 2]; 0]);
    }

    #[test]
    fn other_files_are_read_as_far_as_they_make_sense_and_never_followed() {
        let folder = folder();
        let path = folder.path().join("edges");
        std::fs::write(&path, [1; STRIDE * 8 + 9]).unwrap();
        let words = Words::open(&path).unwrap();
        assert_eq!(words.earlier(), [[0x0101_0101_0101_0101; 2]]);
        drop(words);
        std::fs::remove_file(&path).unwrap();
        let elsewhere = folder.path().join("elsewhere");
        std::fs::write(&elsewhere, [1; 64]).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        assert_eq!(Words::open(&path).unwrap_err().raw_os_error(), Some(libc::ELOOP));
        assert_eq!(std::fs::read(&elsewhere).unwrap(), [1; 64]);
        let limit = u32::try_from(PAIRS_MAX).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(Words::open(&path).unwrap().pair(limit).is_err());
        assert!(!path.exists(), "nobody has begun");
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        assert_eq!(Words::open(&path).unwrap().earlier(), [[0; 2]; 0]);
    }
}
