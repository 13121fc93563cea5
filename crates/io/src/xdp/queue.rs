//! One AF_XDP socket: frames to receive into, packets received, packets sent.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};

use convoy_packet::{Burst, Frame, Pool};

use crate::PortCounters;
use crate::link::Outlet;
use crate::link::ethernet::{self, Content};
use crate::offload::finish_partial;
use crate::socket::{Failure, SendWait};
use crate::sys::{ENTRIES, XdpSocket};

/// Frames that the kernel has to receive into.
const FILL: usize = ENTRIES as usize;
/// Free frames that are worth giving to it.
const FILL_BATCH: usize = 32;
/// Packets sent from this many frames are waited for before more are sent.
const UNSENT_MAX: u32 = ENTRIES / 2;

/// A socket and how many frames it has to receive into.
#[derive(Debug)]
pub(super) struct Queue {
    socket: XdpSocket,
    filled: usize,
}

impl Queue {
    /// A queue that can receive at once, as far as there are frames.
    pub(super) fn filled(socket: XdpSocket, pool: &mut Pool) -> Self {
        let mut queue = Self { socket, filled: 0 };
        queue.fill(pool, &mut PortCounters::default());
        queue.socket.publish();
        queue
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(super) fn drops(&self) -> u64 {
        self.socket.drops()
    }

    /// Appends packets to the burst until it is full or no more are there.
    pub(super) fn receive(
        &mut self,
        pool: &mut Pool,
        into: &mut Burst,
        counters: &mut PortCounters,
    ) {
        let mut taken = 0;
        while !into.is_full() {
            let Some(frame) = self.socket.receive() else { break };
            taken += 1;
            match strip(frame) {
                Ok(frame) => {
                    // There is room.
                    let _ = into.push(frame);
                }
                Err((frame, content)) => {
                    match content {
                        Content::Foreign => counters.rx_foreign += 1,
                        Content::BadChecksum => counters.rx_checksum += 1,
                        _ => counters.rx_malformed += 1,
                    }
                    pool.free(frame);
                }
            }
        }
        self.filled -= taken.min(self.filled);
        self.fill(pool, counters);
        self.socket.publish();
        self.socket.kick_rx();
    }

    /// Gives the kernel frames to receive into.
    fn fill(&mut self, pool: &mut Pool, counters: &mut PortCounters) {
        self.reclaim(pool);
        if self.filled + FILL_BATCH > FILL {
            return;
        }
        while self.filled < FILL {
            let Some(frame) = pool.alloc() else {
                counters.rx_no_frame += 1;
                return;
            };
            if let Err(frame) = self.socket.give(frame) {
                return pool.free(frame);
            }
            self.filled += 1;
        }
    }

    fn reclaim(&mut self, pool: &mut Pool) {
        while let Some(frame) = self.socket.sent() {
            pool.free(frame);
        }
    }

    /// Sends all that is ready. An error means that the socket is dead.
    pub(super) fn send(
        &mut self,
        pool: &mut Pool,
        outlet: &mut Outlet,
        counters: &mut PortCounters,
    ) -> io::Result<()> {
        if outlet.ready.is_empty() {
            return Ok(());
        }
        let mut wait = SendWait::default();
        let own = outlet.own();
        self.reclaim(pool);
        let Outlet { ready, macs, .. } = outlet;
        for (mut frame, mac) in ready.drain().zip(macs.iter()) {
            let len = frame.len();
            if !ethernet::put_on(&mut frame, *mac, own) {
                counters.tx_malformed += 1;
                pool.free(frame);
                continue;
            }
            if self.socket.unsent_at_most(UNSENT_MAX)
                || self.make_room(&mut wait, pool, counters)?
            {
                match self.socket.send(frame) {
                    Ok(()) => {
                        counters.tx_packets += 1;
                        counters.tx_bytes += len as u64;
                    }
                    Err(frame) => {
                        counters.tx_would_block += 1;
                        pool.free(frame);
                    }
                }
            } else {
                counters.tx_would_block += 1;
                pool.free(frame);
            }
        }
        self.socket.publish();
        self.flush(&mut wait, pool, counters)
    }

    /// Makes the kernel send until it has looked at everything, or will not for now.
    fn flush(
        &mut self,
        wait: &mut SendWait,
        pool: &mut Pool,
        counters: &mut PortCounters,
    ) -> io::Result<()> {
        while self.socket.unsent() > 0 {
            if !self.kick(wait, counters)? {
                break;
            }
        }
        self.reclaim(pool);
        self.socket.publish();
        Ok(())
    }

    /// Waits, within bounds, until more can be sent.
    fn make_room(
        &mut self,
        wait: &mut SendWait,
        pool: &mut Pool,
        counters: &mut PortCounters,
    ) -> io::Result<bool> {
        self.socket.publish();
        while !self.socket.unsent_at_most(UNSENT_MAX) {
            if !self.kick(wait, counters)? {
                return Ok(false);
            }
        }
        self.reclaim(pool);
        self.socket.publish();
        Ok(true)
    }

    /// Tells the kernel to send. False when there is no point in telling it again now.
    fn kick(&mut self, wait: &mut SendWait, counters: &mut PortCounters) -> io::Result<bool> {
        let before = self.socket.unsent();
        let error = match self.socket.kick_tx() {
            // The device works by itself.
            Ok(false) => return Ok(false),
            Ok(true) => return Ok(self.socket.unsent() < before),
            Err(error) => error,
        };
        counters.tx_calls += 1;
        // It sends some dozens at a time, and says so in this way.
        if self.socket.unsent() < before {
            return Ok(true);
        }
        match error.kind() {
            ErrorKind::Interrupted => return Ok(true),
            // The device's queue is being changed.
            ErrorKind::ResourceBusy => return Ok(false),
            _ => {}
        }
        let failure = wait.judge(self.socket.as_fd(), &error).or_dead(error)?;
        counters.tx_waits += u64::from(failure == Failure::Again);
        Ok(failure == Failure::Again)
    }
}

/// Takes the Ethernet header off and finishes what the sender left to the device.
#[inline]
fn strip(mut frame: Frame) -> Result<Frame, (Frame, Content)> {
    match ethernet::content(frame.data()) {
        Content::Ip => {
            frame.shrink_front(ethernet::HEADER);
            finish_partial(frame.data_mut());
            Ok(frame)
        }
        other => Err((frame, other)),
    }
}
