//! Landlock's system calls (Linux 5.13), which the C library has no functions for.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

/// `LANDLOCK_CREATE_RULESET_VERSION`: the call answers which version the kernel has.
const ASK_VERSION: u32 = 1;
/// `LANDLOCK_RULE_PATH_BENEATH` and `LANDLOCK_RULE_NET_PORT`.
const PATH_BENEATH: libc::c_int = 1;
const NET_PORT: libc::c_int = 2;

/// `struct landlock_ruleset_attr`: what is refused unless a rule allows it, and what the scope keeps in.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Handled {
    pub(crate) files: u64,
    /// From version 4 on.
    pub(crate) net: u64,
    /// From version 6 on.
    pub(crate) scope: u64,
}

/// `struct landlock_path_beneath_attr`
#[repr(C, packed)]
struct PathBeneath {
    allowed: u64,
    parent: libc::c_int,
}

/// `struct landlock_net_port_attr`
#[repr(C)]
struct NetPort {
    allowed: u64,
    port: u64,
}

fn checked(result: libc::c_long) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as libc::c_int) }
}

/// The version that the running kernel has.
pub(crate) fn landlock_version() -> io::Result<u32> {
    let no_attributes = std::ptr::null::<Handled>();
    // SAFETY: with this flag the call takes no attributes.
    let version = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, no_attributes, 0_usize, ASK_VERSION)
    };
    checked(version).map(|version| version as u32)
}

/// A ruleset without rules, for a kernel of this version.
pub(crate) fn landlock_ruleset(handled: &Handled, version: u32) -> io::Result<OwnedFd> {
    let words: usize = match version {
        0..4 => 1,
        4..6 => 2,
        _ => 3,
    };
    let (call, size) = (libc::SYS_landlock_create_ruleset, words * size_of::<u64>());
    // SAFETY: so many bytes of the structure are valid for reads.
    let made = unsafe { libc::syscall(call, std::ptr::from_ref(handled), size, 0_u32) };
    let made = checked(made)?;
    // SAFETY: the kernel has just made it, and no other code knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(made) })
}

/// Allows what is beneath a folder, or a file.
pub(crate) fn landlock_allow_path(
    ruleset: BorrowedFd<'_>,
    parent: BorrowedFd<'_>,
    allowed: u64,
) -> io::Result<()> {
    let rule = PathBeneath { allowed, parent: parent.as_raw_fd() };
    add(ruleset, PATH_BENEATH, &rule)
}

/// Allows something with a port of TCP.
pub(crate) fn landlock_allow_port(
    ruleset: BorrowedFd<'_>,
    port: u16,
    allowed: u64,
) -> io::Result<()> {
    add(ruleset, NET_PORT, &NetPort { allowed, port: u64::from(port) })
}

fn add<T>(ruleset: BorrowedFd<'_>, kind: libc::c_int, rule: &T) -> io::Result<()> {
    let (call, rule) = (libc::SYS_landlock_add_rule, std::ptr::from_ref(rule));
    // SAFETY: the rule is as its kind has it, and valid for reads.
    checked(unsafe { libc::syscall(call, ruleset.as_raw_fd(), kind, rule, 0_u32) }).map(drop)
}

/// Puts the calling thread under a ruleset, and says why the kernel refuses that. It can gain no rights by a program
/// from then on, without which only who has `CAP_SYS_ADMIN` may do so.
pub(crate) fn landlock_try(ruleset: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: this option takes integers and touches no memory.
    unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1_u64, 0_u64, 0_u64, 0_u64) };
    if landlock_restrict(ruleset.as_raw_fd()) { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Puts the calling thread, and those that it starts later, under a ruleset. Says whether it did. May be called
/// in a handler of signals.
pub(super) fn landlock_restrict(ruleset: libc::c_int) -> bool {
    // SAFETY: integers only.
    unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset, 0_u32) == 0 }
}
