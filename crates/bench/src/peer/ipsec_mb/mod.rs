//! intel-ipsec-mb, loaded at run time.
//!
//! `layout` says what its header says, `processor` which managers can start, `library` finds it and makes
//! one, `keys` expands keys, `jobs` turns packets into jobs, `contender` calls it.

mod contender;
mod jobs;
mod keys;
mod layout;
mod library;
mod processor;

pub use contender::{Checks, contenders};
pub use library::{Arch, IpsecMb};
