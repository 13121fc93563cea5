//! Requests to Valgrind's Memcheck: which bytes are secret, and which become public.
//!
//! Memcheck follows undefined bytes and reports each jump and each address that depends on one. So
//! secrets are marked as undefined though they are not, and what it reports is a leak through time.
//! Outside Valgrind all of this does nothing.

use std::arch::asm;

const RUNNING_ON_VALGRIND: u64 = 0x1001;
const COUNT_ERRORS: u64 = 0x1201;
/// Requests to Memcheck begin with its letters.
const MAKE_MEM_UNDEFINED: u64 = 0x4d43_0001;
const MAKE_MEM_DEFINED: u64 = 0x4d43_0002;

/// True if the process runs under Valgrind, which follows the marks.
#[must_use]
pub fn are_followed() -> bool {
    ask(RUNNING_ON_VALGRIND, &[]) != 0
}

/// Number of reports so far.
#[must_use]
pub fn reports() -> u64 {
    ask(COUNT_ERRORS, &[])
}

/// Marks bytes as secret.
pub fn mark_secret<T: ?Sized>(bytes: &mut T) {
    let start = std::ptr::from_mut(bytes).cast::<u8>().addr();
    ask(MAKE_MEM_UNDEFINED, &[start as u64, size_of_val(bytes) as u64]);
}

/// Marks bytes as public.
pub fn mark_public<T: ?Sized>(bytes: &mut T) {
    let start = std::ptr::from_mut(bytes).cast::<u8>().addr();
    ask(MAKE_MEM_DEFINED, &[start as u64, size_of_val(bytes) as u64]);
}

/// A request; 0 where nobody answers. Valgrind knows it by a row of rotations that together change
/// nothing.
#[inline(always)]
fn ask(request: u64, arguments: &[u64]) -> u64 {
    let mut block = [0; 6];
    block[0] = request;
    block[1..=arguments.len()].copy_from_slice(arguments);
    let mut answer = 0_u64;
    // SAFETY: without Valgrind this does nothing: the rotations add up to 128. With it, memory that
    // a request names is marked and not changed.
    unsafe {
        asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") block.as_ptr(),
            inout("rdx") answer,
        );
    }
    answer
}
