//! Exceptions by source and destination, where destination alone cannot say what is to become of
//! packets.
//!
//! There are few, as the rest of the fence says most. Whatever there is no room for, or what the kernel
//! refuses, closes: fewer pairs are open then, and more is withheld.

use std::collections::BTreeSet;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use nix::libc;

use super::{
    Differences, Fence, failed,
    pairs::{self, Kind},
};
use crate::{HostError, netlink::Refusal};

/// Packets from one network to another, of the same IP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pair {
    /// Of their sources.
    pub from: IpNet,
    /// Of their destinations.
    pub to: IpNet,
}

/// What is to become of packets of some pairs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exceptions {
    /// They leave in clear, though their destination is protected.
    pub open: BTreeSet<Pair>,
    /// They come in in clear, though only tunnels may bring what their sources send.
    pub admitted: BTreeSet<Pair>,
    /// Out of the TUN interface they go nowhere, though their destination is local.
    pub withheld: BTreeSet<Pair>,
}

impl Exceptions {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// These, as far as there is room. Of what opens only what is open already remains where there is not
    /// enough, if anything; what closes is withheld from more.
    fn fitting(&self, before: &Self) -> Self {
        let fewer = |kind: Kind| {
            let (wanted, before) = (kind.of(self), kind.of(before));
            let old = || wanted.intersection(before).copied().collect();
            if pairs::fit(wanted) {
                wanted.clone()
            } else {
                Some(old()).filter(pairs::fit).unwrap_or_default()
            }
        };
        let withheld = wider(&self.withheld);
        Self { open: fewer(Kind::Open), admitted: fewer(Kind::Admitted), withheld }
    }
}

/// Pairs for which there is room, and that hold all that these do.
fn wider(pairs: &BTreeSet<Pair>) -> BTreeSet<Pair> {
    if pairs::fit(pairs) {
        return pairs.clone();
    }
    let everything = |like: &IpNet| match like {
        IpNet::V4(_) => IpNet::from(Ipv4Net::default()),
        IpNet::V6(_) => Ipv6Net::default().into(),
    };
    let from_all: BTreeSet<_> =
        pairs.iter().map(|pair| Pair { from: everything(&pair.to), to: pair.to.trunc() }).collect();
    if pairs::fit(&from_all) {
        return from_all;
    }
    from_all.iter().map(|pair| Pair { from: pair.from, to: pair.from }).collect()
}

impl Fence {
    /// Whether exceptions can be made here: there is a packet filter, it knows sets of pairs (Linux 5.6 and
    /// later), and it has not refused the last change.
    #[must_use]
    pub fn takes_exceptions(&self) -> bool {
        self.filter.as_ref().is_ok_and(|filter| filter.is_current() && filter.takes_pairs())
    }

    /// The exceptions that were asked for last.
    #[must_use]
    pub fn exceptions(&self) -> &Exceptions {
        &self.exceptions
    }

    /// What of them is made. Each kind has room for a thousand pairs that do not overlap; where those
    /// asked for need more, fewer are open or admitted, and withheld are wider ones around them.
    #[must_use]
    pub fn exceptions_made(&self) -> &Exceptions {
        &self.made
    }

    /// Makes exceptions, in place of those before, as far as there is room
    /// ([`Fence::exceptions_made`]); what ends and what begins does so in one step. Those of an earlier
    /// life ended when this fence was raised.
    ///
    /// # Errors
    /// [`HostError::Fence`] when the kernel refuses some of it, and for any exceptions where
    /// [`Fence::takes_exceptions`] is false. None that opens is certain to be made then, nor one that
    /// withholds, but with a packet filter that takes no exceptions: all that tunnels bring is then kept
    /// from where some of it is to be. [`Fence::repair`] tries again what the kernel refused.
    pub fn except(&mut self, exceptions: Exceptions) -> Result<(), HostError> {
        let is_made = exceptions.is_empty() || self.takes_exceptions();
        if exceptions == self.exceptions && is_made {
            return Ok(());
        }
        self.exceptions = exceptions;
        let open = self.made.open.clone();
        let outcome = self.make_exceptions();
        if outcome.is_err() {
            self.made.open.retain(|pair| open.contains(pair));
        }
        let rules = self.make_rules("change the fence's rules").map(drop);
        let doing = "make exceptions by source and destination";
        outcome.map_err(|refusal| failed(doing, refusal, 0)).and(rules)
    }

