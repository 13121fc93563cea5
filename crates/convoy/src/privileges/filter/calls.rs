//! System calls that a running gateway makes, and the arguments that they may have.

use std::collections::BTreeMap;

use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{self, Eq, MaskedEq};
use seccompiler::{BackendError, SeccompCmpArgLen, SeccompCondition, SeccompRule};

/// For each call the ways in which it matches; none: however it is called.
pub(super) type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Calls that are allowed whatever they ask for: rights and files that they need were given before.
const ALLOWED: &[i64] = &[
    // Files and descriptors: site and key files, leases, what daemons negotiated, captures, logs, /proc.
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_syncfs,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_flock,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_unlinkat,
    libc::SYS_mkdirat,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    // The sign in a state folder that was lost.
    libc::SYS_fsetxattr,
    libc::SYS_fgetxattr,
    libc::SYS_umask,
    libc::SYS_fcntl,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_pipe2,
    // Sockets, once there are any.
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_shutdown,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    // Waiting.
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_eventfd2,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    // Memory; who makes it executable is asked below.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_munlock,
    // Threads of this process.
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_rseq,
    libc::SYS_membarrier,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_getcpu,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // The helper has ended.
    libc::SYS_wait4,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    // What is asked of the kernel.
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getgroups,
    libc::SYS_capget,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_sysinfo,
    libc::SYS_uname,
];

/// The same under the names that only this family of processors still has.
#[cfg(target_arch = "x86_64")]
const OLDER: &[i64] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_unlink,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_chmod,
    libc::SYS_dup2,
    libc::SYS_pipe,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_eventfd,
    libc::SYS_time,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[i64] = &[];

/// Calls that end the gateway: nothing of it makes them, and whoever took it over begins with one.
const FATAL: &[i64] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_open_by_handle_at,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_reboot,
    libc::SYS_userfaultfd,
];

#[cfg(target_arch = "x86_64")]
const FATAL_OLDER: &[i64] =
    &[libc::SYS_fork, libc::SYS_vfork, libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_modify_ldt];
#[cfg(not(target_arch = "x86_64"))]
const FATAL_OLDER: &[i64] = &[];

/// Calls that fail as they do without rights, for which programs are prepared.
const REFUSED: &[i64] = &[
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_capset,
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setgroups,
    libc::SYS_perf_event_open,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_io_uring_setup,
    libc::SYS_personality,
    libc::SYS_sched_setaffinity,
    libc::SYS_mlockall,
    libc::SYS_munlockall,
    libc::SYS_fchown,
    libc::SYS_fchownat,
];

/// The same under the names that only this family of processors still has.
#[cfg(target_arch = "x86_64")]
const REFUSED_OLDER: &[i64] = &[libc::SYS_chown, libc::SYS_lchown];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_OLDER: &[i64] = &[];

/// Calls of the helper; its memory, its end, and what Rust's library asks.
const HELPER: &[i64] = &[
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_write,
    libc::SYS_sendto,
    libc::SYS_fchown,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_close,
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_futex,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
];

/// Kinds of sockets that a gateway opens while it runs, but for those of netlink. Those of Unix are open by then: a
/// further one would lead to other services of this host.
const SOCKETS: [i32; 4] = [libc::AF_INET, libc::AF_INET6, libc::AF_PACKET, libc::AF_XDP];

/// Netlink families that it uses: routes and interfaces, the packet filter.
const NETLINK: [i32; 2] = [libc::NETLINK_ROUTE, libc::NETLINK_NETFILTER];

/// Pairs of Unix sockets that lead to each other and nowhere else.
const PAIRS: [i32; 2] = [libc::SOCK_STREAM, libc::SOCK_SEQPACKET];

/// The part of a socket's type that is no flag.
const TYPE: u64 = 0xf;

/// `PR_SET_VMA`, by which the C library names its memory.
const PR_SET_VMA: u64 = 0x5356_4d41;

/// Calls that end the gateway.
pub(super) fn fatal() -> impl Iterator<Item = i64> {
    FATAL.iter().chain(FATAL_OLDER).copied()
}

/// Calls that fail with `EPERM`.
pub(super) fn refused() -> impl Iterator<Item = i64> {
    REFUSED.iter().chain(REFUSED_OLDER).copied()
}

/// Calls that the helper makes.
pub(super) fn for_helper() -> Result<Rules, BackendError> {
    let mut rules: Rules = HELPER.iter().map(|&call| (call, Vec::new())).collect();
    rules.insert(libc::SYS_mmap, vec![no_code()?]);
    rules.insert(libc::SYS_mprotect, vec![no_code()?]);
    Ok(rules)
}

