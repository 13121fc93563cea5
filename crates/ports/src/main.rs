//! Bursts of packets, for `cargo xtask ports` and `cargo xtask instructions`: to be followed instruction by instruction by
//! the process that started this one, to be timed, or to be counted by Valgrind.
//!
//! `CONVOY_DENY_CPU` chooses the tier, which is printed first.

#![forbid(unsafe_code)]

mod count;
mod packets;
mod time;

use std::error::Error;
use std::process::ExitCode;

use convoy_crypto::Cpu;
use nix::sys::{ptrace, signal};

use crate::packets::{Direction, Packets};

const USAGE: &str = "\
convoy-ports tier                                 the tier that keys get, and whether hashes have instructions
convoy-ports follow SUITE seal|open BYTES COUNT   stops in front of a burst, under ptrace
convoy-ports time SUITE seal|open BYTES COUNT     least cycles of the time-stamp counter for a packet
convoy-ports count SUITE seal|open BYTES COUNT ROUNDS    bursts within a function named counted_burst
convoy-ports pipelines SUITE BYTES COUNT ROUNDS          bursts through outbound_pipeline and inbound_pipeline";

/// Exit status if it may not be followed.
const CANNOT: i32 = 77;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("convoy-ports: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(words: &[&str]) -> Result<(), Box<dyn Error>> {
    let cpu = Cpu::detect()?;
    match *words {
        ["tier"] => {
            println!("{} {}", cpu.best(), if cpu.has_sha_ni() { Cpu::SHA_NI } else { "-" });
            Ok(())
        }
        ["follow", suite, direction, bytes, count] => {
            let direction = Direction::of(direction)?;
            let mut packets = Packets::new(&cpu, suite.parse()?, bytes.parse()?, count.parse()?)?;
            follow(&mut packets, direction)
        }
        ["time", suite, direction, bytes, count] => {
            let direction = Direction::of(direction)?;
            let mut packets = Packets::new(&cpu, suite.parse()?, bytes.parse()?, count.parse()?)?;
            let figures = time::of(&mut packets, direction)?;
            println!("{:.2} {:.4}", figures.time_stamps, figures.factor);
            Ok(())
        }
        ["count", suite, direction, bytes, count, rounds] => {
            let direction = Direction::of(direction)?;
            let mut packets = Packets::new(&cpu, suite.parse()?, bytes.parse()?, count.parse()?)?;
            count::bursts(&mut packets, direction, rounds.parse()?)
        }
        ["pipelines", suite, bytes, count, rounds] => {
            count::pipelines(&cpu, suite.parse()?, bytes.parse()?, count.parse()?, rounds.parse()?)
        }
        _ => Err(USAGE.into()),
    }
}

/// Stops in front of the second of two bursts: at the first one, tables and stack are not in place yet.
fn follow(packets: &mut Packets, direction: Direction) -> Result<(), Box<dyn Error>> {
    packets.round(direction, |burst| burst())?;
    if let Err(error) = ptrace::traceme() {
        eprintln!("convoy-ports: it may not be traced: {error}");
        std::process::exit(CANNOT);
    }
    let mut outcome = Ok(());
    packets.round(direction, |burst| {
        outcome = signal::raise(signal::Signal::SIGSTOP);
        burst();
    })?;
    Ok(outcome?)
}
