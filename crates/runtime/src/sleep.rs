//! Waiting for work without a processor.

use core::time::Duration;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use crate::Waker;
use crate::ports::Source;

/// Longest sleep; timers (keepalives, published counters) are looked at this often.
const LONGEST_MS: u16 = 500;
/// Sleep while a port cannot signal: short against anything that waits for an answer.
const NAP: Duration = Duration::from_micros(50);
/// The bell's number among the ports.
const BELL: u64 = u64::MAX;

/// Everything a worker can be woken by.
#[derive(Debug)]
pub(crate) struct Bed {
    epoll: Epoll,
    /// Some port must be asked from time to time.
    naps: bool,
}

impl Bed {
    /// Registers the bell and the ports; a port's number is its position.
    pub(crate) fn new<'a>(
        waker: &Waker,
        ports: impl Iterator<Item = &'a Source>,
    ) -> Result<Self, Errno> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(waker.fd(), EpollEvent::new(EpollFlags::EPOLLIN, BELL))?;
        let mut naps = false;
        for (n, source) in ports.enumerate() {
            match source.port.fd() {
                // Errors are reported unasked: that is how a port tells of news.
                Some(fd) => epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, n as u64))?,
                None => naps = true,
            }
        }
        Ok(Self { epoll, naps })
    }

    /// Sleeps until the bell rings, a port signals, or time is up: after `limit`, or earlier. `signalled` is
    /// told the positions of ports that signalled.
    pub(crate) fn sleep(&self, waker: &Waker, limit: Duration, mut signalled: impl FnMut(usize)) {
        if self.naps {
            std::thread::sleep(NAP.min(limit));
        }
        // In whole milliseconds, and not one too few.
        let limit = u16::try_from(limit.as_millis() + 1).unwrap_or(u16::MAX).min(LONGEST_MS);
        let limit = if self.naps { EpollTimeout::ZERO } else { EpollTimeout::from(limit) };
        let mut events = [EpollEvent::empty(); 16];
        // An interrupted wait is a short sleep.
        let n = self.epoll.wait(&mut events, limit).unwrap_or(0);
        for event in events.iter().take(n) {
            match event.data() {
                BELL => waker.silence(),
                port => signalled(port as usize),
            }
        }
    }
}
