//! Gives up capabilities, and the use of files, in every thread of the process.
//!
//! The kernel lets a thread change only its own capabilities and put only itself under a ruleset of Landlock, and
//! threads that a start has made have those of the thread that made them. So each is asked by a signal, says that
//! it has done so, and `/proc/self/task` tells of its capabilities.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use crate::landlock::Ruleset;
use crate::sys::{Broadcast, Done};

/// Longest time that threads may take. One that works answers at once; one in a system call that cannot be
/// interrupted, when that ends.
const SEND_TIMEOUT: Duration = Duration::from_secs(20);

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(1);

/// `CAP_SETPCAP`, without which the bounding set stays as it is.
const SETPCAP: u64 = 1 << 8;

/// Contents of a thread's `status` file about its rights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Rights {
    inheritable: u64,
    permitted: u64,
    effective: u64,
    bounding: u64,
    ambient: u64,
    no_new_privs: bool,
}

impl Rights {
    fn parse(status: &str) -> Option<Self> {
        let field =
            |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let set = |name| u64::from_str_radix(field(name)?, 16).ok();
        Some(Self {
            inheritable: set("CapInh:")?,
            permitted: set("CapPrm:")?,
            effective: set("CapEff:")?,
            bounding: set("CapBnd:")?,
            ambient: set("CapAmb:")?,
            no_new_privs: field("NoNewPrivs:")? == "1",
        })
    }

    /// True if a thread with these has given up all but `keep`.
    fn is_narrow(&self, keep: u64, is_bounded: bool) -> bool {
        (self.permitted | self.effective) & !keep == 0
            && self.inheritable | self.ambient == 0
            && self.no_new_privs
            && (!is_bounded || self.bounding & !keep == 0)
    }
}

/// Every thread of the process gives up all capabilities but those of `keep` (a bit for each number), and
/// can gain none by running a program. Who has `CAP_SETPCAP` also takes them out of the bounding set. If there
/// is a ruleset, every thread may use no other files from now on. Threads that are started later have what those
/// that start them have.
///
/// # Errors
/// Without `/proc`, when a thread still has others after 20 seconds, and when one does not get under the ruleset.
pub fn keep_only(keep: u64, files: Option<&Ruleset>) -> io::Result<()> {
    let own = Rights::parse(&fs::read_to_string("/proc/thread-self/status")?);
    let own =
        own.ok_or_else(|| io::Error::other("/proc/thread-self/status names no capabilities"))?;
    let is_bounded = own.effective & SETPCAP != 0;
    let broadcast = Broadcast::new(keep, files.map(Ruleset::as_fd))?;
    let begin = Instant::now();
    let mut asked = BTreeSet::new();
    // A thread that is done starts none that is not. One that is listed may have started another before it
    // was done, too late to be listed with it, so all are done once two listings in a row say so.
    let mut clean = 0;
    loop {
        let done: BTreeMap<_, _> = broadcast.done().collect();
        if let Some((thread, _)) = done.iter().find(|(_, done)| **done == Done::NoRuleset) {
            return Err(io::Error::other(format!("Landlock cannot confine thread {thread}")));
        }
        let mut wide = threads_of_process(keep, is_bounded)?;
        wide.retain(|(thread, is_wide)| *is_wide || !done.contains_key(thread));
        let Some((first, _)) = wide.first() else {
            clean += 1;
            if clean == 2 {
                return Ok(());
            }
            continue;
        };
        clean = 0;
        if begin.elapsed() > SEND_TIMEOUT {
            return Err(io::Error::other(format!("thread {first} did not give them up")));
        }
        for (thread, _) in wide.into_iter().filter(|(thread, _)| asked.insert(*thread)) {
            broadcast.send(thread)?;
        }
        std::thread::sleep(LOOK);
    }
}

/// True if the process has rights that the user who ran its program lacks: setuid, setgid or capabilities of its file
/// (`AT_SECURE`). Its environment is then that of a user who may not decide.
#[must_use]
pub fn is_secure() -> bool {
    crate::sys::is_secure()
}

/// The threads of the process, and which have other capabilities than these.
fn threads_of_process(keep: u64, is_bounded: bool) -> io::Result<Vec<(i32, bool)>> {
    let mut threads = Vec::new();
    for entry in fs::read_dir("/proc/self/task")? {
        let entry = entry?;
        let Some(thread) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let status = match fs::read_to_string(entry.path().join("status")) {
            Ok(status) => status,
            // It has ended meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => continue,
            Err(error) => return Err(error),
        };
        let rights = Rights::parse(&status);
        let is_wide = rights.is_none_or(|rights| !rights.is_narrow(keep, is_bounded));
        threads.push((thread, is_wide));
    }
    Ok(threads)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tconvoy\nCapInh:\t0000000000000000\nCapPrm:\t0000000000003000\n\
                          CapEff:\t0000000000001000\nCapBnd:\t000001ffffffffff\nCapAmb:\t0000000000000000\n\
                          NoNewPrivs:\t1\nSeccomp:\t2\n";

    #[test]
    fn reads_what_the_kernel_says_of_a_thread() {
        let rights = Rights::parse(STATUS).unwrap();
        assert_eq!((rights.permitted, rights.effective), (0x3000, 0x1000));
        assert!(rights.no_new_privs);
        assert_eq!(Rights::parse("Name:\tconvoy\n"), None);
    }

    #[test]
    fn a_thread_is_narrow_when_no_set_holds_more() {
        let rights = Rights::parse(STATUS).unwrap();
        assert!(rights.is_narrow(0x3000, false));
        assert!(!rights.is_narrow(0x1000, false), "permitted");
        assert!(!rights.is_narrow(0x3000, true), "bounding");
        assert!(!Rights { inheritable: 0x1000, ..rights }.is_narrow(0x3000, false));
        assert!(!Rights { ambient: 0x1000, ..rights }.is_narrow(0x3000, false));
        assert!(!Rights { no_new_privs: false, ..rights }.is_narrow(0x3000, false));
    }
}
