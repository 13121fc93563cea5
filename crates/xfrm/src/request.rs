//! Requests of a daemon to a kernel.

use crate::acknowledgement::message;
use crate::attribute::{Attributes, SA_DIR, SA_PCPU, Space};
use crate::attribute::{ETIMER_THRESH, LTIME_VAL, REPLAY_ESN_VAL, REPLAY_THRESH, REPLAY_VAL};
use crate::bytes::{Datagram, Writer};
use crate::database::{Defaults, FlushPolicy, FlushSa, InfoQuery, SetSpdInfo};
use crate::header::{Flags, Kind, Message};
use crate::policy::{Policy, PolicyKey};
use crate::refusal::{Errno, Refusal};
use crate::replay::AsyncEvent;
use crate::sa::Sa;
use crate::sa_key::{SaDump, SaQuery};
use crate::sa_request::AllocSpi;

/// A request, as far as it makes sense without knowing what there is.
#[derive(Debug)]
#[non_exhaustive]
pub enum Request {
    /// `NEWSA`: add an SA.
    NewSa(Box<Sa>),
    /// `UPDSA`: change an SA, or give a larval one its keys.
    UpdSa(Box<Sa>),
    /// `DELSA`: remove an SA.
    DelSa(SaQuery),
    /// `GETSA`: show an SA.
    GetSa(SaQuery),
    /// `GETSA` with the dump flag: show all SAs.
    DumpSa(SaDump),
    /// `ALLOCSPI`: choose an SPI.
    AllocSpi(Box<AllocSpi>),
    /// `FLUSHSA`: remove all SAs of a protocol.
    FlushSa(FlushSa),
    /// `NEWPOLICY`: add a policy.
    NewPolicy(Box<Policy>),
    /// `UPDPOLICY`: add or replace a policy.
    UpdPolicy(Box<Policy>),
    /// `DELPOLICY`: remove a policy.
    DelPolicy(Box<PolicyKey>),
    /// `GETPOLICY`: show a policy.
    GetPolicy(Box<PolicyKey>),
    /// `GETPOLICY` with the dump flag: show all policies.
    DumpPolicy,
    /// `FLUSHPOLICY`: remove all policies.
    FlushPolicy(FlushPolicy),
    /// `GETAE`: show sequence numbers and counters.
    GetAe(Box<AsyncEvent>),
    /// `NEWAE`: set sequence numbers and counters.
    NewAe(Box<AsyncEvent>),
    /// `GETSADINFO`: count SAs.
    GetSadInfo(InfoQuery),
    /// `GETSPDINFO`: count policies.
    GetSpdInfo(InfoQuery),
    /// `NEWSPDINFO`: set thresholds.
    NewSpdInfo(SetSpdInfo),
    /// `GETDEFAULT`: show what happens to packets without a policy.
    GetDefault(Defaults),
    /// `SETDEFAULT`: say what happens to packets without a policy.
    SetDefault(Defaults),
    /// `MIGRATE`: move SAs and policies. Only recognised: who cannot do it answers `ENOPROTOOPT` as a
    /// kernel built without it.
    Migrate,
    /// `ACQUIRE`, `EXPIRE` or `POLEXPIRE`: raise an event by hand. Only recognised.
    Raise(Kind),
}

