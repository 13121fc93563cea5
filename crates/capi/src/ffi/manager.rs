//! The job manager.

use std::{
    ffi::c_int,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr, slice,
};

use arrayvec::ArrayVec;
use convoy_crypto::{
    Tier,
    manager::{Engine, Job as Inner, Manager, Queue, Runner, Status},
    try_box,
};

use super::{
    chunk::{CHUNK, Places},
    long_ivs, packets,
    raw::{self, Error, Region, guard},
    segments,
    view::{self, is_idle},
};
use crate::types::{
    CONVOY_BATCH, CONVOY_BATCH_MAX, CONVOY_ERR_INTERNAL, CONVOY_MAX_BYTES, CONVOY_OK,
    CONVOY_STATUS_COMPLETED, CONVOY_STATUS_INTERNAL, CONVOY_STATUS_INVALID_ARGS, Job,
};

/// A job manager: a queue that works on jobs a batch at a time.
///
/// One thread at a time may use it. Different threads use different managers without any lock.
#[derive(Debug)]
pub struct Mgr {
    queue: Queue<Job, Translator>,
}

/// Runs jobs of C.
#[derive(Debug)]
struct Translator {
    runner: Runner,
}

impl Translator {
    /// Runs jobs and sets the status of each; returns how many were completed. Those that `is_checked` is true of
    /// are refused where what they point to cannot be right; for the others the caller answers.
    #[inline(always)]
    fn run_all(&mut self, jobs: &mut [Job], is_checked: impl Fn(&Job) -> bool + Copy) -> usize {
        // It is there, so it can be told where.
        let all = Region::new(jobs.as_ptr(), size_of_val(jobs)).unwrap_or(Region::NONE);
        let mut completed = 0;
        for chunk in jobs.chunks_mut(CHUNK) {
            // SAFETY: whoever submits a job promises what it points to, until it is handed back.
            let (packets, others) = unsafe { packets::run(chunk, all, is_checked) };
            completed += packets;
            if !others.is_empty() {
                completed += self.run_others(chunk, others, all, is_checked);
            }
        }
        completed
    }

    /// Runs those of at most [`CHUNK`] jobs which stand at `others`; returns how many were completed. `all` is where
    /// all jobs lie.
    #[inline(never)]
    fn run_others(
        &mut self,
        jobs: &mut [Job],
        others: Places,
        all: Region,
        is_checked: impl Fn(&Job) -> bool,
    ) -> usize {
        let mut completed = 0;
        let mut views = ArrayVec::<Inner<'_>, CHUNK>::new();
        let mut places = ArrayVec::<u8, CHUNK>::new();
        for (place, job) in (0..).zip(&mut *jobs) {
            if !others.has(usize::from(place)) {
                continue;
            }
            if is_idle(job) {
                (job.status, job.error) = (CONVOY_STATUS_COMPLETED, CONVOY_OK);
                completed += 1;
                continue;
            }
            let by_itself = if segments::has_some(job) {
                // SAFETY: as below.
                Some(unsafe { segments::run(job, all) })
            } else if long_ivs::has_one(job) {
                // SAFETY: as below.
                Some(unsafe { long_ivs::run(job, all) })
            } else {
                None
            };
            if let Some(done) = by_itself {
                (job.status, job.error) = match done {
                    Ok(()) => (CONVOY_STATUS_COMPLETED, CONVOY_OK),
                    Err(error) if error.code() == CONVOY_ERR_INTERNAL => {
                        (CONVOY_STATUS_INTERNAL, CONVOY_ERR_INTERNAL)
                    }
                    Err(error) => (CONVOY_STATUS_INVALID_ARGS, error.code()),
                };
                completed += usize::from(done.is_ok());
                continue;
            }
            // SAFETY: whoever submits a job promises what it points to, until it is handed back.
            match unsafe { view::push(job, is_checked(job), all, &mut views) } {
                Ok(()) => places.push(place),
                Err(error) => {
                    (job.status, job.error) = (CONVOY_STATUS_INVALID_ARGS, error.code());
                }
            }
        }
        if views.is_empty() {
            return completed;
        }
        let ran = catch_unwind(AssertUnwindSafe(|| self.runner.run(&mut views)));
        for (view, place) in views.iter().zip(places) {
            let (status, job) =
                (number_of(view.status(), ran.is_ok()), &mut jobs[usize::from(place)]);
            (job.status, job.error) = (status, view.error().map_or(CONVOY_OK, view::code_of));
            completed += usize::from(status == CONVOY_STATUS_COMPLETED);
        }
        completed
    }
}

