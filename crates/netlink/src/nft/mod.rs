//! The packet filter (`nf_tables`): transactions, and what they are made of.

mod addresses;
mod chain;
mod cover;
pub mod elements;
pub mod expression;
mod table;
mod transaction;

pub use addresses::{AddressSet, IPV4_ADDRESS, IPV6_ADDRESS};
pub use chain::{FIRST, LAST, chain, packets_counted, question, rules_of, stop};
pub use cover::{Cover, Difference, Range, number};
pub use netlink_packet_netfilter::nftables::TableFlags;
pub use table::{removal, table};
pub use transaction::{Answer, Nft, Order};
