//! The ring of jobs: one by one, and in bursts.

use std::{
    ffi::c_int,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr, slice,
};

use arrayvec::ArrayVec;

use super::{
    raw::{INTERNAL, set_errno, set_global_errno, set_status},
    sgl,
    state::{self, CHUNK, State},
    task::Task,
    work,
};
use crate::{
    check::{Suite, check},
    types::*,
};

/// Jobs that wait until as many are worked on together.
const BATCH: usize = 32;

const JOB: usize = size_of::<Job>();

/// The place in the ring of an offset in bytes.
fn place(offset: c_int) -> usize {
    (usize::try_from(offset).unwrap_or(0) / JOB) % MAX_JOBS
}

/// The offset in bytes of a place in the ring.
fn offset(place: usize) -> c_int {
    (place % MAX_JOBS * JOB) as c_int
}

/// Manager and state; where there are none, that is noted.
///
/// # Safety
///
/// As for [`state::enter`].
#[inline]
unsafe fn enter<'a>(mgr: *mut Mgr) -> Option<(&'a mut Mgr, &'a mut State)> {
    // SAFETY: the caller's promise.
    let entered = unsafe { state::enter(mgr) };
    if entered.is_none() {
        set_global_errno(ERR_NULL_MBMGR);
    }
    entered
}

/// Jobs that were submitted and not handed back.
fn len(mgr: &Mgr) -> usize {
    if mgr.earliest_job < 0 {
        return 0;
    }
    match (place(mgr.next_job) + MAX_JOBS - place(mgr.earliest_job)) % MAX_JOBS {
        0 => MAX_JOBS,
        len => len,
    }
}

/// Works on every job that waits.
fn work_on_all(mgr: &mut Mgr, state: &mut State) {
    let (first, len) = (place(mgr.earliest_job), len(mgr));
    let mut tasks = ArrayVec::<Task, CHUNK>::new();
    for at in first..first + len {
        let Some(job) = mgr.jobs.get_mut(at % MAX_JOBS) else { continue };
        if job.status < STATUS_COMPLETED {
            tasks.push(Task { suite: Suite::of(job), job: ptr::from_mut(job) });
        }
        if tasks.is_full() {
            work_on(mgr, state, &tasks);
            tasks.clear();
        }
    }
    work_on(mgr, state, &tasks);
    state.waiting = 0;
}

/// Works on jobs of the ring. A panic, which would be a defect, ends here.
fn work_on(mgr: &mut Mgr, state: &mut State, tasks: &[Task]) {
    if tasks.is_empty() {
        return;
    }
    // SAFETY: whoever submits a job promises what it points to, until it is handed back.
    let work = || unsafe { work::run(state, tasks) };
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(None) => {}
        Ok(Some(error)) => set_errno(mgr, error),
        Err(_) => {
            for task in tasks {
                // SAFETY: it is a job of the ring.
                unsafe { set_status(task.job, STATUS_INTERNAL_ERROR) };
            }
            set_errno(mgr, INTERNAL);
        }
    }
}

/// Hands the earliest job back, if it is done.
fn completed(mgr: &mut Mgr) -> *mut Job {
    if mgr.earliest_job < 0 {
        return ptr::null_mut();
    }
    let at = place(mgr.earliest_job);
    let Some(job) = mgr.jobs.get_mut(at).filter(|job| job.status >= STATUS_COMPLETED) else {
        return ptr::null_mut();
    };
    let job = ptr::from_mut(job);
    // The next job that is lent is another one, so this stays as it is until then.
    mgr.earliest_job = offset(at + 1);
    if mgr.earliest_job == mgr.next_job {
        mgr.earliest_job = -1;
    }
    job
}

/// Puts the job that comes next in line.
fn put_in_line(mgr: &mut Mgr) {
    if mgr.earliest_job < 0 {
        mgr.earliest_job = mgr.next_job;
    }
    mgr.next_job = offset(place(mgr.next_job) + 1);
}

/// The job to be filled in next, as it was left: nothing of it is set.
///
/// # Safety
///
/// `mgr` is null, or a manager that no other thread uses.
pub(super) unsafe extern "C" fn get_next_job(mgr: *mut Mgr) -> *mut Job {
    // SAFETY: the caller's promise.
    let Some((mgr, _)) = (unsafe { enter(mgr) }) else { return ptr::null_mut() };
    set_errno(mgr, 0);
    let at = place(mgr.next_job);
    mgr.jobs.get_mut(at).map_or(ptr::null_mut(), ptr::from_mut)
}

