//! Policies: which packets are protected, let through, or dropped.

use convoy_wire::IpVersion;

use crate::address;
use crate::attribute::{Attributes, IF_ID, MARK, Others, POLICY, POLICY_TYPE};
use crate::bytes::{Fields, Writer};
use crate::lifetime::{Limits, Usage};
use crate::mark::{Mark, SecurityContext};
use crate::refusal::{Errno, Refusal};
use crate::sa::Offload;
use crate::selector::{RawSelector, Selector};
use crate::template::Template;

/// Direction of packets: `XFRM_POLICY_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PolicyDirection {
    /// 0: to this host.
    In,
    /// 1: away, whether they are its own or forwarded.
    Out,
    /// 2: through this host.
    Forward,
}

impl PolicyDirection {
    const fn number(self) -> u8 {
        match self {
            Self::In => 0,
            Self::Out => 1,
            Self::Forward => 2,
        }
    }

    fn from_number(number: u8) -> Result<Self, Refusal> {
        match number {
            0 => Ok(Self::In),
            1 => Ok(Self::Out),
            2 => Ok(Self::Forward),
            _ => Err(Refusal::invalid("Invalid policy direction")),
        }
    }
}

/// Decision about a policy's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// 0: they pass, with the templates' protection; without templates in clear.
    Allow,
    /// 1: they are dropped.
    Block,
}

/// Scope in which an SA is shared: `XFRM_SHARE_*`. Kernels check it and do not look at it again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Share {
    /// 0: anybody.
    #[default]
    Any,
    /// 1: one session.
    Session,
    /// 2: one user.
    User,
    /// 3: nobody.
    Unique,
}

impl Share {
    pub(crate) const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Any),
            1 => Some(Self::Session),
            2 => Some(Self::User),
            3 => Some(Self::Unique),
            _ => None,
        }
    }

    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::Any => 0,
            Self::Session => 1,
            Self::User => 2,
            Self::Unique => 3,
        }
    }
}

/// Database of a policy, one of two: `XFRM_POLICY_TYPE_*`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PolicyType {
    /// 0: the usual one.
    #[default]
    Main,
    /// 1: sub-policies, which only kernels built with them have.
    Sub,
}

impl PolicyType {
    pub(crate) fn take(attributes: &mut Attributes<'_>) -> Result<Option<Self>, Refusal> {
        match attributes.take(POLICY_TYPE) {
            None => Ok(None),
            Some([0, ..]) => Ok(Some(Self::Main)),
            Some([1, ..]) => Ok(Some(Self::Sub)),
            Some(_) => Err(Refusal::invalid("Invalid policy type")),
        }
    }

    pub(crate) fn write(given: Option<Self>, to: &mut Writer) {
        if let Some(policy_type) = given {
            to.attribute(POLICY_TYPE, |to| {
                to.u8(u8::from(policy_type == Self::Sub));
                to.zeros::<5>();
            });
        }
    }
}

/// `struct xfrm_userpolicy_info`: 168 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PolicyInfo {
    /// Packets that it covers; its addresses are networks.
    pub selector: Selector,
    /// Bounds of its lifetime.
    pub limits: Limits,
    /// Its counters and times so far; ignored in requests.
    pub usage: Usage,
    /// Of policies that match, the one with the lowest number decides.
    pub priority: u32,
    /// The number that names it; the lowest three bits are the direction. 0 in requests leaves the
    /// choice to the kernel.
    pub index: u32,
    /// Direction of its packets.
    pub direction: PolicyDirection,
    /// Decision about its packets.
    pub action: Action,
    /// 1: sockets may override it; 2: it also covers ICMP errors about its packets.
    pub flags: u8,
    /// Scope in which an SA is shared.
    pub share: Share,
}

impl PolicyInfo {
    /// Of [`PolicyInfo::flags`]: it also covers ICMP errors about its packets (`XFRM_POLICY_ICMP`).
    pub const ICMP: u8 = 2;

