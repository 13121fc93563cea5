//! A port on an interface, and beside it one into the host's own network stack: what the gateway forwards goes by the
//! first, what is from or for the host itself by the second.

use core::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use convoy_packet::{Burst, Frame, Pool};
use convoy_wire::{Ipv4Mut, Ipv6Mut};

use crate::{IoError, Offloads, Port, PortCounters, PortEvent, sys};

/// The addresses of the host, which change while ports work.
#[derive(Debug, Default)]
pub struct HostAddresses {
    generation: AtomicU64,
    all: Mutex<Arc<[IpAddr]>>,
}

impl HostAddresses {
    /// These are the addresses from now on.
    pub fn set(&self, mut all: Vec<IpAddr>) {
        all.sort_unstable();
        *self.all.lock().unwrap_or_else(PoisonError::into_inner) = all.into();
        self.generation.fetch_add(1, Ordering::Release);
    }
}

/// Both ports of a worker.
pub struct Beside {
    interface: Box<dyn Port>,
    host: Box<dyn Port>,
    addresses: Arc<HostAddresses>,
    /// Generation of the known addresses, and these addresses.
    known: (u64, Arc<[IpAddr]>),
    to_host: Burst,
    /// Readable when either port is; none where one must be polled.
    ready: Option<OwnedFd>,
}

impl fmt::Debug for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Beside").field("known", &self.known).finish_non_exhaustive()
    }
}

impl Beside {
    /// Has packets for `addresses` go to `host`, and all others to `interface`.
    ///
    /// # Errors
    /// Fails if the two cannot be waited for together.
    pub fn new(
        interface: Box<dyn Port>,
        host: Box<dyn Port>,
        addresses: Arc<HostAddresses>,
    ) -> Result<Self, IoError> {
        let ready = match [interface.fd(), host.fd()] {
            [Some(one), Some(other)] => {
                let gathered = sys::gather([one, other].into_iter());
                Some(gathered.map_err(IoError::setup("wait for two ports"))?)
            }
            _ => None,
        };
        let known = (u64::MAX, Arc::default());
        Ok(Self { interface, host, addresses, known, to_host: Burst::new(), ready })
    }

    /// Takes over what has changed.
    fn look(&mut self) {
        let generation = self.addresses.generation.load(Ordering::Acquire);
        if self.known.0 != generation {
            let all = self.addresses.all.lock().unwrap_or_else(PoisonError::into_inner);
            self.known = (generation, Arc::clone(&all));
        }
    }

    fn is_for_host(&self, frame: &Frame) -> bool {
        destination(frame.data()).is_some_and(|to| self.known.1.binary_search(&to).is_ok())
    }
}

impl Port for Beside {
    fn rx(&mut self, pool: &mut Pool, into: &mut Burst) -> Result<usize, IoError> {
        let forwarded = self.interface.rx(pool, into)?;
        if into.is_full() {
            return Ok(forwarded);
        }
        let before = into.len();
        let own = self.host.rx(pool, into)?;
        // The pipeline takes one as who forwards, and the host has not been passed by.
        into.as_mut_slice().iter_mut().skip(before).for_each(give_one);
        Ok(forwarded + own)
    }

    fn tx(&mut self, pool: &mut Pool, from: &mut Burst) -> Result<(), IoError> {
        self.look();
        if !from.as_slice().iter().any(|frame| self.is_for_host(frame)) {
            return self.interface.tx(pool, from);
        }
        // The others stay in their order.
        for _ in 0..from.len() {
            let Some(mut frame) = from.drain_front(1).next() else { break };
            let unplaced = if self.is_for_host(&frame) {
                give_one(&mut frame);
                self.to_host.push(frame)
            } else {
                from.push(frame)
            };
            // Neither holds more than there were.
            unplaced.unwrap_or_else(|frame| pool.free(frame));
        }
        let outcome = self.interface.tx(pool, from);
        self.host.tx(pool, &mut self.to_host)?;
        outcome
    }

    fn event(&mut self) -> Option<PortEvent> {
        self.interface.event().or_else(|| self.host.event())
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.ready.as_ref().map(|ready| ready.as_fd())
    }

    fn counters(&self) -> PortCounters {
        let mut sum = self.interface.counters();
        sum += self.host.counters();
        sum
    }

