//! Packet sockets that send and receive nothing: beside raw sockets, which receive.
//!
//! A raw socket has the kernel look for route and neighbour, and ask the packet filter, for each packet. A packet socket
//! gives it to the interface's queueing discipline at once, for 0.53 of the time (class C, Linux 6.18, virtual Ethernet).

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use convoy_packet::{BURST_MAX, Burst, Pool};
use socket2::{Domain, Socket, Type};

use crate::ancillary::Control;
use crate::bytes::byte;
use crate::link::{Board, Interface, NextHops, Outlet, ethernet};
use crate::socket::{Failure, SendWait, grow_buffers};
use crate::sys::{ADDRESS, Outgoing, SendBatch, bind_packet_to_send};
use crate::{IoError, Offloads, Port, PortCounters};

/// Settings of the ports on one interface.
#[derive(Clone, Debug)]
pub struct SendingConfig {
    /// The interface; it must have Ethernet headers.
    pub interface: Interface,
    /// Number of ports, one for each worker.
    pub workers: u16,
    /// Board that tells the next hops of packets.
    pub next_hops: Arc<Board>,
    /// Firewall mark of all packets, if any.
    pub mark: Option<u32>,
    /// Size asked for of each socket's buffer in bytes.
    pub buffer_bytes: usize,
}

/// One worker's socket.
#[derive(Debug)]
pub struct SendingPort {
    socket: Socket,
    outlet: Outlet,
    batch: SendBatch,
    outgoing: Vec<Outgoing>,
    /// Priority that the socket's packets have now.
    priority: u8,
    counters: PortCounters,
}

/// Opens the ports in the network namespace of the calling thread.
///
/// # Errors
/// [`IoError::Setup`] when the kernel refuses (no `CAP_NET_RAW`, no such interface).
pub fn open_sending(config: &SendingConfig) -> Result<Vec<SendingPort>, IoError> {
    (0..config.workers).map(|_| open_one(config)).collect()
}

fn open_one(config: &SendingConfig) -> Result<SendingPort, IoError> {
    // Protocol 0 receives nothing, neither before it is bound nor after.
    let socket = Socket::new(Domain::PACKET, Type::RAW, None)
        .map_err(IoError::setup("open a packet socket"))?;
    socket.set_nonblocking(true).map_err(IoError::setup("make the socket non-blocking"))?;
    if let Some(mark) = config.mark {
        socket.set_mark(mark).map_err(IoError::setup("set the mark of the packet socket"))?;
    }
    let fd = socket.as_fd();
    grow_buffers(fd, config.buffer_bytes).map_err(IoError::setup("set the socket's buffers"))?;
    bind_packet_to_send(fd, config.interface.index)
        .map_err(IoError::setup("bind the packet socket to its interface"))?;
    Ok(SendingPort {
        socket,
        outlet: Outlet::new(NextHops::new(Arc::clone(&config.next_hops))),
        batch: SendBatch::new(BURST_MAX, BURST_MAX),
        outgoing: vec![bare_message(); BURST_MAX],
        priority: 0,
        counters: PortCounters::default(),
    })
}

/// A message to where the socket is bound.
fn bare_message() -> Outgoing {
    let Control { bytes: control, len: control_len } = Control::EMPTY;
    Outgoing { pieces: 1, address: [0; ADDRESS], address_len: 0, control, control_len }
}

/// Priority that the kernel gives a packet of its own by the type of service (`rt_tos2priority`), of `TC_PRIO_*`.
fn priority(packet: &[u8]) -> u8 {
    const BULK: u8 = 2;
    const INTERACTIVE_BULK: u8 = 4;
    const INTERACTIVE: u8 = 6;
    // Over IPv6 a packet has none by its traffic class.
    let service = if byte(packet, 0) >> 4 == 4 { byte(packet, 1) & 0x18 } else { 0 };
    match service {
        0x08 => BULK,
        0x10 => INTERACTIVE,
        0x18 => INTERACTIVE_BULK,
        _ => 0,
    }
}

impl SendingPort {
    /// Sends all that is ready. An error means that the socket is dead.
    fn send(&mut self) -> io::Result<()> {
        let mut wait = SendWait::default();
        let mut at = 0;
        while at < self.outlet.ready.len() {
            let error = match self.send_from(at) {
                Ok(sent) => {
                    at += sent;
                    continue;
                }
                Err(error) => error,
            };
            let failure = match error.raw_os_error() {
                // The interface is gone, or was set down: sockets carry on.
                Some(libc::ENXIO | libc::ENETDOWN) => Failure::Dead,
                _ => wait.judge(self.socket.as_fd(), &error),
            };
            match failure.or_dead(error)? {
                Failure::Again => {
                    self.counters.tx_waits += 1;
                    continue;
                }
                Failure::Full => self.counters.tx_would_block += 1,
                Failure::TooBig => self.counters.tx_too_big += 1,
                Failure::Denied => self.counters.tx_denied += 1,
                Failure::Invalid => self.counters.tx_malformed += 1,
                _ => self.counters.tx_error += 1,
            }
            at += 1;
        }
        Ok(())
    }

    /// Sends frames from `at` on, as far as they have one priority.
    fn send_from(&mut self, at: usize) -> io::Result<usize> {
        let frames = self.outlet.ready.as_slice().get(at..).unwrap_or_default();
        let of = |frame: &convoy_packet::Frame| {
            priority(frame.data().get(ethernet::HEADER..).unwrap_or_default())
        };
        let wanted = frames.first().map_or(0, of);
        let run = frames.iter().take_while(|frame| of(frame) == wanted).count();
        if wanted != self.priority {
            crate::sys::set_int(
                self.socket.as_fd(),
                libc::SOL_SOCKET,
                libc::SO_PRIORITY,
                wanted.into(),
            )?;
            self.priority = wanted;
        }
        let frames = frames.get(..run).unwrap_or_default();
        self.counters.tx_calls += 1;
        let messages = self.outgoing.get(..run).unwrap_or_default();
        let pieces = frames.iter().map(|frame| frame.data());
        let sent = self.batch.send(self.socket.as_fd(), messages, pieces)?;
        let bytes = frames
            .iter()
            .take(sent)
            .map(|frame| frame.len().saturating_sub(ethernet::HEADER) as u64);
        self.counters.tx_bytes += bytes.sum::<u64>();
        self.counters.tx_packets += sent as u64;
        Ok(sent)
    }
}

impl Port for SendingPort {
    fn rx(&mut self, _: &mut Pool, _: &mut Burst) -> Result<usize, IoError> {
        Ok(0)
    }

    /// Packets whose next hop is not known wait nowhere: whoever asked first ([`FastPath`](crate::FastPath)) sends none.
    fn tx(&mut self, pool: &mut Pool, from: &mut Burst) -> Result<(), IoError> {
        self.outlet.arrange(pool, from, &mut self.counters);
        self.outlet.put_headers();
        let outcome = self.send();
        self.outlet.ready.release(pool);
        outcome.map_err(IoError::Dead)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }

    fn offloads(&self) -> Offloads {
        Offloads { batch: true, ..Offloads::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_are_those_that_a_kernel_gives_its_own_packets() {
        // `ip_tos2prio` of net/ipv4/route.c, for each even type of service without congestion bits.
        for (service, wanted) in
            [(0, 0), (4, 0), (8, 2), (0xc, 2), (0x10, 6), (0x14, 6), (0x18, 4), (0xb8, 4), (3, 0)]
        {
            assert_eq!(priority(&[0x45, service]), wanted, "{service:#x}");
        }
        assert_eq!((priority(&[0x6b, 0x80]), priority(&[])), (0, 0));
    }
}
