//! `convoy policy`: the policies of a running gateway.

use convoy_control::protocol::{Answer, Request};
use convoy_control::status::Text as _;

use super::ask;
use crate::cli::AskArgs;
use crate::exit::Exit;
use crate::output;

pub(super) fn run(args: &AskArgs) -> anyhow::Result<Exit> {
    let client = ask::client(&args.target)?;
    let Answer::Policy(report) = ask::ask(&client, Request::Policy, Exit::Trouble)? else {
        return Err(ask::unexpected(&client));
    };
    if args.json {
        output::json(&report)?
    } else {
        output::print(&report.text())?
    }
    Ok(Exit::Ok)
}