/// The number of a job's status. Where the work on it ended with a panic, which would be a defect, all
/// may have been done to it that was not refused before.
fn number_of(status: Status, ended_well: bool) -> u32 {
    match status {
        Status::InvalidArgs => CONVOY_STATUS_INVALID_ARGS,
        Status::Completed if ended_well => CONVOY_STATUS_COMPLETED,
        Status::Completed | Status::Queued => CONVOY_STATUS_INTERNAL,
    }
}

impl Engine<Job> for Translator {
    fn run(&mut self, jobs: &mut [Job]) {
        self.run_all(jobs, |job| job.reserved[0] != UNCHECKED);
    }
}

/// What a job in line has in its reserved field if its caller answers for what it points to.
const UNCHECKED: u64 = 1;

/// Puts the job that was lent in line.
///
/// # Safety
///
/// As for `convoy_submit_job`; if `reserved` is [`UNCHECKED`], as for `convoy_submit_job_nocheck`.
#[inline(always)]
unsafe fn submit(mgr: *mut Mgr, reserved: u64) -> *mut Job {
    // SAFETY: the caller's promise.
    let Some(queue) = (unsafe { queue(mgr) }) else { return ptr::null_mut() };
    if let Some(job) = queue.lent_job() {
        job.reserved[0] = reserved;
    }
    pointer(queue.submit())
}

/// The manager behind a pointer, if it is one at all.
///
/// # Safety
///
/// If not null, `mgr` came from `convoy_mgr_new`, was not freed, and no other thread uses it.
#[inline(always)]
unsafe fn queue<'a>(mgr: *mut Mgr) -> Option<&'a mut Queue<Job, Translator>> {
    // SAFETY: the caller's promise.
    let mgr = unsafe { raw::object_mut(mgr) }.ok()?;
    Some(&mut mgr.queue)
}

#[inline(always)]
fn pointer(job: Option<&mut Job>) -> *mut Job {
    job.map_or(ptr::null_mut(), ptr::from_mut)
}

/// Makes a job manager that uses the kernels of one tier (CONVOY_TIER_*), or of the best tier.
/// Whoever made it frees it with convoy_mgr_free.
///
/// Nothing is allocated and the system is not called once the manager has been made.
///
/// # Safety
///
/// `out` points to a pointer, which is set to null if the call fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_mgr_new(tier: c_int, out: *mut *mut Mgr) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { convoy_mgr_new_batch(tier, CONVOY_BATCH, out) }
}

/// The same for a manager that works on another number of jobs together, 1 to CONVOY_BATCH_MAX: few for little delay, a
/// multiple of 16 for full lanes. With 1 each job comes back from convoy_submit_job at once.
///
/// # Safety
///
/// As for convoy_mgr_new.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_mgr_new_batch(
    tier: c_int,
    batch: usize,
    out: *mut *mut Mgr,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { raw::place(out, &[]) }?;
        if !(1..=CONVOY_BATCH_MAX).contains(&batch) {
            return Err(Error::Length);
        }
        let cpu = raw::cpu()?;
        let runner = Runner::new(&cpu, raw::tier(&cpu, tier)?)?;
        let queue = Queue::try_new(Translator { runner }, batch)?;
        *out = Box::into_raw(try_box(Mgr { queue })?);
        Ok(())
    })
}

