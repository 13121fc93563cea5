//! SPIs in memory shared with programs in the kernel: the value of a BPF map (`BPF_F_MMAPABLE`, Linux 5.5).

use core::mem::offset_of;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicU32, AtomicU64};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::bpf::value_map;

/// Number of slots: an SPI has that of its low 16 bits, which daemons choose at random.
pub(crate) const SLOTS: usize = 1 << 16;
/// Slot of an SPI that packets may come with.
pub(crate) const KNOWN: u64 = 1 << 32;
/// Slot of one SPI alone, with the least sequence number that its SA still accepts in the low half.
pub(crate) const WITH_EDGE: u64 = 2 << 32;

/// Values that programs read, and counts that they write.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Shared {
    /// Not 0 if programs drop.
    pub(crate) is_active: AtomicU32,
    unused: AtomicU32,
    /// Packets dropped for an SPI that is not known.
    pub(crate) unknown: AtomicU64,
    /// Packets dropped for a sequence number before the window.
    pub(crate) old: AtomicU64,
    pub(crate) slots: [AtomicU64; SLOTS],
}

/// Offsets in the value, for programs.
pub(crate) mod offsets {
    use super::{Shared, offset_of};

    pub(crate) const IS_ACTIVE: i16 = offset_of!(Shared, is_active) as i16;
    pub(crate) const UNKNOWN: i16 = offset_of!(Shared, unknown) as i16;
    pub(crate) const OLD: i16 = offset_of!(Shared, old) as i16;
    pub(crate) const SLOTS: i16 = offset_of!(Shared, slots) as i16;
}

/// The map and its value.
#[derive(Debug)]
pub(crate) struct SpiTable {
    map: OwnedFd,
    at: NonNull<Shared>,
}

// SAFETY: the mapping belongs to no thread, and all of it is atomic.
unsafe impl Send for SpiTable {}
// SAFETY: as above.
unsafe impl Sync for SpiTable {}

impl SpiTable {
    /// A table of no SPIs, whose programs keep everything.
    pub(crate) fn new() -> io::Result<Self> {
        let bytes = size_of::<Shared>();
        let map = value_map(bytes as u32)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice touches nothing that exists.
        let at =
            unsafe { libc::mmap(null_mut(), bytes, access, libc::MAP_SHARED, map.as_raw_fd(), 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { map, at })
    }

    /// The map, for programs that are loaded.
    pub(crate) fn map(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }

    pub(crate) fn shared(&self) -> &Shared {
        // SAFETY: the mapping is as long as a `Shared`, aligned to a page and lives as long as this value; any bytes are
        // one, and programs and this process access it only atomically.
        unsafe { self.at.as_ref() }
    }
}

impl Drop for SpiTable {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length, and nothing refers to it any more. Programs have the map, not
        // the mapping.
        let _ = unsafe { libc::munmap(self.at.as_ptr().cast(), size_of::<Shared>()) };
    }
}
