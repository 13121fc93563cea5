//! Drivers of a running gateway.

use convoy_control::protocol::{Answer, DriverSetting, Request};
use convoy_control::status::Text as _;

use super::args::SetDriverArgs;
use crate::exit::Exit;
use crate::output;
use crate::verbs::ask::{self, AskArgs};

pub(super) fn show(args: &AskArgs) -> anyhow::Result<Exit> {
    let client = ask::client(&args.target)?;
    let Answer::Crypto(report) = ask::ask(&client, Request::Crypto, Exit::Trouble)? else {
        return Err(ask::unexpected(&client));
    };
    ask::print(&report, args.json)
}

pub(super) fn set(args: &SetDriverArgs) -> anyhow::Result<Exit> {
    let client = ask::client(&args.target)?;
    let setting = match args.priority {
        Some(priority) => DriverSetting::Priority(priority),
        None if args.on => DriverSetting::On,
        None => DriverSetting::Off,
    };
    let request = Request::SetDriver { driver: args.driver.clone(), setting };
    let Answer::SetDriver(change) = ask::ask(&client, request, Exit::Usage)? else {
        return Err(ask::unexpected(&client));
    };
    match args.json {
        true => output::json(&*change)?,
        false => output::print(&change.text())?,
    }
    Ok(Exit::Ok)
}
