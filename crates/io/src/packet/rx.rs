//! Receiving from a packet socket.

use std::io::{self, ErrorKind};
use std::os::fd::BorrowedFd;

use convoy_packet::{Burst, Frame, Pool};

use super::PREFIX;
use crate::PortCounters;
use crate::ancillary::{int, items};
use crate::bytes::part;
use crate::link::ethernet::{self, Content};
use crate::offload::{Gso, Poured, Split, VNET_LEN, Vnet, finish_checksum};
use crate::socket::{DropMeter, is_passing};
use crate::stash::Stash;
use crate::sys::RecvBatch;

/// Messages per call.
const BATCH: usize = 32;
/// The largest super-segment with what stands in front of it.
const LARGEST: usize = PREFIX + 65_536;

/// Packets received and not yet handed on. They are received straight into frames; what does not
/// fit goes on in a buffer of its own, with room in front for the beginning.
#[derive(Debug)]
pub(super) struct Receiver {
    batch: RecvBatch<2>,
    ready: Stash,
    overflow: Box<[Box<[u8]>]>,
    /// Messages of the last call, and the next of them to be handed on.
    received: usize,
    next: usize,
    pending: Option<Pending>,
    drops: DropMeter,
}

/// A super-segment of which some packets are still to be made.
#[derive(Clone, Copy, Debug)]
struct Pending {
    split: Split,
    /// Slot and length of the super-segment.
    slot: usize,
    len: usize,
    next: usize,
}

/// Data that comes with a frame besides its bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Aux {
    tagged: bool,
    drops: Option<u32>,
}

impl Receiver {
    pub(super) fn new() -> Self {
        Self {
            batch: RecvBatch::new(BATCH),
            ready: Stash::new(BATCH),
            overflow: (0..BATCH).map(|_| vec![0; LARGEST].into()).collect(),
            received: 0,
            next: 0,
            pending: None,
            drops: DropMeter::default(),
        }
    }

    /// Receives until the burst is full or the socket empty. An error means that it is dead.
    pub(super) fn run(
        &mut self,
        fd: BorrowedFd<'_>,
        pool: &mut Pool,
        into: &mut Burst,
        counters: &mut PortCounters,
    ) -> io::Result<()> {
        let mut retries = 4;
        while !into.is_full() {
            if self.pending.is_some() {
                if !self.pour(pool, into, counters) {
                    return Ok(());
                }
                continue;
            }
            if self.next < self.received {
                self.hand_on(pool, into, counters);
                continue;
            }
            let wanted = into.room().min(BATCH);
            let n = self.ready.fill(wanted, pool).min(wanted);
            if n == 0 {
                counters.rx_no_frame += 1;
                return Ok(());
            }
            counters.rx_calls += 1;
            match self.receive(fd, n) {
                Ok(received) => (self.received, self.next) = (received, 0),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // An interface that is set down says so once.
                Err(error) if is_passing(&error) && retries > 0 => retries -= 1,
                Err(error) if is_passing(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn receive(&mut self, fd: BorrowedFd<'_>, wanted: usize) -> io::Result<usize> {
        let slots = self.overflow.iter_mut();
        let pieces = self.ready.iter_mut().zip(slots).take(wanted).map(|(frame, slot)| {
            let head = frame.spare_mut();
            let tail = slot.get_mut(head.len().min(LARGEST)..).unwrap_or_default();
            [head, tail]
        });
        self.batch.recv(fd, pieces)
    }

    /// Hands on the next message, or makes it [`Self::pending`].
    fn hand_on(&mut self, pool: &mut Pool, into: &mut Burst, counters: &mut PortCounters) {
        let at = self.next;
        self.next += 1;
        let (Some(mut frame), Some(message)) = (self.ready.pop(), self.batch.received(at)) else {
            return;
        };
        let aux = aux(message.control);
        counters.rx_kernel_drops += self.drops.advance(aux.drops);
        let (len, truncated) = (message.len, message.truncated);
        let head = len.min(frame.tailroom());
        // Both within the frame: `head` is at most its tailroom.
        let _ = frame.set_len(head);
        let content = ethernet::content(part(frame.data(), VNET_LEN, head));
        let vnet = frame.data().first_chunk().and_then(Vnet::parse).and_then(behind_ethernet);
        match (content, vnet) {
            _ if truncated => counters.rx_truncated += 1,
            (Content::Foreign, _) => counters.rx_foreign += 1,
            (Content::BadChecksum, _) => counters.rx_checksum += 1,
            (Content::Ip, _) if aux.tagged => counters.rx_foreign += 1,
            (Content::Ip, Some(vnet)) if vnet.gso == Gso::None => {
                if len > head {
                    counters.rx_truncated += 1;
                } else if finish(&vnet, &mut frame) {
                    // There is room: the caller asked.
                    let _ = into.push(frame);
                    return;
                } else {
                    counters.rx_malformed += 1;
                }
            }
            (Content::Ip, Some(vnet)) => match self.divide(at, &vnet, &frame, len) {
                Some(pending) => self.pending = Some(pending),
                None => counters.rx_malformed += 1,
            },
            _ => counters.rx_malformed += 1,
        }
        pool.free(frame);
    }

    /// Brings the two parts of a super-segment together and sees how it is divided.
    fn divide(&mut self, slot: usize, vnet: &Vnet, frame: &Frame, len: usize) -> Option<Pending> {
        let whole = self.overflow.get_mut(slot)?;
        whole.get_mut(..frame.len())?.copy_from_slice(frame.data());
        let split = Split::new(vnet, whole.get(PREFIX..len)?).ok()?;
        Some(Pending { split, slot, len, next: 0 })
    }

    /// Makes packets of the pending super-segment; false when no frame is free.
    fn pour(&mut self, pool: &mut Pool, into: &mut Burst, counters: &mut PortCounters) -> bool {
        let Some(pending) = &mut self.pending else { return true };
        let whole = self.overflow.get(pending.slot).map_or(&[][..], |slot| slot);
        let packet = part(whole, PREFIX, pending.len);
        let poured = pending.split.pour(packet, &mut pending.next, pool, into, counters);
        if poured == Poured::All {
            self.pending = None;
        }
        poured != Poured::NoFrame
    }
}

/// The header with offsets counted from the IP header, not from Ethernet's.
fn behind_ethernet(vnet: Vnet) -> Option<Vnet> {
    if !vnet.needs_csum {
        return Some(vnet);
    }
    Some(Vnet { csum_start: vnet.csum_start.checked_sub(ethernet::HEADER as u16)?, ..vnet })
}

/// Takes off what stands in front of the packet and finishes its checksum.
fn finish(vnet: &Vnet, frame: &mut Frame) -> bool {
    frame.shrink_front(PREFIX);
    !vnet.needs_csum || finish_checksum(vnet, frame.data_mut()).is_ok()
}

/// `struct tpacket_auxdata` begins with the status; the tag is of no interest.
fn aux(control: &[u8]) -> Aux {
    let mut aux = Aux::default();
    for (level, kind, data) in items(control) {
        match (level, kind) {
            (libc::SOL_PACKET, libc::PACKET_AUXDATA) => {
                let status = int(data).unwrap_or(0) as u32;
                aux.tagged = status & libc::TP_STATUS_VLAN_VALID != 0;
            }
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                aux.drops = int(data).map(|drops| drops as u32);
            }
            _ => {}
        }
    }
    aux
}
