//! `convoy bench`: what it costs.

mod args;
mod child;
mod compare;
mod crypto;
mod crypto_stream;
mod dpdk;
mod engine;
mod esp;
mod forward;
mod json;
mod report;
mod tls;
mod tls_records;

use crate::exit::Exit;

pub use args::{BenchArgs, BenchCryptoArgs, BenchWhat};

pub(crate) fn run(args: &BenchArgs) -> anyhow::Result<Exit> {
    match &args.what {
        BenchWhat::Compare(args) => compare::run(args),
        BenchWhat::Crypto(args) if args.stream => crypto_stream::run(args),
        BenchWhat::Crypto(args) => crypto::run(args),
        BenchWhat::Dpdk(args) => dpdk::run(args),
        BenchWhat::Engine(args) => engine::run(args),
        BenchWhat::Esp(args) => esp::run(args),
        BenchWhat::Forward(args) => forward::run(args),
        BenchWhat::Report(args) => report::run(args),
        BenchWhat::Tls(args) => tls::run(args),
        BenchWhat::TlsRecords(args) => tls_records::run(args),
    }
}
