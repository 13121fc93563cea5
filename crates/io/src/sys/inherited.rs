//! Descriptors that were there when this process began.

use std::env;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};

/// The first of them (`SD_LISTEN_FDS_START`).
const FIRST: RawFd = 3;
/// Most that are taken.
const MOST: RawFd = 1024;

/// Descriptors that the service manager handed to this process, with their names (`sd_listen_fds(3)`). No program that
/// this process starts gets them. They are this process's alone, so there are none the second time.
#[must_use]
pub fn handed_over() -> Vec<(String, OwnedFd)> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let number = |name| env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    let are_ours = number("LISTEN_PID") == Some(process::id());
    let count = number("LISTEN_FDS").and_then(|count| RawFd::try_from(count).ok()).unwrap_or(0);
    if !are_ours || TAKEN.swap(true, Ordering::Relaxed) {
        return Vec::new();
    }
    let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    let mut all = Vec::new();
    for fd in FIRST..FIRST.saturating_add(count.min(MOST)) {
        let name = names.next().unwrap_or_default().to_owned();
        // SAFETY: fcntl(2) takes three numbers, and refuses one that is no descriptor.
        if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } == 0 {
            // SAFETY: it is open, the service manager opened it for this process before it began, and it is taken once.
            all.push((name, unsafe { OwnedFd::from_raw_fd(fd) }));
        }
    }
    all
}
