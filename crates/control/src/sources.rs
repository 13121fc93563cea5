//! SAs whose source address is no address of this host. Another host may have it, and the SA: sequence numbers that
//! both use give nonces twice (RFC 4106 section 3). So such an SA sends nothing until the address is here.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use convoy_ipsec::sa::OutboundSpec;
use convoy_ipsec::snapshot::Writer;

/// SAs at one source address that is no address of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absent {
    /// The address.
    pub address: IpAddr,
    /// The name of one of the SAs.
    pub sa: Arc<str>,
    /// Number of these SAs.
    pub count: usize,
}

/// Has each outbound SA send if its source address is here, and only then. Returns the addresses that are not.
///
/// `is_here` is asked once for each address.
pub fn follow(writer: &mut Writer, is_here: impl Fn(IpAddr) -> bool) -> Vec<Absent> {
    let snapshot = writer.current();
    let mut draft = writer.draft();
    let mut known = HashMap::new();
    let mut absent = BTreeMap::<IpAddr, Absent>::new();
    let mut differs = false;
    for (slot, sa) in snapshot.outbound_sas() {
        let address = sa.endpoints.local;
        let here = *known.entry(address).or_insert_with(|| is_here(address));
        if !here {
            let first = || Absent { address, sa: sa.name.clone(), count: 0 };
            absent.entry(address).or_insert_with(first).count += 1;
        }
        if here != sa.source_is_here {
            let new = OutboundSpec { source_is_here: here, ..sa.as_ref().clone() };
            // Only that differs, so there is nothing to refuse.
            let _ = draft.replace_outbound(slot, Arc::new(new));
            differs = true;
        }
    }
    if differs {
        draft.commit();
    }
    absent.into_values().collect()
}
