//! Packets on their way through a worker: from its ports and rings through the pipelines to its ports.

use convoy_io::IoError;
use convoy_ipsec::clock::Now;
use convoy_ipsec::drop_reason::DropReason;

use super::Worker;
use crate::links::Side;
use crate::ports::WireMatch;

impl Worker {
    /// Sends keepalives and dummies of idle SAs: as many as fit a burst, and the rest
    /// with the next turn.
    pub(super) fn send_for_idle_sas(&mut self, now: Now) -> Result<usize, IoError> {
        let keepalives = self.outbound.keepalives(now, &mut self.pool, &mut self.to_wire);
        let dummies = self.outbound.dummies(now, &mut self.pool);
        self.idle_sas_due = !(keepalives && dummies);
        let sent = self.to_wire.len();
        self.send_wire()?;
        Ok(sent)
    }

    /// plain → wire. Goes round while the engine gives room for input that is left.
    pub(super) fn run_outbound(&mut self, now: Now) -> Result<usize, IoError> {
        let taken = self.links.pop(Side::Outbound, &mut self.ring_out);
        self.stats.taken_over.add(taken as u64);
        let mut moved = taken;
        loop {
            let before = self.plain.left() + self.ring_out.len();
            for input in self.plain.inputs().chain([&mut self.ring_out]) {
                self.outbound.submit(now, &mut self.pool, input, &mut self.handoff_out);
                let sent = self.links.push(
                    Side::Outbound,
                    &mut self.handoff_out,
                    &mut self.pool,
                    &self.stats.pipeline,
                );
                self.stats.handed_off.add(sent as u64);
            }
            moved += self.collect_outbound(now)?;
            let left = self.plain.left() + self.ring_out.len();
            if left == 0 || left == before {
                return Ok(moved);
            }
        }
    }

    fn collect_outbound(&mut self, now: Now) -> Result<usize, IoError> {
        let mut moved = 0;
        loop {
            let Self { outbound, pool, to_wire, to_plain, .. } = self;
            outbound.collect(now, pool, to_wire, to_plain);
            let more = to_wire.is_full();
            moved += to_wire.len() + to_plain.len();
            self.send_wire()?;
            self.send_plain()?;
            if !more {
                return Ok(moved);
            }
        }
    }

    /// wire → plain.
    pub(super) fn run_inbound(&mut self, now: Now) -> Result<usize, IoError> {
        let taken = self.links.pop(Side::Inbound, &mut self.ring_in);
        self.stats.taken_over.add(taken as u64);
        let mut moved = taken;
        loop {
            let before = self.inbound_left();
            let Self { inbound, pool, links, stats, handoff_in, .. } = self;
            let inputs = self.wire.iter_mut().map(|wire| &mut wire.source.input);
            for input in inputs.chain([&mut self.ring_in]) {
                inbound.submit(now, pool, input, handoff_in);
                let sent = links.push(Side::Inbound, handoff_in, pool, &stats.pipeline);
                stats.handed_off.add(sent as u64);
            }
            moved += self.collect_inbound(now)?;
            let left = self.inbound_left();
            if left == 0 || left == before {
                return Ok(moved);
            }
        }
    }

    pub(super) fn inbound_left(&self) -> usize {
        self.ring_in.len() + self.wire.iter().map(|wire| wire.source.input.len()).sum::<usize>()
    }

    fn collect_inbound(&mut self, now: Now) -> Result<usize, IoError> {
        let mut moved = 0;
        loop {
            self.inbound.collect(now, &mut self.pool, &mut self.to_plain);
            let more = self.to_plain.is_full() || self.inbound.transit().is_full();
            moved += self.to_plain.len();
            self.send_plain()?;
            moved += self.forward_transit(now)?;
            if !more || self.inbound.transit().is_full() {
                return Ok(moved);
            }
        }
    }

    /// wire → wire: what came out of one tunnel and goes on into another. What finds no room now stays for
    /// the next turn.
    fn forward_transit(&mut self, now: Now) -> Result<usize, IoError> {
        let mut moved = 0;
        loop {
            let Self { outbound, inbound, pool, links, handoff_out, stats, .. } = self;
            let before = inbound.transit().len();
            if before == 0 {
                return Ok(moved);
            }
            outbound.forward(now, pool, inbound.transit(), handoff_out);
            let sent = links.push(Side::Outbound, handoff_out, pool, &stats.pipeline);
            stats.handed_off.add(sent as u64);
            moved += self.collect_outbound(now)?;
            if self.inbound.transit().len() == before {
                return Ok(moved);
            }
        }
    }

    fn send_plain(&mut self) -> Result<(), IoError> {
        let Self { plain, pool, to_plain, stats, .. } = self;
        if to_plain.is_empty() {
            return Ok(());
        }
        plain.tx(pool, to_plain, |pool, frame| {
            // Its interface is gone.
            stats.pipeline.drops.count(DropReason::IoTxFailed);
            pool.free(frame);
        })
    }

    /// Sends finished packets, each through the first port that carries its kind.
    fn send_wire(&mut self) -> Result<(), IoError> {
        let Self { to_wire, wire, pool, stats, .. } = self;
        if to_wire.is_empty() {
            return Ok(());
        }
        // Usually the whole burst goes one way, and then no packet is touched.
        for wire in wire.iter_mut().filter(|wire| !wire.leaving) {
            let n = to_wire.as_slice().iter().take_while(|f| wire.takes(f.data())).count();
            if n == to_wire.len() {
                return wire.source.port.tx(pool, to_wire);
            }
            if n > 0 {
                break;
            }
        }
        for frame in to_wire.drain() {
            let mut staying = wire.iter_mut().filter(|wire| !wire.leaving);
            let place = staying.find_map(|wire| wire.takes(frame.data()).then_some(wire));
            // As much room as in the burst that is being emptied.
            let unplaced = match place {
                Some(wire) => wire.output.push(frame).err(),
                None => Some(frame),
            };
            if let Some(frame) = unplaced {
                stats.pipeline.drops.count(no_way(frame.data()));
                pool.free(frame);
            }
        }
        for wire in wire.iter_mut().filter(|wire| !wire.output.is_empty()) {
            wire.source.port.tx(pool, &mut wire.output)?;
        }
        Ok(())
    }
}

/// Reason why no port carries a packet: no socket of the kind its SA needs is open, or it is not IPsec at
/// all, because a policy says BYPASS.
fn no_way(packet: &[u8]) -> DropReason {
    let esp = WireMatch { protocol: Some(50), ..WireMatch::default() };
    let ah = WireMatch { protocol: Some(51), ..WireMatch::default() };
    let udp = WireMatch { protocol: Some(17), ..WireMatch::default() };
    if esp.takes(packet) || ah.takes(packet) || udp.takes(packet) {
        DropReason::IoTxFailed
    } else {
        DropReason::BypassImpossible
    }
}