/// Frees a manager; null is nothing to free. Jobs in line are dropped without being worked on.
///
/// # Safety
///
/// `mgr` is null, or came from convoy_mgr_new and was not freed. Nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_mgr_free(mgr: *mut Mgr) {
    if !mgr.is_null() && mgr.is_aligned() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(mgr) });
    }
}

/// The tier that a manager uses (CONVOY_TIER_*), or an error.
///
/// # Safety
///
/// `mgr` is null or a manager that no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_mgr_tier(mgr: *mut Mgr) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { queue(mgr) } {
        Some(queue) => super::misc::number_of(queue.engine().runner.tier()),
        None => Error::Null.code(),
    }
}

/// The job to be filled in next, all of it zero; null only if mgr is. Until it is submitted, the
/// same job is lent again.
///
/// # Safety
///
/// `mgr` is null or a manager that no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_get_next_job(mgr: *mut Mgr) -> *mut Job {
    // SAFETY: the caller's promise.
    pointer(unsafe { queue(mgr) }.map(Queue::next_job))
}

/// Submits the job that convoy_get_next_job lent, and hands back the earliest job if it has been
/// worked on, else null. When a batch of jobs (CONVOY_BATCH) waits, all of them are worked on now.
///
/// Jobs come back strictly in the order in which they were submitted, invalid ones
/// (CONVOY_STATUS_INVALID_ARGS) like the others. A job that was handed back stays readable until the
/// next call of convoy_get_next_job. Without a lent job nothing is done, and null comes back.
///
/// # Safety
///
/// `mgr` is null or a manager that no other thread uses. What the job points to is as large as its
/// lengths and types say, stays so and is left alone until the job has been handed back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_submit_job(mgr: *mut Mgr) -> *mut Job {
    // SAFETY: the caller's promise.
    unsafe { submit(mgr, 0) }
}

/// The same for a caller who answers for the job: no pointer of it is null but those whose lengths are 0, no length
/// is above CONVOY_MAX_BYTES, and what it writes overlaps neither what it reads nor the jobs, but where
/// dst is src. What convoy_submit_job answers with CONVOY_STATUS_INVALID_ARGS for any of these may do anything
/// here. A job that is invalid for other reasons comes back as such.
///
/// # Safety
///
/// As for convoy_submit_job, and what is said above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_submit_job_nocheck(mgr: *mut Mgr) -> *mut Job {
    // SAFETY: the caller's promise.
    unsafe { submit(mgr, UNCHECKED) }
}

/// Hands back the earliest job if it has been worked on, else null. Works on nothing.
///
/// # Safety
///
/// `mgr` is null or a manager that no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_get_completed_job(mgr: *mut Mgr) -> *mut Job {
    // SAFETY: the caller's promise.
    pointer(unsafe { queue(mgr) }.and_then(Queue::completed))
}

/// Works on every job in line and hands back the earliest; null if none is in line.
///
/// # Safety
///
/// As for convoy_submit_job.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_flush_job(mgr: *mut Mgr) -> *mut Job {
    // SAFETY: the caller's promise.
    pointer(unsafe { queue(mgr) }.and_then(Queue::flush))
}

/// Works on every job in line, and hands back at most `max` of the earliest: their places go into `jobs`. Returns how
/// many those are. What convoy_submit_job says of a job that was handed back holds for each of them.
///
/// # Safety
///
/// As for convoy_submit_job; `jobs` points to room for `max` pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_flush_burst(
    mgr: *mut Mgr,
    jobs: *mut *mut Job,
    max: usize,
) -> usize {
    if jobs.is_null() || !jobs.is_aligned() {
        return 0;
    }
    // SAFETY: the caller's promise.
    let Some(queue) = (unsafe { queue(mgr) }) else { return 0 };
    let mut count = 0;
    while count < max {
        let done = if count == 0 { queue.flush() } else { queue.completed() };
        let Some(done) = done else { break };
        // SAFETY: the caller promises room for `max`, and there are fewer yet.
        unsafe { jobs.wrapping_add(count).write(done) };
        count += 1;
    }
    count
}

