//! SAs of transport mode by the hosts whose packets they carry.

use std::net::IpAddr;

use convoy_wire::flow::addr_bytes;
use convoy_wire::{FlowKey, IpVersion};

use super::{SaOwner, Snapshot};
use crate::sa::{ReqId, SaSlot};
use crate::table::{Key, Seed};

/// The number that a policy names, and the hosts of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    /// The number, and the IP version above it.
    name: u64,
    local: [u64; 2],
    remote: [u64; 2],
}

impl Pair {
    fn new(reqid: ReqId, version: IpVersion, local: [u8; 16], remote: [u8; 16]) -> Self {
        let halves = |address: [u8; 16]| {
            let bits = u128::from_be_bytes(address);
            [(bits >> 64) as u64, bits as u64]
        };
        let version = u64::from(version == IpVersion::V6);
        let name = version << 32 | u64::from(reqid.0);
        Self { name, local: halves(local), remote: halves(remote) }
    }
}

impl Key for Pair {
    fn hash(&self, seed: Seed) -> u64 {
        let ends = |[high, low]: [u64; 2]| high ^ low.rotate_left(32);
        seed.of(self.name ^ ends(self.local).rotate_left(17), ends(self.remote))
    }
}

impl Snapshot {
    /// Has policies with a `reqid` that no SA bears use the outbound SA in `slot` for packets between two
    /// hosts: those of SAs in transport mode, which carry no others. `None` takes that back.
    pub fn use_between(
        &mut self,
        reqid: ReqId,
        local: IpAddr,
        remote: IpAddr,
        slot: Option<SaSlot>,
    ) {
        let version = IpVersion::of_addr(local);
        let pair = Pair::new(reqid, version, addr_bytes(local), addr_bytes(remote));
        match slot {
            Some(slot) => drop(self.between.insert(pair, slot)),
            None => drop(self.between.remove(&pair)),
        }
    }

    /// The SA that policies with this `reqid` use for a packet now.
    #[must_use]
    pub fn outbound_to(&self, reqid: ReqId, flow: &FlowKey) -> Option<SaOwner> {
        self.outbound_for(reqid).or_else(|| {
            let slot = *self.between.get(&Pair::new(reqid, flow.version, flow.src, flow.dst))?;
            Some(SaOwner { slot, worker: self.outbound(slot)?.worker })
        })
    }
}
