//! Forecast of llvm-mca for the processor at hand, beside the time that it takes.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use super::found::tier;
use super::listing::Listing;
use super::mca::{Answer, Block, Detail, Mca, Question};
use super::models::{self, Burst, MODELS};
use super::{NOT_TRACED, denied, follow, tier_here, unknown};
use crate::gate::DENY;

/// Number of times that a burst is timed, in a process of its own each time; the least counts.
const TRIES: usize = 5;

/// Prints both, burst by burst, for every tier that the processors have and this one has as well.
pub(super) fn run(mca: &Mca, program: &Path) -> Result<()> {
    let host = mca.host()?;
    let host = MODELS.iter().find(|model| model.name == host).with_context(|| {
        let names: Vec<&str> = MODELS.iter().map(|model| model.name).collect();
        format!("ports --time: the processor at hand is {host}, and there are {}", names.join(", "))
    })?;
    let listing = Listing::read(&mca.disassemble(program)?);
    println!("Cycles of the core for a packet, {}; llvm-mca {}.\n", host.name, mca.version);
    println!("| tier | burst | llvm-mca | time | ratio |\n|---|---|---|---|---|");
    for model in models::of_every_tier() {
        let denied = denied(model);
        if tier_here(program, &denied)? != model.tier {
            println!("Left out: keys cannot get {} here.", model.tier);
            continue;
        }
        let ways = follow(program, &listing, model, &denied)?.context(NOT_TRACED)?;
        let blocks: Vec<Block> = ways.iter().map(|way| way.whole.clone()).collect();
        let question = Question { model: host.name, detail: Detail::Cycles };
        let Answer::Figures(figures) = mca.ask(question, &blocks)? else {
            bail!("ports --time: {}", unknown(mca, host))
        };
        for (way, figures) in ways.iter().zip(figures) {
            let Burst { suite, direction, bytes, packets } = way.burst;
            let foretold = figures.map_or(f64::NAN, |whole| whole.cycles / packets as f64);
            let taken = least(program, &denied, way.burst)?;
            let tier = tier(model.tier);
            let ratio = foretold / taken;
            println!(
                "| `{tier}` | {suite} {direction} {bytes} B | {foretold:.0} | {taken:.0} | {ratio:.2} |"
            );
        }
    }
    Ok(())
}

/// The least of several tries.
fn least(program: &Path, denied: &str, burst: Burst) -> Result<f64> {
    let mut least = f64::INFINITY;
    for _ in 0..TRIES {
        let output = Command::new(program)
            .args(["time", burst.suite, burst.direction])
            .args([burst.bytes.to_string(), burst.packets.to_string()])
            .env(DENY, denied)
            .output()?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "no time for {}: {error}", burst.suite);
        least = least.min(core_cycles(&String::from_utf8(output.stdout)?)?);
    }
    Ok(least)
}

/// From cycles of the time-stamp counter and the core's cycles for each of them.
fn core_cycles(line: &str) -> Result<f64> {
    let numbers: Vec<f64> = line.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    let [time_stamps, factor] = numbers[..] else { anyhow::bail!("no two numbers: {line:?}") };
    Ok(time_stamps * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_stamps_become_cycles_of_the_core() {
        assert_eq!(core_cycles("100.0 1.5\n").unwrap(), 150.0);
        assert!(core_cycles("100.0").is_err() && core_cycles("a b").is_err());
    }
}
