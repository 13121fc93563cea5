//! The command line of `convoy openssl-conf`.

use std::path::PathBuf;

use clap::Args;

/// Text behind the options in `--help`.
pub const HELP: &str = "\
Examples:
  convoy openssl-conf > /etc/ssl/convoy.cnf
  OPENSSL_CONF=/etc/ssl/convoy.cnf nginx
  convoy openssl-conf --stats /run/convoy-openssl.stats > /etc/ssl/convoy.cnf
  convoy openssl-conf --check /etc/ssl/convoy.cnf

OpenSSL 3 loads Convoy's provider by such a file; docs/tls.md tells the rest. The file that is printed includes
the system's, keeps the default provider and prefers Convoy to it, so what Convoy has not stays as it is.

--check names the lines by which OpenSSL would lose its default provider, or would load or use no Convoy.

A cipher that is slower on this processor than OpenSSL's own is not offered: OpenSSL does it. --check, and comments
in the file, say which those are, and why. `offer = all` in the provider's section offers them all the same.

Exit codes: 0 good, 1 warnings only, 2 errors, or the library is not found.";

/// `convoy openssl-conf`
#[derive(Debug, Args)]
pub struct OpensslConfArgs {
    /// Check this file, and print none.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["module", "system", "stats"])]
    pub check: Option<PathBuf>,
    /// The provider's library, if it is not where `make install` puts it.
    #[arg(long, value_name = "PATH")]
    pub module: Option<PathBuf>,
    /// The system's own configuration, which stays in force; one that is not there is left out.
    #[arg(long, value_name = "FILE", default_value = "/etc/ssl/openssl.cnf")]
    pub system: PathBuf,
    /// Make the provider count its work in this file.
    #[arg(long, value_name = "FILE")]
    pub stats: Option<PathBuf>,
    /// With --check: print as JSON.
    #[arg(long, requires = "check")]
    pub json: bool,
}