/// Submits the job that was lent, and hands the earliest back if it is done.
///
/// # Safety
///
/// As for [`get_next_job`]. What the job points to is as large as its lengths and types say, and stays so until it is handed back.
pub(super) unsafe extern "C" fn submit_job(mgr: *mut Mgr) -> *mut Job {
    // SAFETY: the caller's promise.
    let Some((mgr, state)) = (unsafe { enter(mgr) }) else { return ptr::null_mut() };
    set_errno(mgr, 0);
    let at = place(mgr.next_job);
    let Some(job) = mgr.jobs.get_mut(at) else { return ptr::null_mut() };
    let suite = Suite::of(job);
    // SAFETY: as above.
    let checked = check(job, suite).and_then(|()| unsafe { sgl::check(job) });
    job.status = if checked.is_ok() { STATUS_BEING_PROCESSED } else { STATUS_INVALID_ARGS };
    let task = Task { suite, job: ptr::from_mut(job) };
    put_in_line(mgr);
    match checked {
        Err(error) => set_errno(mgr, error),
        Ok(()) if suite.is_done_at_once() => work_on(mgr, state, &[task]),
        Ok(()) => {
            state.waiting += 1;
            if state.waiting >= BATCH {
                work_on_all(mgr, state);
            }
        }
    }
    // No room for another job is no state to be left in.
    if mgr.earliest_job == mgr.next_job {
        work_on_all(mgr, state);
    }
    completed(mgr)
}

/// Hands the earliest job back, if it is done.
///
/// # Safety
///
/// As for [`get_next_job`].
pub(super) unsafe extern "C" fn get_completed_job(mgr: *mut Mgr) -> *mut Job {
    // SAFETY: the caller's promise.
    let Some((mgr, _)) = (unsafe { enter(mgr) }) else { return ptr::null_mut() };
    set_errno(mgr, 0);
    completed(mgr)
}

/// Works on every job in line, and hands the earliest back.
///
/// # Safety
///
/// As for [`submit_job`].
pub(super) unsafe extern "C" fn flush_job(mgr: *mut Mgr) -> *mut Job {
    // SAFETY: the caller's promise.
    let Some((mgr, state)) = (unsafe { enter(mgr) }) else { return ptr::null_mut() };
    set_errno(mgr, 0);
    if state.waiting > 0 {
        work_on_all(mgr, state);
    }
    completed(mgr)
}

/// Jobs in line.
///
/// # Safety
///
/// As for [`get_next_job`].
pub(super) unsafe extern "C" fn queue_size(mgr: *mut Mgr) -> u32 {
    // SAFETY: the caller's promise.
    let Some((mgr, _)) = (unsafe { enter(mgr) }) else { return 0 };
    set_errno(mgr, 0);
    len(mgr) as u32
}

/// The jobs to be filled in next: at most `count`. Returns how many.
///
/// # Safety
///
/// As for [`get_next_job`]; `jobs` is null, or points to room for `count` pointers.
pub(super) unsafe extern "C" fn get_next_burst(
    mgr: *mut Mgr,
    count: u32,
    jobs: *mut *mut Job,
) -> u32 {
    // SAFETY: the caller's promise.
    let Some((mgr, _)) = (unsafe { enter(mgr) }) else { return 0 };
    // SAFETY: as above.
    let Some(places) = (unsafe { places(mgr, count, jobs) }) else { return 0 };
    let (first, room) = (place(mgr.next_job), MAX_JOBS - len(mgr));
    let count = places.len().min(room);
    for (at, to) in (first..first + count).zip(places) {
        *to = mgr.jobs.get_mut(at % MAX_JOBS).map_or(ptr::null_mut(), ptr::from_mut);
    }
    count as u32
}

/// An array of pointers to jobs.
///
/// # Safety
///
/// `jobs` is null, or points to room for `count` pointers.
unsafe fn places<'a>(mgr: &mut Mgr, count: u32, jobs: *mut *mut Job) -> Option<&'a mut [*mut Job]> {
    set_errno(mgr, 0);
    if jobs.is_null() || !jobs.is_aligned() {
        set_errno(mgr, ERR_NULL_BURST);
        return None;
    }
    if count as usize > MAX_BURST {
        set_errno(mgr, ERR_BURST_SIZE);
        return None;
    }
    // SAFETY: the caller's promise.
    Some(unsafe { slice::from_raw_parts_mut(jobs, count as usize) })
}

