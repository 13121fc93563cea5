//! Receiving datagrams, several to a message.

use core::net::SocketAddr;
use std::io::{self, ErrorKind};
use std::os::fd::BorrowedFd;

use convoy_packet::{Burst, Frame, NoRoom, Pool};

use super::header::{UDP, UDP_LEN};
use crate::PortCounters;
use crate::ancillary::decode_address;
use crate::bytes::put;
use crate::error_queue::ErrorQueue;
use crate::outer::Outer;
use crate::socket::{DropMeter, Meta, is_passing};
use crate::sys::RecvBatch;

/// Messages per call when each may hold 64 KiB: together no more than a second-level cache.
const JOINED: usize = 8;
/// Messages per call when each is one datagram.
const SINGLE: usize = 64;
/// Largest UDP payload.
const MESSAGE_MAX: usize = 65_535;

/// Buffers for messages, and how far the last ones have been made into packets.
#[derive(Debug)]
pub(super) struct Receiver {
    local: SocketAddr,
    batch: RecvBatch,
    buffers: Box<[Box<[u8]>]>,
    drops: DropMeter,
    /// Messages in the buffers, the one to go on with, and the bytes of it that are done.
    messages: usize,
    at: usize,
    done: usize,
}

impl Receiver {
    pub(super) fn new(local: SocketAddr, joined: bool) -> Self {
        let messages = if joined { JOINED } else { SINGLE };
        Self {
            local,
            batch: RecvBatch::new(messages),
            buffers: vec![vec![0; MESSAGE_MAX].into(); messages].into(),
            drops: DropMeter::default(),
            messages: 0,
            at: 0,
            done: 0,
        }
    }

    /// Receives until the burst is full or the socket empty. An error means that it is dead.
    pub(super) fn run(
        &mut self,
        fd: BorrowedFd<'_>,
        pool: &mut Pool,
        into: &mut Burst,
        errors: &mut ErrorQueue,
        counters: &mut PortCounters,
    ) -> io::Result<()> {
        let mut retries = 4;
        let mut emptied = false;
        while !into.is_full() {
            if self.at < self.messages {
                if !self.pour(pool, into, counters) {
                    return Ok(());
                }
                continue;
            }
            if emptied {
                return Ok(());
            }
            self.messages = 0;
            counters.rx_calls += 1;
            match self.batch.recv(fd, self.buffers.iter_mut().map(|b| [&mut **b])) {
                Ok(n) => {
                    // Fewer than asked for: asking again would most likely find nothing.
                    emptied = n < self.buffers.len();
                    (self.messages, self.at, self.done) = (n, 0, 0);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // An error about a packet sent earlier is reported once, in place of data.
                Err(error) if is_passing(&error) && retries > 0 => {
                    errors.signal(&error);
                    retries -= 1;
                }
                Err(error) if is_passing(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Makes packets of the current message; false when no frame is free.
    fn pour(&mut self, pool: &mut Pool, into: &mut Burst, counters: &mut PortCounters) -> bool {
        let Some(message) = self.batch.received(self.at) else {
            self.messages = 0;
            return true;
        };
        let meta = Meta::parse(message.control);
        let sender = decode_address(message.address);
        let payload = self.buffers.get(self.at).and_then(|b| b.get(..message.len));
        let (Some(sender), Some(payload), false) = (sender, payload, message.truncated) else {
            counters.rx_malformed += 1;
            self.at += 1;
            return true;
        };
        if self.done == 0 {
            counters.rx_kernel_drops += self.drops.advance(meta.drops);
            counters.rx_supers += u64::from(meta.segment.is_some_and(|s| s < payload.len()));
        }
        let segment = meta.segment.filter(|s| *s > 0).unwrap_or(payload.len());
        let header = Header::new(sender, self.local, &meta);
        while !into.is_full() {
            let end = payload.len().min(self.done + segment);
            let datagram = payload.get(self.done..end).unwrap_or_default();
            let Some(mut frame) = pool.alloc() else {
                counters.rx_no_frame += 1;
                return false;
            };
            if header.write(datagram, &mut frame).is_ok() {
                let _ = into.push(frame);
            } else {
                counters.rx_truncated += 1;
                pool.free(frame);
            }
            self.done = end;
            if end >= payload.len() {
                self.at += 1;
                self.done = 0;
                return true;
            }
        }
        true
    }
}

/// The headers that all datagrams of one message share.
struct Header {
    outer: Outer,
    ports: [u8; 4],
}

impl Header {
    fn new(sender: SocketAddr, local: SocketAddr, meta: &Meta) -> Self {
        let [a, b] = sender.port().to_be_bytes();
        let [c, d] = local.port().to_be_bytes();
        let dst = meta.dst.unwrap_or_else(|| local.ip());
        let (tos, ttl) = (meta.tos, meta.ttl);
        let outer = Outer { src: sender.ip(), dst, tos, ttl, df: false, protocol: UDP };
        Self { outer, ports: [a, b, c, d] }
    }

    #[inline]
    fn write(&self, datagram: &[u8], frame: &mut Frame) -> Result<(), NoRoom> {
        let ip_len = self.outer.len();
        let headers = ip_len + UDP_LEN;
        frame.reset();
        let room = frame.grow_back(headers + datagram.len())?;
        let (head, body) = room.split_at_mut_checked(headers).ok_or(NoRoom(headers))?;
        body.copy_from_slice(datagram);
        let udp_len = UDP_LEN + datagram.len();
        self.outer.emit(head, udp_len);
        put(head, ip_len, self.ports);
        put(head, ip_len + 4, (udp_len as u16).to_be_bytes());
        put(head, ip_len + 6, [0, 0]);
        Ok(())
    }
}
