//! Costs of the kernels on processors that are not at hand, as llvm-mca has them: of their inner loops, and of whole
//! bursts of packets, whose way through the code is followed on the processor at hand.

mod budget;
#[cfg(target_arch = "x86_64")]
mod follow;
mod found;
mod listing;
mod loops;
mod mca;
mod models;
mod page;
mod time;

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context as _, Result, anyhow, bail, ensure};

use self::budget::{Budget, Versions};
use self::found::{Cost, Found, KernelLoop, PROFILE};
use self::listing::{Listing, short};
use self::mca::{Answer, Block, Detail, Figures, Mca, Question};
use self::models::{Burst, MODELS, Model};
use crate::gate::DENY;
use crate::programs;
use crate::report::Tally;
use crate::workspace::{Workspace, cargo};

/// The package of the program that is followed.
const PACKAGE: &str = "convoy-ports";
/// Names of functions that tell all their parameters: which task is behind a door.
const NAMES: &str = "-Csymbol-mangling-version=v0";
/// The variable that replaces the flags of cargo's configuration.
const RUSTFLAGS: &str = "RUSTFLAGS";
const NOT_TRACED: &str = "bursts: this process may not trace another (ptrace)";
const OTHER_ARCHITECTURE: &str = "there are no kernels for this architecture";
/// Number of times that a loop is run through.
const TURNS: usize = 100;

/// A burst's way through the code.
#[derive(Debug)]
struct Way {
    burst: Burst,
    tier: &'static str,
    /// The instructions of the whole burst.
    whole: Block,
    /// The function with the inner loop that most of them are in, and the loop.
    inner: Option<(String, Block)>,
}

/// Action of the verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Tell,
    Write,
    Check,
    Time,
}

impl Mode {
    fn of(arguments: &[String]) -> Result<Self> {
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        match words[..] {
            [] => Ok(Self::Tell),
            ["--write"] => Ok(Self::Write),
            ["--check"] => Ok(Self::Check),
            ["--time"] => Ok(Self::Time),
            _ => {
                let words = words.join(" ");
                bail!(
                    "ports: {words:?} is no argument; there are --write, --check and --time, one at a time"
                )
            }
        }
    }
}

/// The verb.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> Result<Option<Tally>> {
    let mode = Mode::of(arguments)?;
    if mode == Mode::Check {
        return check(workspace).map(Some);
    }
    ensure!(cfg!(target_arch = "x86_64"), "ports: {OTHER_ARCHITECTURE}");
    let mca = Mca::newest().with_context(|| format!("ports: {}", mca::INSTALL))?;
    let program = build(workspace)?;
    if mode == Mode::Time {
        return time::run(&mca, &program).map(|()| None);
    }
    let listing = Listing::read(&mca.disassemble(&program)?);
    let mut found = costs(&mca, &program, &listing, Detail::Ports)?;
    found.loops = kernel_loops(&mca, &listing, &mut found.left_out)?;
    let versions = Versions::here(&mca)?;
    println!("{}", page::table(&found, &versions, None));
    if mode == Mode::Write {
        ensure!(
            found.left_out.is_empty(),
            "ports --write: the budget is for all processors, and this left out: {}",
            found.left_out.join("; ")
        );
        let mut budget = Budget::of(versions.clone(), &found.costs);
        if !found.absent.is_empty() {
            let old = Budget::read(workspace)?;
            let differs = old.differs(&versions);
            ensure!(differs.is_none(), "ports --write: {}", differs.unwrap_or_default());
            budget.keep(old, &found.absent);
        }
        budget.write(workspace)?;
        page::write(workspace, &found, &versions)?;
    }
    Ok(None)
}

/// The step of the gate: bursts against their budget.
pub(crate) fn check(workspace: &Workspace) -> Result<Tally> {
    if !cfg!(target_arch = "x86_64") {
        return Ok(Tally::skip(format!("ports: {OTHER_ARCHITECTURE}")));
    }
    let budget = Budget::read(workspace)?;
    let here = Mca::all();
    let wanted = here.iter().find(|mca| budget.is_of(mca));
    let Some(mca) = wanted.or_else(|| here.last()) else {
        return Ok(Tally::skip(format!("ports: {}", mca::INSTALL)));
    };
    if let Some(difference) = budget.differs(&Versions::here(mca)?) {
        return Ok(Tally::skip(format!("ports: {difference}")));
    }
    let program = build(workspace)?;
    let listing = Listing::read(&mca.disassemble(&program)?);
    let found = costs(mca, &program, &listing, Detail::Cycles)?;
    let left_out: Vec<String> = found.all_left_out().collect();
    let mut tally = budget.compare(&found.costs, &left_out);
    for why in left_out {
        tally.add(Tally::skip(format!("ports: {why}")));
    }
    Ok(tally)
}

