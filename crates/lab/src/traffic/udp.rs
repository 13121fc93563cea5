//! Datagrams at a steady pace, each with a number, so that loss is counted exactly.

use std::{
    io::{self, IoSlice, IoSliceMut},
    net::{IpAddr, SocketAddr, UdpSocket},
    os::fd::AsRawFd as _,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread::{self, ScopedJoinHandle},
    time::{Duration, Instant},
};

use nix::sys::socket::{
    MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg, sendmmsg, setsockopt, sockopt,
};
use socket2::SockRef;

use super::{Direction, Progress, Watch, bits_per_second, counters, join, pattern::Pattern};
use crate::{LabError, Namespace, error::Doing as _};

/// Bytes of the run's mark and the datagram's number.
const HEADER: usize = 16;
/// Largest payload over IPv4 (65,535 less the IP and UDP headers).
const MAX_PAYLOAD: usize = 65_507;
/// Datagrams sent or received in one call.
const BATCH: usize = 64;
/// Socket buffers asked for, in bytes: 32 MiB.
const BUFFER: usize = 32 << 20;
/// Pause between two looks at the clock; the kernel's timers are not much finer.
const PAUSE: Duration = Duration::from_micros(200);
/// A sender this late gives up what it owes instead of sending it in one go.
const FORGIVE: Duration = Duration::from_millis(20);
/// How long a call may block before the flags are looked at.
const PATIENCE: Duration = Duration::from_millis(50);

/// How fast to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rate {
    /// Payload bits per second.
    BitsPerSecond(u64),
    /// Datagrams per second.
    PacketsPerSecond(u64),
}

impl Rate {
    fn packets_per_second(self, payload: usize) -> u64 {
        match self {
            Self::PacketsPerSecond(rate) => rate.max(1),
            Self::BitsPerSecond(rate) => (rate / (payload as u64 * 8)).max(1),
        }
    }
}

/// A paced stream of datagrams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UdpPaced {
    /// Address of the second namespace's end.
    pub to: IpAddr,
    /// Address of the first namespace's end; needed to send backward, otherwise the kernel chooses.
    pub from: Option<IpAddr>,
    /// How long to send.
    pub duration: Duration,
    /// How fast, in each direction.
    pub rate: Rate,
    /// Payload bytes of each datagram, 16 to 65,507.
    pub payload: usize,
    /// Who sends.
    pub direction: Direction,
    /// How long the receiver may hear nothing, after the last datagram was sent, before what has
    /// not come counts as lost.
    pub quiet: Duration,
}

/// What came of a paced stream.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct UdpReport {
    /// From the first to the second namespace.
    pub forward: UdpFlow,
    /// From the second to the first.
    pub backward: UdpFlow,
    /// Packets of any kind that this machine's kernel dropped meanwhile between two interfaces,
    /// because a processor's queue was full: virtual cables lose packets there. The count is the
    /// whole machine's, so it bounds this run's share from above.
    pub backlog_drops: u64,
}

/// One direction of a paced stream.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct UdpFlow {
    /// Datagrams the sender's kernel took.
    pub sent: u64,
    /// Sends the own kernel refused (no route, no buffer); none of them counts as sent.
    pub refused: u64,
    /// Different datagrams received.
    pub received: u64,
    /// Datagrams received once more.
    pub duplicates: u64,
    /// Datagrams received after one with a higher number.
    pub reordered: u64,
    /// Datagrams that were not as sent: wrong length or bytes. They count as received.
    pub damaged: u64,
    /// Datagrams of someone else.
    pub foreign: u64,
    /// Datagrams dropped by the receiving kernel because the socket's buffer was full.
    pub kernel_drops: u64,
    /// Payload bytes received, duplicates excepted.
    pub bytes: u64,
    /// From the start to the last datagram received.
    pub elapsed: Duration,
}

impl UdpFlow {
    /// Datagrams sent that never came out of the receiver's socket.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.received)
    }

    /// Datagrams lost on the way, that is, not at the receiver's socket.
    #[must_use]
    pub fn lost_on_the_way(&self) -> u64 {
        self.lost().saturating_sub(self.kernel_drops)
    }

    /// Throughput of the payload in bits per second.
    #[must_use]
    pub fn bits_per_second(&self) -> f64 {
        bits_per_second(self.bytes, self.elapsed)
    }
}

/// The flags and counts that a run's threads share.
#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    bytes: AtomicU64,
    packets: AtomicU64,
}