/// How many jobs are in line: submitted and not handed back.
///
/// # Safety
///
/// `mgr` is null or a manager that no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_queue_size(mgr: *mut Mgr) -> usize {
    // SAFETY: the caller's promise.
    unsafe { queue(mgr) }.map_or(0, |queue| queue.len())
}

/// Works on an array of jobs. Returns how many were completed, or an error.
///
/// # Safety
///
/// As for `convoy_submit_burst`; if `is_checked` is false of a job, as for `convoy_submit_job_nocheck`.
#[inline(always)]
unsafe fn burst(
    mgr: *mut Mgr,
    jobs: *mut Job,
    count: usize,
    is_checked: impl Fn(&Job) -> bool + Copy,
) -> i64 {
    let (mut completed, mut given) = (0, &mut [][..]);
    let code = guard(|| {
        // SAFETY: the caller's promise.
        let queue = unsafe { queue(mgr) }.ok_or(Error::Null)?;
        if count == 0 {
            return Ok(());
        }
        let bytes = count.checked_mul(size_of::<Job>()).filter(|&bytes| bytes <= CONVOY_MAX_BYTES);
        Region::of(jobs)?;
        Region::new(jobs, bytes.ok_or(Error::Length)?)?.apart(&[Region::of(mgr)?])?;
        // SAFETY: the pointer is aligned and not null, the length is small, and the caller promises
        // the rest.
        given = unsafe { slice::from_raw_parts_mut(jobs, count) };
        completed = queue.engine_mut().run_all(given, is_checked);
        Ok(())
    });
    if code == 0 {
        return completed as i64;
    }
    // Had the work ended with a panic, which would be a defect, statuses might be those of earlier work.
    given.iter_mut().for_each(|job| job.status = CONVOY_STATUS_INTERNAL);
    i64::from(code)
}

/// Works on an array of jobs at once, in place; each job's status says how it ended. Jobs in line in
/// the manager stay there. Returns how many were completed, or an error.
///
/// # Safety
///
/// `mgr` is null or a manager that no other thread uses. `jobs` points to `count` jobs, every byte
/// of which was written; what they point to is as large as their lengths and types say, no job
/// writes what another reads or writes, and nobody else uses it during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_submit_burst(mgr: *mut Mgr, jobs: *mut Job, count: usize) -> i64 {
    // SAFETY: the caller's promise.
    unsafe { burst(mgr, jobs, count, |_| true) }
}

/// The same for a caller who answers for the jobs, as convoy_submit_job_nocheck says.
///
/// # Safety
///
/// As for convoy_submit_burst and convoy_submit_job_nocheck.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convoy_submit_burst_nocheck(
    mgr: *mut Mgr,
    jobs: *mut Job,
    count: usize,
) -> i64 {
    // SAFETY: the caller's promise.
    unsafe { burst(mgr, jobs, count, |_| false) }
}

/// Whether numbers are what the header says.
const _: () = {
    assert!(Tier::ALL.len() == crate::types::CONVOY_TIER_VAES512 as usize);
    assert!(Manager::BATCH == CONVOY_BATCH);
    assert!(Queue::<Job, Translator>::MAX_BATCH == CONVOY_BATCH_MAX);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_defect_cut_off_is_neither_completed_nor_untouched() {
        assert_eq!(number_of(Status::Completed, true), CONVOY_STATUS_COMPLETED);
        assert_eq!(number_of(Status::Completed, false), CONVOY_STATUS_INTERNAL);
        assert_eq!(number_of(Status::Queued, false), CONVOY_STATUS_INTERNAL);
        assert_eq!(number_of(Status::InvalidArgs, false), CONVOY_STATUS_INVALID_ARGS);
    }
}
