//! `convoy policy`: the policies of a running gateway.

use convoy_control::protocol::{Answer, Request};

use super::ask::{self, AskArgs};
use crate::exit::Exit;

pub(crate) fn run(args: &AskArgs) -> anyhow::Result<Exit> {
    let client = ask::client(&args.target)?;
    let Answer::Policy(report) = ask::ask(&client, Request::Policy, Exit::Trouble)? else {
        return Err(ask::unexpected(&client));
    };
    ask::print(&report, args.json)
}
