//! Rings in memory shared with the kernel (`Documentation/networking/af_xdp.rst`).
//!
//! One side writes entries and then moves the producer's index, the other reads entries and then
//! moves the consumer's. Indices count up and wrap; entries between them belong to the consumer, all
//! others to the producer.

use core::marker::PhantomData;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicU32, Ordering};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Plain numbers, for which any bytes are a value.
pub(super) trait Entry: Copy {}
impl Entry for u64 {}
impl Entry for libc::xdp_desc {}

/// A mapping of a ring of `T`, which ends with this value.
struct Mapping<T> {
    at: NonNull<u8>,
    bytes: usize,
    offsets: libc::xdp_ring_offset,
    entries: u32,
    holds: PhantomData<T>,
}

// SAFETY: the mapping belongs to no thread, and the value is its only owner on this side.
unsafe impl<T> Send for Mapping<T> {}

impl<T: Entry> Mapping<T> {
    /// Maps a ring of `entries` (a power of two) of the socket `fd`, which lies at `place` there.
    fn new(
        fd: BorrowedFd<'_>,
        place: i64,
        offsets: libc::xdp_ring_offset,
        entries: u32,
    ) -> io::Result<Self> {
        let bytes = offsets.desc as usize + entries as usize * size_of::<T>();
        let (access, how) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
        // SAFETY: a fresh mapping at an address of the kernel's choice touches nothing that exists.
        let at = unsafe { libc::mmap(null_mut(), bytes, access, how, fd.as_raw_fd(), place) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { at, bytes, offsets, entries, holds: PhantomData })
    }

    fn word(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: the kernel gave the offset of a number within the mapping.
        let at = unsafe { self.at.add(offset as usize) };
        // SAFETY: it is aligned to its size, lives as long as the mapping, and is only ever
        // accessed atomically on this side and by the kernel.
        unsafe { at.cast::<AtomicU32>().as_ref() }
    }

    fn entry(&self, index: u32) -> NonNull<T> {
        let slot = (index & (self.entries - 1)) as usize;
        // SAFETY: the masked slot is one of the `entries` behind the offset of the first.
        let at = unsafe { self.at.add(self.offsets.desc as usize + slot * size_of::<T>()) };
        at.cast()
    }

    fn producer(&self) -> &AtomicU32 {
        self.word(self.offsets.producer)
    }

    fn consumer(&self) -> &AtomicU32 {
        self.word(self.offsets.consumer)
    }

    fn wants_wakeup(&self) -> bool {
        self.word(self.offsets.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

impl<T> Drop for Mapping<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this address and length, and nothing refers to it any
        // more. A failure leaves it, which harms nothing.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}

/// A ring whose entries this side writes.
pub(super) struct Producer<T> {
    map: Mapping<T>,
    /// Next entry to be written, and how far the kernel had read when last looked at.
    next: u32,
    read: u32,
}

impl<T: Entry> Producer<T> {
    pub(super) fn new(
        fd: BorrowedFd<'_>,
        place: i64,
        offsets: libc::xdp_ring_offset,
        entries: u32,
    ) -> io::Result<Self> {
        let map = Mapping::new(fd, place, offsets, entries)?;
        let next = map.producer().load(Ordering::Relaxed);
        let read = map.consumer().load(Ordering::Acquire);
        Ok(Self { map, next, read })
    }

    /// Writes an entry, which [`Self::publish`] gives to the kernel; false when the ring is full.
    #[inline]
    pub(super) fn push(&mut self, value: T) -> bool {
        if self.next.wrapping_sub(self.read) >= self.map.entries {
            self.read = self.map.consumer().load(Ordering::Acquire);
            if self.next.wrapping_sub(self.read) >= self.map.entries {
                return false;
            }
        }
        // SAFETY: the entry lies in the mapping, aligned, and is not between the consumer's index
        // and the producer's, so that the kernel does not look at it.
        unsafe { self.map.entry(self.next).write(value) };
        self.next = self.next.wrapping_add(1);
        true
    }

    /// Gives the kernel what was written.
    #[inline]
    pub(super) fn publish(&mut self) {
        self.map.producer().store(self.next, Ordering::Release);
    }

    /// True if at most `n` entries are left for the kernel to read.
    #[inline]
    pub(super) fn unread_at_most(&mut self, n: u32) -> bool {
        self.next.wrapping_sub(self.read) <= n || self.unread() <= n
    }

    /// Entries that the kernel has not read yet.
    #[inline]
    pub(super) fn unread(&mut self) -> u32 {
        self.read = self.map.consumer().load(Ordering::Acquire);
        self.next.wrapping_sub(self.read)
    }

    #[inline]
    pub(super) fn wants_wakeup(&self) -> bool {
        self.map.wants_wakeup()
    }
}

/// A ring whose entries the kernel writes.
pub(super) struct Consumer<T> {
    map: Mapping<T>,
    /// Next entry to be read, and how far the kernel had written when last looked at.
    next: u32,
    written: u32,
}

impl<T: Entry> Consumer<T> {
    pub(super) fn new(
        fd: BorrowedFd<'_>,
        place: i64,
        offsets: libc::xdp_ring_offset,
        entries: u32,
    ) -> io::Result<Self> {
        let map = Mapping::new(fd, place, offsets, entries)?;
        let next = map.consumer().load(Ordering::Relaxed);
        let written = map.producer().load(Ordering::Acquire);
        Ok(Self { map, next, written })
    }

    /// The next entry. Its place is the kernel's again after [`Self::release`].
    #[inline]
    pub(super) fn pop(&mut self) -> Option<T> {
        if self.next == self.written {
            self.written = self.map.producer().load(Ordering::Acquire);
            if self.next == self.written {
                return None;
            }
        }
        // SAFETY: the entry lies in the mapping, aligned, between the consumer's index and the
        // producer's, so that the kernel has written it and does not change it.
        let value = unsafe { self.map.entry(self.next).read() };
        self.next = self.next.wrapping_add(1);
        Some(value)
    }

    /// Gives the places of what was read back to the kernel.
    #[inline]
    pub(super) fn release(&mut self) {
        self.map.consumer().store(self.next, Ordering::Release);
    }
}
