//! Keeps the memory of a process that has keys out of core files, swap and debuggers.
//!
//! All of it, not only the pages of keys: keys are on stacks, in registers that a switch of threads stores, and
//! in buffers of sockets while they come in, and who marks single pages must find every one of those.

use std::fs;

use rustix::io::Errno;
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{DumpableBehavior, Resource, Rlimit};
use rustix::process::{getrlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{CapabilitySet, capabilities};

/// To be called before a gateway reads keys. What cannot be done is told, where it matters.
pub(crate) fn keep_private() {
    keep_from_cores();
    if let Err(error) = keep_from_swap()
        && swaps()
    {
        tracing::warn!(
            "the gateway's memory is not locked ({error}), so keys may reach swap: raise the limit on locked \
             memory (LimitMEMLOCK=infinity, ulimit -l unlimited), or turn swap off"
        );
    }
}

/// The same for a process that has keys for a moment: an ordinary user, who cannot lock memory, is not told so each time.
pub(crate) fn keep_private_for_now() {
    keep_from_cores();
    if let Err(error) = keep_from_swap() {
        tracing::debug!(%error, "memory is not locked");
    }
}

/// Nothing of the process gets into a core file, also not through a program in `core_pattern`, which
/// `RLIMIT_CORE` does not keep from it; nor can another process of the user attach to it.
fn keep_from_cores() {
    // No anonymous or shared mapping gets into one that is written all the same. Before the next step,
    // after which only root can write this file.
    if let Err(error) = fs::write("/proc/self/coredump_filter", "0") {
        tracing::debug!(%error, "cannot write /proc/self/coredump_filter");
    }
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "cannot turn off core files of this process, which would contain keys");
    }
}

/// Locks what is in memory and what will be, page by page as it is used.
fn keep_from_swap() -> Result<(), Errno> {
    // Within a limit, memory that is asked for later would be refused when the limit is reached.
    if is_limited() {
        let unlimited = Rlimit { current: None, maximum: None };
        match setrlimit(Resource::Memlock, unlimited) {
            Err(error) if !may_pass_limits() => return Err(error),
            _ => {}
        }
    }
    mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)
}

/// True if memory is locked beyond what the limit allows, so that more of it needs `CAP_IPC_LOCK`.
pub(super) fn is_locked_by_right() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let locked = status.lines().find_map(|line| line.strip_prefix("VmLck:"));
    is_limited() && locked.is_some_and(|locked| locked.trim() != "0 kB")
}

fn is_limited() -> bool {
    getrlimit(Resource::Memlock).current.is_some()
}

/// A capability in another user namespace than the first does not count for this.
fn may_pass_limits() -> bool {
    let users = fs::read_to_string("/proc/self/uid_map");
    users.is_ok_and(|map| maps_all(&map))
        && capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK))
}

/// True if a user namespace is the first one, which has all users as they are.
fn maps_all(map: &str) -> bool {
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// True if this machine has swap: a line for each below a heading.
fn swaps() -> bool {
    fs::read_to_string("/proc/swaps").is_ok_and(|list| list.lines().count() > 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_of_another_user_namespace_do_not_pass_limits() {
        assert!(maps_all("         0          0 4294967295\n"));
        assert!(!maps_all("         0       1000          1\n"));
        assert!(!maps_all("         0          0          1\n         1     100000      65536\n"));
        assert!(!maps_all(""));
    }
}
