//! Sockets that are remembered for the next server.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed};

use super::system;

/// Most sockets of a kind that are remembered.
const REMEMBERED_MAX: usize = 64;

/// A socket that the next server hears of.
struct Place {
    /// Its descriptor plus 1, or 0.
    fd: AtomicI32,
    inode: AtomicU64,
    value: AtomicU64,
}

impl Place {
    /// The socket, if it is the same still.
    fn socket(&self) -> Option<c_int> {
        let fd = self.fd.load(Relaxed).checked_sub(1).filter(|fd| *fd >= 0)?;
        (system::socket_inode(fd) == Some(self.inode.load(Relaxed))).then_some(fd)
    }
}

/// Sockets that the next server hears of, and a number for each.
pub(super) struct Remembered([Place; REMEMBERED_MAX]);

impl Remembered {
    pub(super) const fn new() -> Self {
        Self(
            [const {
                Place { fd: AtomicI32::new(0), inode: AtomicU64::new(0), value: AtomicU64::new(0) }
            }; REMEMBERED_MAX],
        )
    }

    /// Adds a socket, or gives it another number.
    pub(super) fn add(&self, fd: c_int, value: u64) {
        let Some(inode) = system::socket_inode(fd) else { return };
        let known = self.0.iter().find(|place| place.fd.load(Relaxed) == fd + 1);
        let stale = || self.0.iter().find(|place| place.socket().is_none());
        if let Some(place) = known.or_else(stale) {
            place.inode.store(inode, Relaxed);
            place.value.store(value, Relaxed);
            place.fd.store(fd + 1, Relaxed);
        }
    }

    /// Takes a socket out.
    pub(super) fn remove(&self, fd: c_int) {
        let places = self.0.iter().filter(|place| place.fd.load(Relaxed) == fd + 1);
        places.for_each(|place| place.fd.store(0, Relaxed));
    }

    /// The number of a socket, if it is one of these.
    pub(super) fn of(&self, fd: c_int) -> Option<u64> {
        self.all().find_map(|(other, value)| (other == fd).then_some(value))
    }

    /// Sockets that are there still, with their numbers.
    pub(super) fn all(&self) -> impl Iterator<Item = (c_int, u64)> + '_ {
        self.0.iter().filter_map(|place| Some((place.socket()?, place.value.load(Relaxed))))
    }
}