/// Builds the program whose bursts are followed.
pub(crate) fn build(workspace: &Workspace) -> Result<PathBuf> {
    let mut command = cargo();
    command.args(["build", "--quiet", "--locked", "--package", PACKAGE, "--profile", PROFILE]);
    command.arg("--message-format=json-render-diagnostics").current_dir(&workspace.root);
    match env::var(RUSTFLAGS) {
        Ok(flags) => command.env(RUSTFLAGS, format!("{flags} {NAMES}")),
        Err(_) => {
            command.args(["--config", &format!("target.\"cfg(all())\".rustflags=[\"{NAMES}\"]")])
        }
    };
    let output = command.output().context("cannot run cargo build")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let messages = String::from_utf8(output.stdout)?;
    programs::executable(&messages, PACKAGE).context("cargo names no program convoy-ports")
}

/// The inner loops of all kernels, on every processor that can run them.
fn kernel_loops(
    mca: &Mca,
    listing: &Listing,
    left_out: &mut Vec<String>,
) -> Result<Vec<KernelLoop>> {
    let mut found = Vec::new();
    let mut blocks = Vec::new();
    for function in &listing.functions {
        let Some(kernel) = function.kernel() else { continue };
        let Some(inner) = loops::inner(function) else { continue };
        blocks.push(Block::new(inner.body.iter().map(|one| one.told()), TURNS));
        let instructions = inner.body.len();
        found.push(KernelLoop { kernel, instructions, figures: BTreeMap::new() });
    }
    ensure!(found.len() > 50, "only {} loops in kernels: were doors renamed?", found.len());
    let answers = on_all(|model| {
        let which: Vec<usize> =
            (0..found.len()).filter(|&at| model.has(&found[at].kernel.token)).collect();
        let asked: Vec<Block> = which.iter().map(|&at| blocks[at].clone()).collect();
        Ok((which, mca.ask(Question { model: model.name, detail: Detail::Ports }, &asked)?))
    })?;
    for (model, (which, answer)) in answers {
        let Answer::Figures(figures) = answer else {
            note(left_out, unknown(mca, model));
            continue;
        };
        for (at, figures) in which.into_iter().zip(figures) {
            found[at].figures.insert(model.name, figures);
        }
    }
    found.sort_by(|a, b| a.kernel.cmp(&b.kernel));
    Ok(found)
}

/// Costs of every burst on every processor whose tier the processor at hand has.
fn costs(mca: &Mca, program: &Path, listing: &Listing, detail: Detail) -> Result<Found> {
    let mut found = Found::default();
    let mut ways = Vec::new();
    for model in models::of_every_tier() {
        let denied = denied(model);
        let has = tier_here(program, &denied)?;
        if has == model.tier {
            match follow(program, listing, model, &denied)? {
                Some(more) => ways.extend(more),
                None => note(&mut found.left_out, NOT_TRACED.to_owned()),
            }
        } else {
            let same = MODELS.iter().filter(|other| other.tier == model.tier);
            found.absent.extend(same.map(|other| other.name));
        }
    }
    let answers = on_all(|model| {
        let ways: Vec<&Way> = ways.iter().filter(|way| way.tier == model.tier).collect();
        let wholes = ways.iter().map(|way| way.whole.clone());
        let inners = ways.iter().filter_map(|way| way.inner.as_ref());
        let blocks: Vec<Block> = wholes.chain(inners.map(|(_, block)| block.clone())).collect();
        let question = Question { model: model.name, detail };
        let Answer::Figures(mut figures) = mca.ask(question, &blocks)? else { return Ok(None) };
        let mut inner = figures.split_off(ways.len()).into_iter();
        let costs = ways.into_iter().zip(figures).map(|(way, whole)| Cost {
            model: model.name,
            burst: way.burst,
            whole: whole.map(|whole| for_a_packet(whole, way.burst.packets)),
            inner: way.inner.as_ref().and_then(|(name, _)| Some((name.clone(), inner.next()??))),
        });
        Ok(Some(costs.collect::<Vec<_>>()))
    })?;
    for (model, answer) in answers {
        match answer {
            Some(costs) => found.costs.extend(costs),
            None => note(&mut found.left_out, unknown(mca, model)),
        }
    }
    Ok(found)
}

