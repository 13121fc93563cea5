//! Code that the tests of passes share: the kernels at hand, numbers that look random, and memory whose
//! neighbours cannot be touched.

// For the guarded memory.
#![allow(unsafe_code)]

use std::{ptr, slice};

use crate::{Cpu, Tier, isa::Kernel};

/// The kernels that this machine has and `CONVOY_DENY_CPU` leaves; says which are left out.
pub(crate) fn kernels() -> Vec<Kernel> {
    let cpu = Cpu::detect().unwrap();
    for tier in Tier::ALL.into_iter().filter(|&tier| !cpu.has(tier)) {
        println!("SKIPPED in part: tier {tier}: not on this machine, or denied");
    }
    cpu.tiers().filter_map(|tier| cpu.proofs().kernel(tier)).collect()
}

/// Every kernel, and none: the portable tier.
pub(crate) fn tiers() -> Vec<Option<Kernel>> {
    [None].into_iter().chain(kernels().into_iter().map(Some)).collect()
}

/// Numbers that look random and depend on the seed alone (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }

    pub(crate) fn array<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.next() as u8)
    }

    /// A length as packets have it: mostly short, at times up to 16 KB.
    pub(crate) fn length(&mut self) -> usize {
        let limit = [20, 100, 300, 1600, 1600, 4100, 16_400][self.below(7)];
        self.below(limit)
    }
}

/// Accessible pages between two pages that cannot be touched.
pub(crate) struct Guarded {
    base: *mut u8,
}

const PAGE: usize = 4096;

/// Accessible bytes in the middle.
const ROOM: usize = 5 * PAGE;

impl Guarded {
    pub(crate) fn new() -> Self {
        // SAFETY: a fresh anonymous mapping touches no existing memory.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                ROOM + 2 * PAGE,
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
            libc::mprotect(base.wrapping_add(PAGE).cast(), ROOM, libc::PROT_READ | libc::PROT_WRITE)
        };
        assert_eq!(rc, 0);
        Self { base }
    }

    /// A copy of `bytes` that begins right behind the first guard page, or ends right before the
    /// last.
    pub(crate) fn copy(&mut self, bytes: &[u8], at_end: bool) -> &mut [u8] {
        let offset = if at_end { PAGE + ROOM - bytes.len() } else { PAGE };
        assert!(bytes.len() <= ROOM);
        // SAFETY: the range lies within the accessible pages, which the exclusive borrow guards.
        let copy =
            unsafe { slice::from_raw_parts_mut(self.base.wrapping_add(offset), bytes.len()) };
        copy.copy_from_slice(bytes);
        copy
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own and no slice outlives it.
        unsafe { libc::munmap(self.base.cast(), ROOM + 2 * PAGE) };
    }
}
