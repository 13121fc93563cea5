//! Netlink sockets to the kernel: its routing tables ([`Rtnl`]) and its packet filter ([`nft`]).
//!
//! Messages are those of the `netlink-packet` crates. What is here sends them, makes sense of the answers, and
//! puts together what `nft(8)` compiles its language to.

#![forbid(unsafe_code)]

mod channel;
pub mod nft;
mod refusal;
mod route;

pub use refusal::Refusal;
pub use route::Rtnl;
