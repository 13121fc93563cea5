//! Sending to a TUN queue.

use core::time::Duration;
use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, Write as _};
use std::os::fd::AsFd;

use arrayvec::ArrayVec;
use convoy_packet::{BURST_MAX, Burst};

use super::is_fatal;
use crate::offload::{Coalescer, Write};
use crate::{PortCounters, sys};

/// Longest time that one write waits for room.
const PATIENCE: Duration = Duration::from_millis(5);

/// Plans and makes the writes of a burst.
#[derive(Debug)]
pub(super) struct Sender {
    coalescer: Coalescer,
}

impl Sender {
    pub(super) fn new(tcp: bool, udp: bool) -> Self {
        Self { coalescer: Coalescer::new(tcp, udp) }
    }

    /// Writes all of `burst`; the frames stay in it. An error means that the queue is dead.
    pub(super) fn run(
        &mut self,
        queue: &File,
        burst: &mut Burst,
        counters: &mut PortCounters,
    ) -> io::Result<()> {
        self.coalescer.plan(burst.as_mut_slice());
        let mut patience = PATIENCE;
        for write in self.coalescer.writes() {
            let packets = u64::from(write.count);
            match self.write(queue, write, burst, counters, &mut patience) {
                Ok(bytes) => {
                    counters.tx_packets += packets;
                    counters.tx_bytes += bytes as u64;
                    counters.tx_supers += u64::from(packets > 1);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    counters.tx_would_block += packets;
                }
                Err(error) if is_fatal(&error) => return Err(error),
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    counters.tx_malformed += packets;
                }
                Err(_) => counters.tx_error += packets,
            }
        }
        Ok(())
    }

    /// One write without copying; returns the IP bytes of the packets in it.
    fn write(
        &self,
        mut queue: &File,
        write: &Write,
        burst: &Burst,
        counters: &mut PortCounters,
        patience: &mut Duration,
    ) -> io::Result<usize> {
        let vnet = write.vnet.emit();
        let mut pieces: ArrayVec<IoSlice<'_>, { BURST_MAX + 1 }> = ArrayVec::new();
        pieces.push(IoSlice::new(&vnet));
        let mut bytes = 0;
        for (n, at) in self.coalescer.chain(write).enumerate() {
            let data = burst.as_slice().get(at).map_or(&[][..], |f| f.data());
            bytes += data.len();
            let skip = if n == 0 { 0 } else { usize::from(write.headers) };
            if pieces.try_push(IoSlice::new(data.get(skip..).unwrap_or_default())).is_err() {
                break;
            }
        }
        loop {
            counters.tx_calls += 1;
            match queue.write_vectored(&pieces) {
                Ok(_) => return Ok(bytes),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock && !patience.is_zero() => {
                    counters.tx_waits += 1;
                    // Waited for once per burst: a queue that stays full will not empty for the
                    // next packet either.
                    sys::wait_writable(queue.as_fd(), core::mem::take(patience));
                }
                Err(error) => return Err(error),
            }
        }
    }
}