/// What a sender and its receiver share: how many were sent, once that is known.
#[derive(Debug)]
struct Flight {
    mark: u64,
    sent: AtomicU64,
    over: AtomicBool,
}

impl Flight {
    fn new(mark: [u8; 8]) -> Self {
        let mark = u64::from_be_bytes(mark);
        Self { mark, sent: AtomicU64::new(0), over: AtomicBool::new(false) }
    }
}

impl UdpPaced {
    /// One direction at a rate for a time, 1400 bytes each.
    #[must_use]
    pub fn new(to: IpAddr, rate: Rate, duration: Duration) -> Self {
        Self {
            to,
            from: None,
            duration,
            rate,
            payload: 1400,
            direction: Direction::Forward,
            quiet: Duration::from_millis(300),
        }
    }

    /// Sends between two namespaces and waits for the end.
    ///
    /// # Errors
    /// [`LabError::Payload`], [`LabError::System`].
    pub fn run(
        &self,
        first: &Namespace,
        second: &Namespace,
        watch: &mut Watch<'_>,
    ) -> Result<UdpReport, LabError> {
        if !(HEADER..=MAX_PAYLOAD).contains(&self.payload) {
            return Err(LabError::Payload { bytes: self.payload, min: HEADER, max: MAX_PAYLOAD });
        }
        let far =
            second.run(|| open(self.to))?.doing(|| format!("open a socket on {}", self.to))?;
        let port = |socket: &UdpSocket| {
            socket.local_addr().doing(|| "read a socket's address".into()).map(|a| a.port())
        };
        let far_address = SocketAddr::new(self.to, port(&far)?);
        let near = first
            .run(|| {
                let unspecified = match self.to {
                    IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
                    IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
                };
                let near = open(self.from.unwrap_or(unspecified))?;
                near.connect(far_address)?;
                Ok::<_, io::Error>(near)
            })?
            .doing(|| format!("open a socket towards {}", self.to))?;
        let near_address = near.local_addr().doing(|| "read a socket's address".into())?;
        second.run(|| far.connect(near_address))?.doing(|| format!("answer {near_address}"))?;

        let backlog = || counters::backlog_drops().doing(|| "read the backlog counters".into());
        let before = backlog()?;
        let (mut forward, mut backward) = self.exchange(&near, &far, watch);
        let backlog_drops = backlog()?.saturating_sub(before);
        let v6 = self.to.is_ipv6();
        let drops = |namespace: &Namespace, port| {
            namespace.run(|| counters::udp_drops(v6, port))?.doing(|| "read UDP counters".into())
        };
        forward.kernel_drops = drops(second, far_address.port())?;
        backward.kernel_drops = drops(first, near_address.port())?;
        Ok(UdpReport { forward, backward, backlog_drops })
    }

    fn exchange(
        &self,
        near: &UdpSocket,
        far: &UdpSocket,
        watch: &mut Watch<'_>,
    ) -> (UdpFlow, UdpFlow) {
        let shared = Shared::default();
        let pattern = Pattern::new(self.payload);
        // Marks differ, so that each receiver knows its own.
        let flights = [Flight::new(*b"CONVOYu0"), Flight::new(*b"CONVOYu1")];
        let start = Instant::now();
        thread::scope(|scope| {
            let (shared, pattern) = (&shared, &pattern);
            let fly = |flight, sender, receiver| Running {
                sending: scope.spawn(move || self.send(sender, pattern, flight, shared)),
                receiving: scope.spawn(move || {
                    Receiver::new(self, flight, pattern, shared).run(receiver, start)
                }),
            };
            let [out, back] = &flights;
            let forward = self.direction.forward().then(|| fly(out, near, far));
            let backward = self.direction.backward().then(|| fly(back, far, near));
            let count =
                || (shared.bytes.load(Ordering::Relaxed), shared.packets.load(Ordering::Relaxed));
            let ended = || forward.iter().chain(&backward).all(Running::ended);
            watch.wait(start, self.duration, count, ended);
            shared.stop.store(true, Ordering::Relaxed);
            // Receivers end by themselves once it has been quiet.
            let [forward, backward] = [forward, backward]
                .map(|flight| flight.map_or_else(UdpFlow::default, Running::join));
            let (bytes, packets) = count();
            watch.tell(Progress { elapsed: start.elapsed(), bytes, packets });
            (forward, backward)
        })
    }