    fn make_exceptions(&mut self) -> Result<(), Refusal> {
        match &mut self.filter {
            // One change that failed would make all later ones fail.
            Ok(filter) if !filter.is_current() => self.make_table()?,
            Ok(filter) if filter.takes_pairs() => {
                self.made = self.exceptions.fitting(&self.made);
                return filter.except(&self.made);
            }
            _ => {
                let differences = self.shut(true);
                if let Ok(filter) = &mut self.filter {
                    filter.change_sets(&differences)?;
                }
            }
        }
        match self.exceptions.is_empty() || self.takes_exceptions() {
            true => Ok(()),
            false => {
                let said = Some("this packet filter knows no pairs of networks".into());
                Err(Refusal { errno: libc::ENOSYS, said })
            }
        }
    }

    /// Makes the filter's table anew. On a kernel that takes no exceptions, networks are closed to all
    /// that tunnels bring where some of it is to be withheld.
    pub(super) fn make_table(&mut self) -> Result<(), Refusal> {
        self.made = self.exceptions.fitting(&self.made);
        self.shut(false);
        let Ok(filter) = &mut self.filter else { return Ok(()) };
        match filter.make(&self.config, &self.covers, Some(&self.made)) {
            // Pairs are known since 5.6.
            Err(Refusal { errno: libc::EOPNOTSUPP | libc::EINVAL, .. }) => self.do_without(),
            other => other,
        }
    }

    /// Makes the filter's table without exceptions.
    fn do_without(&mut self) -> Result<(), Refusal> {
        self.shut(true);
        let Ok(filter) = &mut self.filter else { return Ok(()) };
        filter.make(&self.config, &self.covers, None)
    }

