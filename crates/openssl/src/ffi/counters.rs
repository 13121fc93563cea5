//! The file of counters that processes share.

use std::{
    env, fs,
    io::Write as _,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    ptr,
    sync::{OnceLock, atomic::AtomicU64},
};

use rustix::{
    fs::OFlags,
    mm::{MapFlags, ProtFlags, mmap},
};

use super::core::Core;
use crate::stats::{BYTES, Counter, MAGIC, ROW, ROWS, Tally, VARIABLE};

type Rows = [[AtomicU64; Counter::ALL.len()]; ROWS];

/// The counters behind the file's first row. They stay mapped until the process ends.
static FILE: OnceLock<Option<&'static Rows>> = OnceLock::new();

/// The counters, if there is a file.
pub(crate) fn rows() -> Option<&'static Rows> {
    *FILE.get()?
}

/// Opens the file that the configuration or the environment names, the first time the provider is loaded. A
/// file that cannot be had is done without: no server should stay down for want of statistics.
pub(super) fn open(core: &Core) {
    FILE.get_or_init(|| {
        let file = configured(core).or_else(|| {
            env::var_os(VARIABLE).filter(|name| !name.is_empty() && !is_secure()).map(PathBuf::from)
        })?;
        map(&file)
    });
    Tally::here().add(Counter::Loaded, 1);
}

/// Whether the process has rights that whoever ran its program lacks (`AT_SECURE`), so that its environment
/// may not say which file is written.
fn is_secure() -> bool {
    use std::ffi::c_ulong;
    const AT_SECURE: c_ulong = 23;
    // SAFETY: as the C library that std is linked with declares it (getauxval(3)).
    unsafe extern "C" {
        safe fn getauxval(kind: c_ulong) -> c_ulong;
    }
    getauxval(AT_SECURE) != 0
}

fn configured(core: &Core) -> Option<PathBuf> {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};
    let file = core.configured(c"stats")?.to_bytes();
    (!file.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(file)))
}

/// Maps a file of counters; makes it, for its owner alone, if it is not there.
fn map(file: &Path) -> Option<&'static Rows> {
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    let mut file = options.open(file).ok()?;
    let status = file.metadata().ok().filter(fs::Metadata::is_file)?;
    if status.len() == 0 {
        // Two processes that begin at once write the same, and zeros over zeros.
        file.set_len(BYTES as u64).ok()?;
        file.write_all(&MAGIC).ok()?;
    }
    let mut front = [0; MAGIC.len()];
    file.read_exact_at(&mut front, 0).ok()?;
    if front != MAGIC || file.metadata().ok()?.len() < BYTES as u64 {
        return None;
    }
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: the kernel chooses the place.
    let start = unsafe { mmap(ptr::null_mut(), BYTES, access, flags, &file, 0) }.ok()?;
    let rows = start.cast::<u8>().wrapping_add(ROW).cast::<Rows>();
    // SAFETY: `BYTES` are a row and all of these, of whole words; they are never unmapped, and only ever used
    // through atomics.
    Some(unsafe { &*rows })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;
    use crate::stats::Counts;

    #[test]
    fn what_one_mapping_counts_another_and_the_file_show() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("stats");
        let (one, two) = (map(&file).unwrap(), map(&file).unwrap());
        one[0][Counter::Keys as usize].fetch_add(2, Relaxed);
        two[0][Counter::Keys as usize].fetch_add(3, Relaxed);
        two[ROWS - 1][Counter::Keys as usize].fetch_add(4, Relaxed);
        let counts = Counts::read(&file).unwrap();
        assert_eq!((counts.get(Counter::Keys), counts.get(Counter::Forged)), (9, 0));
    }

    #[test]
    fn files_with_something_else_in_them_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let other = folder.path().join("other");
        for text in ["precious", &"x".repeat(BYTES), "CONVOYP1", "CONVOYP2"] {
            fs::write(&other, text).unwrap();
            assert!(map(&other).is_none());
            assert_eq!(fs::read_to_string(&other).unwrap(), text);
        }
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path().join("elsewhere"), &link).unwrap();
        assert!(map(&link).is_none());
        assert!(map(folder.path()).is_none());
    }
}
