//! Findings on kernels' loops and on bursts.

use std::collections::BTreeMap;

use super::listing::Kernel;
use super::mca::Figures;
use super::models::{self, Burst};

/// The profile that the program which is followed is built with.
pub(super) const PROFILE: &str = "ports";

/// A kernel's inner loop.
#[derive(Debug)]
pub(super) struct KernelLoop {
    pub(super) kernel: Kernel,
    pub(super) instructions: usize,
    /// By processors that have the instructions; none where llvm-mca dies.
    pub(super) figures: BTreeMap<&'static str, Option<Figures>>,
}

/// Costs of a burst on a processor.
#[derive(Debug)]
pub(super) struct Cost {
    pub(super) model: &'static str,
    pub(super) burst: Burst,
    /// For a packet; none where llvm-mca dies.
    pub(super) whole: Option<Figures>,
    pub(super) inner: Option<(String, Figures)>,
}

/// All that was found.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) loops: Vec<KernelLoop>,
    pub(super) costs: Vec<Cost>,
    /// Processors whose tier the one at hand has not, so that no burst was followed for them.
    pub(super) absent: Vec<&'static str>,
    /// Other things left out, with reasons.
    pub(super) left_out: Vec<String>,
}

impl Found {
    /// All that was left out.
    pub(super) fn all_left_out(&self) -> impl Iterator<Item = String> + '_ {
        let absent = self.absent.iter().filter_map(|name| models::named(name)).map(|model| {
            format!("bursts on {}: no key here gets {}", model.name, tier(model.tier))
        });
        absent.chain(self.left_out.iter().cloned())
    }
}

/// A tier without a word for what it lacks.
pub(super) fn tier(tier: &str) -> &str {
    tier.trim_end_matches(" -")
}
