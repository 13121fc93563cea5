//! Providers, certificates, and configurations made of both.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::Arc,
};

use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection,
    SupportedCipherSuite, SupportedProtocolVersion,
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
    version::{TLS12, TLS13},
};
use tempfile::TempDir;

/// Whose AEADs one side of a connection uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Convoy,
    AwsLc,
}

impl Side {
    /// A provider with one cipher suite.
    fn provider(self, suite: SupportedCipherSuite) -> Arc<CryptoProvider> {
        let mut provider = aws_lc_rs::default_provider();
        provider.cipher_suites.retain(|other| other.suite() == suite.suite());
        assert_eq!(provider.cipher_suites.len(), 1, "{suite:?}");
        Arc::new(match self {
            Self::Convoy => convoy_rustls::with_convoy_aead(provider).unwrap(),
            Self::AwsLc => provider,
        })
    }
}

/// The cipher suites of the provider that tests build on.
pub(crate) fn suites() -> Vec<SupportedCipherSuite> {
    let suites = aws_lc_rs::default_provider().cipher_suites;
    assert_eq!(suites.len(), 9);
    suites
}

/// True if a certificate for this suite holds an RSA key.
pub(crate) fn is_rsa(suite: SupportedCipherSuite) -> bool {
    format!("{:?}", suite.suite()).contains("_RSA_")
}

pub(crate) fn version(suite: SupportedCipherSuite) -> &'static SupportedProtocolVersion {
    match suite {
        SupportedCipherSuite::Tls12(_) => &TLS12,
        SupportedCipherSuite::Tls13(_) => &TLS13,
    }
}

/// A certificate for `localhost`, and its key.
pub(crate) struct Identity {
    folder: TempDir,
}

impl Identity {
    /// `None`, and it is said, where there is no OpenSSL 3 to make one.
    pub(crate) fn new(rsa: bool) -> Option<Self> {
        let Ok(version) = plain().arg("version").output() else {
            println!("SKIPPED: openssl is not installed");
            return None;
        };
        let version = String::from_utf8_lossy(&version.stdout).into_owned();
        if !version.starts_with("OpenSSL 3") {
            println!("SKIPPED: needs OpenSSL 3, this is {}", version.trim());
            return None;
        }
        let identity = Self { folder: tempfile::tempdir().unwrap() };
        let config = "[req]\ndistinguished_name = name\nx509_extensions = more\n[name]\n[more]\n\
                      subjectAltName = DNS:localhost\nbasicConstraints = critical,CA:FALSE\n";
        fs::write(identity.path("req.cnf"), config).unwrap();
        let key: &[&str] = match rsa {
            true => &["rsa:2048"],
            false => &["ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"],
        };
        let mut command = plain();
        command.args(["req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=localhost"]);
        command.args(["-config", "req.cnf", "-keyout", "key.pem", "-out", "cert.pem", "-newkey"]);
        run(command.args(key).current_dir(identity.folder()));
        Some(identity)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    fn certificate(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_file(self.path("cert.pem")).unwrap()
    }

    pub(crate) fn client(&self, side: Side, suite: SupportedCipherSuite) -> ClientConnection {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate()).unwrap();
        let config = ClientConfig::builder_with_provider(side.provider(suite))
            .with_protocol_versions(&[version(suite)])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        ClientConnection::new(Arc::new(config), name).unwrap()
    }

    pub(crate) fn server(&self, side: Side, suite: SupportedCipherSuite) -> ServerConnection {
        let key = PrivateKeyDer::from_pem_file(self.path("key.pem")).unwrap();
        let config = ServerConfig::builder_with_provider(side.provider(suite))
            .with_protocol_versions(&[version(suite)])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate()], key)
            .unwrap();
        ServerConnection::new(Arc::new(config)).unwrap()
    }
}

/// OpenSSL's program, with the machine's own OpenSSL as it is.
pub(crate) fn plain() -> Command {
    let mut command = Command::new("openssl");
    command.env("OPENSSL_CONF", "/dev/null").stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs a program that must succeed.
pub(crate) fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{errors}", output.status);
    output
}

/// Bytes that repeat nowhere near.
pub(crate) fn noise(len: usize) -> Vec<u8> {
    let mut state = 7u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Compares long texts without printing them.
pub(crate) fn assert_same(got: &[u8], expected: &[u8], what: impl fmt::Debug) {
    assert_eq!(got.len(), expected.len(), "length, {what:?}");
    let at = got.iter().zip(expected).position(|(got, expected)| got != expected);
    assert_eq!(at, None, "first wrong byte, {what:?}");
}
