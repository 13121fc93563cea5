//! Costs of packets, learnt for each suite: so much a packet and so much a byte.

use convoy_crypto::Suite;

use super::super::keys::Keys;
use crate::Job;

/// Index of the costs that packets under a key have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::front) struct Class(u8);

/// More suites than that share the last one's costs.
const CLASSES: usize = 32;
/// Costs before anything is learnt, in cycles: high, so that a budget holds from the beginning.
const FIRST: Cost = Cost { packet: 1000.0, unit: 2000.0 };
/// Packets of a burst by which its cost is guessed.
const LOOKED_AT: usize = 8;
/// Bytes of one unit of length: near a usual packet's, so that both parts of a cost are learnt alike.
const UNIT: f64 = 512.0;
/// Weight that the past keeps when a burst is learnt.
const KEPT: f64 = 0.95;
/// Weight of the costs so far, where bursts are too much alike to tell both parts apart.
const STICKING: f64 = 0.02;
/// Bursts after which it is known what is to be expected.
const NEW: u32 = 8;
/// A burst that took so many times what was expected was interrupted, unless so many in a row did.
const FAR_OFF: f64 = 3.0;
const IN_A_ROW: u32 = 4;
/// The fewest jobs of a burst that tells what packets cost in bursts.
const LEAST: usize = 4;

#[derive(Clone, Copy, Debug)]
struct Cost {
    packet: f64,
    unit: f64,
}

#[derive(Debug)]
struct Learnt {
    suite: Suite,
    cost: Cost,
    past: Sums,
    /// Packets and units of the burst that is looked at.
    packets: f64,
    units: f64,
}

/// Sums of products over bursts: of packets, units and cycles, older ones weighing less.
#[derive(Debug, Default)]
struct Sums {
    pp: f64,
    pu: f64,
    uu: f64,
    pc: f64,
    uc: f64,
}

impl Learnt {
    fn expected(&self) -> f64 {
        self.packets * self.cost.packet + self.units * self.cost.unit
    }

    /// The burst took so many cycles: weighted least squares, with a ridge around the costs so far.
    fn learn(&mut self, cycles: f64) {
        let Self { cost, past, packets, units, .. } = self;
        let (p, u) = (*packets, *units);
        let news = [(&mut past.pp, p * p), (&mut past.pu, p * u), (&mut past.uu, u * u)];
        let cycles = [(&mut past.pc, p * cycles), (&mut past.uc, u * cycles)];
        for (sum, new) in news.into_iter().chain(cycles) {
            *sum = *sum * KEPT + new;
        }
        let (pp, uu) = (past.pp * (1.0 + STICKING), past.uu * (1.0 + STICKING));
        let pc = past.pc + past.pp * STICKING * cost.packet;
        let uc = past.uc + past.uu * STICKING * cost.unit;
        let determinant = pp * uu - past.pu * past.pu;
        if determinant > 0.0 {
            cost.packet = ((pc * uu - uc * past.pu) / determinant).max(1.0);
            cost.unit = ((uc * pp - pc * past.pu) / determinant).max(0.0);
        }
    }
}

/// Cycles that packets of each suite cost.
#[derive(Debug, Default)]
pub(super) struct Costs {
    learnt: Vec<Learnt>,
    bursts: u32,
    far_off: u32,
}

impl Costs {
    /// The class of a suite.
    pub(super) fn class_of(&mut self, suite: Suite) -> Class {
        let known = self.learnt.iter().position(|learnt| learnt.suite == suite);
        let at = known.unwrap_or_else(|| {
            if self.learnt.len() < CLASSES {
                let past = Sums::default();
                self.learnt.push(Learnt { suite, cost: FIRST, past, packets: 0.0, units: 0.0 });
            }
            self.learnt.len() - 1
        });
        Class(u8::try_from(at).unwrap_or(u8::MAX))
    }

    /// Likely cost of one packet, in cycles.
    #[inline]
    pub(super) fn of_one(&self, keys: &Keys, job: &Job) -> f64 {
        let class = keys.class(job.key).0;
        let cost = self.learnt.get(usize::from(class)).map_or(FIRST, |learnt| learnt.cost);
        cost.packet + cost.unit * units(job)
    }

    /// Likely cost of a burst, in cycles.
    #[inline]
    pub(super) fn of(&self, keys: &Keys, jobs: &[Job]) -> f64 {
        jobs.iter().map(|job| self.of_one(keys, job)).sum()
    }

    /// The same by a few of its packets.
    #[inline]
    pub(super) fn about(&self, keys: &Keys, jobs: &[Job]) -> f64 {
        let step = jobs.len().div_ceil(LOOKED_AT).max(1);
        let few = jobs.iter().step_by(step);
        let looked_at = few.len().max(1) as f64;
        few.map(|job| self.of_one(keys, job)).sum::<f64>() * jobs.len() as f64 / looked_at
    }

    /// A burst took so many cycles. Those of a mixed one are split as they were expected.
    pub(super) fn learn(&mut self, keys: &Keys, jobs: &[Job], cycles: f64) {
        if jobs.len() < LEAST {
            return;
        }
        self.learnt.iter_mut().for_each(|class| (class.packets, class.units) = (0.0, 0.0));
        for job in jobs {
            if let Some(class) = self.learnt.get_mut(usize::from(keys.class(job.key).0)) {
                class.packets += 1.0;
                class.units += units(job);
            }
        }
        let expected: f64 = self.learnt.iter().map(Learnt::expected).sum();
        let is_far_off = self.bursts >= NEW && cycles > FAR_OFF * expected;
        self.far_off = if is_far_off { self.far_off + 1 } else { 0 };
        if expected <= 0.0 || is_far_off && self.far_off < IN_A_ROW {
            return;
        }
        self.bursts = self.bursts.saturating_add(1);
        for class in self.learnt.iter_mut().filter(|class| class.packets > 0.0) {
            class.learn(cycles * class.expected() / expected);
        }
    }
}

#[inline]
fn units(job: &Job) -> f64 {
    f64::from(job.text.len) / UNIT
}
