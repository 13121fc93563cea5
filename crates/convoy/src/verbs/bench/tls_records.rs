//! `convoy bench tls-records`: record calls through EVP, by OpenSSL's default provider and by Convoy's.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use convoy_bench::class::Class;
use convoy_bench::peer::PeerError;
use convoy_bench::peer::openssl::Libcrypto;
use convoy_bench::records::measure::{Effort, OURS, Outcome, Point, Sides};
use convoy_bench::records::report::{NotOffered, Report};
use convoy_bench::records::{Call, MOST, PACKETS, PARTS, RecordCipher, SIZES, Sizes, Subject};
use convoy_bench::results::LeftOut;
use convoy_bench::results::head::Head;
use convoy_bench::run::pin;
use convoy_crypto::Cpu;

use super::json;
use crate::exit::{Exit, Stop};
use crate::output;
use crate::verbs::openssl_conf::{module, offered::Offered};

/// Text behind the options in `convoy bench tls-records --help`.
pub(super) const HELP: &str = "\
Examples:
  convoy bench tls-records                          # every call, half a minute
  convoy bench tls-records --quick                  # less exact, a few seconds
  convoy bench tls-records --ciphers aes-128-gcm --sizes 64,16384 --json > records.json
  convoy bench tls-records --calls tls12-seal,tls12-open
  convoy bench tls-records --libcrypto /opt/openssl-3.6/lib/libcrypto.so.3
  CONVOY_PROVIDER_OFFER=all convoy bench tls-records    # also what is not offered on this processor

One process has OpenSSL's default provider and Convoy's, each in a library context of its own, and calls both
through EVP as libssl does. RATIO is the default provider's time in Convoy's: above 1, Convoy is faster. It is
the median of all rounds, with the interval in which the true one lies with a probability of 95 %.

  tls12-seal, tls12-open    a record of TLS 1.2: additional data set, growth asked for, one update in place
  tls13-seal, tls13-open    a record of TLS 1.3: length of the IV asked for, IV, header, text, end; the tag
                            is set when opening, asked for when sealing
  packet-seal, packet-open  a packet of 64, 256 or 1400 bytes as OpenVPN has it: IV, header of 8 bytes, text from
                            one place to another, end, tag
  part                      the next part, of 16 to 16384 bytes, of a message that does not end: what
                            `openssl speed -evp` calls
  multiblock-4, -8          four or eight records in one call, which libssl makes when a program writes 64 KB
                            or more; in place of 16384 bytes a record has 15872, as there
  key                       a key in a context that is there, with that of the MAC
  context                   a context made, given its keys, and freed, as a direction of a connection has it

How it is measured: before a point, each side opens what the other one sealed, and must refuse what was
changed. Then both are called in turn, round by round, beginning with another one each time, on one core; what
counts is the thread's CPU time. What is opened is copied into place outside of it. Each side uses all that
the processor has: CONVOY_DENY_CPU narrows Convoy, OPENSSL_ia32cap OpenSSL. `convoy bench crypto --help`
explains the processor's class. Figures hold for the version of OpenSSL that is printed; newer ones are
faster.

What the provider has not is told as \"not offered\", with the reason: on this processor OpenSSL's own is as fast or
faster. With CONVOY_PROVIDER_OFFER=all in the environment it is measured, too, and its rows are marked. Exit code 1: a side refused a call, or both disagree.";

/// `convoy bench tls-records`
#[derive(Debug, Args)]
pub struct TlsRecordsArgs {
    /// Convoy's provider. Left out: where `make install` puts it, or beside this program.
    #[arg(long, value_name = "FILE")]
    provider: Option<PathBuf>,
    /// OpenSSL's libcrypto, 3.0 or newer, instead of the system's.
    #[arg(long, value_name = "FILE")]
    libcrypto: Option<PathBuf>,
    /// Ciphers: aes-128-gcm, aes-192-gcm, aes-256-gcm, chacha20-poly1305, and aes-128 or aes-256 with
    /// -cbc-hmac-sha1 or -cbc-hmac-sha256. Left out: all but 192 bits.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = cipher)]
    ciphers: Vec<RecordCipher>,
    /// Calls by the names below. Left out: all that a cipher has.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = call)]
    calls: Vec<Call>,
    /// Bytes of text of records and packets, 1 to 16384. Left out: 64, 256, 1424 and 16384 of records, with --quick
    /// 64 and 16384; 64, 256 and 1400 of packets.
    #[arg(
        long,
        value_name = "BYTES",
        value_delimiter = ',',
        value_parser = clap::value_parser!(u16).range(1..=16_384)
    )]
    sizes: Vec<u16>,
    /// Rounds of each point, 1 to 10000. Left out: 41; with --quick, 11.
    #[arg(
        long,
        value_name = "COUNT",
        value_parser = clap::value_parser!(u16).range(1..=10_000)
    )]
    rounds: Option<u16>,
    /// Measure fewer sizes, in shorter rounds.
    #[arg(long)]
    quick: bool,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

fn cipher(word: &str) -> Result<RecordCipher, String> {
    word.parse()
}

fn call(word: &str) -> Result<Call, String> {
    word.parse()
}

