//! Interface and database of policies that an interface identifier (`if_id`) means.

use convoy_ipsec::sa::InterfaceId;
use convoy_ipsec::spd::SpdId;

/// The interfaces of a gateway by their identifiers. 0 is that of the TUN interface that is always there.
#[derive(Clone, Debug)]
pub(super) struct Interfaces {
    first: SpdId,
    others: Vec<(u32, SpdId)>,
}

impl Interfaces {
    pub(super) fn new(first: SpdId, mut others: Vec<(u32, SpdId)>) -> Self {
        // Numbers above cannot be said in a packet; a site has fewer.
        others.truncate(u8::MAX.into());
        Self { first, others }
    }

    /// The number of the interface in packets; `None` if there is none.
    pub(super) fn id(&self, if_id: u32) -> Option<InterfaceId> {
        if if_id == 0 {
            return Some(InterfaceId(0));
        }
        let mut numbered = self.others.iter().zip(1..);
        numbered.find(|((other, _), _)| *other == if_id).map(|(_, n)| InterfaceId(n))
    }

    /// Its database.
    pub(super) fn spd(&self, if_id: u32) -> Option<SpdId> {
        match usize::from(self.id(if_id)?.0).checked_sub(1) {
            None => Some(self.first),
            Some(n) => self.others.get(n).map(|(_, spd)| *spd),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_mean_interfaces_in_their_order() {
        let interfaces = Interfaces::new(SpdId(3), vec![(42, SpdId(5)), (7, SpdId(4))]);
        let found = |if_id| Some((interfaces.id(if_id)?.0, interfaces.spd(if_id)?.0));
        assert_eq!(found(0), Some((0, 3)));
        assert_eq!(found(42), Some((1, 5)));
        assert_eq!(found(7), Some((2, 4)));
        assert_eq!(found(1), None);
    }
}
