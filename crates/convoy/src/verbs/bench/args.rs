//! The command line of `convoy bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::compare::{self, CompareArgs};
use super::dpdk::{self, DpdkArgs};
use super::engine::{self, EngineArgs};
use super::esp::{self, EspArgs};
use super::forward::{self, ForwardArgs};
use super::report::{self, ReportArgs};
use super::tls::{self, TlsArgs};
use super::tls_records::{self, TlsRecordsArgs};

/// `convoy bench`
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Measurement to make.
    #[command(subcommand)]
    pub what: BenchWhat,
}

/// Measurements of `convoy bench`.
#[derive(Debug, Subcommand)]
pub enum BenchWhat {
    /// Sealing and opening bursts of packets: Convoy, intel-ipsec-mb, OpenSSL and other peers in turn.
    #[command(after_help = BENCH_CRYPTO)]
    Crypto(BenchCryptoArgs),
    /// DPDK's crypto devices over intel-ipsec-mb, by DPDK's own program, and Convoy's bursts, in turn.
    #[command(after_help = dpdk::HELP)]
    Dpdk(DpdkArgs),
    /// ESP from end to end in memory: what the pipelines add to the cryptography, and whether every
    /// packet arrives.
    #[command(after_help = esp::HELP)]
    Esp(EspArgs),
    /// Engines: what handing a packet over and taking it back costs, and how many get done.
    #[command(after_help = engine::HELP)]
    Engine(EngineArgs),
    /// Forwarding: how many packets a second one core passes while at most one in 10,000 is lost, and how long they
    /// take under load.
    #[command(after_help = forward::HELP)]
    Forward(ForwardArgs),
    /// A TLS web server: nginx with OpenSSL's default provider and with Convoy's, as a study had it.
    #[command(after_help = tls::HELP)]
    Tls(TlsArgs),
    /// Records of TLS through OpenSSL: its default provider and Convoy's in turn, by the calls that libssl
    /// makes.
    #[command(after_help = tls_records::HELP)]
    TlsRecords(TlsRecordsArgs),
    /// The figures of the field's studies, measured again with the peers at hand, on one page.
    #[command(after_help = report::HELP)]
    Report(ReportArgs),
    /// Two results that a bench wrote with --json: what got slower or faster, by a rank test of their rounds.
    #[command(after_help = compare::HELP)]
    Compare(CompareArgs),
}

const BENCH_CRYPTO: &str = "\
Examples:
  convoy bench crypto                              # the figures to reach, and whether they are
  convoy bench crypto --suite aes-128-gcm-16 --sizes 64,1420 --mix none
  convoy bench crypto --suite all --json > all.json
  convoy bench crypto --stream                     # what messages in parts cost
  convoy bench crypto --tier avx2,vaes256 --beside aesni --json > tiers.json
  convoy bench crypto --tier avx512,vaes512 --peer ipsec-mb --ipsec-mb ./libIPSec_MB.so.2
  convoy bench crypto --between none,openssl       # each figure both ways
  convoy bench crypto --api c-burst,c-direct --suite aes-128-gcm-16   # what C programs get

Peers: intel-ipsec-mb and OpenSSL are loaded when they are installed. AWS-LC and BoringSSL are linked in,
and take part with AES-GCM and ChaCha20-Poly1305 in a program that was built with them:
  cargo build --release -p convoy --features peer-aws-lc,peer-boringssl
AWS-LC needs a C compiler; BoringSSL needs CMake, a C++ compiler and libclang as well (on Debian:
apt install cmake g++ libclang-dev).

How it is measured: all take part in one process on one core. Before a point is measured, all must
seal its packets to the same bytes, open them, and refuse a forged one. Then each gets a burst in
turn, starting with another one each time; each burst has its keys, nonces and
texts named to the library inside the measured time, and keys were expanded before. Opening includes
comparing the ICV. Peers are called through every interface that fits, and the fastest counts; an
interface that computes other bytes than Convoy and the rest is named and left out.

C programs: the C library's interfaces take part beside Rust's, called by the functions of its header. Jobs
and bursts are compared with intel-ipsec-mb's faster one of jobs and bursts, checked with checked and
-nocheck with unchecked; direct calls with direct calls. OVER RUST is in cycles a packet.

Sizes are bytes of ESP text, what is encrypted: 64-byte packets become 68 (their ESP trailer, aligned
to 4). CBC rounds up to 16. MACs of pairs also cover ESP header and IV, as in ESP. The mixes:
  imix-paper  Ethernet frames of 64, 540 and 1364 bytes (CRC included), weighted 60, 23 and 15:
              texts of 48, 524 and 1348 bytes
  imix        tunnel packets of 90, 92, 594 and 1418 bytes, weighted 58.67, 2, 23.66 and 15.67:
              texts of 92, 96, 596 and 1420 bytes

