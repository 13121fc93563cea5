//! Follows a burst through the program `convoy-ports`.
//!
//! It is stopped where the source leaves open where it goes on: at conditional jumps, returns, and what goes to
//! an address in a register or in memory. Everything between is read from the listing.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use nix::libc::c_long;
use nix::sys::ptrace::{self, AddressType};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use super::listing::{Flow, Listing};
use super::models::Burst;
use crate::gate::DENY;

/// More than any burst has: where something went wrong, it ends.
const INSTRUCTIONS_MAX: usize = 10_000_000;
/// The instruction that stops.
const STOP: c_long = 0xcc;

/// Exit status of the program if it may not be followed.
const CANNOT: i32 = 77;

/// Addresses that the program goes through in a burst, in its file; what is not in its file (libc's copies) is left
/// out. `None` if this process may not follow it.
pub(super) fn burst(
    program: &Path,
    listing: &Listing,
    denied: &str,
    burst: Burst,
) -> Result<Option<Vec<u64>>> {
    let entry = format!("convoy_crypto::burst::{}_burst", burst.direction);
    let entry = listing.entry(&entry).with_context(|| format!("there is no {entry}"))?;
    let mut child = Command::new(program)
        .args(["follow", burst.suite, burst.direction])
        .args([burst.bytes.to_string(), burst.packets.to_string()])
        .env(DENY, denied)
        .stdin(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot run {}", program.display()))?;
    match follow(&child, program, listing, entry) {
        Ok(Some(way)) => {
            let status = child.wait()?;
            ensure!(status.success(), "the burst that was followed went wrong: {status}");
            Ok(Some(way))
        }
        // It has ended by itself.
        Ok(None) => Ok(None),
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(error)
        }
    }
}

fn follow(
    child: &Child,
    program: &Path,
    listing: &Listing,
    entry: u64,
) -> Result<Option<Vec<u64>>> {
    let pid = Pid::from_raw(child.id().cast_signed());
    match waitpid(pid, None)? {
        WaitStatus::Stopped(_, Signal::SIGSTOP) => {}
        WaitStatus::Exited(_, CANNOT) => return Ok(None),
        other => bail!("the burst's program did not stop in front of the burst: {other:?}"),
    }
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let file = fs::canonicalize(program)?;
    let range = range(&maps, &file.to_string_lossy());
    let (base, end) = range.context("the burst's program is not in its own memory")?;
    let mut traced = Traced { pid, base, words: HashMap::new() };
    traced.run_to(base + entry)?;
    let behind = traced.top_of_stack()?;
    let mut way = Vec::new();
    let mut at = base + entry;
    while at != behind {
        ensure!(way.len() < INSTRUCTIONS_MAX, "more than {INSTRUCTIONS_MAX} instructions");
        at = if (base..end).contains(&at) {
            traced.follow_on(listing, at, &mut way)?
        } else {
            // Called by the program, or jumped to at the end of a function of its own.
            let back = traced.top_of_stack()?;
            traced.run_to(back)?;
            back
        };
    }
    ptrace::detach(pid, None).context("cannot let the burst's program go")?;
    Ok(Some(way))
}

/// A process that is stopped.
struct Traced {
    pid: Pid,
    /// Address of its file in its memory.
    base: u64,
    /// Words of the program at addresses where it was stopped.
    words: HashMap<u64, c_long>,
}

impl Traced {
    /// From an address of the program to the next that only running it tells; that one is reached.
    fn follow_on(&mut self, listing: &Listing, from: u64, way: &mut Vec<u64>) -> Result<u64> {
        let mut at = from - self.base;
        let mut is_there = true;
        loop {
            let (flow, next) =
                listing.flow(at).with_context(|| format!("no instruction at {at:#x}"))?;
            way.push(at);
            at = match flow {
                Flow::On => next.with_context(|| format!("nothing behind {at:#x}"))?,
                Flow::To(target) => target,
                Flow::Open => break,
            };
            is_there = false;
            ensure!(way.len() < INSTRUCTIONS_MAX, "more than {INSTRUCTIONS_MAX} instructions");
        }
        if !is_there {
            self.run_to(self.base + at)?;
        }
        ptrace::step(self.pid, None).context("cannot step")?;
        self.trapped()
    }

    /// Runs until an address is reached.
    fn run_to(&mut self, address: u64) -> Result<()> {
        let place = address as AddressType;
        let word = match self.words.get(&address) {
            Some(word) => *word,
            None => ptrace::read(self.pid, place).context("cannot read the program")?,
        };
        self.words.insert(address, word);
        ptrace::write(self.pid, place, word & !0xff | STOP).context("cannot set a stop")?;
        ptrace::cont(self.pid, None).context("cannot go on")?;
        let stopped = self.trapped()?;
        ensure!(stopped == address + 1, "stopped at {stopped:#x}, and not at {address:#x}");
        ptrace::write(self.pid, place, word).context("cannot take a stop away")?;
        let mut registers = ptrace::getregs(self.pid)?;
        registers.rip = address;
        Ok(ptrace::setregs(self.pid, registers)?)
    }

    /// Waits until it has stopped by itself, and tells where.
    fn trapped(&self) -> Result<u64> {
        match waitpid(self.pid, None)? {
            WaitStatus::Stopped(_, Signal::SIGTRAP) => Ok(ptrace::getregs(self.pid)?.rip),
            other => bail!("the burst's program did not reach the end of the burst: {other:?}"),
        }
    }

    /// At the entry of a function: where it goes back to.
    fn top_of_stack(&self) -> Result<u64> {
        let stack = ptrace::getregs(self.pid)?.rsp;
        Ok(ptrace::read(self.pid, stack as AddressType)?.cast_unsigned())
    }
}

/// From where to where the parts of a file lie in memory.
fn range(maps: &str, file: &str) -> Option<(u64, u64)> {
    let parts = maps.lines().filter(|line| line.ends_with(&format!(" {file}")));
    let ranges = parts.filter_map(|line| {
        let (begin, end) = line.split_once(' ')?.0.split_once('-')?;
        Some((u64::from_str_radix(begin, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
    });
    ranges.reduce(|(begin, end), (other, last)| (begin.min(other), end.max(last)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_of_a_file_is_that_of_all_its_parts() {
        let maps = "\
55d000-55e000 r--p 00000000 fe:00 1    /t/ports/convoy-ports
55e000-561000 r-xp 00001000 fe:00 1    /t/ports/convoy-ports
561000-562000 rw-p 00000000 00:00 0    [heap]
7f1000-7f2000 r-xp 00001000 fe:00 2    /lib/libc.so.6
";
        assert_eq!(range(maps, "/t/ports/convoy-ports"), Some((0x55d000, 0x561000)));
        assert_eq!(range(maps, "/ports/convoy"), None);
    }
}
