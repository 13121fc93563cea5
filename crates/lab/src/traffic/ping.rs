//! Echo requests (RFC 792, RFC 4443).

use std::{
    io::{self, Read as _},
    net::{IpAddr, SocketAddr},
    sync::atomic::{AtomicU16, Ordering},
    thread,
    time::{Duration, Instant},
};

use socket2::{Domain, Protocol, Socket, Type};

use super::{Progress, Watch};
use crate::{LabError, Namespace, error::Doing as _};

/// Bytes of an ICMP header before the payload.
const HEADER: usize = 8;
/// Largest payload of one echo request over IPv4.
const MAX_PAYLOAD: usize = 65_507;
/// Longest time that a receive may block before the clock and the flag are looked at.
const PATIENCE: Duration = Duration::from_millis(20);

/// Tells the runs of one process apart.
static NEXT_IDENTIFIER: AtomicU16 = AtomicU16::new(0);

/// Echo requests to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ping {
    /// Whom to ask.
    pub to: IpAddr,
    /// Number of requests.
    pub count: u16,
    /// Time between two.
    pub interval: Duration,
    /// Time to wait for the last answers.
    pub timeout: Duration,
    /// Payload bytes of each.
    pub payload: usize,
}

/// Results of echo requests.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PingReport {
    /// Requests sent.
    pub sent: u64,
    /// Requests answered, each counted once.
    pub received: u64,
    /// Answers beyond the first to a request.
    pub duplicates: u64,
    /// Answers whose payload was not that of the request.
    pub damaged: u64,
    /// Round trip of every answered request, in the order of arrival.
    pub round_trips: Vec<Duration>,
    /// Requests the own kernel would not send, and ICMP errors that came for others.
    pub troubles: Vec<PingTrouble>,
}

/// Cause of a missing answer, as far as someone said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PingTrouble {
    /// A router says it is too big: its next link takes so many bytes (RFC 1191, RFC 8201).
    TooBig {
        /// MTU in bytes of the link it did not fit into; 0 from a router that does not tell.
        mtu: u32,
    },
    /// Not deliverable: type and code of the ICMP message.
    Unreachable {
        /// ICMP type.
        kind: u8,
        /// ICMP code.
        code: u8,
    },
    /// The own kernel refused to send, with this error number.
    Refused {
        /// The error number.
        errno: i32,
    },
}

impl PingReport {
    /// Requests that were not answered.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.received)
    }

    /// Shortest, mean and longest round trip, if anything was answered.
    #[must_use]
    pub fn min_mean_max(&self) -> Option<(Duration, Duration, Duration)> {
        let min = self.round_trips.iter().min()?;
        let max = self.round_trips.iter().max()?;
        let count = u32::try_from(self.round_trips.len()).ok()?;
        Some((*min, self.round_trips.iter().sum::<Duration>() / count, *max))
    }
}

impl Ping {
    /// Five requests of 56 bytes, 200 ms apart, and a second for the last answer.
    #[must_use]
    pub fn new(to: IpAddr) -> Self {
        Self {
            to,
            count: 5,
            interval: Duration::from_millis(200),
            timeout: Duration::from_secs(1),
            payload: 56,
        }
    }

    /// Asks from a namespace and waits for the answers.
    ///
    /// # Errors
    /// [`LabError::Payload`], [`LabError::System`].
    pub fn run(&self, from: &Namespace, watch: &mut Watch<'_>) -> Result<PingReport, LabError> {
        if self.payload > MAX_PAYLOAD {
            return Err(LabError::Payload { bytes: self.payload, min: 0, max: MAX_PAYLOAD });
        }
        let socket = from.run(|| self.open())?.doing(|| "open an ICMP socket".into())?;
        let mut run = Run {
            ping: self,
            socket: &socket,
            identifier: NEXT_IDENTIFIER.fetch_add(1, Ordering::Relaxed)
                ^ (std::process::id() as u16).rotate_left(8),
            sent_at: Vec::new(),
            answered: Vec::new(),
            report: PingReport::default(),
        };
        run.ask_and_listen(watch);
        Ok(run.report)
    }

    fn open(&self) -> io::Result<Socket> {
        let (domain, protocol) = match self.to {
            IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4),
            IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6),
        };
        let socket = Socket::new(domain, Type::RAW, Some(protocol))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        // Answers to a fast series, and everything else a raw socket is shown.
        socket.set_recv_buffer_size(1 << 20)?;
        Ok(socket)
    }
}

struct Run<'a> {
    ping: &'a Ping,
    socket: &'a Socket,
    identifier: u16,
    sent_at: Vec<Instant>,
    answered: Vec<bool>,
    report: PingReport,
}

