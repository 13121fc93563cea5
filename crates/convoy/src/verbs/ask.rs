//! Asking a running gateway.

use std::path::Path;

use clap::Args;
use convoy_control::client::{self, Client, ClientError};
use convoy_control::protocol::{Answer, Request};
use convoy_control::status::Text;
use serde::Serialize;

use crate::exit::{Exit, Stop};
use crate::output;

/// A running gateway, as the command line names it.
#[derive(Clone, Debug, Args)]
pub struct Target {
    /// Name of the gateway, its site file, or its control socket; not needed if only one
    /// runs.
    #[arg(value_name = "GATEWAY", env = "CONVOY_GATEWAY")]
    pub gateway: Option<String>,
}

/// Verbs that ask a running gateway something.
#[derive(Debug, Args)]
pub struct AskArgs {
    /// The gateway to ask.
    #[command(flatten)]
    pub target: Target,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
}

/// The gateway that the command line means.
pub(super) fn client(target: &Target) -> anyhow::Result<Client> {
    let target = match target.gateway.as_deref() {
        None => client::Target::Only,
        Some(text) if Path::new(text).extension().is_some_and(|e| e == "toml") => {
            client::Target::Site(text.into())
        }
        Some(text) if text.contains('/') => client::Target::Socket(text.into()),
        Some(name) => client::Target::Name(name.to_owned()),
    };
    Client::find(&target).map_err(|error| failed(error, Exit::Trouble))
}

/// Asks. `refused` is the exit code when the gateway cannot do what it is asked.
pub(super) fn ask(client: &Client, request: Request, refused: Exit) -> anyhow::Result<Answer> {
    client.ask(request).map_err(|error| failed(error, refused))
}

fn failed(error: ClientError, refused: Exit) -> anyhow::Error {
    let exit = match &error {
        error if error.is_no_gateway() => Exit::NoGateway,
        // Nothing is known of it, which is another thing than a warning of its own.
        ClientError::Denied(_)
        | ClientError::Stranger(_)
        | ClientError::Silent { .. }
        | ClientError::Broken { .. } => Exit::NoGateway,
        ClientError::Site(_) | ClientError::Several(_) => Exit::Usage,
        ClientError::Refused(_) => refused,
        _ => Exit::Trouble,
    };
    Stop { message: error.to_string(), exit }.into()
}

/// Prints an answer, as text or as JSON, in which it has its `schema`.
pub(super) fn print(answer: &(impl Serialize + Text), as_json: bool) -> anyhow::Result<Exit> {
    if as_json {
        output::json_as_is(answer)?;
    } else {
        output::print(&answer.text())?;
    }
    Ok(Exit::Ok)
}

/// The gateway answered something that was not asked for: another version, most likely.
pub(super) fn unexpected(client: &Client) -> anyhow::Error {
    anyhow::anyhow!(
        "the gateway at {} gives the answer to another request",
        client.path().display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::code_of;

    /// Monitoring takes 1 for a warning and 2 for a loss of packets, of which nothing is known here.
    #[test]
    fn a_gateway_that_cannot_be_asked_is_unknown() {
        let path = || Path::new("/run/convoy/left.sock").to_owned();
        let broken = ClientError::Broken { path: path(), why: "nothing".into() };
        let silent = ClientError::Silent {
            path: path(),
            server: String::new(),
            patience: std::time::Duration::from_secs(8),
        };
        for error in [ClientError::Denied(path()), ClientError::NoGateway(path()), broken, silent] {
            assert_eq!(code_of(&failed(error, Exit::Trouble)), Exit::NoGateway);
        }
        let refused = ClientError::Refused("no".into());
        assert_eq!(code_of(&failed(refused, Exit::Usage)), Exit::Usage);
    }
}
