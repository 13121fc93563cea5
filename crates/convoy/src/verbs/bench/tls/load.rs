//! Load processes: this one for a server elsewhere, and those that this one starts.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use convoy_bench::peer::libssl::LibSsl;
use convoy_bench::tls::member;
use convoy_runtime::pin_current_thread;

use super::{TlsArgs, raise_limit};
use crate::exit::{Exit, Stop};

/// Time that a load process waits for its server.
const PATIENCE: Duration = Duration::from_secs(60);

/// Is a load process.
pub(super) fn work(args: &TlsArgs, server: &str, token: &str) -> anyhow::Result<Exit> {
    raise_limit();
    if let Some(cpu) = args.cpu {
        pin_current_thread(cpu)?;
    }
    let library = LibSsl::load(args.libraries.as_deref());
    let library = library.map_err(|error| Stop::usage(error.to_string()))?;
    member::work(&library, server, token, PATIENCE)
        .map_err(|error| Stop::usage(error.to_string()))?;
    Ok(Exit::Ok)
}

/// Load processes of this host. They end with their server.
pub(super) struct Local(Vec<Child>);

impl Local {
    /// Starts one on each of the processors.
    pub(super) fn start(
        server: &str,
        token: &str,
        cpus: &[usize],
        libraries: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let own = std::env::current_exe()?;
        let mut local = Self(Vec::new());
        for cpu in cpus {
            let mut command = Command::new(&own);
            command.args(["bench", "tls", "--join", server, "--cpu", &cpu.to_string()]);
            // What is on a command line everybody can read; this host's own need no secret beyond that.
            command.args(["--token", token]);
            if let Some(libraries) = libraries {
                command.arg("--libraries").arg(libraries);
            }
            // Not of the terminal's group: Ctrl-C is for this process alone.
            std::os::unix::process::CommandExt::process_group(&mut command, 0);
            local.0.push(command.stdin(Stdio::null()).spawn()?);
        }
        Ok(local)
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
