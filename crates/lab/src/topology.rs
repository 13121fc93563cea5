//! Two networks and the wire between their gateways.
//!
//! ```text
//!   hostA            gwA                       gwB            hostB
//!   eth0 ─────────── lan wire ═══════════════ wire lan ─────────── eth0
//!   10.1.0.2   10.1.0.1   198.51.100.1   198.51.100.2   10.2.0.1   10.2.0.2
//!   2001:db8:1::2    ::1  2001:db8:f::1  2001:db8:f::2  2001:db8:2::1  ::2
//! ```
//!
//! Every link carries both families. Addresses are private (RFC 1918) or for documentation
//! (RFC 5737, RFC 3849) only. Hosts have default routes to their gateways, gateways forward; the
//! gateways know nothing of each other's inner networks until [`Topology::direct_routes`], or a
//! tunnel, says how to get there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::{End, LabError, Namespace, cable, error::Doing as _, traffic::counters};

/// The interface of a host.
pub const HOST_LINK: &str = "eth0";
/// The interface of a gateway towards its hosts.
pub const LAN_LINK: &str = "lan";
/// The interface of a gateway towards the other gateway.
pub const WIRE_LINK: &str = "wire";

/// Smallest MTU a link with IPv6 may have, in bytes (RFC 8200 section 5).
const MIN_MTU: u32 = 1280;

/// An address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Settings of a topology.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologyConfig {
    /// MTU of the wire in bytes; below 1280 the wire has no IPv6.
    pub wire_mtu: u32,
    /// MTU of the links between hosts and gateways in bytes, as above.
    pub lan_mtu: u32,
    /// Give the namespaces names (`convoy-PID-hostA`, …), so that `ip netns` sees them.
    pub named: bool,
}

impl Default for TopologyConfig {
    fn default() -> Self {
        Self { wire_mtu: 1500, lan_mtu: 1500, named: true }
    }
}

/// One network: a host, and the gateway before it.
#[derive(Debug)]
pub struct Site {
    /// The host's namespace.
    pub host: Namespace,
    /// The gateway's namespace.
    pub gateway: Namespace,
    /// 1 or 2: the part in which the two sites' addresses differ.
    number: u8,
}

impl Site {
    fn build(number: u8, letter: char, named: bool) -> Result<Self, LabError> {
        let make = |role: &str| {
            if named { Namespace::for_run(role) } else { Namespace::anonymous() }
        };
        let host = make(&format!("host{letter}"))?;
        let gateway = make(&format!("gw{letter}"))?;
        Ok(Self { host, gateway, number })
    }

    /// The site's inner network: `10.N.0.0/24`, `2001:db8:N::/64`.
    #[must_use]
    pub fn network(&self, family: Family) -> IpNet {
        self.inner(family, 0).trunc()
    }

    /// The host's address.
    #[must_use]
    pub fn host_address(&self, family: Family) -> IpAddr {
        self.inner(family, 2).addr()
    }

    /// The gateway's address on the inner network.
    #[must_use]
    pub fn gateway_address(&self, family: Family) -> IpAddr {
        self.inner(family, 1).addr()
    }

    /// The gateway's address on the wire: the tunnel's end.
    #[must_use]
    pub fn wire_address(&self, family: Family) -> IpAddr {
        self.wire(family).addr()
    }

    fn inner(&self, family: Family, host: u8) -> IpNet {
        match family {
            Family::V4 => v4([10, self.number, 0, host], 24),
            Family::V6 => v6([0x2001, 0xdb8, self.number.into(), 0, 0, 0, 0, host.into()]),
        }
    }

    fn wire(&self, family: Family) -> IpNet {
        match family {
            Family::V4 => v4([198, 51, 100, self.number], 24),
            Family::V6 => v6([0x2001, 0xdb8, 0xf, 0, 0, 0, 0, self.number.into()]),
        }
    }
}

/// Two sites and the wire between them. Dropping it deletes everything.
#[derive(Debug)]
pub struct Topology {
    /// The site with network 1.
    pub a: Site,
    /// The site with network 2.
    pub b: Site,
    config: TopologyConfig,
}

impl Topology {
    /// Builds it.
    ///
    /// # Errors
    /// [`LabError`]; what was built until then is deleted.
    pub fn build(config: &TopologyConfig) -> Result<Self, LabError> {
        let a = Site::build(1, 'A', config.named)?;
        let b = Site::build(2, 'B', config.named)?;
        let topology = Self { a, b, config: config.clone() };
        topology.join_gateways()?;
        for site in [&topology.a, &topology.b] {
            topology.join_lan(site)?;
        }
        Ok(topology)
    }

    /// Lays the wire between the gateways, at first and where it has been deleted.
    ///
    /// # Errors
    /// [`LabError::System`] if it is there.
    pub fn join_gateways(&self) -> Result<(), LabError> {
        let mtu = self.config.wire_mtu;
        let [a, b] = [&self.a, &self.b].map(|site| End {
            namespace: &site.gateway,
            link: WIRE_LINK,
            addresses: self.families(mtu, |family| site.wire(family)),
        });
        cable(&a, &b, mtu)
    }