Goals differ by class of processor; the report names it:
  A        AVX-512 without AES in wide registers: Skylake-SP, Cascade Lake
  B-Intel  AES in registers of 512 bits, Intel's: Ice Lake and later
  B-AMD    the same, AMD's: Zen 4 and later
  C        AES in registers of 256 bits, no AVX-512: Zen 3, Alder Lake and later
  D        AES-NI and at most AVX2
A tier has the goals of the class whose best tier it is; on a processor of another class its figures count for neither
class. Where there is no goal, no peer may be faster.

A gateway's core does other things between bursts, which leave caches and vector units in another
state than the burst before. --between runs one of them before every burst of each library, and does not
time it:
  openssl     OpenSSL seals the same packets (AES-128-GCM where it lacks the suite), for 1 ms or more
  pause       1 ms of scalar code: some processors switch wide units off meanwhile
  memory      a walk over 512 KB
  syscalls    64 packets through a pair of sockets

Cycles are of the time-stamp counter. Of all samples of a point the first and last eighth are
dropped, and the middle quarters of the sorted rest averaged. FLOOR is what the processor's ports
need for the algorithm's own instructions, measured beside every burst, in per cent of what Convoy
needs: 100 % cannot quite be reached.";

/// `convoy bench crypto`
#[derive(Debug, Args)]
pub struct BenchCryptoArgs {
    /// Suites by name, or "all", or "list" to print the names. Left out: the suites whose figures
    /// are to be reached.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub suite: Vec<String>,
    /// Bytes of text; "none" for mixes only.
    #[arg(
        long,
        value_name = "BYTES",
        value_delimiter = ',',
        default_value = "64,68,256,300,1420,16384"
    )]
    pub sizes: Vec<String>,
    /// Mixes of sizes: imix, imix-paper; "none" for single sizes only.
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "imix-paper")]
    pub mix: Vec<String>,
    /// Convoy's tiers. Left out: the best of this machine.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub tier: Vec<String>,
    /// A tier that takes part beside each of them, burst by burst: ratios of tiers, of one interleaved run.
    #[arg(long, value_name = "NAME")]
    pub beside: Option<String>,
    /// Ways into the C library that are measured beside Rust's: c-job, c-job-nocheck, c-burst, c-burst-nocheck,
    /// c-direct; "rust" for none of them (see below).
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "c-job,c-job-nocheck,c-burst,c-burst-nocheck,c-direct", value_parser = ["rust", "c-job", "c-job-nocheck", "c-burst", "c-burst-nocheck", "c-direct"])]
    pub api: Vec<String>,
    /// Peers that must take part. Left out: those that are here. A program has aws-lc and boringssl if it was
    /// built with them (see below).
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = ["ipsec-mb", "openssl", "aws-lc", "boringssl", "none"])]
    pub peer: Vec<String>,
    /// The shared library of intel-ipsec-mb, instead of the system's.
    #[arg(long, value_name = "PATH")]
    pub ipsec_mb: Option<PathBuf>,
    /// OpenSSL's libcrypto, instead of the system's.
    #[arg(long, value_name = "PATH")]
    pub openssl: Option<PathBuf>,
    /// Instruction sets of intel-ipsec-mb: sse, sse-sha, avx (of version 1 alone), avx2-t1, avx2-t2, avx512-t1, avx512-t2;
    /// type 1 does without VAES and SHA-NI. "auto" takes the best that starts here and uses no more than
    /// Convoy's tier; the report says which.
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub peer_arch: String,
    /// Use of the SHA extensions by Convoy's hashes; "auto" allows them on the VAES tiers, as the
    /// peer's managers with VAES use them too.
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = ["auto", "on", "off"])]
    pub sha_ni: String,
    /// Numbers of keys, 1 to 1048576 as far as memory holds them; packets take them at random.
    #[arg(long, value_name = "COUNT", value_delimiter = ',', default_value = "1,64")]
    pub keys: Vec<usize>,
    /// Packets of a burst.
    #[arg(long, value_name = "COUNT", default_value_t = 256)]
    pub burst: usize,
    /// Measure one direction, or both.
    #[arg(long, value_name = "WHICH", default_value = "both", value_parser = ["seal", "open", "both"])]
    pub direction: String,
    /// Work between all bursts: none, openssl, pause, memory, syscalls (see below). With several, each
    /// point is measured with each.
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "none")]
    pub between: Vec<String>,
    /// Time to measure each point, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.25)]
    pub time: f64,
    /// Measure AES-GCM over messages in parts instead: a stream of one part, and of two, beside the same
    /// message as a burst of one, at sizes of TLS records.
    #[arg(long, conflicts_with_all = ["suite", "sizes", "mix", "api", "peer", "keys", "burst", "between"])]
    pub stream: bool,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
}
