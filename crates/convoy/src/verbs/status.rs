//! `convoy status`: how a running gateway is doing.

use std::time::Duration;

use clap::Args;
use convoy_control::client::Client;
use convoy_control::protocol::{Answer, Request};
use convoy_control::status::{Level, Status, Text as _};

use super::ask::{self, Target};
use crate::exit::{Exit, Stop};
use crate::output;

/// `convoy status`
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// The gateway to ask.
    #[command(flatten)]
    pub target: Target,
    /// Repeat every SECONDS seconds until interrupted.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = seconds)]
    pub watch: Option<f64>,
    /// List every SA, however many there are.
    #[arg(long, conflicts_with = "json")]
    pub all: bool,
    /// Print as JSON; with --watch one object per line.
    #[arg(long)]
    pub json: bool,
}

pub(crate) fn run(args: &StatusArgs) -> anyhow::Result<Exit> {
    let interval = args.watch.map(|seconds| {
        Duration::try_from_secs_f64(seconds)
            .ok()
            .filter(|interval| *interval >= Duration::from_millis(100))
            .ok_or_else(|| Stop::usage(format!("--watch {seconds}: use at least 0.1 seconds")))
    });
    let interval = interval.transpose()?;
    let client = ask::client(&args.target)?;
    loop {
        let status = fetch(&client)?;
        show(args, &status)?;
        let Some(interval) = interval else {
            return Ok(match status.health.level {
                Level::Ok => Exit::Ok,
                Level::Warning => Exit::Trouble,
                Level::Critical => Exit::Critical,
            });
        };
        std::thread::sleep(interval);
    }
}

fn fetch(client: &Client) -> anyhow::Result<Status> {
    match ask::ask(client, Request::Status, Exit::Trouble)? {
        Answer::Status(status) => Ok(*status),
        _ => Err(ask::unexpected(client)),
    }
}

fn show(args: &StatusArgs, status: &Status) -> anyhow::Result<()> {
    let text = || if args.all { status.whole_text() } else { status.text() };
    match (args.json, args.watch.is_some()) {
        // One line each, for programs that read a stream.
        (true, true) => output::print(&format!("{}\n", serde_json::to_string(status)?)),
        (true, false) => output::json(status),
        // Home, and clear below: the picture stands still.
        (false, true) => output::print(&format!("\x1b[H\x1b[2J{}", text())),
        (false, false) => output::print(&text()),
    }
}

/// A number of seconds. What follows `--watch` is taken for one, even where a gateway was meant.
fn seconds(text: &str) -> Result<f64, String> {
    text.parse()
        .map_err(|_| "not a number of seconds; to name a gateway, put it before --watch".to_owned())
}
