//! Runs of llvm-mca for instructions on a processor.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// Advice where it is missing.
pub(crate) const INSTALL: &str = "llvm-mca and llvm-objdump are not there; Debian and Ubuntu have them in the package llvm, and in \
     llvm-19, the first that knows znver4: apt install llvm-19";

/// An llvm-mca of the machine, with the llvm-objdump of its release: they agree on how instructions
/// are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mca {
    program: PathBuf,
    objdump: PathBuf,
    pub(crate) version: String,
}

/// Instructions that are asked about together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    /// One a line.
    pub(crate) text: String,
    /// Number of times that they run, one right behind the other.
    pub(crate) times: usize,
}

impl Block {
    pub(crate) fn new<'a>(instructions: impl IntoIterator<Item = &'a str>, times: usize) -> Self {
        let mut text = String::new();
        for instruction in instructions.into_iter().filter(|one| !one.is_empty()) {
            text.push_str(instruction);
            text.push('\n');
        }
        Self { text, times }
    }
}

/// Cost of a block on a processor, for each time that it runs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Figures {
    pub(crate) instructions: usize,
    pub(crate) cycles: f64,
    pub(crate) micro_operations: f64,
    /// Resource that is used most: a port, or the front end.
    pub(crate) limit: String,
    /// For how many of the cycles.
    pub(crate) used: f64,
}

/// Amount of detail that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Cycles and micro-operations.
    Cycles,
    /// The most used resource as well, which takes four times as long.
    Ports,
}

/// Processor and detail that blocks are asked about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question<'a> {
    pub(crate) model: &'a str,
    pub(crate) detail: Detail,
}

/// Results of llvm-mca for blocks.
#[derive(Debug)]
pub(crate) enum Answer {
    /// For every block; none where it dies.
    Figures(Vec<Option<Figures>>),
    /// It is too old to know the processor.
    UnknownModel,
}

/// Bytes of text that are asked about at once.
const BATCH_MAX: usize = 1 << 18;

impl Mca {
    /// Finds those in the folders of `PATH`, the newest last.
    pub(crate) fn all() -> Vec<Self> {
        let path = env::var_os("PATH").unwrap_or_default();
        Self::in_folders(env::split_paths(&path))
    }

    /// The newest of them.
    pub(crate) fn newest() -> Option<Self> {
        Self::all().pop()
    }

    fn in_folders(folders: impl Iterator<Item = PathBuf>) -> Vec<Self> {
        let mut found = Vec::new();
        for folder in folders {
            let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
            for name in entries.filter_map(|entry| entry.file_name().into_string().ok()) {
                let Some(suffix) = suffix(&name) else { continue };
                let (program, objdump) =
                    (folder.join(&name), folder.join(format!("llvm-objdump{suffix}")));
                if let Some(version) = version(&program).filter(|_| objdump.exists()) {
                    found.push(Self { program, objdump, version });
                }
            }
        }
        let numbers = |version: &str| -> Vec<u32> {
            version.split('.').filter_map(|part| part.parse().ok()).collect()
        };
        found.sort_by_cached_key(|mca| numbers(&mca.version));
        found
    }

    /// The processor at hand, as LLVM calls it.
    pub(crate) fn host(&self) -> Result<String> {
        let output = Command::new(&self.program).arg("--version").output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let host = text.lines().find_map(|line| line.trim().strip_prefix("Host CPU: "));
        host.map(str::to_owned).context("llvm-mca does not tell the processor at hand")
    }

    /// A program's instructions, with the names of functions as they are in the source.
    pub(crate) fn disassemble(&self, program: &Path) -> Result<String> {
        let output = Command::new(&self.objdump)
            .args(["--disassemble", "--no-show-raw-insn", "--demangle", "--section=.text"])
            .arg(program)
            .output()
            .context("cannot run llvm-objdump")?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "llvm-objdump cannot read {}: {error}", program.display());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Asks about blocks; the answers are in their order, and none for a block that it cannot work out.
    pub(crate) fn ask(&self, question: Question<'_>, blocks: &[Block]) -> Result<Answer> {
        let mut answers = vec![None; blocks.len()];
        // Many short ones at once; a long one alone, for the answer tells of every instruction.
        let mut rest: Vec<usize> = (0..blocks.len()).collect();
        while let Some(first) = rest.first().and_then(|first| blocks.get(*first)) {
            let mut room = BATCH_MAX;
            let is_beside = |one: &usize| {
                let Some(block) = blocks.get(*one) else { return false };
                let fits = block.times == first.times && block.text.len() <= room;
                room -= if fits { block.text.len() } else { 0 };
                fits
            };
            let (mut batch, others): (Vec<_>, Vec<_>) = rest.iter().copied().partition(is_beside);
            if batch.is_empty() {
                batch = rest[..1].to_vec();
                rest.remove(0);
            } else {
                rest = others;
            }
            if !self.ask_batch(question, blocks, &batch, &mut answers)? {
                return Ok(Answer::UnknownModel);
            }
        }
        Ok(Answer::Figures(answers))
    }

