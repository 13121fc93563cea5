//! A thread that answers what the packet filter asks.

use std::{
    io,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::{
    answers::{Answered, Answers},
    asked::{Asked, AskedTotal},
    config::Config,
    error::LeakProtectionError,
    questions::Questions,
    queues::Listener,
    sets::Held,
};

/// Longest time until the thread sees that it is to end.
const LOOKS: Duration = Duration::from_millis(100);
/// Pause when no listener can be had.
const RESTS: Duration = Duration::from_millis(200);

/// A thread that answers until this is dropped.
#[derive(Debug)]
pub struct VerdictService {
    questions: Questions,
    desk: Arc<Desk>,
    thread: Option<JoinHandle<()>>,
}

/// State that the thread shares with others.
#[derive(Debug)]
struct Desk {
    /// Locked while questions are answered: who holds it knows that no answer is on its way.
    held: Mutex<Held>,
    pauses: Pauses,
    answers: Arc<Mutex<Answers>>,
    /// The kernel's questions do not come, and are asked for again and again.
    is_deaf: AtomicBool,
    is_over: AtomicBool,
}

/// Number of those who want no question answered for a while.
#[derive(Clone, Debug, Default)]
pub struct Pauses(Arc<(Mutex<Counts>, Condvar)>);

/// Numbers of pauses, and of those who wait for their end: to wake nobody takes a system call, too.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    pauses: u32,
    waiting: u32,
}

/// Questions wait as long as this is there; the kernel drops what finds no room among them.
#[derive(Debug)]
#[must_use = "questions are answered when it is dropped"]
pub struct Pause(Pauses);

impl Pauses {
    /// Begins a pause. Whoever began to answer before may still do.
    pub fn begin(&self) -> Pause {
        lock(&self.0.0).pauses += 1;
        Pause(self.clone())
    }

    fn any(&self) -> bool {
        lock(&self.0.0).pauses > 0
    }

    /// Waits until there is none, at most so long; true if there is none.
    fn are_over(&self, at_most: Duration) -> bool {
        let (counts, ended) = &*self.0;
        let mut before = lock(counts);
        before.waiting += 1;
        let waited = ended.wait_timeout_while(before, at_most, |counts| counts.pauses > 0);
        let (mut after, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        after.waiting -= 1;
        !timeout.timed_out()
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        let (counts, ended) = &*self.0.0;
        let mut counts = lock(counts);
        counts.pauses -= 1;
        let is_waited_for = counts.waiting > 0;
        drop(counts);
        if is_waited_for {
            ended.notify_all();
        }
    }
}

/// Outcomes of questions, over services that come and go.
#[derive(Debug, Default)]
pub struct Tally {
    answers: Arc<Mutex<Answers>>,
    listeners: Arc<Listeners>,
    kernel: AskedTotal,
    /// The kernel does not tell what it counts.
    is_unseen: bool,
}

/// Count of beginnings and ends of opening a listener: odd while one is opened.
#[derive(Debug, Default)]
struct Listeners(AtomicU64);

impl Listeners {
    fn open(&self, config: &Config) -> Result<Listener, LeakProtectionError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        let opened = Listener::open(config);
        self.0.fetch_add(1, Ordering::SeqCst);
        opened
    }

    /// A number that changes with each one; none while one is opened.
    fn number(&self) -> Option<u64> {
        Some(self.0.load(Ordering::SeqCst)).filter(|number| number % 2 == 0)
    }
}

impl Tally {
    /// Takes over what the kernel counts. To be called about once a second while somebody answers.
    pub fn follow_kernel(&mut self, questions: &Questions) {
        self.is_unseen = self.kernel.follow(questions, || self.listeners.number()).is_err();
    }

    /// Counts of the kernel, of both directions, if it tells.
    #[must_use]
    pub fn asked(&self) -> Option<[Asked; 2]> {
        Some(self.kernel.both()).filter(|_| !self.is_unseen)
    }

    /// Counts of the answers by direction.
    #[must_use]
    pub fn answers(&self) -> Answers {
        *lock(&self.answers)
    }

    /// Counts of the answers.
    #[must_use]
    pub fn answered(&self) -> Answered {
        self.answers().sum()
    }

    /// Packets that were dropped as their questions found no room.
    #[must_use]
    pub fn overflows(&self) -> u64 {
        let lost = self.kernel.both().into_iter().flat_map(|it| [it.full, it.unread]);
        lost.fold(0, u64::saturating_add)
    }
}

