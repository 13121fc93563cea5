//! The sets of the table: prefixes of each direction and IP version.

use std::net::IpAddr;

use convoy_host::Family;
use convoy_netlink::nft::{AddressSet, Cover, Difference};

use crate::{policy_direction::PolicyDirection, ranges::version_of};

/// One value for each direction of packets and each IP version.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ByDirection<T> {
    pub(crate) out: ByFamily<T>,
    pub(crate) input: ByFamily<T>,
    pub(crate) forward: ByFamily<T>,
}

/// One value for each IP version.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ByFamily<T> {
    pub(crate) v4: T,
    pub(crate) v6: T,
}

/// The three sets of prefixes between which packets are held.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Prefixes<T> {
    pub(crate) local: T,
    pub(crate) remote: T,
    /// Of the remote ones, those about which the kernel asks.
    pub(crate) partly_bypassed: T,
}

/// A direction and an IP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Which {
    pub(crate) way: PolicyDirection,
    pub(crate) version: Family,
}

pub(crate) type Sets<T> = ByDirection<Prefixes<T>>;
/// Contents of the table's sets.
pub(crate) type Covers = Sets<Cover>;
/// Contents of another's.
pub(crate) type Shown<'a> = Sets<&'a Cover>;
/// Changes of these contents.
pub(crate) type Differences = Sets<Difference>;

/// The sets of the table: of what leaves, and where policies tell these apart, of what comes in for this host, and for
/// others.
pub(crate) static SETS: Sets<AddressSet> = Sets {
    out: ByFamily {
        v4: Prefixes { local: v4("near4"), remote: v4("far4"), partly_bypassed: v4("mixed4") },
        v6: Prefixes { local: v6("near6"), remote: v6("far6"), partly_bypassed: v6("mixed6") },
    },
    input: ByFamily {
        v4: Prefixes {
            local: v4("in-near4"),
            remote: v4("in-far4"),
            partly_bypassed: v4("in-mixed4"),
        },
        v6: Prefixes {
            local: v6("in-near6"),
            remote: v6("in-far6"),
            partly_bypassed: v6("in-mixed6"),
        },
    },
    forward: ByFamily {
        v4: Prefixes {
            local: v4("forward-near4"),
            remote: v4("forward-far4"),
            partly_bypassed: v4("forward-mixed4"),
        },
        v6: Prefixes {
            local: v6("forward-near6"),
            remote: v6("forward-far6"),
            partly_bypassed: v6("forward-mixed6"),
        },
    },
};

const fn v4(name: &'static str) -> AddressSet {
    AddressSet { name, is_v4: true }
}

const fn v6(name: &'static str) -> AddressSet {
    AddressSet { name, is_v4: false }
}

impl<T> ByFamily<T> {
    pub(crate) const fn of(&self, version: Family) -> &T {
        match version {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }

    /// Both, with their IP versions.
    pub(crate) const fn both(&self) -> [(Family, &T); 2] {
        [(Family::V4, &self.v4), (Family::V6, &self.v6)]
    }
}

impl<T> ByDirection<T> {
    pub(crate) const fn of(&self, way: PolicyDirection) -> &ByFamily<T> {
        match way {
            PolicyDirection::Out => &self.out,
            PolicyDirection::In => &self.input,
            PolicyDirection::Forward => &self.forward,
        }
    }

    pub(crate) const fn get_mut(&mut self, which: Which) -> &mut T {
        let of_way = match which.way {
            PolicyDirection::Out => &mut self.out,
            PolicyDirection::In => &mut self.input,
            PolicyDirection::Forward => &mut self.forward,
        };
        match which.version {
            Family::V4 => &mut of_way.v4,
            Family::V6 => &mut of_way.v6,
        }
    }

    /// All values, in the order of the table's sets.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Which, &T)> {
        PolicyDirection::ALL.into_iter().flat_map(move |way| {
            let both = self.of(way).both();
            both.map(|(version, value)| (Which { way, version }, value))
        })
    }

