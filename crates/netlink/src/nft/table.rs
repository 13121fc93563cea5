//! Tables.

use netlink_packet_netfilter::nftables::{
    NfTablesMessage, TableAttribute, TableFlags, TableMessage,
};

use super::transaction::Order;

/// Makes a table, in place of what stands there if it is to be replaced.
pub fn table(name: &str, flags: TableFlags, replace: bool) -> Vec<Order> {
    let new = || {
        let attributes = vec![TableAttribute::Name(name.into()), TableAttribute::Flags(flags)];
        Order::make(NfTablesMessage::NewTable(TableMessage { attributes }))
    };
    // Takes it over from an earlier life, or makes it only to be able to remove it.
    let before = replace.then(|| [new(), removal(name)]);
    before.into_iter().flatten().chain([new()]).collect()
}

/// Removes a table, which must be there.
pub fn removal(table: &str) -> Order {
    let attributes = vec![TableAttribute::Name(table.into())];
    Order::plain(NfTablesMessage::DeleteTable(TableMessage { attributes }))
}
