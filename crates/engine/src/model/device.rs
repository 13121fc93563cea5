//! The device itself: packets in its memory, due at some time.

use std::collections::VecDeque;

use super::{Faults, Settings};
use crate::inline::run_copy;
use crate::{EngineKey, Job, Status};

/// Report of the device on a job.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completion {
    pub(super) request: u64,
    pub(super) at: usize,
    pub(super) status: Status,
}

/// A job in the device.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) request: u64,
    pub(super) at: usize,
    due: u64,
    is_late: bool,
    /// The result, and how the job ended.
    packet: Vec<u8>,
    status: Status,
}

/// Hardware behind the queue, simulated.
#[derive(Debug)]
pub(super) struct Device {
    settings: Settings,
    faults: Faults,
    random: u64,
    work: Vec<Work>,
    completions: VecDeque<Completion>,
    /// Until when the link is taken: to the device, and back.
    link: (u64, u64),
    /// Time at which its first job came, in nanoseconds.
    begun: Option<u64>,
    stalled_until: u64,
    gone: bool,
    back_at: u64,
}

impl Device {
    pub(super) fn new(settings: Settings, faults: Faults) -> Self {
        Self {
            settings,
            faults,
            random: settings.seed.wrapping_mul(2).wrapping_add(1),
            work: Vec::new(),
            completions: VecDeque::new(),
            link: (0, 0),
            begun: None,
            stalled_until: 0,
            gone: false,
            back_at: 0,
        }
    }

    /// A random number (xorshift64, Marsaglia 2003).
    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random >> 8
    }

    /// True, at random, in `share` of 100,000 calls.
    pub(super) fn chance(&mut self, share: u32) -> bool {
        share > 0 && self.random() % 100_000 < u64::from(share)
    }

    fn transfer(&self, bytes: usize) -> u64 {
        let nanoseconds = (bytes as u64).saturating_mul(1_000_000_000);
        nanoseconds.checked_div(self.settings.bandwidth).unwrap_or(0)
    }

    /// Reads a job and its packet over the link, and works on it with the key that it has now.
    pub(super) fn fetch(
        &mut self,
        now: u64,
        (request, at): (u64, usize),
        job: &Job,
        key: Option<&EngineKey>,
    ) {
        self.begun.get_or_insert(now);
        let time = self.transfer(job.frame.len());
        let arrival = self.link.0.max(now) + time;
        let jitter = self.random() % (self.settings.jitter + 1);
        let result = arrival + self.settings.latency + jitter;
        let due = self.link.1.max(result) + time;
        // The way back is taken in turn only by what is ready in turn.
        self.link = (arrival, if self.settings.jitter == 0 { due } else { self.link.1 });
        let mut packet = job.frame.data().to_vec();
        let status = key.map_or(Status::Rejected, |key| run_copy(key, job, &mut packet));
        self.work.push(Work { request, at, due, is_late: false, packet, status });
    }

    /// True if a fault that was set for some time is due; it happens once.
    fn strikes(begun: Option<u64>, now: u64, at: &mut Option<u64>) -> bool {
        let is_due = at.zip(begun).is_some_and(|(at, begun)| now >= begun.saturating_add(at));
        is_due && at.take().is_some()
    }

    /// Does what is due by `now`, earliest first.
    pub(super) fn turn(&mut self, now: u64, mut write: impl FnMut(&Work, &[u8])) {
        if Self::strikes(self.begun, now, &mut self.faults.stall_at) {
            self.stalled_until = u64::MAX;
        }
        let is_removed = Self::strikes(self.begun, now, &mut self.faults.remove_at);
        if self.gone || now < self.stalled_until {
            return;
        }
        let mut due: Vec<Work> = self.work.extract_if(.., |work| work.due <= now).collect();
        due.sort_by_key(|work| work.due);
        let mut due = due.into_iter();
        if is_removed {
            self.vanish(now, due, write);
            return;
        }
        while let Some(mut work) = due.next() {
            if self.chance(self.faults.removed) {
                self.vanish(now, std::iter::once(work).chain(due), write);
                return;
            }
            if self.chance(self.faults.stalled) {
                self.stalled_until = now + 40 * self.settings.deadline;
            }
            if !work.is_late && self.chance(self.faults.late) {
                work.is_late = true;
                work.due = now + 30 * self.settings.deadline;
                self.work.push(work);
                continue;
            }
            self.finish(work, &mut write);
        }
    }

    fn finish(&mut self, mut work: Work, write: &mut impl FnMut(&Work, &[u8])) {
        let mut status = Status::Rejected;
        if !self.chance(self.faults.refused) {
            status = work.status;
            if self.chance(self.faults.wrong)
                && let Some(last) = work.packet.last_mut()
            {
                *last ^= 1;
            }
            write(&work, &work.packet);
        }
        let completion = Completion { request: work.request, at: work.at, status };
        if !self.chance(self.faults.lost) {
            self.completions.push_back(completion);
        }
        if self.chance(self.faults.doubled) {
            self.completions.push_back(completion);
        }
    }

    /// Is gone, and leaves the first half of each result that it was about to write.
    fn vanish(
        &mut self,
        now: u64,
        due: impl Iterator<Item = Work>,
        mut write: impl FnMut(&Work, &[u8]),
    ) {
        self.gone = true;
        self.back_at = now + self.faults.absent;
        for work in due {
            write(&work, &vec![0xdd; work.packet.len() / 2]);
        }
    }

    pub(super) fn completion(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    pub(super) const fn is_gone(&self) -> bool {
        self.gone
    }

    /// Forgets everything.
    pub(super) fn stop(&mut self, now: u64) {
        self.work.clear();
        self.completions.clear();
        self.link = (now, now);
    }

    /// Starts the device again; `false` while it is absent.
    pub(super) fn start(&mut self, now: u64) -> bool {
        if self.gone && now < self.back_at {
            return false;
        }
        (self.gone, self.stalled_until) = (false, 0);
        true
    }
}
