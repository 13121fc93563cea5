//! Reports to and from a worker: path MTUs from the network, events to control, published counters.

use convoy_io::{NewsSource, PortEvent, Quote};
use convoy_ipsec::clock::Now;
use convoy_ipsec::drop_reason::DropReason;
use convoy_ipsec::pipeline::PathMtuNews;

use super::Worker;
use crate::ports::Lost;

impl Worker {
    /// Takes in what the network says about packets sent. The worker that receives it need not be the one that
    /// owns the SA, so what is not believed here is passed on once.
    pub(super) fn news(&mut self, now: Now) {
        while let Some(news) = self.links.path_mtu_news() {
            let believed = self.outbound.path_mtu(now, &news);
            self.stats.path_mtu_believed.add(u64::from(believed));
        }
        for wire in &mut self.wire {
            while let Some(event) = wire.source.port.event() {
                let PortEvent::PathMtu { destination, mtu, source, quote } = event else {
                    self.stats.unreachable.add(1);
                    continue;
                };
                if source == NewsSource::Local {
                    // The other workers receive the same from their own sockets.
                    let changed = self.outbound.link_mtu(now, destination, mtu);
                    self.stats.path_mtu_believed.add(u64::from(changed));
                    continue;
                }
                let quote = match quote {
                    Quote::Esp { spi, seq_low } => Some((spi, seq_low)),
                    Quote::TooShort => None,
                };
                let news = PathMtuNews { destination, mtu, quote };
                if self.outbound.path_mtu(now, &news) {
                    self.stats.path_mtu_believed.add(1);
                } else {
                    self.stats.path_mtu_ignored.add(1);
                    self.links.tell(news);
                }
            }
        }
    }

    /// Tells control what SAs have to tell, as far as there is room.
    #[cold]
    pub(super) fn tell(&mut self) {
        let Some(teller) = &mut self.teller else { return };
        self.outbound.tell(|event| teller.tell(event));
        self.inbound.tell(|event| teller.tell(event));
        teller.ring();
    }

    /// Publishes the ports' counters.
    pub fn publish(&mut self) {
        self.unpublished = 0;
        let asked = self.stats.asked();
        let Self { stats, plain, wire, counted, .. } = self;
        let drops = &stats.pipeline.drops;
        let note = |lost: Lost| {
            drops.add(DropReason::IpChecksum, lost.checksum);
            drops.add(DropReason::UnknownSpi, lost.unknown_spi);
            drops.add(DropReason::TooOld, lost.too_old);
            drops.add(DropReason::IoTxTooBig, lost.too_big);
            drops.add(DropReason::IoTxFailed, lost.failed);
            drops.add(DropReason::NotForwardable, lost.not_forwardable);
        };
        for wire in wire {
            let place = stats.wire.get(wire.slot).zip(counted.get(wire.slot));
            let Some((place, before)) = place else { continue };
            let (mut counters, lost) = wire.source.count();
            counters += *before;
            place.publish(counters);
            note(lost);
        }
        stats.plain.publish(plain.count(note));
        stats.engine.publish([self.outbound.engine(), self.inbound.engine()]);
        stats.answer(asked);
    }
}