    /// Asks about all blocks of a batch, or, if it dies of that, about each alone. Whether it knows the processor.
    fn ask_batch(
        &self,
        question: Question<'_>,
        blocks: &[Block],
        batch: &[usize],
        answers: &mut [Option<Figures>],
    ) -> Result<bool> {
        let all: Vec<&Block> = batch.iter().filter_map(|one| blocks.get(*one)).collect();
        match self.ask_together(question, &all)? {
            Said::UnknownModel => return Ok(false),
            Said::Figures(found) => {
                ensure!(
                    found.len() == batch.len(),
                    "llvm-mca left out some of {} blocks",
                    all.len()
                );
                for (one, figures) in batch.iter().zip(found) {
                    if let Some(place) = answers.get_mut(*one) {
                        *place = Some(figures);
                    }
                }
            }
            Said::Nothing if batch.len() == 1 => {}
            Said::Nothing => {
                let (front, back) = batch.split_at(batch.len() / 2);
                self.ask_batch(question, blocks, front, answers)?;
                self.ask_batch(question, blocks, back, answers)?;
            }
        }
        Ok(true)
    }

    fn ask_together(&self, question: Question<'_>, blocks: &[&Block]) -> Result<Said> {
        let model = question.model;
        let times = blocks.first().map_or(1, |block| block.times);
        let input = regions(blocks.iter().map(|block| &*block.text));
        let mut child = Command::new(&self.program)
            .args(["-mtriple=x86_64", "--json", "--all-views=false", "--summary-view"])
            .args((question.detail == Detail::Ports).then_some("--resource-pressure"))
            .args([format!("-mcpu={model}"), format!("--iterations={times}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot run llvm-mca")?;
        let mut stdin = child.stdin.take().context("no way into llvm-mca")?;
        let output = thread::scope(|scope| {
            // It may stop reading, and says why.
            scope.spawn(move || stdin.write_all(input.as_bytes()));
            child.wait_with_output()
        })?;
        let errors = String::from_utf8_lossy(&output.stderr);
        if errors.contains("is not a recognized processor") {
            return Ok(Said::UnknownModel);
        }
        if output.status.code().is_none() {
            return Ok(Said::Nothing);
        }
        let error = errors.lines().find(|line| line.contains("error:")).unwrap_or("no reason");
        ensure!(output.status.success(), "llvm-mca for {model}: {error}");
        figures(&String::from_utf8(output.stdout)?).map(Said::Figures)
    }
}

/// Result of one batch.
enum Said {
    Figures(Vec<Figures>),
    UnknownModel,
    /// It died: its tables of some processors are damaged for some pairs of instructions.
    Nothing,
}

/// Text behind `llvm-mca` in a program's name: nothing, or a release.
fn suffix(name: &str) -> Option<&str> {
    let suffix = name.strip_prefix("llvm-mca")?;
    let is_release =
        |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    (suffix.is_empty() || suffix.strip_prefix('-').is_some_and(is_release)).then_some(suffix)
}

fn version(program: &Path) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    version_in(&String::from_utf8_lossy(&output.stdout))
}

fn version_in(text: &str) -> Option<String> {
    let (_, behind) = text.split_once("LLVM version ")?;
    behind.split_whitespace().next().map(str::to_owned)
}

fn regions<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let mut input = String::new();
    for (which, text) in texts.enumerate() {
        let _ = write!(input, "# LLVM-MCA-BEGIN {which}\n{text}# LLVM-MCA-END\n");
    }
    input
}

