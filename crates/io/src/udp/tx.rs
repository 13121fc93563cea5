//! Sending datagrams, several to a message.

use core::net::SocketAddr;
use std::io;
use std::os::fd::BorrowedFd;

use convoy_packet::{BURST_MAX, Burst, Frame};

use super::header::{UDP, UDP_LEN};
use crate::PortCounters;
use crate::ancillary::{Control, encode_address, push_source};
use crate::bytes::{be16, be32};
use crate::error_queue::ErrorQueue;
use crate::outer::{Outer, TTL};
use crate::socket::{Failure, SendWait};
use crate::sys::{Outgoing, SendBatch, set_int};

/// Datagrams in one message (`UDP_MAX_SEGMENTS` of kernels before 6.9).
const SEGMENTS_MAX: u16 = 64;
/// Bytes of one message: the largest UDP payload, less what any header may take.
const MESSAGE_MAX: usize = 65_000;

/// Arranges datagrams into messages and sends them.
#[derive(Debug)]
pub(super) struct Sender {
    local: SocketAddr,
    segments: bool,
    /// True if the kernel sets DF over IPv4 (`IP_MTU_DISCOVER`); `prepare` leaves it off.
    df: bool,
    messages: Vec<Message>,
    outgoing: Vec<Outgoing>,
    batch: SendBatch,
}

/// Consecutive frames that go as one message.
#[derive(Clone, Copy, Debug)]
struct Message {
    key: Key,
    /// Index of the first frame.
    first: usize,
    count: u16,
    /// Payload bytes of the first frame, and of all.
    size: usize,
    total: usize,
    /// The last frame was shorter: nothing may follow.
    closed: bool,
}

/// Common properties of the datagrams of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    outer: Outer,
    port: u16,
    /// A message may reach the peer whole, which then gives it to one worker: it must not mix SPIs.
    spi: u32,
}

impl Sender {
    pub(super) fn new(local: SocketAddr, segments: bool) -> Self {
        Self {
            local,
            segments,
            df: false,
            messages: Vec::with_capacity(BURST_MAX),
            outgoing: Vec::with_capacity(BURST_MAX),
            batch: SendBatch::new(BURST_MAX, BURST_MAX),
        }
    }

    /// True if datagrams are sent several at a time.
    pub(super) fn segments(&self) -> bool {
        self.segments
    }

    /// Sends all of `burst`; the frames stay in it. An error means that the socket is dead.
    pub(super) fn run(
        &mut self,
        fd: BorrowedFd<'_>,
        burst: &Burst,
        errors: &mut ErrorQueue,
        counters: &mut PortCounters,
    ) -> io::Result<()> {
        self.arrange(burst.as_slice(), counters);
        let mut wait = SendWait::default();
        let mut at = 0;
        // The reason why the message at `at` was refused before, if it was.
        let mut refused = false;
        while let Some(message) = self.messages.get(at).copied() {
            self.ask_for_df(fd, message.key.outer.df);
            let failure = match self.send_from(fd, at, burst.as_slice(), counters) {
                Ok(sent) => {
                    self.count_sent(at, sent, counters);
                    at += sent;
                    refused = false;
                    continue;
                }
                Err(error) => {
                    errors.signal(&error);
                    wait.judge(fd, &error).or_dead(error)?
                }
            };
            let packets = u64::from(message.count);
            match failure {
                Failure::Again => {
                    counters.tx_waits += 1;
                    continue;
                }
                // The error may concern an earlier packet; it is reported once only.
                _ if !refused && failure != Failure::Full => {
                    refused = true;
                    continue;
                }
                Failure::Segments | Failure::Invalid | Failure::TooBig if message.count > 1 => {
                    self.take_apart(at, failure, burst.as_slice());
                    refused = false;
                    continue;
                }
                Failure::Full => counters.tx_would_block += packets,
                Failure::TooBig => counters.tx_too_big += packets,
                Failure::Denied => counters.tx_denied += packets,
                _ => counters.tx_error += packets,
            }
            refused = false;
            at += 1;
        }
        Ok(())
    }

    /// Groups the frames. Those whose headers do not suit this socket belong to no message.
    fn arrange(&mut self, frames: &[Frame], counters: &mut PortCounters) {
        self.messages.clear();
        for (at, frame) in frames.iter().enumerate().take(BURST_MAX) {
            let Some((key, size)) = self.read(frame.data()) else {
                counters.tx_malformed += 1;
                continue;
            };
            let open =
                self.messages.last_mut().filter(|m| self.segments && m.takes(&key, size, at));
            match open {
                Some(message) => message.add(size),
                None => self.messages.push(Message::new(key, at, size)),
            }
        }
        self.outgoing.clear();
        let made = self.messages.iter().map(|message| message.outgoing(self.local));
        self.outgoing.extend(made);
    }