    fn join_lan(&self, site: &Site) -> Result<(), LabError> {
        let mtu = self.config.lan_mtu;
        let addresses = |host: u8| self.families(mtu, |family| site.inner(family, host));
        cable(
            &End { namespace: &site.host, link: HOST_LINK, addresses: addresses(2) },
            &End { namespace: &site.gateway, link: LAN_LINK, addresses: addresses(1) },
            mtu,
        )?;
        site.gateway.forward()?;
        for gateway in addresses(1) {
            let everywhere = match gateway {
                IpNet::V4(_) => IpNet::from(Ipv4Net::default()),
                IpNet::V6(_) => IpNet::from(Ipv6Net::default()),
            };
            site.host.add_route(everywhere, gateway.addr())?;
        }
        Ok(())
    }

    fn families(&self, mtu: u32, address: impl Fn(Family) -> IpNet) -> Vec<IpNet> {
        let mut list = vec![address(Family::V4)];
        if mtu >= MIN_MTU {
            list.push(address(Family::V6));
        }
        list
    }

    /// Lets the gateways forward to each other in the clear: the baseline without a tunnel. It ends
    /// when the returned value is dropped.
    ///
    /// # Errors
    /// [`LabError::System`].
    pub fn direct_routes(&self) -> Result<DirectRoutes<'_>, LabError> {
        let mut routes = DirectRoutes { topology: self, added: Vec::new() };
        let both = self.config.wire_mtu.min(self.config.lan_mtu) >= MIN_MTU;
        for family in if both { &[Family::V4, Family::V6][..] } else { &[Family::V4] } {
            for forward in [true, false] {
                let (near, far) = self.pair(forward);
                near.gateway.add_route(far.network(*family), far.wire_address(*family))?;
                routes.added.push((*family, forward));
            }
        }
        Ok(routes)
    }

    fn pair(&self, forward: bool) -> (&Site, &Site) {
        if forward { (&self.a, &self.b) } else { (&self.b, &self.a) }
    }

    /// The four namespaces with what they are called in the picture.
    #[must_use]
    pub fn namespaces(&self) -> [(&'static str, &Namespace); 4] {
        [
            ("hostA", &self.a.host),
            ("gwA", &self.a.gateway),
            ("gwB", &self.b.gateway),
            ("hostB", &self.b.host),
        ]
    }

    /// Packets that the kernel has dropped since it started because a queue or a socket had no room:
    /// in all four namespaces, and on the whole machine where a processor's queue was full. Packets
    /// that travel as one segmented packet count once.
    ///
    /// The difference of two calls bounds from above what a run lost to a machine that did not keep up.
    ///
    /// # Errors
    /// [`LabError::System`].
    pub fn kernel_drops(&self) -> Result<u64, LabError> {
        let doing = || "read the kernel's counters".to_owned();
        let mut sum = counters::backlog_drops().doing(doing)?;
        for (_, namespace) in self.namespaces() {
            sum += namespace.run(counters::without_room)?.doing(doing)?;
        }
        Ok(sum)
    }

    /// Does something and says how many packets the kernel dropped for want of room meanwhile; see
    /// [`Topology::kernel_drops`].
    ///
    /// # Errors
    /// [`LabError::System`].
    pub fn counting_drops<T>(&self, work: impl FnOnce() -> T) -> Result<(T, u64), LabError> {
        let before = self.kernel_drops()?;
        let done = work();
        Ok((done, self.kernel_drops()?.saturating_sub(before)))
    }

    /// Deletes everything and reports what could not be deleted. (Dropping deletes as well.)
    ///
    /// # Errors
    /// [`LabError::System`]: the first failure; the rest is deleted nevertheless.
    pub fn delete(self) -> Result<(), LabError> {
        let all = [self.a.host, self.a.gateway, self.b.gateway, self.b.host];
        all.map(Namespace::delete).into_iter().collect()
    }
}

/// Plain routes between the gateways; see [`Topology::direct_routes`].
#[derive(Debug)]
#[must_use = "dropping it removes the routes"]
pub struct DirectRoutes<'a> {
    topology: &'a Topology,
    added: Vec<(Family, bool)>,
}

impl Drop for DirectRoutes<'_> {
    fn drop(&mut self) {
        for (family, forward) in self.added.drain(..) {
            let (near, far) = self.topology.pair(forward);
            // A route can only be missing here because its interface is.
            let _ = near.gateway.remove_route(far.network(family), far.wire_address(family));
        }
    }
}

fn v4(octets: [u8; 4], prefix_len: u8) -> IpNet {
    Ipv4Net::new_assert(Ipv4Addr::from(octets), prefix_len).into()
}

fn v6(segments: [u16; 8]) -> IpNet {
    Ipv6Net::new_assert(Ipv6Addr::from(segments), 64).into()
}
