//! Events: what a kernel tells of its own accord.

use std::net::{IpAddr, SocketAddr};

use convoy_wire::{IpVersion, Spi};

use crate::address::{self, SaProtocol};
use crate::attribute::{Attributes, IF_ID, MARK, Others, SA_PCPU};
use crate::bytes::{Fields, Writer};
use crate::mark::{Mark, SecurityContext};
use crate::policy::{Policy, PolicyInfo, PolicyType};
use crate::refusal::{Errno, Refusal};
use crate::sa::{RawSaInfo, SaDirection, SaInfo};
use crate::sa_key::{RawSaId, SaKey};
use crate::selector::{RawSelector, Selector};
use crate::template::Template;

/// A multicast group of XFRM: `XFRMNLGRP_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Group {
    /// A packet wants an SA.
    Acquire = 1,
    /// An SA or policy reached a limit.
    Expire = 2,
    /// An SA came, changed or went.
    Sa = 3,
    /// A policy came, changed or went, or the defaults did.
    Policy = 4,
    /// Sequence numbers moved on.
    AsyncEvent = 5,
    /// Reports of Mobile IPv6.
    Report = 6,
    /// SAs and policies moved to other addresses.
    Migrate = 7,
    /// A peer's address or port changed.
    Mapping = 8,
}

impl Group {
    /// All of them, by number.
    pub const ALL: [Self; 8] = [
        Self::Acquire,
        Self::Expire,
        Self::Sa,
        Self::Policy,
        Self::AsyncEvent,
        Self::Report,
        Self::Migrate,
        Self::Mapping,
    ];

    /// The number, as `NETLINK_ADD_MEMBERSHIP` has it.
    #[must_use]
    #[allow(clippy::as_conversions)] // the representation is u8
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The bit in `nl_groups` of an address that a socket binds to.
    #[must_use]
    pub const fn bit(self) -> u32 {
        1_u32.rotate_left(self.number() as u32).rotate_right(1)
    }
}

/// A packet that a policy protects found no SA: `struct xfrm_user_acquire`, 280 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acquire {
    /// The protocol of the SA that is wanted.
    pub protocol: SaProtocol,
    /// Its SPI, if the template names one.
    pub spi: Option<Spi>,
    /// The source of its packets.
    pub source: IpAddr,
    /// The destination of its packets, of the same version.
    pub destination: IpAddr,
    /// The packet: its addresses, ports and protocol, each exactly.
    pub selector: Selector,
    /// The policy that the packet matched.
    pub policy: PolicyInfo,
    /// Algorithms that may be used, as [`Template::algorithms`].
    pub algorithms: [u32; 3],
    /// The number that the SA in answer is to have.
    pub seq: u32,
    /// The policy's templates; the first one that has no SA is the one wanted.
    pub templates: Vec<Template>,
    /// A label of the packet.
    pub security: Option<SecurityContext>,
    /// Database of the policy.
    pub policy_type: Option<PolicyType>,
    /// The policy's mark.
    pub mark: Mark,
    /// The policy's XFRM interface; 0 for none.
    pub if_id: u32,
    /// The processor that the SA is wanted for.
    pub cpu: Option<u32>,
    /// Direction of the SA's packets.
    pub direction: Option<SaDirection>,
    /// Attributes without a place here.
    pub others: Others,
}

impl Acquire {
    pub(crate) fn read(fixed: &[u8], mut attributes: Attributes<'_>) -> Result<Self, Refusal> {
        let mut fields = Fields::new(fixed);
        let destination = fields.array();
        let (spi, protocol) = (Spi::new(fields.be32()), fields.u8());
        fields.skip::<3>();
        let source = fields.array();
        let selector = RawSelector::read(&mut fields).typed();
        let (policy, version) = PolicyInfo::read(&mut fields)?;
        let algorithms = [fields.u32(), fields.u32(), fields.u32()];
        let seq = fields.u32();
        let security = SecurityContext::take(&mut attributes)?;
        let policy_type = PolicyType::take(&mut attributes)?;
        let templates = Template::take(&mut attributes, version, policy.direction)?;
        // The addresses are of the template's version, which nothing else says.
        let outer =
            templates.first().map_or(version, |template| IpVersion::of_addr(template.destination));
        Ok(Self {
            protocol: SaProtocol::from_number(protocol)
                .ok_or_else(|| Refusal::invalid("Unsupported protocol"))?,
            spi,
            source: address::address(outer, source),
            destination: address::address(outer, destination),
            selector,
            policy,
            algorithms,
            seq,
            templates,
            security,
            policy_type,
            mark: Mark::take(&mut attributes, MARK),
            if_id: attributes.take_u32(IF_ID).unwrap_or_default(),
            cpu: attributes.take_u32(SA_PCPU),
            direction: SaDirection::take(&mut attributes),
            others: attributes.others(),
        })
    }