    /// Sends at the rate until told to stop; returns how many sends were refused.
    fn send(&self, socket: &UdpSocket, pattern: &Pattern, flight: &Flight, shared: &Shared) -> u64 {
        let rate = self.rate.packets_per_second(self.payload);
        let owed_after =
            |time: Duration| (time.as_nanos() * u128::from(rate) / 1_000_000_000) as u64;
        let most_owed = owed_after(FORGIVE).max(1);
        let mut datagrams: Vec<Vec<u8>> = (0..BATCH)
            .map(|_| {
                let mut datagram = vec![0; HEADER];
                datagram[..8].copy_from_slice(&flight.mark.to_be_bytes());
                datagram.extend_from_slice(pattern.at(0, self.payload - HEADER));
                datagram
            })
            .collect();
        let mut headers = MultiHeaders::preallocate(BATCH, None);
        let (mut number, mut refused) = (0, 0);
        // Datagrams dealt with or forgiven since the start.
        let mut settled = 0;
        let start = Instant::now();
        while !shared.stop.load(Ordering::Relaxed) {
            // The first is owed at once.
            let due = owed_after(start.elapsed()) + 1;
            let mut owed = due.saturating_sub(settled);
            if owed > most_owed {
                settled += owed - most_owed;
                owed = most_owed;
            }
            let batch = owed.min(BATCH as u64) as usize;
            if batch == 0 {
                thread::sleep(PAUSE);
                continue;
            }
            for (at, datagram) in datagrams[..batch].iter_mut().enumerate() {
                datagram[8..HEADER].copy_from_slice(&(number + at as u64).to_be_bytes());
            }
            match send_batch(socket, &mut headers, &datagrams[..batch]) {
                Ok(sent) => {
                    settled += sent as u64;
                    number += sent as u64;
                    flight.sent.store(number, Ordering::Release);
                }
                Err(e) if passing(&e) => {}
                Err(_) => {
                    refused += 1;
                    settled += 1;
                    thread::sleep(PAUSE);
                }
            }
            // Evenly spaced batches, not a torrent, when there is a debt.
            thread::sleep(PAUSE / 4);
        }
        flight.over.store(true, Ordering::Release);
        refused
    }
}

/// The two threads of a flight.
struct Running<'scope> {
    sending: ScopedJoinHandle<'scope, u64>,
    receiving: ScopedJoinHandle<'scope, UdpFlow>,
}

impl Running<'_> {
    fn ended(&self) -> bool {
        self.sending.is_finished() && self.receiving.is_finished()
    }

    fn join(self) -> UdpFlow {
        let refused = join(self.sending);
        UdpFlow { refused, ..join(self.receiving) }
    }
}

fn open(address: IpAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((address, 0))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    let options = SockRef::from(&socket);
    // Past the system's limit where permitted, up to it elsewhere.
    if setsockopt(&socket, sockopt::RcvBufForce, &BUFFER).is_err() {
        options.set_recv_buffer_size(BUFFER)?;
    }
    if setsockopt(&socket, sockopt::SndBufForce, &(BUFFER / 8)).is_err() {
        options.set_send_buffer_size(BUFFER / 8)?;
    }
    Ok(socket)
}

fn send_batch(
    socket: &UdpSocket,
    headers: &mut MultiHeaders<SockaddrStorage>,
    datagrams: &[Vec<u8>],
) -> io::Result<usize> {
    let slices: Vec<_> = datagrams.iter().map(|datagram| [IoSlice::new(datagram)]).collect();
    let addresses = [const { None::<SockaddrStorage> }; BATCH];
    let addresses = &addresses[..slices.len()];
    let sent =
        sendmmsg(socket.as_raw_fd(), headers, slices.iter(), addresses, [], MsgFlags::empty())?;
    Ok(sent.count())
}

fn passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, Interrupted, TimedOut, WouldBlock};
    // A refusal is the answer to an earlier datagram, reported late.
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock | ConnectionRefused)
}

struct Receiver<'a> {
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
    fn new(
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

    fn run(mut self, socket: &UdpSocket, start: Instant) -> UdpFlow {
        // One byte more than is sent, so that too long a datagram is seen.
        let mut buffers = vec![vec![0; self.paced.payload + 1]; BATCH];
        let mut headers = MultiHeaders::preallocate(BATCH, None);
        let mut heard = Instant::now();
        loop {
            let lengths = receive_batch(socket, &mut headers, &mut buffers);
            if lengths.is_empty() {
                let over = self.flight.over.load(Ordering::Acquire);
                if over && heard.elapsed() >= self.paced.quiet {
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
        self.flow
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
