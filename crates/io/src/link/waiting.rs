//! Sending through an interface: each packet finds its next hop, or waits for it.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::VecDeque;
use std::time::Instant;

use convoy_packet::{Arena, BURST_MAX, Burst, Frame, Pool};

use super::next_hop::destination;
use super::{Found, Mac, NextHops, ethernet};
use crate::{NewsSource, PortCounters, PortEvent, Quote};

/// Packets that wait for their neighbours to answer, all together and for one neighbour: somewhat more than a
/// kernel lets wait (`unres_qlen`, 101). Where there is no room, the one that has waited longest gives way:
/// neighbours that are there answer within milliseconds, so a sender to many that are not keeps no other from its own.
const WAITING_MAX: usize = 256;
const WAITING_FOR_ONE: usize = 128;
/// Time that a packet waits: as long as a host takes to ask once more (RFC 4861 section 10).
const LATEST: Duration = Duration::from_secs(1);

/// A packet that waits until its next hop's link address is known.
#[derive(Debug)]
struct Waits {
    frame: Frame,
    hop: IpAddr,
    since: Instant,
}

/// Packets with the link addresses they go to.
#[derive(Debug)]
pub(crate) struct Outlet {
    hops: NextHops,
    waiting: VecDeque<Waits>,
    /// Generation of the table in which those that wait were looked for.
    tried: u64,
    /// Ready to be sent, and where to.
    pub(crate) ready: Burst,
    pub(crate) macs: Vec<Mac>,
    /// Destination of a packet that is too long for the interface, until it is asked for.
    too_long: Option<IpAddr>,
    arena: Option<&'static Arena>,
}

impl Outlet {
    pub(crate) fn new(hops: NextHops) -> Self {
        Self {
            hops,
            waiting: VecDeque::with_capacity(WAITING_MAX),
            tried: 0,
            ready: Burst::new(),
            macs: Vec::with_capacity(BURST_MAX),
            too_long: None,
            arena: None,
        }
    }

    /// The interface's own link address.
    pub(crate) fn own(&self) -> Mac {
        self.hops.own()
    }

    /// Moves the packets of `from` that can be sent now to `ready`, which must be empty. Others
    /// wait, or are dropped and counted.
    pub(crate) fn arrange(
        &mut self,
        pool: &mut Pool,
        from: &mut Burst,
        counters: &mut PortCounters,
    ) {
        self.arena = Some(pool.arena());
        self.macs.clear();
        self.hops.refresh();
        for frame in from.drain() {
            match self.hops.resolve(frame.data()) {
                Some(Found::Mac(mac)) => self.put(frame, mac, pool, counters),
                Some(Found::Unresolved(hop)) => self.wait(frame, hop, pool, counters),
                Some(Found::NoRoute) => {
                    counters.tx_no_route += 1;
                    pool.free(frame);
                }
                Some(Found::NotForwardable) => {
                    counters.tx_not_forwardable += 1;
                    pool.free(frame);
                }
                None => {
                    counters.tx_malformed += 1;
                    pool.free(frame);
                }
            }
        }
    }

    /// Puts Ethernet headers in front of the packets in `ready`. One without room for it becomes empty, which no
    /// socket sends.
    pub(crate) fn put_headers(&mut self) {
        let own = self.own();
        let Self { ready, macs, .. } = self;
        for (frame, mac) in ready.as_mut_slice().iter_mut().zip(macs.iter()) {
            if !ethernet::put_on(frame, *mac, own) {
                frame.truncate(0);
            }
        }
    }

    /// Moves packets that waited and can be sent now to `ready`, which must be empty, and drops
    /// those that have waited too long. Returns whether there is something to send; costs nothing
    /// when none waits.
    #[inline]
    pub(crate) fn revive(&mut self, pool: &mut Pool, counters: &mut PortCounters) -> bool {
        if self.waiting.is_empty() {
            return false;
        }
        self.macs.clear();
        self.revive_some(pool, counters);
        !self.ready.is_empty()
    }

    fn revive_some(&mut self, pool: &mut Pool, counters: &mut PortCounters) {
        self.hops.refresh();
        let news = self.hops.generation() != self.tried;
        self.tried = self.hops.generation();
        let now = Instant::now();
        for _ in 0..self.waiting.len() {
            let Some(mut waits) = self.waiting.pop_front() else { return };
            let found = if news { self.hops.resolve(waits.frame.data()) } else { None };
            match found {
                Some(Found::Mac(mac)) => self.put(waits.frame, mac, pool, counters),
                Some(Found::NoRoute) => {
                    counters.tx_no_route += 1;
                    pool.free(waits.frame);
                }
                Some(Found::NotForwardable) => {
                    counters.tx_not_forwardable += 1;
                    pool.free(waits.frame);
                }
                _ if now.saturating_duration_since(waits.since) > LATEST => {
                    counters.tx_unresolved += 1;
                    pool.free(waits.frame);
                }
                found => {
                    // The route may lead to another router now.
                    if let Some(Found::Unresolved(hop)) = found
                        && hop != waits.hop
                    {
                        waits.hop = hop;
                        self.hops.ask(hop);
                    }
                    self.waiting.push_back(waits);
                }
            }
        }
    }

