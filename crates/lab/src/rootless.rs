//! Becoming root of one's own little world, as an ordinary user.

use std::{fs, io};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
    unistd::{getegid, geteuid},
};

/// An ordinary user cannot have a laboratory here. The process is still good for everything
/// that needs no namespace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RootlessError {
    /// Only a process with one thread can enter a new user namespace.
    #[error("the process already has {threads} threads; this has to come first")]
    Threads {
        /// Threads of the process.
        threads: usize,
    },
    /// The system has user namespaces switched off for ordinary users.
    #[error("this system does not let ordinary users make user namespaces ({setting} = {value})")]
    SwitchedOff {
        /// The kernel setting that says so.
        setting: &'static str,
        /// Its value.
        value: String,
    },
    /// The kernel refused without a setting that explains it (a container's system call filter, a
    /// kernel built without).
    #[error("the kernel refuses a new user namespace: {0}")]
    Refused(#[source] io::Error),
    /// The namespace was made, but the user may not be mapped to its root.
    #[error("the kernel refuses to write {file}: {error}{}", apparmor_hint())]
    Map {
        /// The file.
        file: &'static str,
        /// Cause.
        #[source]
        error: io::Error,
    },
    /// The namespace was made, but nothing may be mounted in it.
    #[error("cannot mount a private /run: {error}{}", apparmor_hint())]
    Mount {
        /// Cause.
        #[source]
        error: io::Error,
    },
}

/// Settings that can switch it off, each with the value that does.
const SWITCHES: [(&str, &str); 3] = [
    ("/proc/sys/kernel/unprivileged_userns_clone", "0"),
    ("/proc/sys/user/max_user_namespaces", "0"),
    ("/proc/sys/user/max_net_namespaces", "0"),
];
const APPARMOR: &str = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns";

/// Moves the process into user, network and mount namespaces of its own, in which it is root and
/// may make namespaces, interfaces and raw sockets. `/run` becomes a private folder, so that named
/// namespaces work; outside, nothing changes, and everything is gone when the process and its
/// children are. Files it writes elsewhere belong to the user as before.
///
/// Has to be called before the process starts a second thread.
///
/// # Errors
/// [`RootlessError`] says what this system does not permit. After [`RootlessError::Threads`],
/// [`RootlessError::SwitchedOff`] and [`RootlessError::Refused`] nothing has changed.
pub fn rootless() -> Result<(), RootlessError> {
    let threads = fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    if threads > 1 {
        return Err(RootlessError::Threads { threads });
    }
    let (uid, gid) = (geteuid(), getegid());
    let flags = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS;
    unshare(flags).map_err(|errno| explain(errno.into()))?;
    // An unprivileged process may map its group only after giving up setgroups(2).
    write_map("/proc/self/setgroups", "deny")?;
    write_map("/proc/self/uid_map", &format!("0 {uid} 1"))?;
    write_map("/proc/self/gid_map", &format!("0 {gid} 1"))?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("convoy"), "/run", Some("tmpfs"), flags, Some("mode=0755"))
        .map_err(|errno| RootlessError::Mount { error: errno.into() })
}

fn write_map(file: &'static str, text: &str) -> Result<(), RootlessError> {
    fs::write(file, text).map_err(|error| RootlessError::Map { file, error })
}

fn explain(error: io::Error) -> RootlessError {
    let switched_off = SWITCHES.iter().find_map(|(setting, off)| {
        let value = fs::read_to_string(setting).ok()?.trim().to_owned();
        (value == *off).then_some(RootlessError::SwitchedOff { setting, value })
    });
    switched_off.unwrap_or(RootlessError::Refused(error))
}

fn apparmor_hint() -> String {
    match fs::read_to_string(APPARMOR) {
        Ok(value) if value.trim() == "1" => format!(" ({APPARMOR} is 1)"),
        _ => String::new(),
    }
}
