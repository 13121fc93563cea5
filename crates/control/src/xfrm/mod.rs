//! Databases behind the XFRM protocol, which a kernel keeps for IKE daemons, kept here.
//!
//! These are the desired state as daemons see it, down to numbers, order and refusals; what workers
//! see is made of it. Only [`Server`] has sockets: it brings to a [`Service`] what daemons ask.

mod associations;
pub(crate) use keep::fuzzing;
mod keep;
mod kernel;
mod moment;
mod plane;
mod policies;
mod server;
mod service;
mod transform;

pub use associations::{Added, Association, Associations, LARVAL_SECONDS, SpiClass};
pub use keep::{Earlier, Keep, KeepError, Words};
pub use kernel::{
    Carried, Cover, CoverChange, Covered, Host, Kernel, PathChange, Refused, Restored, Told, Wanted,
};
pub use moment::Moment;
pub use plane::{Placed, Setting};
pub use policies::{Changed, Counts, Insertion, Policies, Replaced};
pub use server::{Multicast, Server, SocketError};
pub use service::{Answer, Client, Cursor, Service};
pub use transform::key_material;
