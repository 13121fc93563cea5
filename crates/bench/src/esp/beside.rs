//! Several engines and tiers beside each other: every round gives each of them one burst of the same packets.

use std::time::{Duration, Instant};

use super::alone::Alone;
use super::rig::{Rig, RigError, Task};
use crate::maker::Maker;
use crate::mix::Sizes;
use crate::run::interruptions;

/// Fewest and most rounds of a point.
const ROUNDS: (u32, u32) = (16, 4000);
/// Rounds before the first that counts.
const WARM_UP: u64 = 3;
/// Extra time of a point as long as every round was disturbed.
const PATIENCE: Duration = Duration::from_secs(10);
/// As for a single engine: the library alone gets the burst of so many rounds before.
const BEHIND: u64 = 64;

/// An engine or tier that takes part, and what it is called.
#[derive(Clone, Debug)]
pub struct Member {
    /// `null`, `two-pass` and the like, or the name of a tier.
    pub name: String,
    /// Maker of its keys and engine.
    pub maker: Maker,
}

/// Costs of all members for the same packets, in cycles of the time-stamp counter per packet.
#[derive(Clone, Debug)]
pub struct Beside {
    /// Name of the suite.
    pub suite: String,
    /// Size of inner packets, or the name of the mix.
    pub size: Sizes,
    /// Mean length of the inner packets in bytes.
    pub inner_bytes: f64,
    /// SAs in each direction.
    pub sas: usize,
    /// Packets of a burst.
    pub burst: usize,
    /// Each member, in the order given.
    pub members: Vec<Costs>,
    /// The crypto library alone, with the keys of the member of this number.
    pub library: Option<(usize, Ways)>,
    /// Rounds that were not counted because other programs came into them.
    pub disturbed: usize,
    /// Errors of packets.
    pub errors: Vec<String>,
}

/// Costs of one member.
#[derive(Clone, Debug)]
pub struct Costs {
    /// Its name.
    pub name: String,
    /// Round by round.
    pub ways: Ways,
}

/// Rounds of both directions.
#[derive(Clone, Debug, Default)]
pub struct Ways {
    /// From inner packet to ESP packet; of the library, sealing.
    pub outbound: Vec<f64>,
    /// From ESP packet to inner packet; of the library, opening.
    pub inbound: Vec<f64>,
}

/// Cycles per packet of both directions in one round.
#[derive(Clone, Copy)]
struct Way {
    outbound: f64,
    inbound: f64,
}

impl Ways {
    fn push(&mut self, way: Way) {
        self.outbound.push(way.outbound);
        self.inbound.push(way.inbound);
    }
}

