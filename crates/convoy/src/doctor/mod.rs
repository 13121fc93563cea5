//! Checks of this host for what helps or hinders a gateway. They read, and change nothing.

mod check;
mod ciphers;
mod engine;
mod health;
mod kernel;
mod modules;
mod network;
mod programs;

use std::net::IpAddr;
use std::path::Path;

use convoy_control::client::{Client, Target};
use convoy_control::protocol::{Answer, Request};
use convoy_control::site::Site;

use check::Patient;
pub(crate) use check::{Check, Level};

/// Looks at everything, in the calling thread's network namespace.
pub(crate) fn look(site: Option<&Site>) -> Vec<Check> {
    let target = site.map_or(Target::Only, |site| Target::Socket(site.control_socket.clone()));
    let answer = Client::find(&target).and_then(|client| client.ask(Request::Status));
    let of_site = site.into_iter().flat_map(Site::associations).map(|sa| sa.endpoints.remote);
    let mut peers: Vec<IpAddr> = of_site.collect();
    let (mut engine, mut status_of) = (None, None);
    if let Ok(Answer::Status(status)) = &answer {
        peers.extend(status.sas.iter().map(|sa| sa.remote));
        engine = engine::look(status);
        status_of = Some(status);
    }
    peers.sort_unstable();
    peers.dedup();
    let is_running = match &answer {
        Ok(_) => Some(true),
        Err(error) => error.is_no_gateway().then_some(false),
    };
    let served = Path::new("/run/convoy/xfrm.sock");
    let told = status_of.map(|status| health::look(&status.health)).unwrap_or_default();
    let ciphers = ciphers::look(site, status_of.map(|status| &**status));
    let patient = Patient {
        site,
        peers,
        udp_port: site.map_or(4500, |site| site.wire.udp_port),
        interface: site.map_or_else(|| "convoy0".to_owned(), |site| site.plain.tun()),
        socket: match site {
            Some(site) => site.xfrm.as_ref().map(|xfrm| xfrm.socket.clone()),
            None => Some(served.to_owned()),
        },
        gateway: answer.map(drop).map_err(|error| error.to_string()),
        is_running,
    };
    let root = Path::new("/");
    let mut checks = kernel::look(root);
    checks.extend(network::look(root, &patient));
    checks.extend(programs::look(root, &patient));
    checks.extend(engine);
    checks.extend(ciphers);
    checks.extend(told);
    checks
}