    /// Has networks closed to all that tunnels bring where some of it is to be withheld and cannot be, or
    /// has them closed no more; what that changes.
    fn shut(&mut self, is_shut: bool) -> Differences {
        let withheld = self.exceptions.withheld.iter().filter(|_| is_shut);
        let shut: BTreeSet<_> = withheld.map(|pair| pair.to.trunc()).collect();
        if is_shut {
            self.made = Exceptions::default();
        }
        let concerned = self.shut.union(&shut).copied().collect();
        self.shut = shut;
        self.cover(&concerned)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{
        Repaired,
        routes::{self, Way},
    };
    use super::*;
    use crate::{Claim, FenceConfig, LinkName, Treatment, tests::in_namespace};

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    fn pair(from: &str, to: &str) -> Pair {
        Pair { from: net(from), to: net(to) }
    }

    /// Pairs that overlap in so many ways that there is no room for them once they do not.
    fn many() -> BTreeSet<Pair> {
        let wide = (0..40).map(|n| pair("10.0.0.0/8", &format!("10.2.{n}.0/25")));
        let narrow = (0..40).map(|n| pair(&format!("10.1.0.{n}/32"), "10.0.0.0/8"));
        wide.chain(narrow).collect()
    }

    #[test]
    fn without_room_less_is_open_and_more_is_withheld() {
        let (one, other) = (pair("10.1.0.0/24", "10.7.0.0/16"), pair("10.1.0.0/24", "10.8.0.0/16"));
        let all = || many().into_iter().chain([one]).collect::<BTreeSet<_>>();
        assert!(!pairs::fit(&all()));
        let before = [one, other].into();
        let wanted = Exceptions { open: all(), admitted: [other].into(), withheld: all() };
        let made = wanted.fitting(&Exceptions { open: before, ..Exceptions::default() });
        assert_eq!((made.open, made.admitted), ([one].into(), [other].into()));
        assert!(pairs::fit(&made.withheld));
        for pair in all() {
            let is_around =
                |wide: &Pair| wide.from.contains(&pair.from) && wide.to.contains(&pair.to);
            assert!(made.withheld.iter().any(is_around), "{pair:?}");
        }
        assert!(!made.withheld.iter().any(|wide| wide.to.contains(&net("192.168.0.0/16"))));
        // What was open before may need more room alone.
        let made = wanted.fitting(&Exceptions { open: all(), ..Exceptions::default() });
        assert_eq!(made.open, [].into());
        // More networks than there is room for.
        let withheld =
            (0..1500_u32).map(|n| pair("10.0.0.0/8", &format!("11.{}.{}.0/24", n >> 8, n & 255)));
        let made = wider(&withheld.chain([pair("2001:db8::/64", "2001:db8:1::/64")]).collect());
        assert_eq!(made, [pair("0.0.0.0/0", "0.0.0.0/0"), pair("::/0", "::/0")].into());
    }

    /// Whether the sets close an address to what comes out of the TUN interface.
    fn is_shut(fence: &mut Fence, address: &str) -> bool {
        let [_, _, from_tun, ..] = fence.filter.as_mut().unwrap().present().unwrap().unwrap();
        let address = crate::netlink::nft::number(address.parse().unwrap());
        from_tun.ranges().any(|(from, to)| (from..=to).contains(&address))
    }

    /// As with a kernel without a packet filter, beside one that has it.
    #[test]
    fn without_a_filter_nothing_nearby_is_left_open_within_what_is_protected() {
        in_namespace(|| {
            let refusal = || Refusal { errno: libc::EOPNOTSUPP, said: None };
            let config = || FenceConfig::new(LinkName::new("va").unwrap());
            let opened = |mut fence: Fence| {
                fence
                    .add(&["0.0.0.0/0", "::/0"].map(|all| Claim::protected(net(all), None)))
                    .unwrap();
                let tables = fence.config.tables();
                let laid = routes::present(&mut fence.network.rtnl, tables).unwrap();
                let opened = laid.iter().filter(|laid| matches!(laid.way, Way::Onward)).count();
                assert_eq!(laid.len() - opened, 4);
                assert!(!fence.repair().unwrap().any());
                opened
            };
            assert_eq!(opened(Fence::raise(config()).unwrap()), 5);
            assert_eq!(opened(Fence::raise_with(config(), Err(refusal())).unwrap()), 0);
            assert_eq!(opened(Fence::raise(config()).unwrap()), 5);
        });
    }

    /// As with a kernel that took pairs once and does not take them again.
    #[test]
    fn where_nothing_can_be_withheld_nothing_out_of_tunnels_comes() {
        in_namespace(|| {
            let mut fence = Fence::raise(FenceConfig::new(LinkName::new("va").unwrap())).unwrap();
            let local = |text| Claim { network: net(text), treatment: Treatment::Local };
            let claims = [local("10.1.0.0/24"), local("10.2.0.0/24")];
            fence.add(&[Claim::protected(net("10.0.0.0/8"), None)]).unwrap();
            fence.add(&claims).unwrap();
            let some = |to| {
                let withheld = [pair("10.9.0.0/16", to)].into();
                Exceptions {
                    withheld,
                    open: [pair("10.1.0.0/24", "10.3.0.0/16")].into(),
                    ..Exceptions::default()
                }
            };
            fence.except(some("10.1.0.0/16")).unwrap();
            let shut =
                |fence: &mut Fence| ["10.1.0.9", "10.2.0.9"].map(|address| is_shut(fence, address));
            assert_eq!(shut(&mut fence), [false, false]);
            fence.do_without().unwrap();
            assert_eq!((shut(&mut fence), fence.takes_exceptions()), ([true, false], false));
            assert!(fence.exceptions_made().is_empty());
            // Whatever is claimed within, and taken back.
            fence.add(&[local("10.1.0.0/25"), local("10.0.0.0/9")]).unwrap();
            fence.remove(&claims).unwrap();
            assert_eq!(shut(&mut fence), [true, false]);
            // The rules of open pairs go with them.
            assert_eq!(fence.repair().unwrap(), Repaired::default());
            let error = fence.except(some("10.2.0.0/24")).unwrap_err();
            assert!(error.to_string().contains("knows no pairs"), "{error}");
            assert_eq!(shut(&mut fence), [false, true]);
            fence.except(Exceptions::default()).unwrap();
            assert_eq!(shut(&mut fence), [false, false]);
            // One that takes them again.
            assert!(fence.except(some("10.1.0.0/16")).is_err());
            fence.make_table().unwrap();
            assert_eq!((shut(&mut fence), fence.takes_exceptions()), ([false, false], true));
            assert_eq!(fence.exceptions_made(), fence.exceptions());
            fence.open_up().unwrap();
        });
    }
}
