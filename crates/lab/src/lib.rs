//! Namespaces, virtual Ethernet, traffic and captures: a laboratory on one machine.
//!
//! A [`Topology`] is two networks whose gateways are joined by a wire, each machine a network
//! namespace. [`traffic`] sends through it and counts exactly; [`Capture`] writes what passes an
//! interface to a file. [`share_of_processors`] says how far what was measured is the machine's fault. Everything is deleted when it is dropped, [`sweep`] clears up after runs
//! that were killed, and [`HostState`] proves that nothing is left. [`rootless`] makes all of it
//! possible for an ordinary user.
//!
//! Everything is done over netlink and sockets, and the machine's own interfaces are never touched.
//! Other programs run only where they are what is asked for: [`strongswan`] and [`libreswan`] have
//! unmodified IKE daemons.
//!
//! ```no_run
//! use std::sync::atomic::AtomicBool;
//! use convoy_lab::{Family, Topology, TopologyConfig, traffic::{Ping, Watch}};
//!
//! # fn main() -> Result<(), convoy_lab::LabError> {
//! let lab = Topology::build(&TopologyConfig::default())?;
//! let routes = lab.direct_routes()?;
//! let cancel = AtomicBool::new(false);
//! let ping = Ping::new(lab.b.host_address(Family::V4));
//! let report = ping.run(&lab.a.host, &mut Watch::new(&cancel))?;
//! println!("{} of {} answered", report.received, report.sent);
//! # drop(routes);
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod capture;
mod clear;
mod daemon;
mod error;
pub mod libreswan;
mod link;
mod load;
mod namespace;
mod program;
mod rootless;
mod state;
pub mod strongswan;
mod sweep;
mod topology;
pub mod traffic;

pub use capture::{Capture, CaptureConfig, CaptureReport};
pub use clear::{ClearPacket, WireReport, wire_report};
pub use error::LabError;
pub use link::{End, cable};
pub use load::{QUIET, share_of_processors, wait_for_quiet};
pub use namespace::Namespace;
pub use program::Program;
pub use rootless::{RootlessError, rootless};
pub use state::HostState;
pub use sweep::{Leftover, leftovers, run_name, sweep};
pub use topology::{
    DirectRoutes, Family, HOST_LINK, LAN_LINK, Site, Topology, TopologyConfig, WIRE_LINK,
};

pub use ipnet::IpNet;