    /// Reads and checks as `verify_newpolicy_info` does.
    pub(crate) fn read(fields: &mut Fields<'_>) -> Result<(Self, IpVersion), Refusal> {
        let selector = RawSelector::read(fields);
        let (limits, usage) = (Limits::read(fields), Usage::read(fields));
        let (priority, index) = (fields.u32(), fields.u32());
        let (direction, action, flags, share) =
            (fields.u8(), fields.u8(), fields.u8(), fields.u8());
        fields.skip::<4>();
        let share =
            Share::from_number(share).ok_or_else(|| Refusal::invalid("Invalid policy share"))?;
        let action = match action {
            0 => Action::Allow,
            1 => Action::Block,
            _ => return Err(Refusal::invalid("Invalid policy action")),
        };
        let version = address::version(selector.family)
            .ok_or_else(|| Refusal::invalid("Invalid selector family"))?;
        selector.check_prefixes(version)?;
        let direction = PolicyDirection::from_number(direction)?;
        if index != 0 && index & 7 != u32::from(direction.number()) {
            return Err(Refusal::invalid("Policy index doesn't match direction"));
        }
        let selector = selector.typed();
        let info =
            Self { selector, limits, usage, priority, index, direction, action, flags, share };
        Ok((info, version))
    }

    pub(crate) fn write(&self, to: &mut Writer) {
        self.selector.write(to);
        self.limits.write(to);
        self.usage.write(to);
        to.u32(self.priority);
        to.u32(self.index);
        to.u8(self.direction.number());
        to.u8(match self.action {
            Action::Allow => 0,
            Action::Block => 1,
        });
        to.u8(self.flags);
        to.u8(self.share.number());
        to.zeros::<4>();
    }
}

/// A policy: `NEWPOLICY` and `UPDPOLICY`, as request, answer and event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Selector, direction, action, limits.
    pub info: PolicyInfo,
    /// Protection of its packets, innermost first; at most six. None: they pass in clear.
    pub templates: Vec<Template>,
    /// A label that narrows it.
    pub security: Option<SecurityContext>,
    /// Database; `None` when the message does not say, which means the main one.
    pub policy_type: Option<PolicyType>,
    /// The mark of packets it is for.
    pub mark: Mark,
    /// The number of the XFRM interface it is for; 0 for none.
    pub if_id: u32,
    /// The device that is to do the work.
    pub offload: Option<Offload>,
    /// Attributes without a place here.
    pub others: Others,
}

impl Policy {
    pub(crate) fn read(fixed: &[u8], mut attributes: Attributes<'_>) -> Result<Self, Refusal> {
        let (info, version) = PolicyInfo::read(&mut Fields::new(fixed))?;
        Self::with(info, version, &mut attributes)
            .map(|policy| Self { others: attributes.others(), ..policy })
    }

    /// All but the attributes without a place.
    fn with(
        info: PolicyInfo,
        version: IpVersion,
        attributes: &mut Attributes<'_>,
    ) -> Result<Self, Refusal> {
        SecurityContext::check(attributes)?;
        let policy_type = PolicyType::take(attributes)?;
        Ok(Self {
            info,
            templates: Template::take(attributes, version, info.direction)?,
            security: SecurityContext::take(attributes)?,
            policy_type,
            mark: Mark::take(attributes, MARK),
            if_id: attributes.take_u32(IF_ID).unwrap_or_default(),
            offload: Offload::take(attributes),
            others: Others::default(),
        })
    }

    pub(crate) fn write(&self, to: &mut Writer) {
        self.info.write(to);
        self.write_attributes(to);
    }

    pub(crate) fn write_attributes(&self, to: &mut Writer) {
        Template::write_all(&self.templates, to);
        if let Some(security) = &self.security {
            security.write(to);
        }
        PolicyType::write(self.policy_type, to);
        self.mark.write(to, MARK);
        to.attribute_unless_zero(IF_ID, self.if_id);
        Offload::write(self.offload, to);
        self.others.write(to);
    }
}

