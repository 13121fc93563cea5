//! The figures to reach, and whether they are.

use convoy_crypto::{Cipher, GcmParams, IcvLen, Integrity, KeyBits, Suite};
use convoy_ipsec::pipeline::Stage;

use super::measure::Point;
use super::workers::Rate;
use crate::mix::Sizes;
use crate::stats::Summary;

const GCM: Suite = Suite::Gcm(GcmParams::new(KeyBits::Aes128, IcvLen::Icv16));
const CBC: Suite =
    Suite::Pair { cipher: Cipher::AesCbc(KeyBits::Aes128), integrity: Integrity::HMAC_SHA1_96 };

/// The suites and sizes (bytes of inner packets) whose figures are to be reached.
pub const ROWS: [(Suite, usize); 4] = [(GCM, 64), (CBC, 64), (GCM, 1420), (CBC, 1420)];
/// Numbers of SAs whose figures are to be reached.
pub const SAS: [usize; 2] = [1, 10_000];

/// Most cycles from parsed packet to ESP packet, cryptography included, with one SA.
const WHOLE: [f64; 4] = [185.0, 250.0, 1000.0, 1550.0];
/// Most cycles over what the crypto library needs, by number of SAs: outbound, inbound.
const OVER: [(f64, f64); 2] = [(100.0, 120.0), (200.0, 220.0)];
/// Most cycles of a look-up in the SPD with its cache warm.
const LOOKUP: f64 = 30.0;

/// A figure to reach, and what was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Name of the quantity.
    pub what: &'static str,
    /// Name of the suite.
    pub suite: String,
    /// Size of inner packets.
    pub size: Sizes,
    /// Number of SAs.
    pub sas: usize,
    /// Tier of the keys.
    pub tier: &'static str,
    /// Most cycles per packet; of workers, least packets in what one worker passes.
    pub goal: f64,
    /// Cycles per packet, or packets of all workers in what one worker passes.
    pub measured: f64,
    /// True if it was reached.
    pub reached: bool,
}

/// Cycles from parsed packet to ESP packet.
pub const WHOLE_PACKET: &str = "from parsed packet to ESP packet";
/// Cycles that the outbound pipeline adds to the crypto library.
pub const OUTBOUND_OVER: &str = "outbound, over the crypto library";
/// Cycles that the inbound pipeline adds.
pub const INBOUND_OVER: &str = "inbound, over the crypto library";
/// A look-up in the SPD.
pub const WARM_LOOKUP: &str = "look-up in the SPD, cache warm";

/// Least that two workers pass, in what one worker passes, on many SAs.
const TWO_WORKERS: f64 = 1.9;
/// Name of that figure.
pub const WORKERS: &str = "two workers, in what one passes";

/// The figures that `rates` hold.
#[must_use]
pub fn worker_figures(rates: &[Rate]) -> Vec<Figure> {
    let figure = |rate: &Rate| Figure {
        what: WORKERS,
        suite: rate.suite.clone(),
        size: rate.size,
        sas: rate.sas,
        tier: rate.tier,
        goal: TWO_WORKERS,
        measured: rate.ratio.median,
        reached: rate.ratio.median >= TWO_WORKERS,
    };
    rates.iter().filter(|rate| rate.workers == 2 && rate.sas > 1).map(figure).collect()
}

/// The figures that `points` hold.
#[must_use]
pub fn figures(points: &[Point]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for point in points.iter().filter(|point| point.engine == "inline") {
        let row = ROWS.iter().position(|(suite, size)| {
            (suite.to_string(), Sizes::Fixed(*size)) == (point.suite.clone(), point.size)
        });
        let mut add = |what, goal: f64, measured: f64| {
            figures.push(Figure {
                what,
                suite: point.suite.clone(),
                size: point.size,
                sas: point.sas,
                tier: point.tier,
                goal,
                measured,
                reached: measured <= goal,
            });
        };
        let Some(row) = row else { continue };
        if point.sas == 1 {
            let rounds = point.outbound.samples.behind(Stage::Parse);
            let whole = Summary::of(&rounds).unwrap_or_default();
            add(WHOLE_PACKET, WHOLE[row], whole.mean);
        }
        if let Some(at) = SAS.iter().position(|&sas| sas == point.sas) {
            add(OUTBOUND_OVER, OVER[at].0, point.outbound.over.mean);
            add(INBOUND_OVER, OVER[at].1, point.inbound.over.mean);
        }
        add(WARM_LOOKUP, LOOKUP, point.lookup.mean);
    }
    figures
}
