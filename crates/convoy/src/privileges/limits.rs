//! The limits of a running gateway that its command line chooses.

use clap::{Args, ValueEnum};

/// Limits of a running gateway.
#[derive(Clone, Copy, Debug, Args)]
pub struct Limits {
    /// Filter of the system calls that a gateway does not need once it has started.
    #[arg(long, value_enum, default_value_t = SyscallFilter::On, value_name = "WHAT")]
    pub syscall_filter: SyscallFilter,
    /// Files that the gateway may use once it runs: those that its site needs (Landlock, Linux 5.13), or all of
    /// its user.
    #[arg(long, value_enum, default_value_t = Landlock::On, value_name = "WHAT")]
    pub landlock: Landlock,
}

/// Files that a running gateway may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Landlock {
    /// Files that its site needs, where the kernel has Landlock.
    On,
    /// All that its user may use.
    Off,
}

/// Action on system calls that a running gateway does not need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SyscallFilter {
    /// They fail, and those that run a program end the gateway.
    On,
    /// They work, and the kernel's audit log names them.
    Log,
    /// They work.
    Off,
}