    /// The headers of one frame and the length of its payload.
    #[inline]
    fn read(&self, packet: &[u8]) -> Option<(Key, usize)> {
        let outer = Outer::parse(packet)?;
        let udp = packet.get(outer.len()..)?;
        let fits = outer.protocol == UDP
            && udp.len() > UDP_LEN
            && usize::from(be16(udp, 4)) == udp.len()
            && be16(udp, 0) == self.local.port()
            && outer.src.is_ipv4() == self.local.is_ipv4();
        let key = Key { outer, port: be16(udp, 2), spi: be32(udp, UDP_LEN) };
        fits.then(|| (key, udp.len() - UDP_LEN))
    }

    /// Sends messages from `at` on that want the same DF bit; tells how many went.
    fn send_from(
        &mut self,
        fd: BorrowedFd<'_>,
        at: usize,
        frames: &[Frame],
        counters: &mut PortCounters,
    ) -> io::Result<usize> {
        let same = |m: &&Message| m.key.outer.df == self.df || self.local.is_ipv6();
        let run = self.messages.get(at..).unwrap_or_default();
        let count = run.iter().take_while(same).count().max(1);
        let run = run.get(..count).unwrap_or_default();
        let pieces = run.iter().flat_map(|message| {
            let skip = message.key.outer.len() + UDP_LEN;
            let members = frames.get(message.first..).unwrap_or_default();
            let members = members.get(..usize::from(message.count)).unwrap_or_default();
            members.iter().map(move |frame| frame.data().get(skip..).unwrap_or_default())
        });
        let outgoing = self.outgoing.get(at..at + count).unwrap_or_default();
        counters.tx_calls += 1;
        self.batch.send(fd, outgoing, pieces)
    }

    fn count_sent(&self, at: usize, sent: usize, counters: &mut PortCounters) {
        for message in self.messages.iter().skip(at).take(sent) {
            let headers = message.key.outer.len() + UDP_LEN;
            counters.tx_packets += u64::from(message.count);
            counters.tx_bytes += (message.total + headers * usize::from(message.count)) as u64;
            counters.tx_supers += u64::from(message.count > 1);
        }
    }

    /// Replaces the message at `at` by one for each of its datagrams.
    fn take_apart(&mut self, at: usize, why: Failure, frames: &[Frame]) {
        if why == Failure::Segments {
            self.segments = false;
        }
        let Some(message) = self.messages.get(at).copied() else { return };
        let skip = message.key.outer.len() + UDP_LEN;
        let single = |n: usize| {
            let size = frames.get(n).map_or(0, |f| f.len().saturating_sub(skip));
            Message::new(message.key, n, size)
        };
        let singles = message.first..message.first + usize::from(message.count);
        // There is room: no burst has more messages than frames.
        self.messages.splice(at..=at, singles.map(single));
        self.outgoing.clear();
        let made = self.messages.iter().map(|message| message.outgoing(self.local));
        self.outgoing.extend(made);
    }

    /// There is no way to set DF and have the kernel ignore what ICMP says: with it, the kernel takes such
    /// news into its routes, where these sockets do not heed it, but others do.
    fn ask_for_df(&mut self, fd: BorrowedFd<'_>, df: bool) {
        if self.local.is_ipv6() || self.df == df {
            return;
        }
        let value = if df { libc::IP_PMTUDISC_PROBE } else { libc::IP_PMTUDISC_OMIT };
        if set_int(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, value).is_ok() {
            self.df = df;
        }
    }
}

impl Message {
    fn new(key: Key, first: usize, size: usize) -> Self {
        Self { key, first, count: 1, size, total: size, closed: false }
    }

    /// True if the datagram of frame `at` may follow: all of one size, but the last may be shorter.
    fn takes(&self, key: &Key, size: usize, at: usize) -> bool {
        !self.closed
            && size <= self.size
            && self.count < SEGMENTS_MAX
            && self.total + size <= MESSAGE_MAX
            && self.first + usize::from(self.count) == at
            && self.key == *key
    }

    fn add(&mut self, size: usize) {
        self.closed = size < self.size;
        self.count += 1;
        self.total += size;
    }

    fn outgoing(&self, local: SocketAddr) -> Outgoing {
        let outer = &self.key.outer;
        let (address, address_len) = encode_address(SocketAddr::new(outer.dst, self.key.port));
        let mut control = Control::EMPTY;
        if self.count > 1 {
            control.push(libc::SOL_UDP, libc::UDP_SEGMENT, (self.size as u16).to_ne_bytes());
        }
        let (level, tos, ttl) = if outer.src.is_ipv4() {
            (libc::IPPROTO_IP, libc::IP_TOS, libc::IP_TTL)
        } else {
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, libc::IPV6_HOPLIMIT)
        };
        if outer.tos != 0 {
            control.push(level, tos, i32::from(outer.tos).to_ne_bytes());
        }
        if outer.ttl != TTL {
            control.push(level, ttl, i32::from(outer.ttl).to_ne_bytes());
        }
        if outer.src != local.ip() {
            push_source(&mut control, outer.src);
        }
        Outgoing {
            pieces: self.count,
            address,
            address_len,
            control: control.bytes,
            control_len: control.len,
        }
    }
}
