//! Cost of records in rustls: its provider's own AEADs and Convoy's in turn.
//!
//! `cargo run --release -p convoy-rustls --example records` prints, for each suite, nanoseconds of CPU time for a
//! record of 16,384 bytes and one of 64, encrypted by one end and decrypted by the other, and the ratio of both
//! providers: above 1, Convoy is faster. It needs `openssl` to make a certificate.
#![allow(clippy::unwrap_used, reason = "an example")]

use std::{io::Read as _, io::Write as _, process::Command, sync::Arc, time::Instant};

use rustls::{
    ClientConfig, ClientConnection, ConnectionCommon, RootCertStore, ServerConfig,
    ServerConnection, SupportedCipherSuite,
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
    version::{TLS12, TLS13},
};

/// Rounds of both.
const ROUNDS: usize = 21;
/// Bytes that each round sends.
const ROUND: usize = 4 << 20;

struct Pair {
    client: ClientConnection,
    server: ServerConnection,
}

fn identity(folder: &std::path::Path) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
    let done = Command::new("openssl")
        .args(["req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-newkey", "ec"])
        .args([
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-keyout",
            "key.pem",
            "-out",
            "cert.pem",
        ])
        .args(["-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=CA:FALSE"])
        .current_dir(folder)
        .output()
        .expect("openssl makes a certificate");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let certificate = CertificateDer::from_pem_file(folder.join("cert.pem")).unwrap();
    (certificate, PrivateKeyDer::from_pem_file(folder.join("key.pem")).unwrap())
}

impl Pair {
    fn new(
        mut provider: CryptoProvider,
        suite: SupportedCipherSuite,
        (certificate, key): (&CertificateDer<'static>, &PrivateKeyDer<'static>),
    ) -> Self {
        provider.cipher_suites.retain(|other| other.suite() == suite.suite());
        let provider = Arc::new(provider);
        let version = if suite.tls13().is_some() { &TLS13 } else { &TLS12 };
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let client = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key.clone_key())
            .unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let mut pair = Self {
            client: ClientConnection::new(Arc::new(client), name).unwrap(),
            server: ServerConnection::new(Arc::new(server)).unwrap(),
        };
        while pair.client.is_handshaking() || pair.server.is_handshaking() {
            pass(&mut pair.client, &mut pair.server);
            pass(&mut pair.server, &mut pair.client);
        }
        pass(&mut pair.server, &mut pair.client);
        pair
    }

    /// Nanoseconds for a record of `size` bytes.
    fn round(&mut self, size: usize) -> f64 {
        let (text, mut got) = (vec![7; size], vec![0; size]);
        let records = (ROUND / size).min(4096);
        let begun = Instant::now();
        for _ in 0..records {
            self.client.writer().write_all(&text).unwrap();
            pass(&mut self.client, &mut self.server);
            self.server.reader().read_exact(&mut got).unwrap();
        }
        begun.elapsed().as_nanos() as f64 / records as f64
    }
}

fn pass<A, B>(from: &mut ConnectionCommon<A>, to: &mut ConnectionCommon<B>) {
    let mut wire = Vec::with_capacity(17_000);
    while from.wants_write() {
        from.write_tls(&mut wire).unwrap();
    }
    let mut wire = &wire[..];
    while !wire.is_empty() {
        to.read_tls(&mut wire).unwrap();
        to.process_new_packets().unwrap();
    }
}

fn median(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = identity(folder.path());
    let base = aws_lc_rs::default_provider;
    println!(
        "{:50} {:>6} {:>10} {:>10} {:>6}",
        "SUITE", "BYTES", "aws-lc ns", "Convoy ns", "RATIO"
    );
    for suite in base().cipher_suites {
        if format!("{:?}", suite.suite()).contains("_RSA_") {
            continue;
        }
        let ours = convoy_rustls::with_convoy_aead(base()).unwrap();
        let mut theirs = Pair::new(base(), suite, (&certificate, &key));
        let mut ours = Pair::new(ours, suite, (&certificate, &key));
        for size in [64, 16_384] {
            let (mut one, mut other, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                one.push(theirs.round(size));
                other.push(ours.round(size));
                ratios.push(one[one.len() - 1] / other[other.len() - 1]);
            }
            println!(
                "{:50} {size:>6} {:>10.0} {:>10.0} {:>6.2}",
                format!("{:?}", suite.suite()),
                median(&mut one),
                median(&mut other),
                median(&mut ratios)
            );
        }
    }
}
