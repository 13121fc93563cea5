//! The file of counters that processes share.

use std::{
    ffi::{CStr, c_void},
    ptr,
};

use rustix::{
    fd::{AsFd as _, BorrowedFd, IntoRawFd as _},
    fs::{FallocateFlags, FileType, Mode, OFlags, fallocate, fstat, open as open_file},
    io::{Errno, close, pread, pwrite},
    mm::{MapFlags, ProtFlags, mmap},
    process::{Resource, getrlimit},
};

use super::{core::Core, environment::variable};
use crate::stats::{BYTES, MAGIC, ROW, Rows, note_loading};

/// Opens the file that the configuration or the environment names, the first time the provider is loaded. A
/// file that cannot be had is done without: no server should stay down for want of statistics.
///
/// It takes no memory, and calls the system directly, for the C library's open(2) and read(2) are places where
/// a cancelled thread ends.
pub(super) fn open(core: &Core) {
    note_loading(|| match core.configured(c"stats").filter(|file| !file.is_empty()) {
        Some(file) => map(file),
        // [`VARIABLE`](crate::stats::VARIABLE).
        None => map(variable(c"CONVOY_PROVIDER_STATS")?),
    });
}

/// Maps a file of counters; makes it, for its owner alone, if it is not there.
fn map(file: &CStr) -> Option<&'static Rows> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = open_file(file, flags, Mode::RUSR | Mode::WUSR).ok()?;
    let start = map_open(file.as_fd());
    // SAFETY: nobody has the descriptor but this function. (To drop it would be close(2) of the C library.)
    unsafe { close(file.into_raw_fd()) };
    let rows = start?.cast::<u8>().wrapping_add(ROW).cast::<Rows>();
    // SAFETY: `BYTES` are a row and all of these, of whole words; they are never unmapped, and only ever used
    // through atomics.
    Some(unsafe { &*rows })
}

fn map_open(file: BorrowedFd<'_>) -> Option<*mut c_void> {
    complete(file)?;
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: the kernel chooses the place.
    unsafe { mmap(ptr::null_mut(), BYTES, access, flags, file, 0) }.ok()
}

/// Makes a whole file of counters of one that is empty, or was left unfinished.
///
/// # Errors
///
/// `None`: the file holds something else, or there is no room for it. Nothing is written then, but for room
/// claimed in vain.
fn complete(file: BorrowedFd<'_>) -> Option<()> {
    let status = fstat(file).ok()?;
    if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
        return None;
    }
    let mut front = [0; MAGIC.len()];
    let read = pread(file, &mut front, 0).ok()?;
    let len = usize::try_from(status.st_size).ok()?;
    let is_ours = front == MAGIC;
    if !is_ours && !is_unfinished(file, len, &front[..read])? {
        return None;
    }
    // A page without room behind it would end the process with SIGBUS once a counter there is added to.
    claim(file, len)?;
    if !is_ours {
        // Two processes that begin at once write the same.
        pwrite(file, &MAGIC, 0).ok().filter(|&written| written == MAGIC.len())?;
    }
    Some(())
}

/// True if the file holds no more than what a process wrote that was kept from finishing it: zeros behind no,
/// or a part of, the mark of such files.
fn is_unfinished(file: BorrowedFd<'_>, len: usize, front: &[u8]) -> Option<bool> {
    if len > BYTES || !(MAGIC.starts_with(front) || front.iter().all(|&byte| byte == 0)) {
        return Some(false);
    }
    let mut row = [0; ROW];
    let mut at = front.len();
    while at < len {
        let read = pread(file, &mut row, at as u64).ok().filter(|&read| read > 0)?;
        if row[..read].iter().any(|&byte| byte != 0) {
            return Some(false);
        }
        at += read;
    }
    Some(true)
}

/// Claims room for the whole file, which has `len` bytes.
fn claim(file: BorrowedFd<'_>, len: usize) -> Option<()> {
    // Past the limit on file sizes the system sends SIGXFSZ, which ends the process.
    let limit = getrlimit(Resource::Fsize).current;
    if len < BYTES && limit.is_some_and(|limit| limit < BYTES as u64) {
        return None;
    }
    loop {
        match fallocate(file, FallocateFlags::empty(), 0, BYTES as u64) {
            Ok(()) => return Some(()),
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return extend(file, len),
            // Of a file that is there already: another limit of the process, say.
            Err(Errno::FBIG) if len >= BYTES => return Some(()),
            Err(_) => return None,
        }
    }
}

/// The same where the file system claims no room but for what is written.
fn extend(file: BorrowedFd<'_>, mut len: usize) -> Option<()> {
    let zeros = [0; ROW];
    while len < BYTES {
        let more = zeros.get(..ROW - len % ROW)?;
        len += pwrite(file, more, len as u64).ok().filter(|&written| written > 0)?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use std::{
        ffi::CString, fs, os::unix::ffi::OsStrExt as _, path::Path, sync::atomic::Ordering::Relaxed,
    };

    use super::*;
    use crate::stats::{Counter, Counts, ROWS};

    fn mapped(file: &Path) -> Option<&'static Rows> {
        map(&CString::new(file.as_os_str().as_bytes()).unwrap())
    }

    #[test]
    fn what_one_mapping_counts_another_and_the_file_show() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("stats");
        let (one, two) = (mapped(&file).unwrap(), mapped(&file).unwrap());
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
        let zeros_and_more = format!("{}!", "\0".repeat(3000));
        let behind_the_mark = format!("CONVOYP2{}!", "\0".repeat(3000));
        let longer = "\0".repeat(BYTES + 1);
        let precious = ["precious", &"x".repeat(BYTES), "CONVOYP1", "CONV!", &zeros_and_more];
        for text in precious.into_iter().chain([&*longer]) {
            fs::write(&other, text).unwrap();
            assert!(mapped(&other).is_none(), "{:?}", text.get(..9));
            assert_eq!(fs::read_to_string(&other).unwrap(), text);
        }
        // This one was ours: what it counted stays.
        fs::write(&other, &behind_the_mark).unwrap();
        assert!(mapped(&other).is_some());
        assert!(fs::read_to_string(&other).unwrap().starts_with(&behind_the_mark));
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path().join("elsewhere"), &link).unwrap();
        assert!(mapped(&link).is_none());
        assert!(mapped(folder.path()).is_none());
    }

    #[test]
    fn files_that_were_left_unfinished_are_finished() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("stats");
        for len in [0, 8, 4096, BYTES] {
            for mark in [&MAGIC[..0], &MAGIC[..3], &MAGIC] {
                let mut text = mark.to_vec();
                text.resize(len.max(mark.len()), 0);
                // Nothing is ever written but a whole mark or none.
                if mark.len() == 3 && len > 3 {
                    continue;
                }
                fs::write(&file, &text).unwrap();
                assert!(mapped(&file).is_some(), "{len} bytes behind {mark:?}");
                assert_eq!(Counts::read(&file).unwrap().get(Counter::Keys), 0);
            }
        }
        // Its room is claimed: no page is missing.
        use std::os::unix::fs::MetadataExt as _;
        assert!(fs::metadata(&file).unwrap().blocks() * 512 >= BYTES as u64);
    }
}
