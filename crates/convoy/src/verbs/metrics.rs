//! `convoy metrics`: what `[metrics]` serves, once.

use clap::Args;
use convoy_control::protocol::{Answer, Request};

use super::ask::{self, Target};
use crate::exit::Exit;
use crate::output;

/// `convoy metrics`
#[derive(Debug, Args)]
pub struct MetricsArgs {
    /// The gateway to ask.
    #[command(flatten)]
    pub target: Target,
}

pub(crate) fn run(args: &MetricsArgs) -> anyhow::Result<Exit> {
    let client = ask::client(&args.target)?;
    let Answer::Metrics(page) = ask::ask(&client, Request::Metrics, Exit::Trouble)? else {
        return Err(ask::unexpected(&client));
    };
    output::print(&page)?;
    Ok(Exit::Ok)
}