/// Reads llvm-mca's JSON.
fn figures(json: &str) -> Result<Vec<Figures>> {
    let answer: Value = serde_json::from_str(json).context("llvm-mca's answer is not JSON")?;
    let resources = answer["TargetInfo"]["Resources"].as_array().context("it names no ports")?;
    let regions = answer["CodeRegions"].as_array().context("it has no regions")?;
    regions.iter().map(|region| region_figures(region, resources)).collect()
}

fn region_figures(region: &Value, resources: &[Value]) -> Result<Figures> {
    let summary = &region["SummaryView"];
    let number = |key: &str| summary[key].as_f64().with_context(|| format!("it tells no {key}"));
    let times = number("Iterations")?;
    let instructions = region["Instructions"].as_array().map_or(0, Vec::len);
    let micro_operations = number("TotaluOps")? / times;
    let mut limit = "front end".to_owned();
    let mut used = micro_operations / number("DispatchWidth")?;
    let pressures = region["ResourcePressureView"]["ResourcePressureInfo"].as_array();
    for one in pressures.into_iter().flatten() {
        // Behind those of the instructions stands what all of them use.
        let is_sum = one["InstructionIndex"].as_u64() == Some(instructions as u64);
        let Some(usage) = one["ResourceUsage"].as_f64().filter(|_| is_sum) else { continue };
        if usage > used {
            let which = one["ResourceIndex"].as_u64().and_then(|which| usize::try_from(which).ok());
            let name = which.and_then(|which| resources.get(which)).and_then(Value::as_str);
            // Behind a point is which of several alike it is, not always in characters.
            let name = name.and_then(|name| name.split('.').next());
            (limit, used) = (name.context("it names no such port")?.to_owned(), usage);
        }
    }
    Ok(Figures {
        instructions,
        cycles: number("TotalCycles")? / times,
        micro_operations,
        limit,
        used,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = r#"{
        "CodeRegions": [{
            "Instructions": ["vaesenc\t%zmm1, %zmm2, %zmm3", "jne\t64"],
            "Name": "0",
            "ResourcePressureView": { "ResourcePressureInfo": [
                { "InstructionIndex": 0, "ResourceIndex": 2, "ResourceUsage": 9 },
                { "InstructionIndex": 2, "ResourceIndex": 0, "ResourceUsage": 0.5 },
                { "InstructionIndex": 2, "ResourceIndex": 1, "ResourceUsage": 2.5 }
            ] },
            "SummaryView": { "DispatchWidth": 6, "Instructions": 200, "Iterations": 100,
                "TotalCycles": 254, "TotaluOps": 600 }
        }],
        "TargetInfo": { "CPUName": "znver4", "Resources": ["Zn4AGU0", "Zn4FP45.\\u0000", "Zn4FP1"] }
    }"#;

    #[test]
    fn figures_are_read_and_the_port_that_limits() {
        let expected = Figures {
            instructions: 2,
            cycles: 2.54,
            micro_operations: 6.0,
            limit: "Zn4FP45".to_owned(),
            used: 2.5,
        };
        assert_eq!(figures(ANSWER).unwrap(), [expected]);
        let front_end = ANSWER.replace("\"TotaluOps\": 600", "\"TotaluOps\": 1800");
        let found = figures(&front_end).unwrap();
        assert_eq!((found[0].limit.as_str(), found[0].used), ("front end", 3.0));
        assert!(figures("{}").is_err() && figures("warning").is_err());
    }

    #[test]
    fn releases_are_told_from_other_programs() {
        assert_eq!([suffix("llvm-mca"), suffix("llvm-mca-19")], [Some(""), Some("-19")]);
        assert_eq!([suffix("llvm-mca-"), suffix("llvm-mca-19.conf"), suffix("llvm-ar")], [None; 3]);
        let text = "Debian LLVM version 19.1.7\n  Optimized build.\n";
        assert_eq!(version_in(text).as_deref(), Some("19.1.7"));
        assert_eq!(version_in("llvm-mca: not found"), None);
    }

    #[test]
    fn blocks_are_told_apart() {
        let blocks = [Block::new(["nop", "", "nop"], 1), Block::new(["ret"], 1)];
        let input = regions(blocks.iter().map(|block| &*block.text));
        let expected = "# LLVM-MCA-BEGIN 0\nnop\nnop\n# LLVM-MCA-END\n\
                        # LLVM-MCA-BEGIN 1\nret\n# LLVM-MCA-END\n";
        assert_eq!(input, expected);
    }
}
