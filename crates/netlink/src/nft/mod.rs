//! The packet filter (`nf_tables`): transactions, and what they are made of.

mod addresses;
mod chain;
mod cover;
pub mod elements;
pub mod expression;
pub mod flow;
mod jump;
mod monitor;
mod notes;
mod read;
pub mod ruleset;
mod table;
mod transaction;
mod tuples;

pub use addresses::{AddressSet, IPV4_ADDRESS, IPV6_ADDRESS};
pub use chain::{
    FIRST, LAST, Place, chain, compared, emptying, packets_counted, question, removal_of_chain,
    rule, rules_of, stop,
};
pub use cover::{Cover, Difference, Range, number};
pub use jump::{QueueBy, back, jump, queue};
pub use monitor::{Changed, Monitor};
pub use netlink_packet_netfilter::nftables::TableFlags;
pub use notes::{Note, Notes};
pub use table::{removal, removal_of_set, table};
pub(crate) use transaction::Message;
pub use transaction::{Answer, Nft, Order};
pub use tuples::Tuples;
