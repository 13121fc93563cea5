//! Jobs that were checked: what they ask for, where they read, and how they end.

use std::ptr;

use super::{raw::set_status, region::Region};
use crate::{check::Suite, types::*};

/// A job that was checked, and what it asks for.
#[derive(Clone, Copy)]
pub(super) struct Task {
    pub(super) suite: Suite,
    pub(super) job: *mut Job,
}

/// Start of the bytes that the cipher reads.
pub(super) fn cipher_input(job: &Job) -> *const u8 {
    job.src.wrapping_add(job.cipher_offset as usize)
}

/// Bytes that the hash reads.
pub(super) fn hash_input(job: &Job) -> Region {
    Region { start: job.src.wrapping_add(job.hash_offset as usize), len: job.hash_len as usize }
}

/// Hands a job's tag over, and sets its status.
///
/// # Safety
///
/// As for `work::run`.
pub(super) unsafe fn finish(task: &Task, tag: &[u8], status: u32) {
    // SAFETY: the caller's promise.
    let Job { tag: to, tag_len, .. } = unsafe { &*task.job };
    let is_made = !matches!(task.suite.hash, AUTH_NULL | AUTH_CUSTOM);
    if status == STATUS_COMPLETED && is_made && !to.is_null() {
        let len = tag.len().min(*tag_len as usize);
        // SAFETY: as above. It may lie anywhere, but not in the copy.
        unsafe { ptr::copy_nonoverlapping(tag.as_ptr(), *to, len) };
    }
    // SAFETY: as above.
    unsafe { set_status(task.job, status) };
}
