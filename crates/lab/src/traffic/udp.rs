//! Datagrams at a steady pace, each with a number, so that loss is counted exactly.

mod receiver;
mod sender;

use std::{
    io,
    net::{IpAddr, SocketAddr, UdpSocket},
    ops::RangeInclusive,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread::{self, ScopedJoinHandle},
    time::{Duration, Instant},
};

use nix::sys::socket::{setsockopt, sockopt};
use socket2::SockRef;

use self::{receiver::Receiver, sender::Sender};
use super::{
    Direction, Progress, SetOnDrop, Watch, bits_per_second, counters, join, pattern::Pattern,
};
use crate::{LabError, Namespace, error::Doing as _};

/// Bytes of the run's mark and the datagram's number.
const HEADER: usize = 16;
/// Largest payload over IPv4 (65,535 less the IP and UDP headers).
const MAX_PAYLOAD: usize = 65_507;
/// Datagrams sent or received in one call.
const BATCH: usize = 64;
/// Socket buffers asked for, in bytes: 32 MiB.
const BUFFER: usize = 32 << 20;
/// Longest time that a call may block before the flags are looked at.
const PATIENCE: Duration = Duration::from_millis(50);

/// Default delay after which a datagram counts as lost: on a busy machine everyone waits for a processor.
const LATEST: Duration = Duration::from_secs(3);
/// Time for which a probe sends, and longest delay of what it sent.
const PROBE: Duration = Duration::from_millis(100);
/// Parts of a rate that are probed: the whole, a half and a quarter of it.
const PARTS: [u64; 3] = [1, 2, 4];

/// Speed of sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rate {
    /// Payload bits per second.
    BitsPerSecond(u64),
    /// Datagrams per second.
    PacketsPerSecond(u64),
}

impl Rate {
    /// Datagrams per second with so many bytes of payload; at least one.
    #[must_use]
    pub fn packets_per_second(self, payload: usize) -> u64 {
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
    /// Address of the first namespace's end; otherwise the kernel chooses.
    pub from: Option<IpAddr>,
    /// Time for which to send.
    pub duration: Duration,
    /// Speed in each direction.
    pub rate: Rate,
    /// Payload bytes of each datagram, 16 to 65,507.
    pub payload: usize,
    /// Namespaces that send.
    pub direction: Direction,
    /// Longest silence at the receiver, after the last datagram was sent, before what has
    /// not come counts as lost.
    pub quiet: Duration,
}

/// Results of a paced stream.
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

impl UdpReport {
    /// Datagrams lost, both ways together, beyond the packets that the kernel counted as dropped for want
    /// of room meanwhile (see [`crate::Topology::counting_drops`]). On a busy machine queues are full
    /// while their readers wait for a processor, and that is nobody's fault; on a quiet one this is all
    /// that was lost.
    #[must_use]
    pub fn lost_beyond(&self, dropped: u64) -> u64 {
        (self.forward.lost() + self.backward.lost()).saturating_sub(dropped)
    }
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
    /// Numbers of the datagrams that are lost, from 0, in runs; of more runs than 64, the first.
    pub missing: Vec<RangeInclusive<u64>>,
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

/// State that a sender and its receiver share: number of datagrams sent, once that is known.
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
            quiet: LATEST,
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

    /// Finds the rate that the way carries now: that of this stream, or a part of it, down to an
    /// eighth. Sends at the whole rate for 100 ms, then at a half and a quarter as long as datagrams
    /// are lost or come late. What carries only a part now may carry less a moment later; so that
    /// part is halved once more.
    ///
    /// # Errors
    /// As [`UdpPaced::run`].
    pub fn probe(
        &self,
        first: &Namespace,
        second: &Namespace,
        watch: &Watch<'_>,
    ) -> Result<Rate, LabError> {
        let whole = self.rate.packets_per_second(self.payload);
        for part in PARTS {
            let rate = whole / part;
            let probe = Self {
                rate: Rate::PacketsPerSecond(rate),
                duration: PROBE,
                quiet: PROBE,
                ..self.clone()
            };
            let report = probe.run(first, second, &mut Watch::new(watch.cancel))?;
            let is_carried = |flow: &UdpFlow| flow.lost() == 0 && flow.refused == 0;
            let flows = [&report.forward, &report.backward];
            if flows.iter().all(|flow| is_carried(flow)) && flows.iter().any(|f| f.received > 0) {
                return Ok(Rate::PacketsPerSecond(if part == 1 { rate } else { rate / 2 }));
            }
            if watch.cancelled() {
                break;
            }
        }
        Ok(Rate::PacketsPerSecond(whole / 8))
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
            // Whatever happens here, the threads end.
            let stop = SetOnDrop(&shared.stop);
            let fly = |flight, sender, receiver| Running {
                sending: scope
                    .spawn(move || Sender::new(self, flight, pattern).run(sender, &shared.stop)),
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
            drop(stop);
            // Receivers end by themselves once it has been quiet.
            let [forward, backward] = [forward, backward]
                .map(|flight| flight.map_or_else(UdpFlow::default, Running::join));
            let (bytes, packets) = count();
            watch.tell(Progress { elapsed: start.elapsed(), bytes, packets });
            (forward, backward)
        })
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
