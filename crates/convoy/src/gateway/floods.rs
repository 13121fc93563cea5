//! Floods of packets that no SA takes: sockets of native ESP and AH drop them in the kernel while one lasts.

use std::sync::Arc;

use convoy_io::SpiFilter;
use convoy_ipsec::drop_reason::DropReason;
use convoy_ipsec::snapshot::{SpiListener, Writer};
use convoy_runtime::WorkerStats;
use convoy_wire::Spi;

/// Such packets between two looks, which are a second apart, from which on they are a flood.
const FLOOD: u64 = 2_000;
/// Looks with fewer after which it is over.
const QUIET_LOOKS: u32 = 10;
/// Reasons that a filter can find without a key.
const REASONS: [DropReason; 2] = [DropReason::UnknownSpi, DropReason::TooOld];

/// The filter of a gateway's sockets, and when it drops.
#[derive(Debug, Default)]
pub(super) struct Floods {
    filter: Option<Arc<SpiFilter>>,
    /// Packets dropped until the last look.
    seen: u64,
    /// Looks that are left until a flood is over; 0: there is none.
    looks: u32,
}

/// Puts SPIs into a filter.
#[derive(Debug)]
struct Told(Arc<SpiFilter>);

impl SpiListener for Told {
    fn add(&self, spi: Spi) {
        self.0.add(spi.get());
    }

    fn clear(&self) {
        self.0.clear();
    }
}

impl Floods {
    /// Makes the filter, where the kernel has what it takes. Without it, workers drop such packets.
    pub(super) fn new() -> Self {
        let filter = SpiFilter::new();
        if let Err(error) = &filter {
            tracing::debug!("floods are not dropped in the kernel: {error}");
        }
        Self { filter: filter.ok().map(Arc::new), ..Self::default() }
    }

    /// The filter for sockets.
    pub(super) fn filter(&self) -> Option<Arc<SpiFilter>> {
        self.filter.clone()
    }

    /// Has the filter hear of all SPIs. To be called before sockets are open.
    pub(super) fn follow(&self, writer: &mut Writer) {
        if let Some(filter) = &self.filter {
            writer.tell_spis(Arc::new(Told(Arc::clone(filter))));
        }
    }

    /// Looks for a flood that begins or ends. To be called once a second.
    pub(super) fn look(&mut self, workers: &[Arc<WorkerStats>], writer: &mut Writer) {
        let Some(filter) = &self.filter else { return };
        let drops =
            workers.iter().flat_map(|stats| REASONS.map(|reason| stats.pipeline.drops.get(reason)));
        let now = drops.fold(0_u64, u64::wrapping_add);
        let fresh = now.wrapping_sub(self.seen);
        self.seen = now;
        match (self.looks, fresh >= FLOOD) {
            (0, false) => return,
            (0, true) => {
                tracing::warn!(
                    "a flood: {fresh} packets of unknown SPIs, or with sequence numbers before the anti-replay window, came \
                     in the last second; sockets of native ESP and AH drop such packets in the kernel until it ends"
                );
                // Those of SAs that are gone are unknown from here on.
                writer.tell_spis_again();
                self.looks = QUIET_LOOKS;
            }
            (_, true) => self.looks = QUIET_LOOKS,
            (_, false) => self.looks -= 1,
        }
        if self.looks == 0 {
            filter.end();
            tracing::info!("the flood is over: workers see all packets again");
            return;
        }
        raise_edges(filter, writer);
        filter.begin();
    }
}

/// Tells where windows are by now: what comes before them is dropped.
fn raise_edges(filter: &SpiFilter, writer: &Writer) {
    for (_, sa) in writer.current().inbound_sas() {
        let (window, edge) = (u64::from(sa.replay_window), sa.counters.floor.get().get());
        if window > 0 && edge > window {
            filter.set_left_edge(sa.spi.get(), edge - window);
        }
    }
}