pub(super) fn run(args: &TlsRecordsArgs) -> anyhow::Result<Exit> {
    let cpu = Cpu::detect().map_err(|error| Stop::usage(error.to_string()))?;
    let provider = module::named_or_found(args.provider.as_deref(), "--provider")?;
    let unfit = |error: PeerError| Stop::usage(error.to_string());
    let library = Libcrypto::load(args.libcrypto.as_deref()).map_err(unfit)?;
    let sides = Sides::load(&library, &provider).map_err(unfit)?;
    let head = Head::now();
    if let Err(error) = pin() {
        eprintln!("bench: cannot stay on one core ({error}); figures will vary more");
    }
    let mut report = Report {
        head,
        class: Class::of(cpu.best(), cpu.is_by_amd()),
        tier: cpu.best().name(),
        sha_extensions: cpu.has_sha_ni(),
        openssl: library.version().to_owned(),
        provider,
        points: Vec::new(),
        not_offered: Vec::new(),
        failed: Vec::new(),
    };
    let subjects = subjects(args);
    if subjects.is_empty() {
        return Err(Stop::usage("--calls: none of the ciphers is called so"));
    }
    measure(&sides, &subjects, effort(args), &Offered::with(&cpu, false), &mut report);
    if args.json {
        json::print(report.results())?;
    } else {
        let table = output::table(&report.rows());
        output::print(&format!("{}\n{table}{}", report.head(), report.missing()))?;
    }
    Ok(if report.failed.is_empty() { Exit::Ok } else { Exit::Trouble })
}

fn subjects(args: &TlsRecordsArgs) -> Vec<Subject> {
    let mut ciphers = args.ciphers.clone();
    if ciphers.is_empty() {
        ciphers.extend(RecordCipher::ALL.iter().filter(|cipher| cipher.name != "aes-192-gcm"));
    }
    let mut sizes: Vec<usize> = args.sizes.iter().map(|size| usize::from(*size)).collect();
    match (sizes.is_empty(), args.quick) {
        (true, true) => sizes.extend([64, MOST]),
        (true, false) => sizes.extend(SIZES),
        _ => {}
    }
    let packets = if args.sizes.is_empty() { PACKETS.to_vec() } else { sizes.clone() };
    let parts = if args.quick { vec![64, MOST] } else { PARTS.to_vec() };
    let mut subjects = Subject::all(&ciphers, &Sizes { records: sizes, packets, parts });
    subjects.retain(|subject| args.calls.is_empty() || args.calls.contains(&subject.call));
    subjects
}

fn effort(args: &TlsRecordsArgs) -> Effort {
    let (rounds, micros) = if args.quick { (11, 1000) } else { (41, 3000) };
    let rounds = args.rounds.map_or(rounds, usize::from);
    Effort { rounds, time: Duration::from_micros(micros) }
}

fn measure(
    sides: &Sides,
    subjects: &[Subject],
    effort: Effort,
    offered: &[Offered],
    report: &mut Report,
) {
    // Why Convoy's provider does not offer a cipher here.
    let why = |cipher: RecordCipher| {
        offered.iter().find(|it| it.cipher.eq_ignore_ascii_case(cipher.name))?.why.clone()
    };
    let mut missing = HashSet::new();
    for (i, subject) in subjects.iter().enumerate() {
        let Subject { cipher, call, size } = *subject;
        if missing.contains(cipher.name) {
            continue;
        }
        let name = match call {
            Call::Key | Call::Context => format!("{} {}", cipher.name, call.name()),
            _ => format!("{} {}, {size} bytes", cipher.name, call.name()),
        };
        eprintln!("bench: {} of {}: {name}", i + 1, subjects.len());
        match sides.measure(*subject, effort) {
            Ok(Outcome::Measured(point)) => {
                report.points.push(Point { offered: why(cipher).is_none(), ..point });
            }
            Ok(Outcome::NoCipher(by)) => {
                missing.insert(cipher.name);
                let why = why(cipher).filter(|_| by == OURS);
                report.not_offered.push(NotOffered { cipher: cipher.name, call: None, by, why });
            }
            Ok(Outcome::NoCall(by)) => {
                let call = Some(call.name());
                let missing = NotOffered { cipher: cipher.name, call, by, why: None };
                if !report.not_offered.contains(&missing) {
                    report.not_offered.push(missing);
                }
            }
            Err(error) => {
                eprintln!("bench: {error}");
                report.failed.push(LeftOut::new(name, error));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Verb};
    use crate::verbs::bench::{BenchArgs, BenchWhat};

    fn parse(words: &[&str]) -> Result<TlsRecordsArgs, clap::Error> {
        let all = ["convoy", "bench", "tls-records"].iter().chain(words);
        match Cli::try_parse_from(all)?.verb {
            Verb::Bench(BenchArgs { what: BenchWhat::TlsRecords(args) }) => Ok(args),
            _ => panic!("another verb"),
        }
    }

    #[test]
    fn arguments_narrow_what_is_measured() {
        let all = subjects(&parse(&[]).unwrap());
        assert_eq!(all.len(), 3 * 29 + 4 * 14);
        let quick = parse(&["--quick", "--ciphers", "aes-128-gcm"]).unwrap();
        // Four calls and parts at two sizes, packets at three; key and context.
        assert_eq!((subjects(&quick).len(), effort(&quick).rounds), (18, 11));
        let calls = parse(&["--calls", "key,multiblock-8"]).unwrap();
        assert_eq!(subjects(&calls).len(), 7 + 4 * 2);
        let args = parse(&["--sizes", "100", "--rounds", "3"]).unwrap();
        assert!(subjects(&args).iter().all(|s| s.size != 1424) && effort(&args).rounds == 3);
    }

    #[test]
    fn wrong_arguments_are_told_what_is_right() {
        for (words, said) in [
            (["--ciphers", "aes-128-ccm"], "aes-128-cbc-hmac-sha1"),
            (["--calls", "seal"], "tls12-seal, tls12-open"),
            (["--sizes", "0"], "1..=16384"),
            (["--rounds", "0"], "1..=10000"),
        ] {
            let error = parse(&words).unwrap_err().to_string();
            assert!(error.contains(said), "{words:?}: {error}");
        }
    }
}
