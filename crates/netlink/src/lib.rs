//! Netlink sockets to the kernel: its routing tables ([`Rtnl`]), its packet filter ([`nft`]), the packets that this
//! asks a process about ([`queue`]), and the marks of flows that it tracks ([`conntrack`]).
//!
//! Messages are those of the `netlink-packet` crates. What is here sends them, makes sense of the answers, and
//! puts together what `nft(8)` compiles its language to.

#![forbid(unsafe_code)]

mod channel;
pub mod conntrack;
mod filter;
#[doc(hidden)]
pub mod fuzzing;
pub mod nft;
pub mod queue;
mod refusal;
mod route;

pub use filter::leave_out_routes_of;
pub use refusal::Refusal;
pub use route::Rtnl;