impl VerdictService {
    /// Begins to answer questions of the calling thread's network namespace, by `answer`, which is told what is held
    /// whatever policies say.
    ///
    /// # Errors
    /// As [`Listener::open`], and where no thread can be had.
    pub fn start(
        config: &Config,
        held: Held,
        tally: &Tally,
        pauses: &Pauses,
        answer: impl FnMut(&mut Listener, &Held) -> io::Result<Answers> + Send + 'static,
    ) -> Result<Self, LeakProtectionError> {
        let listeners = Arc::clone(&tally.listeners);
        let listener = listeners.open(config)?;
        let desk = Arc::new(Desk {
            held: Mutex::new(held),
            pauses: pauses.clone(),
            answers: Arc::clone(&tally.answers),
            is_deaf: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        });
        let thread = thread::Builder::new().name("convoy-questions".into());
        let at = Arc::clone(&desk);
        let questions = config.questions;
        let config = config.clone();
        let thread = thread
            .spawn(move || at.serve(listener, || listeners.open(&config), answer))
            .map_err(|error| LeakProtectionError::Netlink(error.into()))?;
        Ok(Self { questions, desk, thread: Some(thread) })
    }

    /// Answers by these prefix sets, and by the policies that are published, from now on: when this returns, every
    /// answer by others has been given.
    pub fn set(&self, held: Held) {
        let _first = self.desk.pauses.begin();
        *lock(&self.desk.held) = held;
    }

    /// During a pause: when this returns, all that was answered before it has been given.
    pub fn finish(&self) {
        drop(lock(&self.desk.held));
    }

    /// Settings by which they are asked.
    #[must_use]
    pub const fn questions(&self) -> &Questions {
        &self.questions
    }

    /// True if nobody answers any more.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        let has_ended = self.thread.as_ref().is_none_or(JoinHandle::is_finished);
        has_ended || self.desk.is_deaf.load(Ordering::Relaxed)
    }
}

impl Drop for VerdictService {
    fn drop(&mut self) {
        self.desk.is_over.store(true, Ordering::Relaxed);
        if self.thread.take().map(JoinHandle::join).is_some_and(|ended| ended.is_err()) {
            tracing::error!("leak protection: the thread that gives verdicts on packets panicked");
        }
    }
}

impl Desk {
    /// Answers until it is over; after an error by another listener.
    fn serve(
        &self,
        first: Listener,
        open: impl Fn() -> Result<Listener, LeakProtectionError>,
        mut answer: impl FnMut(&mut Listener, &Held) -> io::Result<Answers>,
    ) {
        let mut listener = Some(first);
        let mut has_failed = false;
        while !self.is_over.load(Ordering::Relaxed) {
            let outcome = match &mut listener {
                Some(listener) => {
                    self.answer(listener, &mut answer).map_err(|error| error.to_string())
                }
                None => open().map(|anew| listener = Some(anew)).map_err(|error| error.to_string()),
            };
            match outcome {
                Ok(()) if core::mem::take(&mut has_failed) => {
                    tracing::info!("leak protection: verdict requests are answered again");
                }
                Ok(()) => {}
                Err(error) => {
                    if !core::mem::replace(&mut has_failed, true) {
                        tracing::error!(
                            "leak protection: verdict requests cannot be answered, and new flows are dropped: \
                             {error}"
                        );
                    }
                    // The queues are free only without it, and what was asked and not answered would stay there.
                    if listener.take().is_none() {
                        thread::sleep(RESTS);
                    }
                }
            }
            self.is_deaf.store(listener.is_none(), Ordering::Relaxed);
        }
    }

    fn answer(
        &self,
        listener: &mut Listener,
        answer: &mut impl FnMut(&mut Listener, &Held) -> io::Result<Answers>,
    ) -> io::Result<()> {
        if self.pauses.are_over(LOOKS) && listener.wait(LOOKS)? {
            let held = lock(&self.held);
            // Whoever began to pause since counts on that nobody answers who locks after it.
            if self.pauses.any() {
                return Ok(());
            }
            let now = answer(listener, &held)?;
            lock(&self.answers).add(&now);
        }
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_wait_until_the_last_pause_ends() {
        let pauses = Pauses::default();
        assert!(!pauses.any());
        let (one, other) = (pauses.begin(), pauses.clone().begin());
        drop(one);
        assert!(pauses.any() && !pauses.are_over(Duration::ZERO));
        let waits = thread::spawn(move || pauses.are_over(Duration::from_secs(20)));
        drop(other);
        assert!(waits.join().unwrap());
    }
}
