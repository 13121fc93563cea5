//! Sleeping without missing work: a flag that says "asleep" and a bell that wakes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};

pub(crate) mod flag;
pub(crate) mod rest;

/// The atomics the protocol runs on; its model test puts others in their place.
pub(crate) mod sync {
    pub(crate) use core::sync::atomic::{AtomicBool, Ordering, fence};
}

use flag::SleepFlag;

/// Wakes one worker. Everyone who gives that worker work holds a clone.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    flag: SleepFlag,
    bell: EventFd,
}

impl Waker {
    /// A waker for a worker that is awake.
    ///
    /// # Errors
    /// The kernel's error when it cannot make an event descriptor.
    pub fn new() -> io::Result<Self> {
        let bell = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
        Ok(Self(Arc::new(Inner { flag: SleepFlag::new(), bell })))
    }

    /// Wakes the worker if it sleeps. Call after the work was made visible.
    #[inline]
    pub fn wake(&self) {
        self.wake_sleeper();
    }

    /// The same; says whether it slept.
    #[inline]
    pub(crate) fn wake_sleeper(&self) -> bool {
        let sleeps = self.0.flag.must_ring();
        if sleeps {
            self.ring();
        }
        sleeps
    }

    /// True if both wake the same worker.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    #[cold]
    fn ring(&self) {
        // Would block only when 2⁶⁴−2 rings are unheard; then the worker is being woken anyway.
        let _ = self.0.bell.write(1);
    }

    /// Worker: announces sleep; look for work once more before sleeping.
    pub(crate) fn announce(&self) {
        self.0.flag.announce();
    }

    /// Worker: awake again; forgets rings received.
    pub(crate) fn awake(&self) {
        self.0.flag.retract();
    }

    /// Worker: takes the rings received so far off the bell.
    pub(crate) fn silence(&self) {
        match self.0.bell.read() {
            Ok(_) | Err(Errno::EAGAIN) => {}
            // Any other answer cannot come from an event descriptor we own.
            Err(e) => tracing::warn!(error = %e, "cannot read the wake-up descriptor of a worker"),
        }
    }

    /// Descriptor to wait on beside the ports.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.bell.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicU64, Ordering};
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    /// Many pieces of work one at a time; a lost wake-up would hang in `poll` for good,
    /// so the wait has a limit and running into it fails.
    #[test]
    fn no_wake_up_is_lost_under_stress() {
        const WORK: u64 = 200_000;
        let waker = Waker::new().unwrap();
        let given = Arc::new(AtomicU64::new(0));
        let taken = Arc::new(AtomicU64::new(0));
        let producer = std::thread::spawn({
            let (waker, given, taken) = (waker.clone(), given.clone(), taken.clone());
            move || {
                for n in 1..=WORK {
                    given.store(n, Ordering::Release);
                    waker.wake();
                    // At most one piece ahead, so that nearly every piece meets a worker that is
                    // just about to sleep.
                    while taken.load(Ordering::Acquire) + 1 < n {
                        std::thread::yield_now();
                    }
                }
            }
        });
        let mut seen = 0;
        while seen < WORK {
            waker.announce();
            let now = given.load(Ordering::Acquire);
            if now == seen {
                let mut fds = [PollFd::new(waker.fd(), PollFlags::POLLIN)];
                let ready = poll(&mut fds, PollTimeout::from(10_000_u16)).unwrap();
                assert_eq!(ready, 1, "asleep with work waiting: {seen} of {WORK}");
                waker.silence();
            }
            waker.awake();
            seen = given.load(Ordering::Acquire);
            taken.store(seen, Ordering::Release);
        }
        producer.join().unwrap();
    }

    #[test]
    fn an_awake_worker_is_not_rung() {
        let waker = Waker::new().unwrap();
        waker.wake();
        assert_eq!(waker.0.bell.read(), Err(Errno::EAGAIN));
        waker.announce();
        waker.wake();
        waker.wake();
        assert_eq!(waker.0.bell.read(), Ok(1), "rung once per sleep");
    }
}