/// No memory with code in it is made, and none becomes code.
fn no_code() -> Result<SeccompRule, BackendError> {
    when(2, Dword, MaskedEq(libc::PROT_EXEC as u64), 0)
}

/// Calls that the gateway makes, whose number as a process is `process`.
pub(super) fn allowed(process: u32, bpf: bool) -> Result<Rules, BackendError> {
    let mut rules: Rules = ALLOWED.iter().chain(OLDER).map(|&call| (call, Vec::new())).collect();
    if bpf {
        rules.insert(libc::SYS_bpf, Vec::new());
    }
    rules.insert(libc::SYS_mmap, vec![no_code()?]);
    rules.insert(libc::SYS_mprotect, vec![no_code()?]);
    // Threads, but no processes. Of `clone3` no filter can see the flags: at its ENOSYS, `clone` is taken.
    let thread = libc::CLONE_THREAD as u64;
    rules.insert(libc::SYS_clone, vec![when(0, Qword, MaskedEq(thread), thread)?]);
    let sockets = SOCKETS.iter().map(|&kind| when(0, Dword, Eq, kind as u64));
    let netlink = NETLINK.iter().map(|&protocol| {
        let family = condition(0, Dword, Eq, libc::AF_NETLINK as u64)?;
        SeccompRule::new(vec![family, condition(2, Dword, Eq, protocol as u64)?])
    });
    rules.insert(libc::SYS_socket, sockets.chain(netlink).collect::<Result<_, _>>()?);
    let pairs = PAIRS.iter().map(|&kind| {
        let family = condition(0, Dword, Eq, libc::AF_UNIX as u64)?;
        SeccompRule::new(vec![family, condition(1, Dword, MaskedEq(TYPE), kind as u64)?])
    });
    rules.insert(libc::SYS_socketpair, pairs.collect::<Result<_, _>>()?);
    // An empty file: the sign in a state folder that was replaced.
    let file = || when(2, Dword, MaskedEq(u64::from(libc::S_IFMT)), u64::from(libc::S_IFREG));
    rules.insert(libc::SYS_mknodat, vec![file()?]);
    // Signals to itself, as when it aborts.
    let itself = || when(0, Dword, Eq, u64::from(process));
    rules.insert(libc::SYS_tgkill, vec![itself()?]);
    rules.insert(libc::SYS_kill, vec![itself()?]);
    // Limits may be read.
    rules.insert(libc::SYS_prlimit64, vec![when(2, Qword, Eq, 0)?]);
    let names = [libc::PR_SET_NAME as u64, libc::PR_GET_NAME as u64, PR_SET_VMA];
    let names: Result<_, _> = names.into_iter().map(|option| when(0, Dword, Eq, option)).collect();
    rules.insert(libc::SYS_prctl, names?);
    rules.insert(libc::SYS_ioctl, ioctls()?);
    Ok(rules)
}

/// Requests about descriptors, terminals (whether it is one), interfaces and TUN devices.
#[allow(clippy::unnecessary_cast, reason = "C libraries differ in the type of these")]
fn ioctls() -> Result<Vec<SeccompRule>, BackendError> {
    Ok(vec![
        when(1, Dword, Eq, libc::FIONBIO as u64)?,
        when(1, Dword, Eq, libc::FIONREAD as u64)?,
        when(1, Dword, Eq, libc::FIOCLEX as u64)?,
        when(1, Dword, Eq, libc::TCGETS as u64)?,
        // SIOC…: type 0x89.
        when(1, Dword, MaskedEq(0xffff_ff00), 0x8900)?,
        // TUN…: type 'T', numbers from 0xc0; those of terminals, of the same type, are lower.
        when(1, Dword, MaskedEq(0xffc0), 0x54c0)?,
    ])
}

/// Matches when one argument is so.
fn when(
    argument: u8,
    len: SeccompCmpArgLen,
    is: SeccompCmpOp,
    value: u64,
) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(vec![condition(argument, len, is, value)?])
}

fn condition(
    argument: u8,
    len: SeccompCmpArgLen,
    is: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, len, is, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_call_is_on_two_lists() {
        let allowed = allowed(1, true).unwrap();
        for call in fatal() {
            assert!(!allowed.contains_key(&call) && refused().all(|other| other != call), "{call}");
        }
        for call in refused() {
            assert!(!allowed.contains_key(&call), "{call}");
        }
    }

    #[test]
    fn bpf_is_for_those_who_need_it() {
        assert!(allowed(1, true).unwrap().contains_key(&libc::SYS_bpf));
        assert!(!allowed(1, false).unwrap().contains_key(&libc::SYS_bpf));
    }
}
