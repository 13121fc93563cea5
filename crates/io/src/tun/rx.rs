//! Receiving from a TUN queue.

use std::fs::File;
use std::io::{self, ErrorKind, Read};

use convoy_packet::{Burst, Frame, Pool};

use super::is_fatal;
use crate::PortCounters;
use crate::offload::{Gso, Poured, Split, VNET_LEN, Vnet, finish_checksum};

/// The largest super-segment with its header: an IPv6 jumbogram is never made by TSO on TUN.
const BUFFER: usize = VNET_LEN + 65_536;

/// The buffer that super-segments are read into, and what is left of the last one.
#[derive(Debug)]
pub(super) struct Receiver {
    buffer: Box<[u8]>,
    pending: Option<Pending>,
}

/// A super-segment in the buffer of which some packets are still to be made.
#[derive(Clone, Copy, Debug)]
struct Pending {
    split: Split,
    len: usize,
    next: usize,
}

impl Receiver {
    pub(super) fn new() -> Self {
        Self { buffer: vec![0; BUFFER].into(), pending: None }
    }

    /// Reads until the burst is full or the queue empty. An error means that the queue is dead.
    pub(super) fn run(
        &mut self,
        mut queue: &File,
        pool: &mut Pool,
        into: &mut Burst,
        counters: &mut PortCounters,
    ) -> io::Result<()> {
        while !into.is_full() {
            if self.pending.is_some() {
                if !self.pour(pool, into, counters) {
                    return Ok(());
                }
                continue;
            }
            // A frame in hand before anything is taken from the kernel: what cannot be placed now
            // stays in its queue.
            let Some(frame) = pool.alloc() else {
                counters.rx_no_frame += 1;
                return Ok(());
            };
            counters.rx_calls += 1;
            match queue.read(&mut self.buffer) {
                Ok(len) => self.accept(len, frame, pool, into, counters),
                Err(error) => {
                    pool.free(frame);
                    match error.kind() {
                        ErrorKind::WouldBlock => return Ok(()),
                        ErrorKind::Interrupted => {}
                        _ if is_fatal(&error) => return Err(error),
                        _ => return Ok(()),
                    }
                }
            }
        }
        Ok(())
    }

    /// Looks at what was read: an ordinary packet goes into `frame`, a super-segment is prepared.
    fn accept(
        &mut self,
        len: usize,
        mut frame: Frame,
        pool: &mut Pool,
        into: &mut Burst,
        counters: &mut PortCounters,
    ) {
        let read = self.buffer.get_mut(..len).unwrap_or_default();
        let parts = read.split_first_chunk_mut::<VNET_LEN>();
        let Some((vnet, packet)) = parts.and_then(|(head, rest)| Some((Vnet::parse(head)?, rest)))
        else {
            counters.rx_malformed += 1;
            return pool.free(frame);
        };
        if vnet.gso != Gso::None {
            pool.free(frame);
            match Split::new(&vnet, packet) {
                Ok(split) => self.pending = Some(Pending { split, len, next: 0 }),
                Err(_) => counters.rx_malformed += 1,
            }
            return;
        }
        if vnet.needs_csum && finish_checksum(&vnet, packet).is_err() {
            counters.rx_malformed += 1;
            return pool.free(frame);
        }
        if frame.fill_from(packet).is_err() {
            counters.rx_truncated += 1;
            return pool.free(frame);
        }
        let _ = into.push(frame);
    }

    /// Makes packets of the pending super-segment; false when no frame is free.
    fn pour(&mut self, pool: &mut Pool, into: &mut Burst, counters: &mut PortCounters) -> bool {
        let Some(pending) = &mut self.pending else { return true };
        let packet = self.buffer.get(VNET_LEN..pending.len).unwrap_or_default();
        let poured = pending.split.pour(packet, &mut pending.next, pool, into, counters);
        if poured == Poured::All {
            self.pending = None;
        }
        poured != Poured::NoFrame
    }
}