/// Measures `task` with all of `members` in turn for about `time`, and up to ten seconds longer until a round is
/// undisturbed. Each round begins with another member. The first with Convoy's own kernels lends its keys to the library
/// alone, which takes part as well.
///
/// # Errors
/// [`RigError`].
pub fn measure(members: &[Member], task: &Task, time: Duration) -> Result<Beside, RigError> {
    let mut rigs = Vec::new();
    for member in members {
        rigs.push(Rig::<()>::new(&member.maker, task)?);
    }
    let own = members.iter().position(|member| matches!(member.maker, Maker::Tier(..)));
    let mut alone = own.and_then(|at| {
        let rig = rigs.get_mut(at)?;
        Alone::new(task.suite, task.burst, rig.pool())
    });
    let mut costs = vec![Ways::default(); members.len()];
    let mut library = Ways::default();
    let (mut begin, mut rounds, mut disturbed) = (Instant::now(), u64::from(ROUNDS.1), 0);
    for number in 0.. {
        let before = interruptions();
        let mut round = Vec::with_capacity(rigs.len());
        for turn in 0..rigs.len() {
            let at = (turn + number as usize) % rigs.len();
            let Some(rig) = rigs.get_mut(at) else { continue };
            let lap = rig.lap(number)?;
            round.push((at, Way { outbound: lap.outbound.each(), inbound: lap.inbound.each() }));
        }
        let by_itself = match (&mut alone, own.and_then(|at| rigs.get(at))) {
            (Some(alone), Some(rig)) => {
                let cycles = alone.measure(&rig.site, &rig.traffic, number.wrapping_sub(BEHIND));
                let forged = "the library alone did not open what it had sealed";
                let cycles = cycles.ok_or(RigError::Broken(forged))?;
                let each = |cycles: u64| cycles as f64 / task.burst.max(1) as f64;
                Some(Way { outbound: each(cycles.seal), inbound: each(cycles.open) })
            }
            _ => None,
        };
        if number + 1 == WARM_UP {
            let each = begin.elapsed().as_secs_f64() / WARM_UP as f64;
            let fit = (time.as_secs_f64() / each.max(1e-9)) as u32;
            rounds = u64::from(fit.clamp(ROUNDS.0, ROUNDS.1));
            begin = Instant::now();
        }
        if number < WARM_UP {
            continue;
        }
        if interruptions() == before {
            for (at, way) in round {
                costs.get_mut(at).into_iter().for_each(|ways| ways.push(way));
            }
            by_itself.into_iter().for_each(|way| library.push(way));
        } else {
            disturbed += 1;
        }
        let (done, elapsed) = (number + 1 - WARM_UP, begin.elapsed());
        let is_over = done >= rounds || elapsed > 2 * time && done > u64::from(ROUNDS.0);
        let counted = done as usize - disturbed;
        if is_over && (counted > 0 || elapsed > time + PATIENCE) {
            break;
        }
    }
    if let (Some(alone), Some(rig)) = (alone.take(), own.and_then(|at| rigs.get_mut(at))) {
        alone.release(rig.pool());
    }
    let lengths = task.sizes.packets(task.burst);
    let names = members.iter().map(|member| member.name.clone());
    let mut beside = Beside {
        suite: task.suite.to_string(),
        size: task.sizes,
        inner_bytes: lengths.iter().sum::<usize>() as f64 / lengths.len().max(1) as f64,
        sas: task.shape.sas,
        burst: task.burst,
        members: names.zip(costs).map(|(name, ways)| Costs { name, ways }).collect(),
        library: own.map(|at| (at, library)),
        disturbed,
        errors: Vec::new(),
    };
    for (rig, member) in rigs.into_iter().zip(members) {
        let wrong = rig.finish()?.errors();
        beside.errors.extend(wrong.into_iter().map(|error| format!("{}: {error}", member.name)));
    }
    Ok(beside)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::esp::site::Shape;
    use convoy_crypto::Cpu;
    use convoy_engine::registry::Registry;

    #[test]
    fn members_take_turns_and_lose_nothing() {
        let cpu = Cpu::detect().unwrap();
        let suite = "aes-128-gcm-16".parse().unwrap();
        let registry = Registry::of(&cpu);
        let driver = |name: &str| Member {
            name: name.to_owned(),
            maker: Maker::driver(&registry, name, suite).unwrap().unwrap(),
        };
        let own = Member { name: "best".to_owned(), maker: Maker::Tier(cpu, cpu.best()) };
        let members = [driver("null"), own, driver("two-pass")];
        let sizes = Sizes::Fixed(200);
        let task = Task { suite, sizes, shape: Shape::new(1), faults: None, burst: 32 };
        let beside = measure(&members, &task, Duration::from_millis(30)).unwrap();
        assert!(beside.errors.is_empty(), "{beside:?}");
        let rounds = beside.members[0].ways.outbound.len();
        assert!(rounds > 0);
        for costs in &beside.members {
            assert_eq!((costs.ways.outbound.len(), costs.ways.inbound.len()), (rounds, rounds));
            assert!(costs.ways.outbound.iter().all(|cycles| *cycles > 0.0), "{costs:?}");
        }
        let (at, library) = beside.library.unwrap();
        assert_eq!((at, library.outbound.len(), library.inbound.len()), (1, rounds, rounds));
    }
}