/// Identifies a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PolicyName {
    /// Its number, not 0; then nothing else counts but direction, mark and interface.
    Index(u32),
    /// Its selector, to the last bit.
    Selector(Selector),
}

/// One policy: `GETPOLICY` and `DELPOLICY` (`struct xfrm_userpolicy_id`, 64 bytes).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyKey {
    /// Its index or its selector.
    pub name: PolicyName,
    /// Direction of its packets.
    pub direction: PolicyDirection,
    /// Database; `None` for the main one.
    pub policy_type: Option<PolicyType>,
    /// Its mark.
    pub mark: Mark,
    /// Its XFRM interface; 0 for none.
    pub if_id: u32,
    /// Its label; looked at only beside a selector.
    pub security: Option<SecurityContext>,
    /// Attributes without a place here.
    pub others: Others,
}

impl PolicyKey {
    pub(crate) fn read(fixed: &[u8], mut attributes: Attributes<'_>) -> Result<Self, Refusal> {
        let key = Self::with(fixed, &mut attributes)?;
        Ok(Self { others: attributes.others(), ..key })
    }

    fn with(fixed: &[u8], attributes: &mut Attributes<'_>) -> Result<Self, Refusal> {
        let mut fields = Fields::new(fixed);
        let selector = RawSelector::read(&mut fields);
        let (index, direction) = (fields.u32(), fields.u8());
        let policy_type = PolicyType::take(attributes)?;
        let direction = PolicyDirection::from_number(direction)?;
        let (name, security) = if index == 0 {
            let security = SecurityContext::take(attributes)?;
            let selector = selector.typed();
            if selector.version().is_none() {
                // There are no policies for other families.
                return Err(Refusal::bare(Errno::ENOENT));
            }
            (PolicyName::Selector(selector), security)
        } else {
            (PolicyName::Index(index), None)
        };
        Ok(Self {
            name,
            direction,
            policy_type,
            mark: Mark::take(attributes, MARK),
            if_id: attributes.take_u32(IF_ID).unwrap_or_default(),
            security,
            others: Others::default(),
        })
    }

    fn write_fixed(&self, to: &mut Writer) {
        let (selector, index) = match self.name {
            PolicyName::Index(index) => (Selector::ANY, index),
            PolicyName::Selector(selector) => (selector, 0),
        };
        selector.write(to);
        to.u32(index);
        to.u8(self.direction.number());
        to.zeros::<3>();
    }

    pub(crate) fn write(&self, to: &mut Writer) {
        self.write_fixed(to);
        if let Some(security) = &self.security {
            security.write(to);
        }
        PolicyType::write(self.policy_type, to);
        self.mark.write(to, MARK);
        to.attribute_unless_zero(IF_ID, self.if_id);
        self.others.write(to);
    }
}

/// The event that a policy went: what named it, and, where it was named by its selector, all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyDeleted {
    /// Index or selector that the request gave.
    pub name: PolicyName,
    /// The policy.
    pub policy: Policy,
}

impl PolicyDeleted {
    pub(crate) fn read(fixed: &[u8], mut attributes: Attributes<'_>) -> Result<Self, Refusal> {
        let mut fields = Fields::new(fixed);
        let selector = RawSelector::read(&mut fields);
        let name = match fields.u32() {
            0 => PolicyName::Selector(selector.typed()),
            index => PolicyName::Index(index),
        };
        let info = attributes.take(POLICY).ok_or_else(|| Refusal::bare(Errno::EINVAL))?;
        Ok(Self { name, policy: Policy::read(info, attributes)? })
    }

    pub(crate) fn write(&self, to: &mut Writer) {
        let Policy { info, mark, if_id, policy_type, .. } = &self.policy;
        PolicyKey {
            name: self.name,
            direction: info.direction,
            policy_type: *policy_type,
            mark: *mark,
            if_id: *if_id,
            security: None,
            others: Others::default(),
        }
        .write_fixed(to);
        to.attribute(POLICY, |to| info.write(to));
        self.policy.write_attributes(to);
    }
}
