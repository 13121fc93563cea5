//! From pointers to references, and where errors are noted.

use std::{
    ffi::c_int,
    mem::offset_of,
    panic::{AssertUnwindSafe, catch_unwind},
    slice,
    sync::{
        OnceLock,
        atomic::{AtomicI32, Ordering},
    },
};

use convoy_crypto::{Cpu, KeyLender, manager::Runner};

use crate::types::{ERR_MISSING_CPUFLAGS_INIT_MGR, Job, Mgr};

/// The last error of functions that know no manager, and of all others.
static ERRNO: AtomicI32 = AtomicI32::new(0);

/// Notes an error, or that there is none. Mostly there was none before: threads do not write what they share.
#[inline]
pub(super) fn set_global_errno(number: c_int) {
    if ERRNO.load(Ordering::Relaxed) != number {
        ERRNO.store(number, Ordering::Relaxed);
    }
}

pub(super) fn global_errno() -> c_int {
    ERRNO.load(Ordering::Relaxed)
}

/// Notes an error, or that there is none, with the manager and with the library.
#[inline]
pub(super) fn set_errno(mgr: &mut Mgr, number: c_int) {
    mgr.errno = number;
    set_global_errno(number);
}

/// Does the work of a function that knows no manager, and notes how it ended. A panic, which would be a defect, ends here.
pub(super) fn noting(work: impl FnOnce() -> Result<(), c_int>) {
    let done = catch_unwind(AssertUnwindSafe(work));
    set_global_errno(match done {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => error,
        Err(_) => INTERNAL,
    });
}

/// The same of a function that copies secrets, which leaves nothing of them in registers: C's library copies with the widest.
pub(super) fn noting_of_secrets(work: impl FnOnce() -> Result<(), c_int>) {
    noting(work);
    if let Ok(lender) = lender() {
        lender.wipe_registers();
    }
}

/// Error number of a defect: the system's number for what cannot be recovered, as the header has none.
pub(super) const INTERNAL: c_int = 131;

/// The processor, asked once.
pub(super) fn cpu() -> Option<&'static Cpu> {
    static CPU: OnceLock<Option<Cpu>> = OnceLock::new();
    CPU.get_or_init(|| Cpu::detect().ok()).as_ref()
}

/// Makes keys for functions that know no manager.
pub(super) fn lender() -> Result<&'static KeyLender, c_int> {
    static LENDER: OnceLock<Option<KeyLender>> = OnceLock::new();
    let lender = LENDER.get_or_init(|| cpu().and_then(KeyLender::best));
    lender.as_ref().ok_or(ERR_MISSING_CPUFLAGS_INIT_MGR)
}

/// Works for functions that know no manager.
pub(super) fn runner() -> Result<&'static Runner, c_int> {
    static RUNNER: OnceLock<Option<Runner>> = OnceLock::new();
    let runner = RUNNER.get_or_init(|| cpu().map(Runner::best));
    runner.as_ref().ok_or(ERR_MISSING_CPUFLAGS_INIT_MGR)
}

/// Bytes to read; `error` if there are some, and the pointer is null.
///
/// # Safety
///
/// If not null, `pointer` points to `len` bytes that nobody writes while the slice is used.
#[inline]
pub(super) unsafe fn input<'a>(
    pointer: *const u8,
    len: u64,
    error: c_int,
) -> Result<&'a [u8], c_int> {
    if len == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(error);
    }
    // SAFETY: the caller's promise; what exists is no longer than a slice may be.
    Ok(unsafe { slice::from_raw_parts(pointer, len as usize) })
}

/// Bytes to write, likewise.
///
/// # Safety
///
/// If not null, `pointer` points to `len` bytes that nobody else reads or writes while the slice is used.
#[inline]
pub(super) unsafe fn output<'a>(
    pointer: *mut u8,
    len: u64,
    error: c_int,
) -> Result<&'a mut [u8], c_int> {
    if len == 0 {
        return Ok(&mut []);
    }
    if pointer.is_null() {
        return Err(error);
    }
    // SAFETY: the caller's promise; what exists is no longer than a slice may be.
    Ok(unsafe { slice::from_raw_parts_mut(pointer, len as usize) })
}

/// An object of bytes that is copied, wherever it lies.
///
/// # Safety
///
/// If not null, `pointer` points to `N` bytes.
#[inline]
pub(super) unsafe fn copied<const N: usize>(
    pointer: *const u8,
    error: c_int,
) -> Result<[u8; N], c_int> {
    if pointer.is_null() {
        return Err(error);
    }
    // SAFETY: the caller's promise; bytes are aligned everywhere.
    Ok(unsafe { pointer.cast::<[u8; N]>().read() })
}

/// An object to write.
///
/// # Safety
///
/// If not null and aligned, `pointer` points to a `T` that nobody else reads or writes while the reference is used.
#[inline]
pub(super) unsafe fn object<'a, T>(pointer: *mut T, error: c_int) -> Result<&'a mut T, c_int> {
    if pointer.is_null() || !pointer.is_aligned() {
        return Err(error);
    }
    // SAFETY: the pointer is aligned and not null, and the caller promises the rest.
    Ok(unsafe { &mut *pointer })
}

/// Works on an object of integers that programs may have anywhere: where it is not aligned, on a copy that is put back and wiped.
///
/// # Safety
///
/// If not null, `pointer` points to a `T`, any bytes of which are a value, and that nobody else reads or writes meanwhile.
#[inline]
pub(super) unsafe fn with_object<T: Copy, R>(
    pointer: *mut T,
    error: c_int,
    work: impl FnOnce(&mut T) -> Result<R, c_int>,
) -> Result<R, c_int> {
    if pointer.is_null() {
        return Err(error);
    }
    if pointer.is_aligned() {
        // SAFETY: the pointer is aligned and not null, and the caller promises the rest.
        return work(unsafe { &mut *pointer });
    }
    // SAFETY: the caller's promise.
    let mut copy = unsafe { pointer.read_unaligned() };
    let done = work(&mut copy);
    // SAFETY: as above.
    unsafe { pointer.write_unaligned(copy) };
    // SAFETY: it is made of integers, and used no more.
    unsafe { zeroize::zeroize_flat_type(&raw mut copy) };
    done
}

/// Brings text to where it is worked on, and gives that.
///
/// # Safety
///
/// Both pointers point to `len` bytes, which nobody else uses while the slice is used. They may overlap.
#[inline]
pub(super) unsafe fn text<'a>(src: *const u8, dst: *mut u8, len: usize) -> &'a mut [u8] {
    if len == 0 {
        return &mut [];
    }
    if src != dst.cast_const() {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy(src, dst, len) };
    }
    // SAFETY: as above.
    unsafe { slice::from_raw_parts_mut(dst, len) }
}

/// Sets a job's status.
///
/// # Safety
///
/// `job` points to a job.
#[inline]
pub(super) unsafe fn set_status(job: *mut Job, status: u32) {
    let place = job.wrapping_byte_add(offset_of!(Job, status)).cast::<u32>();
    // SAFETY: the caller's promise.
    unsafe { place.write(status) };
}
