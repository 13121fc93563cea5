//! The page of counters that processes share.

use std::{
    env, fs,
    io::Write as _,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    ptr,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use rustix::{
    fs::OFlags,
    mm::{MapFlags, ProtFlags, mmap},
};

use super::core::Core;
use crate::stats::{BYTES, Counter, MAGIC, VARIABLE};

/// The counters behind the file's first word. The page stays mapped until the process ends.
static PAGE: OnceLock<Option<&'static [AtomicU64; Counter::ALL.len()]>> = OnceLock::new();

/// Adds to a counter, if there is a file.
#[inline]
pub(crate) fn add(counter: Counter, more: u64) {
    if let Some(Some(counters)) = PAGE.get() {
        counters[counter as usize].fetch_add(more, Relaxed);
    }
}

/// Opens the file that the configuration or the environment names, the first time the provider is loaded. A
/// file that cannot be had is done without: no server should stay down for want of statistics.
pub(super) fn open(core: &Core) {
    PAGE.get_or_init(|| {
        let file = configured(core).or_else(|| {
            env::var_os(VARIABLE).filter(|name| !name.is_empty() && !is_secure()).map(PathBuf::from)
        })?;
        page(&file)
    });
    add(Counter::Loaded, 1);
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
fn page(file: &Path) -> Option<&'static [AtomicU64; Counter::ALL.len()]> {
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
    let page = unsafe { mmap(ptr::null_mut(), BYTES, access, flags, &file, 0) }.ok()?;
    let counters = page.cast::<AtomicU64>().wrapping_add(1);
    // SAFETY: the page is whole words, is never unmapped, and is only ever used through atomics.
    Some(unsafe { &*counters.cast() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Counts;

    #[test]
    fn what_one_mapping_counts_another_and_the_file_show() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("stats");
        let (one, two) = (page(&file).unwrap(), page(&file).unwrap());
        one[Counter::Keys as usize].fetch_add(2, Relaxed);
        two[Counter::Keys as usize].fetch_add(3, Relaxed);
        let counts = Counts::read(&file).unwrap();
        assert_eq!((counts.get(Counter::Keys), counts.get(Counter::Forged)), (5, 0));
    }

    #[test]
    fn files_with_something_else_in_them_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let other = folder.path().join("other");
        for text in ["precious", &"x".repeat(BYTES), "CONVOYP1"] {
            fs::write(&other, text).unwrap();
            assert!(page(&other).is_none());
            assert_eq!(fs::read_to_string(&other).unwrap(), text);
        }
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path().join("elsewhere"), &link).unwrap();
        assert!(page(&link).is_none());
        assert!(page(folder.path()).is_none());
    }
}
