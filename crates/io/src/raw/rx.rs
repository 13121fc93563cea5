//! Receiving packets straight into frames.

use core::net::IpAddr;
use std::io::{self, ErrorKind};
use std::os::fd::BorrowedFd;

use convoy_packet::{Burst, Frame, Pool};

use crate::PortCounters;
use crate::ancillary::decode_address;
use crate::error_queue::ErrorQueue;
use crate::outer::Outer;
use crate::socket::{DropMeter, Meta, is_passing};
use crate::stash::Stash;
use crate::sys::{Received, RecvBatch};

/// Messages per call.
const BATCH: usize = 64;

/// Frames kept ready for the next packets.
#[derive(Debug)]
pub(super) struct Receiver {
    local: IpAddr,
    protocol: u8,
    batch: RecvBatch,
    ready: Stash,
    drops: DropMeter,
}

impl Receiver {
    pub(super) fn new(local: IpAddr, protocol: u8) -> Self {
        Self {
            local,
            protocol,
            batch: RecvBatch::new(BATCH),
            ready: Stash::new(BATCH),
            drops: DropMeter::default(),
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
        while !into.is_full() {
            let wanted = into.room().min(BATCH);
            if self.ready.fill(wanted, pool) == 0 {
                counters.rx_no_frame += 1;
                return Ok(());
            }
            counters.rx_calls += 1;
            let buffers = self.ready.iter_mut().take(wanted).map(|f| [f.spare_mut()]);
            match self.batch.recv(fd, buffers) {
                Ok(received) => {
                    self.take(received, pool, into, counters);
                    if received < wanted {
                        return Ok(());
                    }
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

    fn take(
        &mut self,
        received: usize,
        pool: &mut Pool,
        into: &mut Burst,
        counters: &mut PortCounters,
    ) {
        for at in 0..received {
            let (Some(mut frame), Some(message)) = (self.ready.pop(), self.batch.received(at))
            else {
                return;
            };
            let meta = Meta::parse(message.control);
            counters.rx_kernel_drops += self.drops.advance(meta.drops);
            if message.truncated || frame.set_len(message.len).is_err() {
                counters.rx_truncated += 1;
                pool.free(frame);
            } else if self.complete(&mut frame, &message, &meta) {
                let _ = into.push(frame);
            } else {
                counters.rx_malformed += 1;
                pool.free(frame);
            }
        }
    }

    /// IPv4 packets come whole; to IPv6 payloads the header is added. False if that fails.
    fn complete(&self, frame: &mut Frame, message: &Received<'_>, meta: &Meta) -> bool {
        if self.local.is_ipv4() {
            return frame.data().first().is_some_and(|b| b >> 4 == 4);
        }
        let Some(sender) = decode_address(message.address) else { return false };
        let outer = Outer {
            src: sender.ip(),
            dst: meta.dst.unwrap_or(self.local),
            tos: meta.tos,
            ttl: meta.ttl,
            df: true,
            protocol: self.protocol,
        };
        let payload = frame.len();
        let Ok(header) = frame.grow_front(outer.len()) else { return false };
        outer.emit(header, payload);
        true
    }
}