    /// That the interface takes no packets as long as one that was to be sent. What the kernel says
    /// to senders with sockets is said here to those without.
    pub(crate) fn event(&mut self) -> Option<PortEvent> {
        let destination = self.too_long.take()?;
        let (mtu, source) = (self.hops.mtu(), NewsSource::Local);
        Some(PortEvent::PathMtu { destination, mtu, source, quote: Quote::TooShort })
    }

    fn put(&mut self, frame: Frame, mac: Mac, pool: &mut Pool, counters: &mut PortCounters) {
        if frame.len() > self.hops.mtu() as usize {
            counters.tx_too_big += 1;
            self.too_long = destination(frame.data());
            return pool.free(frame);
        }
        match self.ready.push(frame) {
            Ok(()) => self.macs.push(mac),
            Err(frame) => {
                counters.tx_would_block += 1;
                pool.free(frame);
            }
        }
    }

    fn wait(&mut self, frame: Frame, hop: IpAddr, pool: &mut Pool, counters: &mut PortCounters) {
        let others = self.waiting.iter().filter(|waits| waits.hop == hop).count();
        if others >= WAITING_FOR_ONE {
            counters.tx_unresolved += 1;
            return pool.free(frame);
        }
        if self.waiting.len() >= WAITING_MAX
            && let Some(oldest) = self.waiting.pop_front()
        {
            counters.tx_unresolved += 1;
            pool.free(oldest.frame);
        }
        // One question for all that wait for the same neighbour.
        if others == 0 {
            self.hops.ask(hop);
        }
        self.waiting.push_back(Waits { frame, hop, since: Instant::now() });
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        if let Some(arena) = self.arena {
            let mut pool = arena.pool();
            self.ready.release(&mut pool);
            self.waiting.drain(..).for_each(|waits| pool.free(waits.frame));
        }
    }
}

#[cfg(test)]
mod tests {
    use convoy_packet::FrameSize;

    use super::super::{Board, Hop, Route, Table};
    use super::*;

    fn table(neighbours: &[(IpAddr, Mac)]) -> Table {
        let network = [10, 1, 0, 0].into();
        Table::new([1; 6], 1500, &[Route { network, prefix_len: 16, hop: Hop::Direct }], neighbours)
    }

    fn to(pool: &mut Pool, destination: [u8; 4]) -> Burst {
        let mut packet = [0; 20];
        packet[0] = 0x45;
        packet[12..16].copy_from_slice(&[10, 2, 0, 2]);
        packet[16..].copy_from_slice(&destination);
        let mut frame = pool.alloc().unwrap();
        frame.fill_from(&packet).unwrap();
        let mut burst = Burst::new();
        burst.push(frame).unwrap();
        burst
    }

    #[test]
    fn whoever_sends_to_many_that_are_not_there_keeps_nobody_from_his_neighbour() {
        let arena = Arena::map(512, FrameSize::for_packet(1500)).unwrap();
        let mut pool = arena.pool();
        let (board, asks) = Board::new(table(&[])).unwrap();
        let mut outlet = Outlet::new(NextHops::new(board.clone()));
        let mut counters = PortCounters::default();
        for n in 0..2 * WAITING_MAX as u16 {
            let [high, low] = n.to_be_bytes();
            let mut packet = to(&mut pool, [10, 1, high, low]);
            outlet.arrange(&mut pool, &mut packet, &mut counters);
            let _ = asks.next();
        }
        let there = [10, 1, 9, 9];
        let mut packet = to(&mut pool, there);
        outlet.arrange(&mut pool, &mut packet, &mut counters);
        assert_eq!(asks.next(), Some(there.into()));
        assert_eq!((outlet.waiting.len(), counters.tx_unresolved), (WAITING_MAX, 257));
        board.publish(table(&[(there.into(), [9; 6])]));
        assert!(outlet.revive(&mut pool, &mut counters));
        assert_eq!((outlet.ready.len(), &outlet.macs[..]), (1, &[[9; 6]][..]));
    }
}
