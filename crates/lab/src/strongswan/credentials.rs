//! Certificates for daemons, made by strongSwan's own `pki`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use crate::{
    LabError,
    daemon::{self, find, write_private},
    error::Doing as _,
};

/// Longest time that a key or a certificate may take.
const LIMIT: Duration = Duration::from_secs(60);

/// A key, its certificate and that of the authority, all as PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    pub(super) authority: Vec<u8>,
    pub(super) certificate: Vec<u8>,
    pub(super) key: Vec<u8>,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}

/// Makes a certification authority in a folder, and certificates for identities such as
/// `left.test`, with ECDSA keys on P-256 (RFC 4754).
///
/// # Errors
/// [`LabError::Missing`] without strongSwan's `pki`, [`LabError::Program`] when it fails.
pub fn identities(folder: &Path, names: &[&str]) -> Result<Vec<Identity>, LabError> {
    let pki = Pki { program: find("pki")?, folder };
    let key = pki.make(&["--gen", "--type", "ecdsa", "--size", "256"], "authority.key")?;
    let arguments = ["--self", "--ca", "--type", "ecdsa", "--dn", "CN=Convoy laboratory"];
    let authority = pki.make(&[&arguments[..], &["--in", &key]].concat(), "authority.pem")?;
    let mut made = Vec::new();
    for name in names {
        let own =
            pki.make(&["--gen", "--type", "ecdsa", "--size", "256"], &format!("{name}.key"))?;
        let subject = format!("CN={name}");
        let arguments = [
            "--issue", "--type", "priv", "--in", &own, "--cacert", &authority, "--cakey", &key,
            "--dn", &subject, "--san", name,
        ];
        let certificate = pki.make(&arguments, &format!("{name}.pem"))?;
        made.push(Identity {
            authority: pki.read(&authority)?,
            certificate: pki.read(&certificate)?,
            key: pki.read(&own)?,
        });
    }
    Ok(made)
}

struct Pki<'a> {
    program: PathBuf,
    folder: &'a Path,
}

impl Pki<'_> {
    /// Runs it and keeps what it prints; returns the file's path.
    fn make(&self, arguments: &[&str], file: &str) -> Result<String, LabError> {
        let mut pki = Command::new(&self.program);
        pki.args(arguments).args(["--outform", "pem"]);
        let output = daemon::run(&mut pki, LIMIT)?;
        let path = self.folder.join(file);
        write_private(&path, &output)?;
        Ok(path.display().to_string())
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, LabError> {
        fs::read(path).doing(|| format!("read {path}"))
    }
}
