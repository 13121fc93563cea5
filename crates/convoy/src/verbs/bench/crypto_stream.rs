//! `convoy bench crypto --stream`: AES-GCM in parts, beside a burst of one.

use std::time::Duration;

use convoy_bench::results::Results;
use convoy_bench::results::head::Head;
use convoy_bench::run::pin;
use convoy_bench::stream::{self, SIZES, StreamTask};
use convoy_bench::tiers;
use convoy_bench::workload::Direction;
use convoy_crypto::{Cpu, KeyBits};

use super::args::BenchCryptoArgs;
use super::json;
use crate::exit::{Exit, Stop};
use crate::output;

pub(super) fn run(args: &BenchCryptoArgs) -> anyhow::Result<Exit> {
    let cpu = Cpu::detect()?;
    let tasks = tasks(args, &cpu).map_err(Stop::usage)?;
    let head = Head::now();
    if let Err(error) = pin() {
        eprintln!("bench: cannot stay on one core ({error}); figures will vary more");
    }
    let streams: Result<Vec<_>, _> = tasks.iter().map(|task| stream::measure(&cpu, task)).collect();
    let streams = streams?;
    if args.json {
        json::print(Results::of_streams(&head, &streams))?;
        return Ok(Exit::Ok);
    }
    output::print(&format!(
        "convoy {}: {}\n{}\n\nONE-SHOT: cycles of the time-stamp counter for a message as a burst of \
         one. Parts: what the\nsame takes as a stream, IV and tag included, in the time of the \
         burst: median (quartiles)\n\n{}",
        head.version,
        head.command,
        head.machine.cpu,
        output::table(&stream::rows(&streams))
    ))?;
    Ok(Exit::Ok)
}

fn tasks(args: &BenchCryptoArgs, cpu: &Cpu) -> Result<Vec<StreamTask>, String> {
    if !(args.time.is_finite() && args.time > 0.0 && args.time <= 3600.0) {
        return Err("--time: more than 0 and at most 3600 seconds".to_owned());
    }
    let time = Duration::from_secs_f64(args.time);
    let directions: &[Direction] = match args.direction.as_str() {
        "seal" => &[Direction::Seal],
        "open" => &[Direction::Open],
        _ => &[Direction::Seal, Direction::Open],
    };
    let mut tasks = Vec::new();
    for tier in tiers::named(cpu, &args.tier)? {
        for bits in [KeyBits::Aes128, KeyBits::Aes256] {
            for &direction in directions {
                tasks.extend(SIZES.map(|size| StreamTask { bits, direction, size, tier, time }));
            }
        }
    }
    Ok(tasks)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Verb};
    use crate::verbs::bench::{BenchArgs, BenchWhat};

    fn parse(words: &[&str]) -> Result<BenchCryptoArgs, clap::Error> {
        let all = ["convoy", "bench", "crypto", "--stream"].iter().chain(words);
        match Cli::try_parse_from(all)?.verb {
            Verb::Bench(BenchArgs { what: BenchWhat::Crypto(args) }) => Ok(args),
            _ => panic!("another verb"),
        }
    }

    #[test]
    fn streams_are_measured_at_the_sizes_of_records() {
        let cpu = Cpu::without("").unwrap();
        let args = parse(&["--direction", "open"]).unwrap();
        let tasks = tasks(&args, &cpu).unwrap();
        assert_eq!(tasks.len(), 2 * SIZES.len());
        assert!(tasks.iter().all(|task| task.direction == Direction::Open));
        assert!(tasks.iter().all(|task| task.tier == cpu.best()));
    }

    #[test]
    fn what_streams_have_not_is_refused() {
        for words in [["--suite", "all"], ["--peer", "openssl"], ["--keys", "3"], ["--mix", "imix"]]
        {
            assert!(parse(&words).is_err(), "{words:?}");
        }
        let args = parse(&["--time", "0"]).unwrap();
        assert!(tasks(&args, &Cpu::without("").unwrap()).unwrap_err().contains("3600"));
    }
}
