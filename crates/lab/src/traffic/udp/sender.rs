//! The sending end: datagrams at a steady pace.

use std::{
    io::{self, IoSlice},
    net::UdpSocket,
    os::fd::AsRawFd as _,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrStorage, sendmmsg};

use super::{BATCH, Flight, HEADER, UdpPaced};
use crate::traffic::pattern::Pattern;

/// Pause between two looks at the clock; the kernel's timers are not much finer.
const PAUSE: Duration = Duration::from_micros(200);
/// A sender this late gives up what it owes instead of sending it in one go.
const FORGIVE: Duration = Duration::from_millis(20);

/// Datagrams that are due, and number of them that have been dealt with.
#[derive(Debug)]
struct Pace {
    per_second: u64,
    /// Sent, refused or forgiven.
    settled: u64,
}

impl Pace {
    /// Number of datagrams to send after a time since the start. Debts beyond [`FORGIVE`] are forgiven.
    fn owed(&mut self, elapsed: Duration) -> u64 {
        // The first is due at once.
        let owed = (self.due_in(elapsed) + 1).saturating_sub(self.settled);
        let most = self.due_in(FORGIVE).max(1);
        self.settled += owed.saturating_sub(most);
        owed.min(most)
    }

    fn due_in(&self, time: Duration) -> u64 {
        (time.as_nanos() * u128::from(self.per_second) / 1_000_000_000) as u64
    }
}

pub(super) struct Sender<'a> {
    flight: &'a Flight,
    pace: Pace,
    datagrams: Vec<Vec<u8>>,
    headers: MultiHeaders<SockaddrStorage>,
}

impl<'a> Sender<'a> {
    pub(super) fn new(paced: &UdpPaced, flight: &'a Flight, pattern: &Pattern) -> Self {
        let mut datagram = vec![0; HEADER];
        datagram[..8].copy_from_slice(&flight.mark.to_be_bytes());
        datagram.extend_from_slice(pattern.at(0, paced.payload - HEADER));
        Self {
            flight,
            pace: Pace { per_second: paced.rate.packets_per_second(paced.payload), settled: 0 },
            datagrams: vec![datagram; BATCH],
            headers: MultiHeaders::preallocate(BATCH, None),
        }
    }

    /// Sends until told to stop; returns how many sends were refused.
    pub(super) fn run(mut self, socket: &UdpSocket, stop: &AtomicBool) -> u64 {
        let (mut number, mut refused) = (0, 0);
        let start = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            let batch = self.pace.owed(start.elapsed()).min(BATCH as u64) as usize;
            if batch == 0 {
                thread::sleep(PAUSE);
                continue;
            }
            match self.send(socket, number, batch) {
                Ok(sent) => {
                    self.pace.settled += sent;
                    number += sent;
                    self.flight.sent.store(number, Ordering::Release);
                }
                Err(e) if passing(&e) => {}
                Err(_) => {
                    refused += 1;
                    self.pace.settled += 1;
                    thread::sleep(PAUSE);
                }
            }
            // A debt is paid in batches, not in one torrent.
            thread::sleep(PAUSE / 4);
        }
        self.flight.over.store(true, Ordering::Release);
        refused
    }

    fn send(&mut self, socket: &UdpSocket, number: u64, batch: usize) -> io::Result<u64> {
        let datagrams = &mut self.datagrams[..batch];
        for (number, datagram) in (number..).zip(datagrams.iter_mut()) {
            datagram[8..HEADER].copy_from_slice(&number.to_be_bytes());
        }
        let slices: Vec<_> = datagrams.iter().map(|datagram| [IoSlice::new(datagram)]).collect();
        let addresses = [const { None::<SockaddrStorage> }; BATCH];
        let (fd, flags) = (socket.as_raw_fd(), MsgFlags::empty());
        let to = &addresses[..batch];
        let sent = sendmmsg(fd, &mut self.headers, slices.iter(), to, [], flags)?;
        Ok(sent.count() as u64)
    }
}

fn passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, Interrupted, TimedOut, WouldBlock};
    // A refusal is the answer to an earlier datagram, reported late.
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock | ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_kept_exactly_when_nothing_is_late() {
        let mut pace = Pace { per_second: 12_345, settled: 0 };
        let mut sent = 0;
        for millisecond in 0..=2000 {
            let owed = pace.owed(Duration::from_millis(millisecond));
            pace.settled += owed;
            sent += owed;
        }
        assert_eq!(sent, 2 * 12_345 + 1);
    }

    #[test]
    fn a_long_pause_is_forgiven_and_does_not_become_a_torrent() {
        let mut pace = Pace { per_second: 1000, settled: 0 };
        assert_eq!(pace.owed(Duration::ZERO), 1);
        pace.settled += 1;
        assert_eq!(pace.owed(Duration::from_secs(10)), 20);
        pace.settled += 20;
        assert_eq!(pace.owed(Duration::from_secs(10)), 0);
        assert_eq!(pace.owed(Duration::from_millis(10_005)), 5);
    }

    #[test]
    fn the_slowest_rate_still_sends() {
        let mut pace = Pace { per_second: 1, settled: 1 };
        assert_eq!(pace.owed(Duration::from_millis(999)), 0);
        assert_eq!(pace.owed(Duration::from_secs(1)), 1);
    }
}
