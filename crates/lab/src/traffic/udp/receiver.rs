//! The receiving end: every number is ticked off.

use std::{
    io::IoSliceMut,
    net::UdpSocket,
    ops::RangeInclusive,
    os::fd::AsRawFd as _,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg};

use super::{BATCH, Flight, HEADER, Shared, UdpFlow, UdpPaced};
use crate::traffic::pattern::Pattern;

/// Longest time between a datagram and its duplicate.
const DUPLICATE: Duration = Duration::from_millis(300);
/// Runs of lost numbers that are told.
const MOST_RUNS: usize = 64;

pub(super) struct Receiver<'a> {
    paced: &'a UdpPaced,
    flight: &'a Flight,
    pattern: &'a Pattern,
    shared: &'a Shared,
    /// One bit for each number, in words of 64.
    seen: Vec<u64>,
    highest: Option<u64>,
    flow: UdpFlow,
}

impl<'a> Receiver<'a> {
    pub(super) fn new(
        paced: &'a UdpPaced,
        flight: &'a Flight,
        pattern: &'a Pattern,
        shared: &'a Shared,
    ) -> Self {
        let rate = paced.rate.packets_per_second(paced.payload);
        let expected = rate.saturating_mul(paced.duration.as_secs() + 1);
        // Grows if it has to; a mistaken rate must not claim all memory.
        let words = usize::try_from(expected / 64 + 1).unwrap_or(usize::MAX).min(1 << 22);
        let seen = Vec::with_capacity(words);
        Self { paced, flight, pattern, shared, seen, highest: None, flow: UdpFlow::default() }
    }

    pub(super) fn run(mut self, socket: &UdpSocket, start: Instant) -> UdpFlow {
        // One byte more than is sent, so that too long a datagram is seen.
        let mut buffers = vec![vec![0; self.paced.payload + 1]; BATCH];
        let mut headers = MultiHeaders::preallocate(BATCH, None);
        let mut heard = Instant::now();
        loop {
            let lengths = receive_batch(socket, &mut headers, &mut buffers);
            if lengths.is_empty() {
                if self.flight.over.load(Ordering::Acquire) && heard.elapsed() >= self.quiet() {
                    break;
                }
                continue;
            }
            heard = Instant::now();
            for (length, buffer) in lengths.iter().zip(&buffers) {
                self.take(buffer.get(..*length).unwrap_or_default());
            }
            self.flow.elapsed = start.elapsed();
        }
        self.flow.sent = self.flight.sent.load(Ordering::Acquire);
        self.flow.missing = self.missing();
        self.flow
    }

    /// Runs of numbers that were sent and not seen.
    fn missing(&self) -> Vec<RangeInclusive<u64>> {
        let mut runs: Vec<RangeInclusive<u64>> = Vec::new();
        for number in (0..self.flow.sent).filter(|number| !self.has_seen(*number)) {
            let full = runs.len() == MOST_RUNS;
            match runs.last_mut() {
                Some(run) if *run.end() + 1 == number => *run = *run.start()..=number,
                _ if full => break,
                _ => runs.push(number..=number),
            }
        }
        runs
    }

    fn has_seen(&self, number: u64) -> bool {
        let word = self.seen.get((number / 64) as usize);
        word.is_some_and(|word| word & 1 << (number % 64) != 0)
    }

    /// Time to wait once all was sent: no longer than for a duplicate when all has come.
    fn quiet(&self) -> Duration {
        let all = self.flow.received >= self.flight.sent.load(Ordering::Acquire);
        if all { self.paced.quiet.min(DUPLICATE) } else { self.paced.quiet }
    }

