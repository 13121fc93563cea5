//! The grid: what is measured, as the options say.

use convoy_bench::peer::libssl::Version;
use convoy_bench::tls::job::Cipher;
use convoy_bench::tls::server::{Certificate, TlsConfig};
use convoy_bench::tls::study::Plan;

use super::TlsArgs;

/// Sizes of the study: 1 MB to 4 GB in powers of four.
const SIZES: [u64; 7] = [1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28, 1 << 30, 1 << 32];
/// The file with which providers are compared.
const DUEL: u64 = 1 << 26;
/// The suites of the study.
const STUDY: [&str; 2] = ["AES128-SHA", "AES128-GCM-SHA256"];

/// A way to serve with a suite: encrypt-then-MAC off, as the study had it.
fn way(name: &str, certificate: Certificate, buffer_kib: usize) -> TlsConfig {
    let version = if name.starts_with("TLS_") { Version::Tls13 } else { Version::Tls12 };
    let cipher = Cipher { name: name.to_owned(), version, encrypt_then_mac: false };
    TlsConfig { cipher, certificate, buffer_kib }
}

fn with_etm(mut way: TlsConfig) -> TlsConfig {
    way.cipher.encrypt_then_mac = true;
    way
}

/// The grid that the options ask for, with `workers` where they name none.
pub(super) fn plan(args: &TlsArgs, workers: Vec<usize>) -> Plan {
    use Certificate::{Ecdsa, Rsa};
    let mut ways: Vec<TlsConfig> = STUDY.map(|name| way(name, Rsa, 16)).into();
    let mut place = |way: TlsConfig| {
        let found = ways.iter().position(|known| *known == way);
        found.unwrap_or_else(|| {
            ways.push(way);
            ways.len() - 1
        })
    };
    let compared = match args.quick {
        true => vec![way(STUDY[0], Rsa, 16), way(STUDY[1], Rsa, 16), way(STUDY[0], Rsa, 128)],
        false => vec![
            way(STUDY[0], Rsa, 16),
            way(STUDY[1], Rsa, 16),
            way(STUDY[0], Rsa, 124),
            way(STUDY[0], Rsa, 128),
            way(STUDY[1], Rsa, 128),
            with_etm(way(STUDY[0], Rsa, 16)),
            way("TLS_AES_128_GCM_SHA256", Rsa, 16),
        ],
    };
    let shaken = match args.quick {
        true => vec![way(STUDY[1], Rsa, 16)],
        false => vec![
            way(STUDY[1], Rsa, 16),
            way("ECDHE-RSA-AES128-SHA", Rsa, 16),
            way("ECDHE-RSA-AES128-GCM-SHA256", Rsa, 16),
            way("ECDHE-ECDSA-AES128-GCM-SHA256", Ecdsa, 16),
            way("TLS_AES_128_GCM_SHA256", Rsa, 16),
            way("TLS_AES_128_GCM_SHA256", Ecdsa, 16),
        ],
    };
    let duels = compared.into_iter().map(&mut place).collect();
    let handshakes = shaken.into_iter().map(&mut place).collect();
    let named = args.ciphers.iter().map(String::as_str);
    let searched: Vec<&str> = if args.ciphers.is_empty() { STUDY.into() } else { named.collect() };
    let certificate = |name: &str| if name.contains("ECDSA") { Ecdsa } else { Rsa };
    let searches = searched.iter().map(|name| place(way(name, certificate(name), 16))).collect();
    Plan {
        generator: args.client.into(),
        duels,
        handshakes,
        searches,
        ways,
        duel_size: DUEL,
        rounds: args.rounds.unwrap_or(if args.quick { 5 } else { 15 }),
        duel_seconds: args.seconds.unwrap_or(f64::MAX).min(if args.quick { 1.0 } else { 2.0 }),
        sizes: match (args.sizes.is_empty(), args.quick) {
            (false, _) => args.sizes.clone(),
            (true, true) => vec![SIZES[0], SIZES[3]],
            (true, false) => SIZES.into(),
        },
        seconds: args.seconds.unwrap_or(if args.quick { 1.5 } else { 4.0 }),
        runs: if args.quick { 6 } else { 9 },
        latency: (args.latency.into(), args.latency_bound),
        verify_every: args.verify,
        workers: if args.workers.is_empty() { workers } else { args.workers.clone() },
        connections: usize::MAX,
    }
}

/// Reads a size with K, M or G.
pub(super) fn size(word: &str) -> Result<u64, String> {
    let (number, shift) = match word.chars().last() {
        Some('K' | 'k') => (&word[..word.len() - 1], 10),
        Some('M' | 'm') => (&word[..word.len() - 1], 20),
        Some('G' | 'g') => (&word[..word.len() - 1], 30),
        _ => (word, 0),
    };
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    match bytes {
        Some(bytes @ 1..=0x10_0000_0000) => Ok(bytes),
        _ => Err("use a number of bytes from 1 to 64G, such as 65536, 64K, 1M or 4G".to_owned()),
    }
}

/// Reads the share of connections that are decrypted.
pub(super) fn verify(word: &str) -> Result<usize, String> {
    match (word, word.parse()) {
        ("all", _) => Ok(1),
        (_, Ok(every @ 1..)) => Ok(every),
        _ => Err("use a number from 1 on, for one of so many, or \"all\"".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Verb};
    use crate::verbs::bench::{BenchArgs, BenchWhat};

    fn parse(words: &[&str]) -> TlsArgs {
        let all = ["convoy", "bench", "tls"].iter().chain(words);
        let Verb::Bench(BenchArgs { what: BenchWhat::Tls(args) }) =
            Cli::try_parse_from(all).unwrap().verb
        else {
            panic!("another verb");
        };
        args
    }

    #[test]
    fn the_grid_fits_its_time() {
        let quick = plan(&parse(&["--quick"]), vec![1]);
        assert!(quick.longest(2) < 150.0, "{} s", quick.longest(2));
        let whole = plan(&parse(&[]), vec![1]);
        assert!(whole.longest(2) < 28.0 * 60.0, "{} s", whole.longest(2));
        assert!(whole.rounds >= 15);
    }

    #[test]
    fn ways_are_named_once() {
        let plan = plan(&parse(&["--ciphers", "AES128-SHA,ECDHE-ECDSA-AES128-SHA"]), vec![1, 2]);
        for (at, way) in plan.ways.iter().enumerate() {
            assert_eq!(plan.ways.iter().position(|other| other == way), Some(at));
        }
        let named: Vec<_> = plan.searches.iter().map(|at| &*plan.ways[*at].cipher.name).collect();
        assert_eq!(named, ["AES128-SHA", "ECDHE-ECDSA-AES128-SHA"]);
        assert_eq!(plan.ways[plan.searches[1]].certificate, Certificate::Ecdsa);
        assert_eq!(plan.workers, [1, 2]);
    }

    #[test]
    fn sizes_and_shares_are_read() {
        assert_eq!(size("64K"), Ok(65_536));
        assert_eq!(size("4G"), Ok(1 << 32));
        assert_eq!(size("17"), Ok(17));
        for wrong in ["", "0", "M", "1T", "65G", "-1"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
        assert_eq!((verify("all"), verify("32")), (Ok(1), Ok(32)));
        assert!(verify("0").is_err() && verify("some").is_err());
    }
}
