//! What the library keeps of its own for a manager, behind it in the same memory.

use std::{fmt, mem::offset_of, ptr};

use convoy_crypto::{
    ChaChaSecret, GcmTables, KeyLender,
    manager::{AesDecryptKey, AesEncryptKey, CmacKey, HmacKeys, Runner, XcbcKey},
};

use crate::types::Mgr;

/// Jobs that are worked on together.
pub(super) const CHUNK: usize = 64;

/// What tells an initialised state from other memory.
const READY: u64 = 0x436f_6e76_6f79_4d42;

/// Copies of what jobs point to, in the types that kernels read, and their tags. Wiped when the jobs are done.
///
/// The round keys, subkeys and chaining values that callers hold have no label, and need not be aligned; so each is copied. Zeros are a
/// value of every part.
#[repr(C, align(64))]
pub(super) struct Scratch {
    pub(super) encrypt: [AesEncryptKey; CHUNK],
    pub(super) decrypt: [AesDecryptKey; CHUNK],
    pub(super) hmac: [HmacKeys; CHUNK],
    pub(super) cmac: [CmacKey; CHUNK],
    pub(super) xcbc: [XcbcKey; CHUNK],
    pub(super) secrets: [ChaChaSecret; CHUNK],
    pub(super) tags: [[u8; 64]; CHUNK],
    pub(super) icvs: [[u8; 16]; CHUNK],
    /// Where tables are copied that lie across cache lines.
    pub(super) tables: GcmTables,
}

/// What works on a manager's jobs.
pub(super) struct State {
    ready: u64,
    pub(super) runner: Runner,
    pub(super) lender: KeyLender,
    /// Jobs in the ring that were not worked on: those that came last, but for some that were done at once.
    pub(super) waiting: usize,
    pub(super) scratch: Scratch,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "State({} waiting)", self.waiting)
    }
}

/// Bytes of a manager and its state, wherever in memory they begin.
pub(super) const MANAGER_BYTES: usize =
    (size_of::<Mgr>() + align_of::<State>() + size_of::<State>()).next_multiple_of(64);

/// Where the state of a manager lies.
#[inline]
pub(super) fn place(mgr: *mut Mgr) -> *mut State {
    let end = mgr.wrapping_add(1);
    let behind = end.addr().next_multiple_of(align_of::<State>()) - end.addr();
    end.wrapping_byte_add(behind).cast()
}

/// Where a field of it lies.
fn field<T>(state: *mut State, at: usize) -> *mut T {
    state.wrapping_byte_add(at).cast()
}

/// Makes the state of a manager.
///
/// # Safety
///
/// The manager has [`MANAGER_BYTES`].
pub(super) unsafe fn make(mgr: *mut Mgr, runner: Runner, lender: KeyLender) {
    let state = place(mgr);
    // SAFETY: there is room for it, and zeros are a value of all that is not written below.
    unsafe { state.write_bytes(0, 1) };
    // SAFETY: as above; the fields are at their places, and nothing was there that is dropped.
    unsafe { field::<Runner>(state, offset_of!(State, runner)).write(runner) };
    // SAFETY: as above.
    unsafe { field::<KeyLender>(state, offset_of!(State, lender)).write(lender) };
    // SAFETY: as above.
    unsafe { field::<u64>(state, offset_of!(State, ready)).write(READY) };
}

/// Manager and state, if the manager was initialised.
///
/// # Safety
///
/// If not null, `mgr` points to a manager of [`MANAGER_BYTES`] which `alloc_mb_mgr` or `imb_set_pointers_mb_mgr` set up, and which no
/// other thread uses.
#[inline]
pub(super) unsafe fn enter<'a>(mgr: *mut Mgr) -> Option<(&'a mut Mgr, &'a mut State)> {
    // SAFETY: the caller's promise.
    let mgr = unsafe { super::raw::object(mgr, 0) }.ok()?;
    let state = place(ptr::from_mut(mgr));
    if mgr.ooo.first().is_none_or(|first| *first != state.cast()) {
        return None;
    }
    // SAFETY: the pointer says that memory follows which was set to zero at least.
    if unsafe { field::<u64>(state, offset_of!(State, ready)).read() } != READY {
        return None;
    }
    // SAFETY: the mark says that all of it was made. It lies behind the manager.
    Some((mgr, unsafe { &mut *state }))
}