impl Run<'_> {
    fn ask_and_listen(&mut self, watch: &mut Watch<'_>) {
        let start = Instant::now();
        let mut buffer = vec![0; HEADER + self.ping.payload + 128];
        buffer.resize(buffer.len().max(2048), 0);
        let mut told = Instant::now();
        loop {
            let asked = self.sent_at.len();
            let all_asked = asked == usize::from(self.ping.count) || watch.cancelled();
            let due = start + self.ping.interval.saturating_mul(asked as u32);
            if !all_asked && Instant::now() >= due {
                self.ask();
                continue;
            }
            let settled = self.report.received + self.report.troubles.len() as u64;
            if all_asked && (settled >= self.report.sent || watch.cancelled()) {
                break;
            }
            let last = self.sent_at.last().map_or(start, |last| *last + self.ping.timeout);
            let over = Instant::now() >= last;
            // What has come while this thread did not run is no loss.
            if !self.listen(&mut buffer) && all_asked && over {
                break;
            }
            if told.elapsed() >= super::TICK {
                told = Instant::now();
                watch.tell(self.progress(start));
            }
        }
        watch.tell(self.progress(start));
    }

    fn progress(&self, start: Instant) -> Progress {
        let packets = self.report.received;
        let bytes = packets * self.ping.payload as u64;
        Progress { elapsed: start.elapsed(), bytes, packets }
    }

    fn ask(&mut self) {
        let sequence = self.sent_at.len() as u16;
        let v4 = self.ping.to.is_ipv4();
        let mut packet = vec![if v4 { 8 } else { 128 }, 0, 0, 0];
        packet.extend(self.identifier.to_be_bytes());
        packet.extend(sequence.to_be_bytes());
        packet.extend((0..self.ping.payload).map(|at| payload_byte(sequence, at)));
        if v4 {
            // For ICMPv6 the kernel does it (RFC 3542 section 3.1).
            let sum = checksum(&packet);
            packet[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        self.sent_at.push(Instant::now());
        self.answered.push(false);
        match self.socket.send_to(&packet, &SocketAddr::new(self.ping.to, 0).into()) {
            Ok(_) => self.report.sent += 1,
            Err(e) => {
                self.report.sent += 1;
                let errno = e.raw_os_error().unwrap_or(0);
                self.report.troubles.push(PingTrouble::Refused { errno });
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Reads a message; true if it is about these echo requests. A raw socket hears all others, too.
    fn listen(&mut self, buffer: &mut [u8]) -> bool {
        let mut socket = self.socket;
        socket.read(buffer).is_ok_and(|length| self.hear(buffer.get(..length).unwrap_or_default()))
    }

    fn hear(&mut self, mut message: &[u8]) -> bool {
        if self.ping.to.is_ipv4() {
            // Raw IPv4 sockets deliver the IP header, raw IPv6 sockets do not.
            let header = usize::from(message.first().copied().unwrap_or(0) & 0xf) * 4;
            message = message.get(header..).unwrap_or_default();
        }
        let Some((&[kind, code, _, _, a, b, c, d], rest)) = message.split_first_chunk::<HEADER>()
        else {
            return false;
        };
        let v4 = self.ping.to.is_ipv4();
        match (v4, kind) {
            (true, 0) | (false, 129) => {
                let sequence = u16::from_be_bytes([c, d]);
                let is_ours = u16::from_be_bytes([a, b]) == self.identifier;
                if is_ours {
                    self.answer(sequence, rest);
                }
                is_ours
            }
            (true, 3 | 11) | (false, 1..=4) if self.is_ours(rest) => {
                self.report.troubles.push(match (v4, kind, code) {
                    (true, 3, 4) => PingTrouble::TooBig { mtu: u16::from_be_bytes([c, d]).into() },
                    (false, 2, _) => PingTrouble::TooBig { mtu: u32::from_be_bytes([a, b, c, d]) },
                    _ => PingTrouble::Unreachable { kind, code },
                });
                true
            }
            _ => false,
        }
    }

    fn answer(&mut self, sequence: u16, payload: &[u8]) {
        let at = usize::from(sequence);
        let (Some(sent), Some(answered)) = (self.sent_at.get(at), self.answered.get_mut(at)) else {
            return;
        };
        if std::mem::replace(answered, true) {
            self.report.duplicates += 1;
            return;
        }
        let right = payload.len() == self.ping.payload
            && payload.iter().enumerate().all(|(at, byte)| *byte == payload_byte(sequence, at));
        self.report.received += 1;
        self.report.damaged += u64::from(!right);
        self.report.round_trips.push(sent.elapsed());
    }

    /// True if an ICMP error quotes one of our requests.
    fn is_ours(&self, quoted: &[u8]) -> bool {
        let header = match self.ping.to {
            IpAddr::V4(_) => usize::from(quoted.first().copied().unwrap_or(0) & 0xf) * 4,
            IpAddr::V6(_) => 40,
        };
        let request = quoted.get(header..).and_then(|icmp| icmp.first_chunk::<HEADER>());
        request.is_some_and(|icmp| {
            matches!(icmp[0], 8 | 128) && icmp[4..6] == self.identifier.to_be_bytes()
        })
    }
}

fn payload_byte(sequence: u16, at: usize) -> u8 {
    (usize::from(sequence).wrapping_mul(31) ^ at) as u8
}

/// The Internet checksum (RFC 1071).
fn checksum(data: &[u8]) -> u16 {
    let words = data.chunks(2).map(|pair| match pair {
        [high, low] => u32::from(u16::from_be_bytes([*high, *low])),
        [high] => u32::from(*high) << 8,
        _ => 0,
    });
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_rfc_1071() {
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
        assert_eq!(checksum(&[0xff]), 0x00ff);
    }
}
