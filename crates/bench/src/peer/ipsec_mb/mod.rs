//! intel-ipsec-mb, loaded at run time.
//!
//! `layout` says what its header says, `library` finds it and makes a manager, `keys` expands keys,
//! `jobs` turns packets into jobs, `contender` calls it.

mod contender;
mod jobs;
mod keys;
mod layout;
mod library;

pub use contender::contenders;
pub use library::{Arch, IpsecMb};
