//! Results of `convoy bench dpdk`.

use super::report::Report;
use super::rounds::Point;
use super::{BURST, PACKETS, WINDOWS};
use crate::results::build::Draft;
use crate::results::fields::Fields;
use crate::results::{Better, CONVOY, LIBRARY, Name, Results};
use crate::workload::Direction;

/// Name of the quantity measured of devices.
pub const QUANTITY: &str = "cycles per packet in short windows";
/// Name of the quantity measured of gateways.
pub const GATEWAYS: &str = "cycles per packet of a gateway in short windows";
/// The name of DPDK's devices among series.
pub const WHO: &str = "dpdk";

impl Report {
    /// In the form of all benches.
    #[must_use]
    pub fn results(&self) -> Results {
        let findings = &self.findings;
        let bench = if self.is_of_gateways { "dpdk --secgw" } else { "dpdk" };
        let mut results = Results::new(bench, &self.head);
        results.complete = !findings.is_interrupted;
        if !findings.points.is_empty() {
            results.machine.add_peer(WHO, &findings.versions(), None);
        }
        let facts = [("packets_of_a_window", PACKETS), ("windows_of_a_round", WINDOWS)];
        facts.into_iter().for_each(|(name, count)| results.facts.set(name, count));
        for point in &findings.points {
            results.add(self.draft(point));
        }
        results.left_out.extend_from_slice(&findings.left_out);
        results
    }

    fn draft(&self, point: &Point) -> Draft {
        let place = Fields::default().with("suite", point.suite.to_string());
        let (quantity, bytes, place) = match self.is_of_gateways {
            true => (GATEWAYS, "packet_bytes", place.with("direction", "outbound")),
            false => {
                let place = place.with("direction", Direction::Seal.name());
                let place = place.with("keys", 1_usize).with("burst", BURST);
                (QUANTITY, "text_bytes", place)
            }
        };
        let place = place.with("size", point.size).with("tier", self.tier.name());
        let convoy = Name::new(CONVOY, self.tier.name());
        let mut draft = Draft::new(quantity, "cycles", Better::Less, place)
            .fact(bytes, point.bytes)
            .series(&convoy, &point.convoy);
        for device in &point.devices {
            let name = Name::new(WHO, device.driver.name());
            let mut facts = Fields::default();
            device.library_name().into_iter().for_each(|library| facts.set(LIBRARY, library));
            draft = draft.series_with(&name, &device.rounds, facts);
            draft = draft.ratio(&name, &convoy, Better::More);
        }
        draft
    }
}
