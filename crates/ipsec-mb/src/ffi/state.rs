//! State that the library keeps for a manager, behind it in the same memory.

use std::{ffi::c_void, fmt, mem::offset_of, ptr};

use convoy_crypto::{
    ChaChaSecret, KeyLender,
    manager::{AesDecryptKey, AesEncryptKey, CmacKey, HmacKeys, Runner, XcbcKey},
};

use crate::types::{Mgr, OOO};

/// Jobs that are worked on together.
pub(super) const CHUNK: usize = 64;

/// Number that tells an initialised state from other memory.
const READY: u64 = 0x436f_6e76_6f79_4d42;

/// Copies of what a job points to, in the types that kernels read, and its tag. Wiped when the job is done.
///
/// The round keys, subkeys and chaining values that callers hold have no label, and need not be aligned; so each is copied. Zeros are a
/// value of every part.
#[repr(C, align(64))]
pub(super) struct Slot {
    pub(super) hmac: HmacKeys,
    pub(super) encrypt: AesEncryptKey,
    pub(super) decrypt: AesDecryptKey,
    pub(super) cmac: CmacKey,
    pub(super) xcbc: XcbcKey,
    pub(super) secret: ChaChaSecret,
    pub(super) tag: [u8; 64],
    pub(super) icv: [u8; 16],
    /// Mark that intel-ipsec-mb's own test programs take for the end of an out-of-order manager, when they look for keys that were left in
    /// one: so they see all of this.
    road_block: u64,
}

/// The mark itself.
const ROAD_BLOCK: u64 = 0xdead_cafe_dead_cafe;

/// Slots to an out-of-order manager: with more of them, all would not be seen.
const SLOTS_SEEN: usize = 2;

// The first pointer does not lead to slots.
const _: () = assert!(CHUNK <= (OOO - 1) * SLOTS_SEEN && SLOTS_SEEN * size_of::<Slot>() < 8192);

/// Works on a manager's jobs.
#[repr(C)]
pub(super) struct State {
    ready: u64,
    pub(super) runner: Runner,
    pub(super) lender: KeyLender,
    /// Jobs in the ring that were not worked on: those that came last, but for some that were done at once.
    pub(super) waiting: usize,
    pub(super) slots: [Slot; CHUNK],
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "State({} waiting)", self.waiting)
    }
}

/// Bytes of a manager and its state, wherever in memory they begin.
pub(super) const MANAGER_BYTES: usize =
    (size_of::<Mgr>() + align_of::<State>() + size_of::<State>()).next_multiple_of(64);

/// Address of a manager's state.
#[inline]
pub(super) fn place(mgr: *mut Mgr) -> *mut State {
    let end = mgr.wrapping_add(1);
    let behind = end.addr().next_multiple_of(align_of::<State>()) - end.addr();
    end.wrapping_byte_add(behind).cast()
}

/// Address of a field of it.
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
    // SAFETY: as above: all of it is there now.
    let slots = unsafe { &mut (*state).slots };
    for slot in slots.iter_mut().skip(SLOTS_SEEN - 1).step_by(SLOTS_SEEN) {
        slot.road_block = ROAD_BLOCK;
    }
}

/// Targets of the pointers to out-of-order managers: the first is the state, the others are its slots.
pub(super) fn pointers(mgr: *mut Mgr) -> [*mut c_void; OOO] {
    let state = place(mgr);
    let mut pointers = [state.cast(); OOO];
    for (i, pointer) in pointers.iter_mut().skip(1).enumerate() {
        let at = i % (CHUNK / SLOTS_SEEN) * SLOTS_SEEN * size_of::<Slot>();
        *pointer = field(state, offset_of!(State, slots) + at);
    }
    pointers
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
