//! Tables.

use netlink_packet_netfilter::nftables::{
    NfTablesMessage, SetAttribute, SetMessage, TableAttribute, TableFlags, TableMessage,
};

use super::transaction::Order;

/// Makes a table, in place of what stands there if it is to be replaced.
pub fn table(name: &str, flags: TableFlags, replace: bool) -> Vec<Order> {
    let new = || {
        let attributes = vec![TableAttribute::Name(name.into()), TableAttribute::Flags(flags)];
        Order::make(NfTablesMessage::NewTable(TableMessage { attributes }))
    };
    // Takes it over from a previous run, or makes it only to be able to remove it.
    let before = replace.then(|| [new(), removal(name)]);
    before.into_iter().flatten().chain([new()]).collect()
}

/// Removes a set or a map of a table, which must be there, and of which no rule knows any more.
pub fn removal_of_set(table: &str, name: &str) -> Order {
    let attributes = vec![SetAttribute::Table(table.into()), SetAttribute::Name(name.into())];
    Order::plain(NfTablesMessage::DeleteSet(SetMessage { attributes }))
}

/// Removes a table, which must be there.
pub fn removal(table: &str) -> Order {
    let attributes = vec![TableAttribute::Name(table.into())];
    Order::plain(NfTablesMessage::DeleteTable(TableMessage { attributes }))
}
