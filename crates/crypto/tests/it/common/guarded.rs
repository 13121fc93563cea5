//! Memory whose neighbours cannot be touched.

use std::{ptr, slice};

/// Accessible pages between two that cannot be touched.
pub(crate) struct Guarded {
    base: *mut u8,
    room: usize,
}

const PAGE: usize = 4096;

impl Guarded {
    /// Room for at least `bytes`.
    pub(crate) fn new(bytes: usize) -> Self {
        let room = bytes.next_multiple_of(PAGE).max(PAGE);
        // SAFETY: a fresh anonymous mapping touches no existing memory.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                room + 2 * PAGE,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(base, libc::MAP_FAILED);
        let base: *mut u8 = base.cast();
        // SAFETY: the range lies within the mapping made above.
        let rc = unsafe {
            libc::mprotect(base.wrapping_add(PAGE).cast(), room, libc::PROT_READ | libc::PROT_WRITE)
        };
        assert_eq!(rc, 0);
        Self { base, room }
    }

    /// `len` bytes that begin right behind the first guard page, or end right before the last.
    pub(crate) fn slice(&mut self, len: usize, at_end: bool) -> &mut [u8] {
        assert!(len <= self.room);
        let offset = if at_end { PAGE + self.room - len } else { PAGE };
        // SAFETY: the range lies within the accessible pages, which the exclusive borrow guards.
        unsafe { slice::from_raw_parts_mut(self.base.wrapping_add(offset), len) }
    }

    /// The same with these bytes in it.
    pub(crate) fn copy(&mut self, bytes: &[u8], at_end: bool) -> &mut [u8] {
        let copy = self.slice(bytes.len(), at_end);
        copy.copy_from_slice(bytes);
        copy
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own and no slice outlives it.
        unsafe { libc::munmap(self.base.cast(), self.room + 2 * PAGE) };
    }
}
