//! A queue pair with the requests that it holds.
//!
//! A device reads the packets of a request and writes its outputs while the request lies here, where nobody
//! else reaches it; only what the device has let go of is given back.

use std::collections::VecDeque;
use std::ffi::c_void;

use convoy_engine::lookaside::{Output, Request};
use convoy_engine::{Job, Op, Status};

use crate::ffi::library::Shim;
use crate::ffi::session::Session;

/// `struct ccd_job`.
#[repr(C)]
pub(super) struct RawJob {
    cookie: u64,
    session: *mut c_void,
    src: *const u8,
    dst: *mut u8,
    header: u32,
    text: u32,
    is_aead: u8,
    opens: u8,
    icv: u8,
    aad_length: u8,
    by_copy: u8,
    reserved: [u8; 3],
    iv: [u8; 16],
    aad: [u8; 24],
}

/// `struct ccd_done`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct RawDone {
    cookie: u64,
    status: u32,
    reserved: u32,
}

/// Most answers that are taken at once.
const ANSWERS: usize = 64;
/// Most bytes of a packet that is worked on by copy, with the ICV and what a device may write behind it.
const ROOM: u32 = 2304;

/// Parameters of a job's work.
#[derive(Debug)]
pub(crate) struct Work<'s> {
    pub(crate) session: &'s Session,
    pub(crate) is_aead: bool,
    pub(crate) icv: u8,
    /// True if the device may not read and write frames itself.
    pub(crate) by_copy: bool,
}

/// Source of sessions.
pub(crate) trait Sessions {
    /// Session and parameters for `job`; `None` if it cannot be done.
    fn of(&mut self, job: &Job) -> Option<Work<'_>>;
}

/// A request in the device.
#[derive(Debug)]
struct Held {
    request: Request,
    /// True for each job that is still to be answered.
    pending: Vec<bool>,
    left: usize,
    serial: u64,
}

/// The queue pair.
pub(crate) struct Queue {
    shim: &'static Shim,
    raw: *mut c_void,
    device: i32,
    number: u16,
    capacity: usize,
    held: Vec<Option<Held>>,
    /// Jobs that the device has not taken yet, in order.
    waiting: VecDeque<RawJob>,
    finished: VecDeque<Request>,
    /// Requests taken so far.
    serial: u64,
    /// Answers that belonged to no job under way.
    stray: u64,
}

// SAFETY: a queue pair may be used by any thread, one at a time; the pointers of waiting jobs lead into
// requests that are held here.
unsafe impl Send for Queue {}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Queue({} of device {}, {} stray answers)", self.number, self.device, self.stray)
    }
}

impl Queue {
    /// Opens the pair with this number for so many jobs in so many requests. `None` when memory is short.
    pub(crate) fn open(
        shim: &'static Shim,
        device: i32,
        number: u16,
        jobs: u32,
        requests: usize,
    ) -> Option<Self> {
        let raw = shim.open_queue(device, number, jobs, ROOM);
        (!raw.is_null()).then(|| Self {
            shim,
            raw,
            device,
            number,
            capacity: jobs as usize,
            held: (0..requests).map(|_| None).collect(),
            waiting: VecDeque::new(),
            finished: VecDeque::new(),
            serial: 0,
            stray: 0,
        })
    }

    /// Jobs in the device.
    pub(crate) fn in_flight(&self) -> usize {
        // SAFETY: it is open.
        unsafe { self.shim.in_flight(self.raw) }
    }

    /// Requests taken so far.
    pub(crate) const fn serial(&self) -> u64 {
        self.serial
    }

    /// The number of the oldest request that is held, or of the next one.
    pub(crate) fn oldest(&self) -> u64 {
        self.held.iter().flatten().map(|held| held.serial).min().unwrap_or(self.serial)
    }

    /// Takes a request; gives it back when there is no room.
    pub(crate) fn submit(
        &mut self,
        mut request: Request,
        sessions: &mut impl Sessions,
    ) -> Result<(), Request> {
        let n = request.jobs().len();
        let place = self.held.iter().position(Option::is_none);
        let Some(place) =
            place.filter(|_| self.in_flight() + self.waiting.len() + n <= self.capacity)
        else {
            return Err(request);
        };
        let serial = self.serial;
        self.serial += 1;
        let mut pending = vec![false; n];
        let (jobs, outputs) = request.parts();
        for (at, (job, output)) in jobs.iter().zip(outputs).enumerate() {
            let cookie = cookie(serial, place, at);
            match sessions.of(job).and_then(|work| raw_job(&work, job, output, cookie)) {
                Some(raw) => {
                    self.waiting.push_back(raw);
                    pending[at] = true;
                }
                None => output.finish(Status::Rejected),
            }
        }
        let left = pending.iter().filter(|pending| **pending).count();
        if left == 0 {
            self.finished.push_back(request);
        } else if let Some(slot) = self.held.get_mut(place) {
            *slot = Some(Held { request, pending, left, serial });
        }
        self.send();
        Ok(())
    }

    /// Hands over what waits, as much as the device takes.
    fn send(&mut self) {
        while !self.waiting.is_empty() {
            let jobs = self.waiting.make_contiguous();
            // SAFETY: the queue is open. The jobs point into packets and outputs of requests in `held`, which
            // stay there, untouched, until all of their jobs have come back or the device is stopped.
            let taken = unsafe { self.shim.submit(self.raw, jobs) };
            let all = jobs.len();
            self.waiting.drain(..taken.min(all));
            if taken < all {
                return;
            }
        }
    }

