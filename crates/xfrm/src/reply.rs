//! Messages from a kernel: answers, dumps and events.

use crate::acknowledgement::{self, Acknowledgement, DONE, ERROR, message};
use crate::attribute::{Attributes, Space};
use crate::bytes::{Datagram, Writer};
use crate::database::{Defaults, FlushPolicy, FlushSa, SadInfo, SpdInfo};
use crate::event::{Acquire, Expire, Group, Mapping, PolicyExpire};
use crate::header::{Flags, Kind, Message};
use crate::policy::{Policy, PolicyDeleted};
use crate::refusal::Refusal;
use crate::replay::AsyncEvent;
use crate::sa::{Sa, SaDeleted};

/// Whom an answer is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Address {
    /// The number of the request; 0 in events that nobody asked for.
    pub seq: u32,
    /// The netlink port of the socket that asked; 0 in events.
    pub port: u32,
    /// True if it is part of a dump.
    pub multi: bool,
}

impl Address {
    /// The header of a message to it.
    fn message(self, kind: Kind, fill: impl FnOnce(&mut Writer)) -> Datagram {
        let flags = if self.multi { Flags::MULTI } else { Flags(0) };
        message(kind.number(), flags, self.seq, self.port, fill)
    }
}

impl Sa {
    /// The answer or event that shows this SA: `NEWSA`, or `UPDSA` after a change.
    ///
    /// As kernels do, it gives an integrity algorithm twice, with and without the length of its ICV.
    #[must_use]
    pub fn answer(&self, updated: bool, to: Address) -> Datagram {
        let kind = if updated { Kind::UpdSa } else { Kind::NewSa };
        to.message(kind, |to| self.write(to, true))
    }
}

impl Policy {
    /// The answer or event that shows this policy: `NEWPOLICY`, or `UPDPOLICY` after a change.
    #[must_use]
    pub fn answer(&self, updated: bool, to: Address) -> Datagram {
        let kind = if updated { Kind::UpdPolicy } else { Kind::NewPolicy };
        to.message(kind, |to| self.write(to))
    }
}

/// A message of a kernel.
#[derive(Debug)]
#[non_exhaustive]
pub enum Reply {
    /// `NEWSA`: an SA, asked for or new.
    NewSa(Box<Sa>),
    /// `UPDSA`: an SA changed.
    UpdSa(Box<Sa>),
    /// `DELSA`: an SA went.
    DelSa(SaDeleted),
    /// `FLUSHSA`: all SAs of a protocol went.
    FlushSa(FlushSa),
    /// `NEWPOLICY`: a policy, asked for or new.
    NewPolicy(Box<Policy>),
    /// `UPDPOLICY`: a policy changed.
    UpdPolicy(Box<Policy>),
    /// `DELPOLICY`: a policy went.
    DelPolicy(Box<PolicyDeleted>),
    /// `FLUSHPOLICY`: all policies went.
    FlushPolicy(FlushPolicy),
    /// `NEWAE`: sequence numbers and counters.
    NewAe(Box<AsyncEvent>),
    /// `NEWSADINFO`: how many SAs there are.
    NewSadInfo(SadInfo),
    /// `NEWSPDINFO`: how many policies there are.
    NewSpdInfo(SpdInfo),
    /// `GETDEFAULT`: what happens to packets without a policy, asked for or changed.
    GetDefault(Defaults),
    /// `ACQUIRE`: a packet wants an SA.
    Acquire(Box<Acquire>),
    /// `EXPIRE`: an SA reached a limit.
    Expire(Box<Expire>),
    /// `POLEXPIRE`: a policy reached a limit.
    PolExpire(Box<PolicyExpire>),
    /// `MAPPING`: a peer's address changed.
    Mapping(Box<Mapping>),
    /// `NLMSG_ERROR`: a request was carried out or refused.
    Acknowledgement(Acknowledgement),
    /// `NLMSG_DONE`: a dump ends, before its time if there is a refusal. Its words and offset are only
    /// for sockets that asked for extended acknowledgements.
    Done(Option<Refusal>),
    /// A message that is not read any further: `REPORT`, `MIGRATE`, and what is not known.
    Other(u16),
}