    pub(crate) fn write(&self, to: &mut Writer) {
        to.address(self.destination);
        to.be32(self.spi.map_or(0, Spi::get));
        to.u8(self.protocol.number());
        to.zeros::<3>();
        to.address(self.source);
        self.selector.write(to);
        self.policy.write(to);
        self.algorithms.iter().for_each(|bits| to.u32(*bits));
        to.u32(self.seq);
        Template::write_all(&self.templates, to);
        if let Some(security) = &self.security {
            security.write(to);
        }
        PolicyType::write(self.policy_type, to);
        self.mark.write(to, MARK);
        to.attribute_unless_zero(IF_ID, self.if_id);
        to.attribute_if(SA_PCPU, self.cpu);
        SaDirection::write(self.direction, to);
        self.others.write(to);
    }
}

/// An SA reached a limit: `struct xfrm_user_expire`, 232 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expire {
    /// The SA.
    pub sa: SaInfo,
    /// True if it was the hard limit, and the SA is gone.
    pub hard: bool,
    /// Its mark.
    pub mark: Mark,
    /// Its XFRM interface; 0 for none.
    pub if_id: u32,
    /// The processor that it is for.
    pub cpu: Option<u32>,
    /// Direction of its packets.
    pub direction: Option<SaDirection>,
    /// Attributes without a place here.
    pub others: Others,
}

impl Expire {
    pub(crate) fn read(fixed: &[u8], mut attributes: Attributes<'_>) -> Result<Self, Refusal> {
        let mut fields = Fields::new(fixed);
        Ok(Self {
            sa: RawSaInfo::read(&mut fields).typed()?,
            hard: fields.u8() != 0,
            mark: Mark::take(&mut attributes, MARK),
            if_id: attributes.take_u32(IF_ID).unwrap_or_default(),
            cpu: attributes.take_u32(SA_PCPU),
            direction: SaDirection::take(&mut attributes),
            others: attributes.others(),
        })
    }

    pub(crate) fn write(&self, to: &mut Writer) {
        self.sa.write(to);
        to.u8(u8::from(self.hard));
        to.zeros::<7>();
        self.mark.write(to, MARK);
        to.attribute_unless_zero(IF_ID, self.if_id);
        to.attribute_if(SA_PCPU, self.cpu);
        SaDirection::write(self.direction, to);
        self.others.write(to);
    }
}

/// A policy reached a limit: `struct xfrm_user_polexpire`, 176 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyExpire {
    /// The policy.
    pub policy: Policy,
    /// True if it was the hard limit, and the policy is gone.
    pub hard: bool,
}

impl PolicyExpire {
    const HARD: usize = 168;

    pub(crate) fn read(fixed: &[u8], attributes: Attributes<'_>) -> Result<Self, Refusal> {
        let hard = fixed.get(Self::HARD).is_some_and(|hard| *hard != 0);
        Ok(Self { policy: Policy::read(fixed, attributes)?, hard })
    }

    pub(crate) fn write(&self, to: &mut Writer) {
        self.policy.info.write(to);
        to.u8(u8::from(self.hard));
        to.zeros::<7>();
        self.policy.write_attributes(to);
    }
}

/// The packets of an inbound SA in UDP come from elsewhere: `struct xfrm_user_mapping`, 64 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The SA.
    pub sa: SaKey,
    /// Its request number.
    pub reqid: u32,
    /// Former source of the packets, address and UDP port.
    pub old: SocketAddr,
    /// Source of the packets now; both are of the SA's version.
    pub new: SocketAddr,
    /// Attributes without a place here.
    pub others: Others,
}

impl Mapping {
    pub(crate) fn read(fixed: &[u8], attributes: Attributes<'_>) -> Result<Self, Refusal> {
        let mut fields = Fields::new(fixed);
        let raw = RawSaId::read(&mut fields);
        let version = raw.version().ok_or_else(|| Refusal::invalid("Invalid address family"))?;
        let sa = raw.key(Errno::EINVAL)?;
        let reqid = fields.u32();
        let (old, new) = (fields.address(version), fields.address(version));
        let (old_port, new_port) = (fields.be16(), fields.be16());
        Ok(Self {
            sa,
            reqid,
            old: SocketAddr::new(old, old_port),
            new: SocketAddr::new(new, new_port),
            others: attributes.others(),
        })
    }

    pub(crate) fn write(&self, to: &mut Writer) {
        self.sa.write_id(to);
        to.u32(self.reqid);
        to.address(self.old.ip());
        to.address(self.new.ip());
        to.be16(self.old.port());
        to.be16(self.new.port());
        self.others.write(to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_bits_from_the_lowest_on() {
        // What strongSwan binds to: acquire, expire, migrate, mapping.
        let bits = [Group::Acquire, Group::Expire, Group::Migrate, Group::Mapping];
        assert_eq!(bits.iter().fold(0, |all, group| all | group.bit()), 0xc3);
        assert!(Group::ALL.iter().zip(1..).all(|(group, number)| group.number() == number));
    }
}