    /// Takes answers.
    fn take_answers(&mut self) {
        let mut answers = [RawDone::default(); ANSWERS];
        loop {
            // SAFETY: it is open.
            let n = unsafe { self.shim.poll(self.raw, &mut answers) };
            for answer in answers.iter().take(n) {
                self.answer(*answer);
            }
            if n < ANSWERS {
                return;
            }
        }
    }

    /// Believes an answer only if it is to a job under way.
    fn answer(&mut self, answer: RawDone) {
        let (serial, place, at) = of_cookie(answer.cookie);
        let held = self.held.get_mut(place).filter(|held| {
            held.as_ref().is_some_and(|held| {
                held.serial & SERIAL == serial
                    && held.pending.get(at).is_some_and(|pending| *pending)
            })
        });
        let Some(slot) = held else {
            self.stray += 1;
            return;
        };
        let Some(held) = slot else { return };
        held.pending[at] = false;
        held.left -= 1;
        if let Some(output) = held.request.parts().1.get_mut(at) {
            output.finish(match answer.status {
                0 => Status::Done,
                1 => Status::BadIcv,
                _ => Status::Rejected,
            });
        }
        if held.left == 0
            && let Some(held) = slot.take()
        {
            self.finished.push_back(held.request);
        }
    }

    /// A request that is finished.
    pub(crate) fn poll(&mut self) -> Option<Request> {
        if self.finished.is_empty() {
            self.send();
            self.take_answers();
        }
        self.finished.pop_front()
    }

    /// Takes nothing more to the device: whether it holds nothing.
    pub(crate) fn drain(&mut self) -> bool {
        self.waiting.clear();
        self.take_answers();
        let is_empty = self.in_flight() == 0;
        if is_empty {
            self.give_all_back();
        }
        is_empty
    }

    /// Gives back what the device has not done: it has let go of everything.
    fn give_all_back(&mut self) {
        self.waiting.clear();
        for slot in &mut self.held {
            self.finished.extend(slot.take().map(|held| held.request));
        }
    }

    /// After the device was stopped: gives everything back, and begins anew with memory of its own.
    ///
    /// # Errors
    /// Fails if memory is short.
    pub(crate) fn begin_anew(&mut self) -> Result<(), ()> {
        self.give_all_back();
        let capacity = u32::try_from(self.capacity).unwrap_or(u32::MAX);
        let raw = self.shim.open_queue(self.device, self.number, capacity, ROOM);
        if raw.is_null() {
            return Err(());
        }
        // SAFETY: it came from `open_queue`, and is replaced here.
        unsafe { self.shim.close_queue(self.raw) };
        self.raw = raw;
        Ok(())
    }
}

/// A device that does not let go keeps what it has: those packets are lost for good, and not used again.
impl Drop for Queue {
    fn drop(&mut self) {
        const PATIENCE: std::time::Duration = std::time::Duration::from_millis(200);
        let begun = std::time::Instant::now();
        while !self.drain() {
            if begun.elapsed() > PATIENCE {
                self.held.drain(..).for_each(std::mem::forget);
                break;
            }
        }
        // SAFETY: it is open and goes with this.
        unsafe { self.shim.close_queue(self.raw) };
    }
}

/// The part of a request's number that an answer carries.
const SERIAL: u64 = 0xffff_ffff;

const fn cookie(serial: u64, place: usize, at: usize) -> u64 {
    (serial & SERIAL) << 32 | (place as u64 & 0xffff) << 16 | (at as u64 & 0xffff)
}

const fn of_cookie(cookie: u64) -> (u64, usize, usize) {
    (cookie >> 32, (cookie >> 16 & 0xffff) as usize, (cookie & 0xffff) as usize)
}

/// Job in the form that the device gets. The bytes around what it works on are copied here. `None` if the job
/// cannot be done.
fn raw_job(work: &Work<'_>, job: &Job, output: &mut Output, cookie: u64) -> Option<RawJob> {
    let (opens, nonce) = match &job.op {
        Op::Seal(nonce) => (false, nonce.expose()),
        Op::Open(nonce) => (true, nonce.expose()),
        Op::Spent => return None,
    };
    let source = job.frame.data();
    let start = job.text.start.checked_sub(job.header)? as usize;
    let covered = job.header.checked_add(job.text.len)? as usize;
    let end = start.checked_add(covered)?;
    let behind = end.checked_add(work.icv.into())?;
    let to = output.bytes_mut();
    if source.len() != to.len() || behind > source.len() {
        return None;
    }
    to.get_mut(..start)?.copy_from_slice(source.get(..start)?);
    let kept = if opens { end } else { behind };
    to.get_mut(kept..)?.copy_from_slice(source.get(kept..)?);
    let (mut iv, mut aad) = ([0; 16], [0; 24]);
    iv.get_mut(..nonce.len())?.copy_from_slice(nonce);
    let beside = job.aad.get(..job.aad_len.into())?;
    aad.get_mut(..beside.len())?.copy_from_slice(beside);
    Some(RawJob {
        cookie,
        session: work.session.raw(),
        src: source.get(start..)?.as_ptr(),
        dst: to.get_mut(start..)?.as_mut_ptr(),
        header: job.header,
        text: job.text.len,
        is_aead: work.is_aead.into(),
        opens: opens.into(),
        icv: work.icv,
        aad_length: job.aad_len,
        by_copy: work.by_copy.into(),
        reserved: [0; 3],
        iv,
        aad,
    })
}