/// Checks a burst; the error gives the index of the job at fault, if it is one job's.
///
/// # Safety
///
/// As for [`submit_burst`].
unsafe fn check_burst(
    mgr: &Mgr,
    jobs: &[*mut Job],
    is_checked: bool,
) -> Result<(), (usize, c_int)> {
    if MAX_JOBS - len(mgr) < jobs.len() {
        return Err((usize::MAX, ERR_QUEUE_SPACE));
    }
    let first = place(mgr.next_job);
    for (i, job) in jobs.iter().enumerate() {
        if job.is_null() {
            return Err((usize::MAX, ERR_NULL_JOB));
        }
        let Some(next) = mgr.jobs.get((first + i) % MAX_JOBS) else { continue };
        if !ptr::eq(*job, next) {
            return Err((i, ERR_BURST_OOO));
        }
        let suite = Suite::of(next);
        check(next, suite).map_err(|error| (i, error))?;
        // SAFETY: the caller's promise.
        unsafe { sgl::check(next) }.map_err(|error| (i, error))?;
        if is_checked {
            next.session.check(suite.id(next.chain_order)).map_err(|error| (i, error))?;
        }
    }
    Ok(())
}

/// # Safety
///
/// As for [`submit_burst`].
unsafe fn submit(mgr: *mut Mgr, count: u32, jobs: *mut *mut Job, is_checked: bool) -> u32 {
    // SAFETY: the caller's promise.
    let Some((mgr, state)) = (unsafe { enter(mgr) }) else { return 0 };
    // SAFETY: as above.
    let Some(places) = (unsafe { places(mgr, count, jobs) }) else { return 0 };
    // SAFETY: as above.
    if let Err((at, error)) = unsafe { check_burst(mgr, places, is_checked) } {
        set_errno(mgr, error);
        let bad = places.get(at).copied();
        if let (Some(bad), Some(front)) = (bad, places.first_mut()) {
            // Of one that is none of the ring's, too: the caller named it as a job.
            // SAFETY: the caller's promise.
            unsafe { set_status(bad, STATUS_INVALID_ARGS) };
            *front = bad;
        }
        return 0;
    }
    for _ in &*places {
        let at = place(mgr.next_job);
        if let Some(job) = mgr.jobs.get_mut(at) {
            job.status = STATUS_BEING_PROCESSED;
        }
        put_in_line(mgr);
    }
    if !places.is_empty() {
        work_on_all(mgr, state);
    }
    hand_back(mgr, places)
}

/// Hands back as many jobs as there is room for.
fn hand_back(mgr: &mut Mgr, places: &mut [*mut Job]) -> u32 {
    let mut count = 0;
    for to in places {
        let job = completed(mgr);
        if job.is_null() {
            break;
        }
        *to = job;
        count += 1;
    }
    if mgr.earliest_job < 0 {
        // Begin anew in front: the places last used are the warmest.
        mgr.next_job = 0;
    }
    count
}

/// Submits the jobs that come next, and hands back as many as are done.
///
/// # Safety
///
/// As for [`submit_job`]; `jobs` is null, or points to `count` pointers to jobs.
pub(super) unsafe extern "C" fn submit_burst(
    mgr: *mut Mgr,
    count: u32,
    jobs: *mut *mut Job,
) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { submit(mgr, count, jobs, true) }
}

/// The same for jobs that no `imb_set_session` stamped. They are checked all the same.
///
/// # Safety
///
/// As for [`submit_burst`].
pub(super) unsafe extern "C" fn submit_burst_nocheck(
    mgr: *mut Mgr,
    count: u32,
    jobs: *mut *mut Job,
) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { submit(mgr, count, jobs, false) }
}

/// Works on every job in line, and hands back at most `max`.
///
/// # Safety
///
/// As for [`submit_job`]; `jobs` is null, or points to room for `max` pointers.
pub(super) unsafe extern "C" fn flush_burst(mgr: *mut Mgr, max: u32, jobs: *mut *mut Job) -> u32 {
    // SAFETY: the caller's promise.
    let Some((mgr, state)) = (unsafe { enter(mgr) }) else { return 0 };
    // More than the ring has are none.
    let max = max.min(len(mgr) as u32).min(MAX_BURST as u32);
    // SAFETY: as above.
    let Some(places) = (unsafe { places(mgr, max, jobs) }) else { return 0 };
    if state.waiting > 0 {
        work_on_all(mgr, state);
    }
    hand_back(mgr, places)
}
