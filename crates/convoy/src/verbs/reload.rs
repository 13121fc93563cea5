//! `convoy reload`: another site on a running gateway.

use convoy_control::protocol::{Answer, Request};
use convoy_control::status::Text as _;

use super::ask::{self, AskArgs};
use crate::exit::Exit;
use crate::output;

pub(crate) fn run(args: &AskArgs) -> anyhow::Result<Exit> {
    let client = ask::client(&args.target)?;
    // What a gateway refuses here is wrong in the site file.
    let Answer::Reload(report) = ask::ask(&client, Request::Reload, Exit::Usage)? else {
        return Err(ask::unexpected(&client));
    };
    match args.json {
        true => output::json(&*report)?,
        false => output::print(&report.text())?,
    }
    Ok(Exit::Ok)
}