impl Reply {
    /// Reads one message of a datagram.
    ///
    /// # Errors
    /// As [`Request::parse`](crate::Request::parse), for what no kernel sends.
    pub fn parse(message: &Message<'_>) -> Result<Self, Refusal> {
        let number = message.header().number;
        let Some(kind) = Kind::from_number(number) else {
            return match number {
                ERROR => Acknowledgement::read(message).map(Self::Acknowledgement),
                DONE => acknowledgement::read_done(message).map(Self::Done),
                _ => Ok(Self::Other(number)),
            };
        };
        let space = match kind {
            Kind::NewSadInfo => Space::Sad,
            Kind::NewSpdInfo => Space::Spd,
            _ => Space::Xfrm,
        };
        let (fixed, attributes) = Attributes::split(message, kind, space)?;
        Ok(match kind {
            Kind::NewSa => Self::NewSa(Box::new(Sa::read(fixed, attributes)?)),
            Kind::UpdSa => Self::UpdSa(Box::new(Sa::read(fixed, attributes)?)),
            Kind::DelSa => Self::DelSa(SaDeleted::read(attributes)?),
            Kind::FlushSa => Self::FlushSa(FlushSa::read(fixed, attributes)),
            Kind::NewPolicy => Self::NewPolicy(Box::new(Policy::read(fixed, attributes)?)),
            Kind::UpdPolicy => Self::UpdPolicy(Box::new(Policy::read(fixed, attributes)?)),
            Kind::DelPolicy => Self::DelPolicy(Box::new(PolicyDeleted::read(fixed, attributes)?)),
            Kind::FlushPolicy => Self::FlushPolicy(FlushPolicy::read(attributes)?),
            Kind::NewAe => Self::NewAe(Box::new(AsyncEvent::read(fixed, attributes)?)),
            Kind::NewSadInfo => Self::NewSadInfo(SadInfo::read(fixed, attributes)?),
            Kind::NewSpdInfo => Self::NewSpdInfo(SpdInfo::read(fixed, attributes)?),
            Kind::GetDefault => Self::GetDefault(Defaults::read(fixed, attributes)),
            Kind::Acquire => Self::Acquire(Box::new(Acquire::read(fixed, attributes)?)),
            Kind::Expire => Self::Expire(Box::new(Expire::read(fixed, attributes)?)),
            Kind::PolExpire => Self::PolExpire(Box::new(PolicyExpire::read(fixed, attributes)?)),
            Kind::Mapping => Self::Mapping(Box::new(Mapping::read(fixed, attributes)?)),
            _ => Self::Other(number),
        })
    }

    /// Multicast group that gets the event unasked. `None` for a message that is only ever
    /// an answer.
    #[must_use]
    pub const fn group(&self) -> Option<Group> {
        match self {
            Self::NewSa(_) | Self::UpdSa(_) | Self::DelSa(_) | Self::FlushSa(_) => Some(Group::Sa),
            Self::NewPolicy(_)
            | Self::UpdPolicy(_)
            | Self::DelPolicy(_)
            | Self::FlushPolicy(_)
            | Self::GetDefault(_) => Some(Group::Policy),
            Self::NewAe(_) => Some(Group::AsyncEvent),
            Self::Acquire(_) => Some(Group::Acquire),
            Self::Expire(_) | Self::PolExpire(_) => Some(Group::Expire),
            Self::Mapping(_) => Some(Group::Mapping),
            Self::NewSadInfo(_)
            | Self::NewSpdInfo(_)
            | Self::Acknowledgement(_)
            | Self::Done(_)
            | Self::Other(_) => None,
        }
    }

    /// The message that says it. `None` for an acknowledgement, which
    /// [`Acknowledgement::build`] makes of the request, and for messages that are not read.
    #[must_use]
    pub fn build(&self, to: Address) -> Option<Datagram> {
        Some(match self {
            Self::NewSa(sa) => sa.answer(false, to),
            Self::UpdSa(sa) => sa.answer(true, to),
            Self::DelSa(deleted) => to.message(Kind::DelSa, |to| deleted.write(to)),
            Self::FlushSa(flush) => to.message(Kind::FlushSa, |to| flush.write(to)),
            Self::NewPolicy(policy) => policy.answer(false, to),
            Self::UpdPolicy(policy) => policy.answer(true, to),
            Self::DelPolicy(deleted) => to.message(Kind::DelPolicy, |to| deleted.write(to)),
            Self::FlushPolicy(flush) => to.message(Kind::FlushPolicy, |to| flush.write(to)),
            Self::NewAe(event) => to.message(Kind::NewAe, |to| event.write(to)),
            Self::NewSadInfo(info) => to.message(Kind::NewSadInfo, |to| info.write(to)),
            Self::NewSpdInfo(info) => to.message(Kind::NewSpdInfo, |to| info.write(to)),
            Self::GetDefault(defaults) => to.message(Kind::GetDefault, |to| defaults.write(to)),
            Self::Acquire(event) => to.message(Kind::Acquire, |to| event.write(to)),
            Self::Expire(event) => to.message(Kind::Expire, |to| event.write(to)),
            Self::PolExpire(event) => to.message(Kind::PolExpire, |to| event.write(to)),
            Self::Mapping(event) => to.message(Kind::Mapping, |to| event.write(to)),
            Self::Done(outcome) => acknowledgement::done(outcome.as_ref(), to.seq, to.port),
            Self::Acknowledgement(_) | Self::Other(_) => return None,
        })
    }
}
