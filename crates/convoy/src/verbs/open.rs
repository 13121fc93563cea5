//! `convoy open`: lets packets to networks pass in clear that a gateway which does not run left closed.

use std::path::PathBuf;

use clap::Args;
use convoy_control::client::{Client, Target};
use convoy_control::protocol::Request;
use convoy_host::Netns;

use crate::exit::{Exit, Stop};
use crate::gateway::{self, OpenedHost};
use crate::output;

/// `convoy open`
#[derive(Debug, Args)]
pub struct OpenArgs {
    /// Site file of the gateway.
    #[arg(value_name = "SITE.toml")]
    pub site: PathBuf,
    /// Interface that the gateway used with an earlier site file.
    #[arg(long, value_name = "NAME")]
    pub interface: Option<String>,
}

pub(crate) fn run(args: &OpenArgs) -> anyhow::Result<Exit> {
    let site = gateway::load_to_open(&args.site)?;
    let own = site.plain.tun();
    let interface = args.interface.as_ref().unwrap_or(&own);
    let target = Target::Socket(site.control_socket.clone());
    // Another interface is not the running gateway's; one that a gateway holds cannot be opened anyway.
    let is_its_own = *interface == own;
    if is_its_own && Client::find(&target).and_then(|client| client.ask(Request::Status)).is_ok() {
        return Err(Stop::usage(format!(
            "gateway {} runs: remove its policies, or stop it first",
            site.name
        )));
    }
    if let Some(namespace) = &site.namespace {
        Netns::open(namespace)?.enter_process()?;
    }
    let opened = gateway::open(&site, args.interface.as_deref())?;
    output::print(&words(&opened, interface))?;
    Ok(Exit::Ok)
}

/// Lines about what is gone.
fn words(opened: &OpenedHost, interface: &str) -> String {
    let OpenedHost { was_closed, interfaces, guarded } = opened;
    let mut words = String::new();
    if *was_closed {
        words += &format!(
            "removed the leak protection of {interface}: packets that it protected now leave in clear, by any \
             route\n"
        );
    }
    if !interfaces.is_empty() {
        words += &format!(
            "removed interfaces of [[xfrm.interface]], with the routes into them: {}\n",
            interfaces.join(", ")
        );
    }
    if let Some(interface) = guarded {
        words += &format!(
            "removed the ip rules that kept the kernel from forwarding packets that arrive on {interface}\n"
        );
    }
    if words.is_empty() {
        words = format!(
            "nothing to remove: {interface} has no leak protection in this network namespace\n"
        );
    }
    words
}
