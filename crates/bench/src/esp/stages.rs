//! Cost of each stage, by the time-stamp counter read once per stage and burst.

use convoy_crypto::time_stamp;
use convoy_ipsec::pipeline::{Observer, Stage};

use crate::stats::Summary;

/// Cycles by stage, in the order of [`Stage::ALL`].
pub type Cycles = [u64; Stage::ALL.len()];

/// An [`Observer`] that a [`Rig`](super::rig::Rig) can ask.
pub trait Watch: Observer + Default {
    /// A burst is about to enter the pipeline.
    fn start(&mut self);

    /// Takes the cycles seen since the last call; none by those who do not look.
    fn take(&mut self) -> Option<Cycles>;
}

impl Watch for () {
    #[inline(always)]
    fn start(&mut self) {}

    #[inline(always)]
    fn take(&mut self) -> Option<Cycles> {
        None
    }
}

/// Reads the time-stamp counter behind every stage.
#[derive(Debug, Default)]
pub struct Clock {
    last: u64,
    spent: Cycles,
}

impl Observer for Clock {
    #[inline]
    fn passed(&mut self, stage: Stage) {
        let now = time_stamp();
        if let Some(spent) = self.spent.get_mut(stage as usize) {
            *spent += now - self.last;
        }
        self.last = now;
    }
}

impl Watch for Clock {
    #[inline]
    fn start(&mut self) {
        self.last = time_stamp();
    }

    fn take(&mut self) -> Option<Cycles> {
        Some(core::mem::take(&mut self.spent))
    }
}

/// Cost of one stage.
#[derive(Clone, Copy, Debug)]
pub struct StageCost {
    /// Its name.
    pub stage: &'static str,
    /// Cycles per packet.
    pub packet: Summary,
}

/// Samples of one direction's stages.
#[derive(Clone, Debug, Default)]
pub struct StageSamples([Vec<f64>; Stage::ALL.len()]);

impl StageSamples {
    pub(super) fn push(&mut self, cycles: Option<Cycles>, packets: usize) {
        for (samples, cycles) in self.0.iter_mut().zip(cycles.iter().flatten()) {
            samples.push(*cycles as f64 / packets.max(1) as f64);
        }
    }

    /// Samples of a stage, in cycles per packet; empty without a look into the stages.
    #[must_use]
    pub fn of(&self, stage: Stage) -> &[f64] {
        self.0.get(stage as usize).map_or(&[], Vec::as_slice)
    }

    /// The stages that took any time.
    pub(super) fn costs(&self) -> Vec<StageCost> {
        let stages = Stage::ALL.iter().zip(&self.0);
        stages
            .filter_map(|(stage, samples)| {
                let packet = Summary::of(samples).filter(|packet| packet.high > 0.0)?;
                Some(StageCost { stage: stage.name(), packet })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_counts_for_the_stage_that_ended() {
        let mut clock = Clock::default();
        clock.start();
        clock.passed(Stage::Parse);
        clock.passed(Stage::Engine);
        let cycles = clock.take().unwrap();
        let index = |stage| Stage::ALL.iter().position(|s| *s == stage).unwrap();
        assert_eq!(index(Stage::Policy), Stage::Policy as usize, "counted by number");
        for (at, cycles) in cycles.iter().enumerate() {
            let passed = at == index(Stage::Parse) || at == index(Stage::Engine);
            assert!(passed || *cycles == 0);
        }
        assert_eq!(clock.take(), Some([0; 9]));
        assert_eq!(().take(), None);
    }
}