    fn take(&mut self, datagram: &[u8]) {
        let (Some(mark), Some(number)) = (word(datagram, 0), word(datagram, 8)) else {
            self.flow.foreign += 1;
            return;
        };
        if mark != self.flight.mark || number >> 48 != 0 {
            self.flow.foreign += 1;
            return;
        }
        let (at, bit) = ((number / 64) as usize, 1 << (number % 64));
        if at >= self.seen.len() {
            self.seen.resize(at + 1, 0);
        }
        if self.seen[at] & bit != 0 {
            self.flow.duplicates += 1;
            return;
        }
        self.seen[at] |= bit;
        self.flow.received += 1;
        self.flow.reordered += u64::from(self.highest.is_some_and(|highest| number < highest));
        self.highest = self.highest.max(Some(number));
        let right = datagram.len() == self.paced.payload
            && self.pattern.damage(0, &datagram[HEADER..]) == 0;
        self.flow.damaged += u64::from(!right);
        self.flow.bytes += datagram.len() as u64;
        self.shared.bytes.fetch_add(datagram.len() as u64, Ordering::Relaxed);
        self.shared.packets.fetch_add(1, Ordering::Relaxed);
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Lengths of the datagrams received; none when nothing came in time.
fn receive_batch(
    socket: &UdpSocket,
    headers: &mut MultiHeaders<SockaddrStorage>,
    buffers: &mut [Vec<u8>],
) -> Vec<usize> {
    let mut slices: Vec<_> = buffers.iter_mut().map(|buffer| [IoSliceMut::new(buffer)]).collect();
    let flags = MsgFlags::MSG_WAITFORONE;
    match recvmmsg(socket.as_raw_fd(), headers, slices.iter_mut(), flags, None) {
        Ok(received) => received.map(|message| message.bytes).collect(),
        Err(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::udp::Rate;

    const MARK: [u8; 8] = *b"testmark";

    fn datagram(pattern: &Pattern, number: u64) -> Vec<u8> {
        let mut datagram = MARK.to_vec();
        datagram.extend(number.to_be_bytes());
        datagram.extend_from_slice(pattern.at(0, 100 - HEADER));
        datagram
    }

    fn received(datagrams: impl Fn(&Pattern) -> Vec<Vec<u8>>) -> UdpFlow {
        let rate = Rate::PacketsPerSecond(10);
        let to = std::net::Ipv4Addr::LOCALHOST.into();
        let paced = UdpPaced { payload: 100, ..UdpPaced::new(to, rate, Duration::from_secs(1)) };
        let (flight, shared, pattern) = (Flight::new(MARK), Shared::default(), Pattern::new(100));
        let mut receiver = Receiver::new(&paced, &flight, &pattern, &shared);
        for datagram in datagrams(&pattern) {
            receiver.take(&datagram);
        }
        receiver.flow
    }

    #[test]
    fn duplicates_and_late_ones_are_told_apart() {
        let order = [0, 1, 5, 2, 5, 1, 200, 3];
        let flow = received(|pattern| order.map(|number| datagram(pattern, number)).to_vec());
        assert_eq!((flow.received, flow.duplicates, flow.reordered), (6, 2, 2));
        assert_eq!((flow.bytes, flow.damaged, flow.foreign), (600, 0, 0));
    }

    #[test]
    fn lost_numbers_are_told_in_runs() {
        let (flight, shared, pattern) = (Flight::new(MARK), Shared::default(), Pattern::new(100));
        let rate = Rate::PacketsPerSecond(10);
        let to = std::net::Ipv4Addr::LOCALHOST.into();
        let paced = UdpPaced { payload: 100, ..UdpPaced::new(to, rate, Duration::from_secs(1)) };
        let mut receiver = Receiver::new(&paced, &flight, &pattern, &shared);
        for number in [1, 2, 64, 66, 67] {
            receiver.take(&datagram(&pattern, number));
        }
        receiver.flow.sent = 70;
        assert_eq!(receiver.missing(), [0..=0, 3..=63, 65..=65, 68..=69]);
        receiver.flow.sent = 1000;
        for number in (100..1000).step_by(2) {
            receiver.take(&datagram(&pattern, number));
        }
        assert_eq!(receiver.missing().len(), MOST_RUNS);
    }

    #[test]
    fn damage_and_strangers_are_seen() {
        let flow = received(|pattern| {
            let mut flipped = datagram(pattern, 0);
            flipped[50] ^= 1;
            let mut short = datagram(pattern, 1);
            short.pop();
            let mut long = datagram(pattern, 2);
            long.push(0);
            let mut stranger = datagram(pattern, 3);
            stranger[0] ^= 1;
            let absurd = datagram(pattern, u64::MAX);
            vec![flipped, short, long, stranger, absurd, vec![], vec![1; 15]]
        });
        assert_eq!((flow.received, flow.damaged, flow.foreign), (3, 3, 4));
    }
}
