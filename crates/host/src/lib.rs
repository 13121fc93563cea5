//! Changes that Convoy makes on the host, and takes back.
//!
//! A [`Plan`] is a list of [`Change`]s: interfaces up, MTUs, addresses, routes, kernel settings.
//! It can be read out before anything happens ([`Plan::describe`]), is applied as a whole or not
//! at all ([`Plan::apply`]), and what was applied is undone by [`Applied::take_back`] or by
//! dropping it. Only what a plan really changed is undone: an address or route that was there
//! before stays, an MTU or a setting gets its old value back.
//!
//! [`Network`] answers what is there now: interfaces, addresses, routes, neighbours, counters;
//! [`Watch`] tells when that changes. [`Netns`] enters
//! another network namespace first.
//!
//! [`Lockable`] holds a file's lock, [`create_private_file`] makes files for keys and captures, [`Mark`] is a mark of packets, and [`describe_io`] says an error in words.
//!
//! A [`Clamp`] has TCP connections through tunnels begin with segments that fit.
//!
//! Everything goes through the kernel's netlink sockets (`rtnetlink(7)`, `nf_tables`) and `/proc/sys/net`; no
//! other program is run. Interfaces themselves are not made here: a TUN interface belongs to
//! the process that holds its descriptor and vanishes with it.
//!
//! ```no_run
//! use convoy_host::{Change, LinkName, Plan};
//!
//! # fn main() -> Result<(), convoy_host::HostError> {
//! let tun = LinkName::new("convoy0")?;
//! let plan = Plan::from_iter([
//!     Change::Mtu { link: tun.clone(), mtu: 1438 },
//!     Change::LinkUp { link: tun.clone() },
//!     Change::route("192.0.2.0/24".parse().expect("a prefix"), tun),
//! ]);
//! for line in plan.describe() {
//!     println!("{line}");
//! }
//! let applied = plan.apply()?;
//! // … the gateway runs …
//! applied.take_back()
//! # }
//! ```

#![forbid(unsafe_code)]

mod change;
mod clamp;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod generation;
mod io_error;
mod lock;
mod mark;
mod name;
mod neighbour;
mod netns;
mod network;
mod plan;
mod policy_routing;
mod private_file;
mod shared;
mod sysctl;
#[cfg(test)]
mod tests;
mod tun;
mod undo;
mod watch;

pub use convoy_netlink as netlink;

pub use change::{Change, Route};
pub use clamp::Clamp;
pub use error::{Cause, HostError, Leftover};
pub use generation::{
    GenerationEvent, GenerationWatch, can_read_kernel_log, has_generation_id, open_kernel_log,
};
pub use io_error::describe_io;
pub use lock::Lockable;
pub use mark::Mark;
pub use name::LinkName;
pub use neighbour::{Neighbour, NextHop};
pub use netns::Netns;
pub use network::{Link, LinkCounters, Network, RouteBy, RouteEntry, RouteTo, preferred_source};
pub use plan::{Applied, Plan};
pub use private_file::create_private_file;
pub use sysctl::{Family, Scope, Sysctl};
pub use tun::TunState;
pub use undo::Conflict;
pub use watch::{AddressWatch, News, Watch};

pub use ipnet::IpNet;
