//! `convoy sa`: the SAs of a running gateway.

use convoy_control::protocol::{Answer, Request};

use super::ask::{self, AskArgs};
use crate::exit::Exit;

pub(crate) fn run(args: &AskArgs) -> anyhow::Result<Exit> {
    let client = ask::client(&args.target)?;
    let Answer::Sa(report) = ask::ask(&client, Request::Sa, Exit::Trouble)? else {
        return Err(ask::unexpected(&client));
    };
    ask::print(&report, args.json)
}
