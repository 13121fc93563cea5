//! Code that ports on an interface (packet sockets, AF_XDP) have in common: which frames are the gateway's,
//! how a frame is taken apart and put together, and where packets go next.
//!
//! An interface stays the kernel's: it answers ARP and Neighbour Discovery, keeps the neighbour
//! table and all traffic of the host itself. A [`Take`] says which frames are the gateway's; a
//! [`Board`] tells ports what the kernel knows of routes and neighbours.

mod classic;
mod ear;
pub(crate) mod ethernet;
mod next_hop;
mod program;
mod take;
mod waiting;

pub(crate) use classic::{leave_all, spread_by_spi, to_classic};
pub(crate) use ear::Ears;
pub(crate) use next_hop::NextHops;
pub use next_hop::{Asks, Board, Found, Hop, Mac, Neighbour, Route, Table};
pub(crate) use program::{Goto, Program, Step, Test, Width};
pub(crate) use take::Sight;
pub use take::{Take, TakeError, What};
pub(crate) use waiting::Outlet;

/// An interface of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name, for messages.
    pub name: String,
    /// Its index.
    pub index: u32,
    /// Largest IP packet in bytes when ports are opened. Later the [`Table`] says.
    pub mtu: u32,
}