    /// All values, in the order of the table's sets.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (Which, &mut T)> {
        let Self { out, input, forward } = self;
        PolicyDirection::ALL.into_iter().zip([out, input, forward]).flat_map(|(way, both)| {
            let ByFamily { v4, v6 } = both;
            [(Family::V4, v4), (Family::V6, v6)]
                .map(|(version, value)| (Which { way, version }, value))
        })
    }

    /// Result of a function for each value.
    pub(crate) fn map<'a, U>(&'a self, to: impl Fn(Which, &'a T) -> U) -> ByDirection<U> {
        let both = |way| {
            let ByFamily { v4, v6 } = self.of(way);
            let [v4, v6] = [(Family::V4, v4), (Family::V6, v6)]
                .map(|(version, value)| to(Which { way, version }, value));
            ByFamily { v4, v6 }
        };
        ByDirection {
            out: both(PolicyDirection::Out),
            input: both(PolicyDirection::In),
            forward: both(PolicyDirection::Forward),
        }
    }
}

impl<T> Prefixes<T> {
    /// All three, in the order of the table's sets.
    pub(crate) const fn each(&self) -> [&T; 3] {
        [&self.local, &self.remote, &self.partly_bypassed]
    }

    pub(crate) const fn each_mut(&mut self) -> [&mut T; 3] {
        [&mut self.local, &mut self.remote, &mut self.partly_bypassed]
    }
}

impl<T> Sets<T> {
    /// All sets, in the order of the table.
    pub(crate) fn each(&self) -> impl Iterator<Item = &T> {
        self.iter().flat_map(|(_, prefixes)| prefixes.each())
    }

    pub(crate) fn each_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.iter_mut().flat_map(|(_, prefixes)| prefixes.each_mut())
    }

    pub(crate) fn each_ref(&self) -> Sets<&T> {
        self.map(|_, Prefixes { local, remote, partly_bypassed }| Prefixes {
            local,
            remote,
            partly_bypassed,
        })
    }
}

#[cfg(test)]
impl Shown<'_> {
    pub(crate) fn cloned(&self) -> Covers {
        self.map(|_, Prefixes { local, remote, partly_bypassed }| Prefixes {
            local: (*local).clone(),
            remote: (*remote).clone(),
            partly_bypassed: (*partly_bypassed).clone(),
        })
    }
}

/// True if there are partly bypassed prefixes to ask about.
pub(crate) fn asks(covers: Shown<'_>) -> bool {
    covers.iter().any(|(_, prefixes)| prefixes.partly_bypassed.ranges().next().is_some())
}

/// True if the remote one of two addresses is in a partly bypassed network; none if packets of this way are not held between them.
pub(crate) fn partly_bypassed(
    covers: Shown<'_>,
    way: PolicyDirection,
    local: IpAddr,
    remote: IpAddr,
) -> Option<bool> {
    let held = covers.of(way).of(version_of(local));
    let is_between = local.is_ipv4() == remote.is_ipv4()
        && held.local.contains(local)
        && held.remote.contains(remote);
    is_between.then(|| held.partly_bypassed.contains(remote))
}

/// Changes that make some contents of others.
pub(crate) fn differences(before: &Covers, after: &Covers) -> Differences {
    let mut differences = Differences::default();
    for ((before, after), note) in before.each().zip(after.each()).zip(differences.each_mut()) {
        differ(before, after, note);
    }
    differences
}

/// Notes the ranges to take out of a set, and to put in, to make one cover of another.
pub(crate) fn differ(before: &Cover, after: &Cover, note: &mut Difference) {
    let mut cover = before.clone();
    for range in before.without(after) {
        cover.set(range, &[], note);
    }
    for range in after.without(before) {
        cover.set(range, &[range], note);
    }
}

/// Prefix sets, to look addresses up in.
#[derive(Debug, Clone, Default)]
pub struct Held {
    covers: Covers,
}

impl Held {
    pub(crate) const fn of(covers: Covers) -> Self {
        Self { covers }
    }

    /// True if packets of this way between a local and a remote address are held.
    #[must_use]
    pub fn holds(&self, way: PolicyDirection, local: IpAddr, remote: IpAddr) -> bool {
        partly_bypassed(self.covers.each_ref(), way, local, remote).is_some()
    }
}
