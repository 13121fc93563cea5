//! Sending whole packets in batches.

use core::net::SocketAddr;
use std::io;
use std::os::fd::BorrowedFd;

use convoy_packet::{BURST_MAX, Burst, Frame};

use crate::PortCounters;
use crate::ancillary::{Control, encode_address, push_source};
use crate::error_queue::ErrorQueue;
use crate::outer::{Outer, TTL};
use crate::socket::{Failure, SendWait};
use crate::sys::{Outgoing, SendBatch, set_int};

/// Bits of a TOS by which the kernel chooses a packet's priority and its route; the others are
/// those of congestion notification (RFC 3168).
const SERVICE: u8 = 0x1c;

/// Sends packets whose headers are already as they should be on the wire.
#[derive(Debug)]
pub(super) struct Sender {
    v6: bool,
    protocol: u8,
    outgoing: Vec<Outgoing>,
    /// For each message the index of its frame, and the TOS of its header.
    frames: Vec<(usize, u8)>,
    /// The TOS that the socket has now.
    tos: u8,
    batch: SendBatch,
}

impl Sender {
    pub(super) fn new(v6: bool, protocol: u8) -> Self {
        Self {
            v6,
            protocol,
            outgoing: Vec::with_capacity(BURST_MAX),
            frames: Vec::with_capacity(BURST_MAX),
            tos: 0,
            batch: SendBatch::new(BURST_MAX, BURST_MAX),
        }
    }

    /// Sends all of `burst`, over the second socket what needs fragments; the frames stay in it. An
    /// error means that the socket is dead.
    pub(super) fn run(
        &mut self,
        fd: BorrowedFd<'_>,
        fragmenting: Option<BorrowedFd<'_>>,
        burst: &Burst,
        errors: &mut ErrorQueue,
        counters: &mut PortCounters,
    ) -> io::Result<()> {
        let frames = burst.as_slice();
        self.arrange(frames, counters);
        let mut wait = SendWait::default();
        let mut at = 0;
        let mut refused = false;
        while at < self.outgoing.len() {
            let failure = match self.send_from(fd, at, frames, counters) {
                Ok(sent) => {
                    self.count_sent(at, sent, frames, counters);
                    at += sent;
                    refused = false;
                    continue;
                }
                Err(error) => {
                    errors.signal(&error);
                    wait.judge(fd, &error).or_dead(error)?
                }
            };
            match failure {
                Failure::Again => {
                    counters.tx_waits += 1;
                    continue;
                }
                Failure::Full => counters.tx_would_block += 1,
                // The error may concern an earlier packet; it is reported once only.
                _ if !refused => {
                    refused = true;
                    continue;
                }
                Failure::TooBig if self.fragment(fragmenting, at, frames) => {
                    self.count_sent(at, 1, frames, counters);
                }
                Failure::TooBig => counters.tx_too_big += 1,
                Failure::Denied => counters.tx_denied += 1,
                _ => counters.tx_error += 1,
            }
            refused = false;
            at += 1;
        }
        Ok(())
    }

    fn count_sent(&self, at: usize, sent: usize, frames: &[Frame], counters: &mut PortCounters) {
        let members = self.frames.iter().skip(at).take(sent).filter_map(|(n, _)| frames.get(*n));
        counters.tx_bytes += members.map(|f| f.len() as u64).sum::<u64>();
        counters.tx_packets += sent as u64;
    }

    /// Lets the kernel write the header of message `at` and fragment it, if DF is not set.
    fn fragment(&mut self, fd: Option<BorrowedFd<'_>>, at: usize, frames: &[Frame]) -> bool {
        let frame = self.frames.get(at).and_then(|(n, _)| frames.get(*n));
        let (Some(fd), Some(frame), Some(first)) = (fd, frame, self.outgoing.get(at)) else {
            return false;
        };
        let Some(outer) = Outer::parse(frame.data()).filter(|outer| !outer.df) else {
            return false;
        };
        let mut control = Control::EMPTY;
        control.push(libc::IPPROTO_IP, libc::IP_TOS, i32::from(outer.tos).to_ne_bytes());
        if outer.ttl != TTL {
            control.push(libc::IPPROTO_IP, libc::IP_TTL, i32::from(outer.ttl).to_ne_bytes());
        }
        push_source(&mut control, outer.src);
        let message = Outgoing { control: control.bytes, control_len: control.len, ..*first };
        let payload = frame.data().get(outer.len()..).unwrap_or_default();
        self.batch.send(fd, &[message], core::iter::once(payload)).is_ok()
    }

    fn arrange(&mut self, frames: &[Frame], counters: &mut PortCounters) {
        self.outgoing.clear();
        self.frames.clear();
        for (at, frame) in frames.iter().enumerate().take(BURST_MAX) {
            let outer = Outer::parse_with_options(frame.data());
            let outer = outer.filter(|o| o.protocol == self.protocol && o.src.is_ipv6() == self.v6);
            let Some(outer) = outer else {
                counters.tx_malformed += 1;
                continue;
            };
            let (address, address_len) = encode_address(SocketAddr::new(outer.dst, 0));
            // The route is looked up with the packet's own source, as a kernel's ESP does it: rules
            // by source (`ip rule from`) choose between uplinks.
            let mut control = Control::EMPTY;
            push_source(&mut control, outer.src);
            let Control { bytes: control, len: control_len } = control;
            self.outgoing.push(Outgoing { pieces: 1, address, address_len, control, control_len });
            self.frames.push((at, outer.tos));
        }
    }

    /// Sends messages from `at` on, as far as they have one TOS.
    fn send_from(
        &mut self,
        fd: BorrowedFd<'_>,
        at: usize,
        frames: &[Frame],
        counters: &mut PortCounters,
    ) -> io::Result<usize> {
        let members = self.frames.get(at..).unwrap_or_default();
        let tos = members.first().map_or(0, |(_, tos)| tos & SERVICE);
        let run = members.iter().take_while(|(_, other)| self.v6 || other & SERVICE == tos).count();
        // The kernel gives packets that come with their header the priority of the socket, which
        // follows its TOS; over IPv6 a forwarded packet has no priority by its traffic class.
        if !self.v6 && tos != self.tos {
            set_int(fd, libc::IPPROTO_IP, libc::IP_TOS, i32::from(tos))?;
            self.tos = tos;
        }
        let members = members.get(..run).unwrap_or_default();
        let pieces = members.iter().map(|(n, _)| frames.get(*n).map_or(&[][..], |f| f.data()));
        counters.tx_calls += 1;
        self.batch.send(fd, self.outgoing.get(at..at + run).unwrap_or_default(), pieces)
    }
}