impl Request {
    /// Reads one message of a datagram.
    ///
    /// `None` is a message that a kernel does nothing about, because it is no request or netlink's
    /// own; it is acknowledged like a success, that is, if it has the flag.
    ///
    /// # Errors
    /// The kernel's, with its words and offset: `EINVAL` for what makes no sense, `ERANGE` for
    /// attributes that are too short, `ESRCH` and `ENOENT` for names that no SA or policy can have.
    pub fn parse(message: &Message<'_>) -> Result<Option<Self>, Refusal> {
        let header = message.header();
        if !header.flags.any(Flags::REQUEST) || header.number < Kind::NewSa.number() {
            return Ok(None);
        }
        let kind = Kind::from_number(header.number).ok_or(Refusal::bare(Errno::EINVAL))?;
        let space = if kind == Kind::NewSpdInfo { Space::Spd } else { Space::Xfrm };
        if header.flags.any(Flags::DUMP) {
            match kind {
                Kind::GetSa => {
                    let (_, attributes) = Attributes::split_at(message, 0, space)?;
                    return SaDump::read(attributes).map(|dump| Some(Self::DumpSa(dump)));
                }
                Kind::GetPolicy => return Ok(Some(Self::DumpPolicy)),
                _ => {}
            }
        }
        let (fixed, attributes) = match kind {
            Kind::NewSadInfo => Attributes::split_at(message, 0, space)?,
            _ => Attributes::split(message, kind, space)?,
        };
        if space == Space::Xfrm {
            reject_misplaced(kind, &attributes)?;
        }
        let remark = attributes.remark();
        let read = Self::read(kind, header.flags, fixed, attributes);
        read.map(Some).map_err(|refusal| refusal.or_words(remark))
    }

    fn read(
        kind: Kind,
        flags: Flags,
        fixed: &[u8],
        attributes: Attributes<'_>,
    ) -> Result<Self, Refusal> {
        Ok(match kind {
            Kind::NewSa => Self::NewSa(Box::new(Sa::read_request(fixed, attributes)?)),
            Kind::UpdSa => Self::UpdSa(Box::new(Sa::read_request(fixed, attributes)?)),
            Kind::DelSa => Self::DelSa(SaQuery::read(fixed, attributes)?),
            Kind::GetSa => Self::GetSa(SaQuery::read(fixed, attributes)?),
            Kind::AllocSpi => Self::AllocSpi(Box::new(AllocSpi::read(fixed, attributes)?)),
            Kind::FlushSa => Self::FlushSa(FlushSa::read(fixed, attributes)),
            Kind::NewPolicy => Self::NewPolicy(Box::new(Policy::read(fixed, attributes)?)),
            Kind::UpdPolicy => Self::UpdPolicy(Box::new(Policy::read(fixed, attributes)?)),
            Kind::DelPolicy => Self::DelPolicy(Box::new(PolicyKey::read(fixed, attributes)?)),
            Kind::GetPolicy => Self::GetPolicy(Box::new(PolicyKey::read(fixed, attributes)?)),
            Kind::FlushPolicy => Self::FlushPolicy(FlushPolicy::read(attributes)?),
            Kind::GetAe => Self::GetAe(Box::new(AsyncEvent::read_question(fixed, attributes)?)),
            Kind::NewAe => {
                check_new_ae(flags, &attributes)?;
                Self::NewAe(Box::new(AsyncEvent::read(fixed, attributes)?))
            }
            Kind::GetSadInfo => Self::GetSadInfo(InfoQuery::read(fixed, attributes)),
            Kind::GetSpdInfo => Self::GetSpdInfo(InfoQuery::read(fixed, attributes)),
            Kind::NewSpdInfo => Self::NewSpdInfo(SetSpdInfo::read(fixed, attributes)?),
            Kind::GetDefault => Self::GetDefault(Defaults::read(fixed, attributes)),
            Kind::SetDefault => Self::SetDefault(Defaults::read(fixed, attributes)),
            Kind::Migrate => Self::Migrate,
            Kind::Acquire | Kind::Expire | Kind::PolExpire => Self::Raise(kind),
            // Only ever sent by kernels.
            Kind::NewSadInfo | Kind::Mapping | Kind::Report => {
                return Err(Refusal::bare(Errno::EINVAL));
            }
        })
    }