    fn offloads(&self) -> Offloads {
        self.interface.offloads()
    }
}

/// Destination address of an IP packet.
fn destination(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => Some(Ipv4Addr::from(*packet.get(16..)?.first_chunk::<4>()?).into()),
        6 => Some(Ipv6Addr::from(*packet.get(24..)?.first_chunk::<16>()?).into()),
        _ => None,
    }
}

/// Gives a packet one hop more.
fn give_one(frame: &mut Frame) {
    match frame.data().first().map(|byte| byte >> 4) {
        Some(4) => {
            let ttl = frame.data().get(8).map_or(0, |ttl| ttl.saturating_add(1));
            if let Ok(mut header) = Ipv4Mut::new(frame.data_mut()) {
                header.set_ttl(ttl);
            }
        }
        Some(6) => {
            let limit = frame.data().get(7).map_or(0, |limit| limit.saturating_add(1));
            if let Ok(mut header) = Ipv6Mut::new(frame.data_mut()) {
                header.set_hop_limit(limit);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use convoy_packet::{Arena, FrameSize};

    use super::*;
    use crate::mem;

    fn packet(from: [u8; 4], to: [u8; 4], ttl: u8) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 20, 0, 0, 0, 0, ttl, 17, 0, 0];
        packet.extend([from, to].concat());
        let mut header = Ipv4Mut::new(&mut packet).unwrap();
        header.set_ttl(ttl);
        packet
    }

    fn send(port: &mut dyn Port, pool: &mut Pool, packets: &[Vec<u8>]) {
        let mut burst = Burst::new();
        for packet in packets {
            let mut frame = pool.alloc().unwrap();
            frame.fill_from(packet).unwrap();
            burst.push(frame).unwrap();
        }
        port.tx(pool, &mut burst).unwrap();
    }

    fn received(port: &mut dyn Port, pool: &mut Pool) -> Vec<(Option<IpAddr>, u8)> {
        let mut burst = Burst::new();
        while port.rx(pool, &mut burst).unwrap() > 0 {}
        let seen = burst.as_slice().iter().map(|it| (destination(it.data()), it.data()[8]));
        let seen = seen.collect();
        burst.release(pool);
        seen
    }

    #[test]
    fn packets_go_and_come_by_the_host_if_they_are_its_own() {
        let arena = Arena::map(64, FrameSize::for_packet(1500)).unwrap();
        let mut pool = arena.pool();
        let [(interface, mut wire), (host, mut stack)] =
            [(); 2].map(|()| mem::pair(&mem::Config::default()));
        let addresses = Arc::new(HostAddresses::default());
        let mut port =
            Beside::new(Box::new(interface), Box::new(host), Arc::clone(&addresses)).unwrap();
        let (own, other) = ([10, 1, 0, 1], [10, 1, 0, 2]);
        let to = |to: [u8; 4]| Some(IpAddr::from(to));
        let three = [packet([10, 2, 0, 2], other, 9), packet([10, 2, 0, 2], own, 9)];
        let three = [&three[..], &[packet([10, 2, 0, 3], other, 8)]].concat();
        // Nothing is the host's before it is known.
        send(&mut port, &mut pool, &three);
        assert_eq!(received(&mut wire, &mut pool).len(), 3);
        addresses.set(vec![[192, 0, 2, 1].into(), own.into()]);
        send(&mut port, &mut pool, &three);
        assert_eq!(received(&mut wire, &mut pool), [(to(other), 9), (to(other), 8)]);
        assert_eq!(received(&mut stack, &mut pool), [(to(own), 10)]);
        addresses.set(Vec::new());
        send(&mut port, &mut pool, &three);
        assert_eq!(received(&mut wire, &mut pool).len(), 3);
        // What comes in of the host's own has one hop more.
        let far = [10, 2, 0, 2];
        send(&mut wire, &mut pool, &[packet(other, far, 64)]);
        let own = [packet(own, far, 64), packet(own, far, 255)];
        send(&mut stack, &mut pool, &own);
        let hops: Vec<_> = received(&mut port, &mut pool).into_iter().map(|(_, ttl)| ttl).collect();
        assert_eq!(hops, [64, 65, 255]);
        assert_eq!(port.counters().rx_packets, 3);
    }
}