fn note(left_out: &mut Vec<String>, why: String) {
    if !left_out.contains(&why) {
        left_out.push(why);
    }
}

fn unknown(mca: &Mca, model: &Model) -> String {
    format!("{}: llvm-mca {} does not know it; a newer one does", model.name, mca.version)
}

/// Asks about every processor at the same time.
fn on_all<T: Send>(ask: impl Fn(&Model) -> Result<T> + Sync) -> Result<Vec<(&'static Model, T)>> {
    thread::scope(|scope| {
        let ask = &ask;
        let threads = MODELS.each_ref().map(|model| (model, scope.spawn(move || ask(model))));
        let join = |(model, thread): (&'static Model, thread::ScopedJoinHandle<'_, Result<T>>)| {
            let answer = thread.join().map_err(|_| anyhow!("asking about {} failed", model.name));
            Ok((model, answer??))
        };
        threads.into_iter().map(join).collect()
    })
}

/// Features to deny: those that the user denies, and those that a processor lacks.
fn denied(model: &Model) -> String {
    let given = env::var(DENY).unwrap_or_default();
    format!("{given},{}", model.denied)
}

/// The tier that keys get.
fn tier_here(program: &Path, denied: &str) -> Result<String> {
    let output = Command::new(program).arg("tier").env(DENY, denied).output()?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the tier is not known: {error}");
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// The ways of all bursts; none if this process may not follow another.
fn follow(
    program: &Path,
    listing: &Listing,
    model: &Model,
    denied: &str,
) -> Result<Option<Vec<Way>>> {
    let way = |burst: Burst| {
        let Some(way) = follow::burst(program, listing, denied, burst)? else { return Ok(None) };
        let told = |way: &[u64], times| {
            let texts = way.iter().filter_map(|at| listing.at(*at)).map(|(_, one)| one.told());
            Block::new(texts, times)
        };
        let inner = loops::most_taken(listing, &way);
        let inner = inner.filter(|_| burst.bytes == LOOPS_OF).and_then(|turn| {
            let (function, _) = listing.at(*turn.first()?)?;
            let kernel = function.kernel().map(|kernel| kernel.task);
            Some((kernel.unwrap_or_else(|| short(&function.name)), told(&turn, TURNS)))
        });
        Ok(Some(Way { burst, tier: model.tier, whole: told(&way, 1), inner }))
    };
    models::bursts().map(way).collect()
}

/// Of which packets the inner loop is told: the longest, which go round most.
const LOOPS_OF: usize = models::LENGTHS[models::LENGTHS.len() - 1].0;

fn for_a_packet(burst: Figures, packets: usize) -> Figures {
    let instructions = burst.instructions / packets;
    let packets = packets as f64;
    Figures {
        instructions,
        cycles: burst.cycles / packets,
        micro_operations: burst.micro_operations / packets,
        used: burst.used / packets,
        limit: burst.limit,
    }
}

/// Registers are another processor's, and there are no kernels.
#[cfg(not(target_arch = "x86_64"))]
mod follow {
    pub(super) fn burst(
        _: &std::path::Path,
        _: &super::Listing,
        _: &str,
        _: super::Burst,
    ) -> anyhow::Result<Option<Vec<u64>>> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_and_what_makes_no_sense_is_refused() {
        let mode = |words: &[&str]| {
            Mode::of(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(mode(&[]).unwrap(), Mode::Tell);
        assert_eq!(mode(&["--write"]).unwrap(), Mode::Write);
        let refused = mode(&["--write", "--check"]).unwrap_err().to_string();
        assert!(
            refused.contains("\"--write --check\" is no argument; there are --write"),
            "{refused}"
        );
        assert!(mode(&["znver4"]).is_err());
    }
}