    /// Type of the message.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::NewSa(_) => Kind::NewSa,
            Self::UpdSa(_) => Kind::UpdSa,
            Self::DelSa(_) => Kind::DelSa,
            Self::GetSa(_) | Self::DumpSa(_) => Kind::GetSa,
            Self::AllocSpi(_) => Kind::AllocSpi,
            Self::FlushSa(_) => Kind::FlushSa,
            Self::NewPolicy(_) => Kind::NewPolicy,
            Self::UpdPolicy(_) => Kind::UpdPolicy,
            Self::DelPolicy(_) => Kind::DelPolicy,
            Self::GetPolicy(_) | Self::DumpPolicy => Kind::GetPolicy,
            Self::FlushPolicy(_) => Kind::FlushPolicy,
            Self::GetAe(_) => Kind::GetAe,
            Self::NewAe(_) => Kind::NewAe,
            Self::GetSadInfo(_) => Kind::GetSadInfo,
            Self::GetSpdInfo(_) => Kind::GetSpdInfo,
            Self::NewSpdInfo(_) => Kind::NewSpdInfo,
            Self::GetDefault(_) => Kind::GetDefault,
            Self::SetDefault(_) => Kind::SetDefault,
            Self::Migrate => Kind::Migrate,
            Self::Raise(kind) => *kind,
        }
    }

    /// The message that asks for it, with `flags` beside those that it needs.
    ///
    /// A request that is only recognised is sent with zeros for its contents.
    #[must_use]
    pub fn build(&self, seq: u32, flags: Flags) -> Datagram {
        let own = match self {
            Self::DumpSa(_) | Self::DumpPolicy => Flags::DUMP,
            Self::NewAe(_) => Flags::REPLACE,
            _ => Flags(0),
        };
        let flags = flags.with(own).with(Flags::REQUEST);
        message(self.kind().number(), flags, seq, 0, |to| self.write(to))
    }

    fn write(&self, to: &mut Writer) {
        match self {
            Self::NewSa(sa) | Self::UpdSa(sa) => sa.write(to, false),
            Self::DelSa(query) | Self::GetSa(query) => query.write(to),
            Self::DumpSa(dump) => dump.write(to),
            Self::AllocSpi(alloc) => alloc.write(to),
            Self::FlushSa(flush) => flush.write(to),
            Self::NewPolicy(policy) | Self::UpdPolicy(policy) => policy.write(to),
            Self::DelPolicy(key) | Self::GetPolicy(key) => key.write(to),
            Self::DumpPolicy => {}
            Self::FlushPolicy(flush) => flush.write(to),
            Self::GetAe(event) | Self::NewAe(event) => event.write(to),
            Self::GetSadInfo(query) | Self::GetSpdInfo(query) => query.write(to),
            Self::NewSpdInfo(set) => set.write(to),
            Self::GetDefault(defaults) | Self::SetDefault(defaults) => defaults.write(to),
            Self::Migrate => to.zeros::<64>(),
            Self::Raise(kind) => (0..kind.fixed_len()).for_each(|_| to.u8(0)),
        }
    }
}

/// Attributes that kernels refuse where they mean nothing (`xfrm_reject_unused_attr`).
fn reject_misplaced(kind: Kind, attributes: &Attributes<'_>) -> Result<(), Refusal> {
    let makes_sa = matches!(kind, Kind::NewSa | Kind::UpdSa | Kind::AllocSpi);
    if attributes.has(SA_DIR) && !makes_sa {
        return Err(Refusal::invalid("Invalid attribute SA_DIR"));
    }
    if attributes.has(SA_PCPU) && !makes_sa && kind != Kind::Acquire {
        return Err(Refusal::invalid("Invalid attribute SA_PCPU"));
    }
    Ok(())
}

fn check_new_ae(flags: Flags, attributes: &Attributes<'_>) -> Result<(), Refusal> {
    let state = [LTIME_VAL, REPLAY_VAL, REPLAY_ESN_VAL, ETIMER_THRESH, REPLAY_THRESH];
    if !attributes.any(&state) {
        return Err(Refusal::invalid("Missing required attribute for AE"));
    }
    if !flags.any(Flags::REPLACE) {
        return Err(Refusal::invalid("NLM_F_REPLACE flag is required"));
    }
    Ok(())
}
