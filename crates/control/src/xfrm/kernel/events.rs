//! Events of workers and of time, as daemons hear them.

use std::net::{IpAddr, SocketAddr};

use convoy_ipsec::event::{Event, SaId};
use convoy_ipsec::sa::ReqId;
use convoy_ipsec::snapshot::Writer;
use convoy_wire::{FlowKey, Ports};
use convoy_xfrm::{
    Acquire, Address, Addresses, Datagram, Expire, Group, Limit, Limits, Mapping, Mode, Network,
    PortMask, ProtocolFilter, Reply, Sa, SaFlags, SaInfo, Selector, Usage,
};

use super::Kernel;
use super::sas::describe;
use crate::xfrm::Moment;
use crate::xfrm::plane::refresh;

/// Outcome of an event.
#[derive(Debug)]
pub enum Told {
    /// Daemons are to hear this.
    Daemons(Group, Datagram),
    /// It was known already.
    Nothing,
    /// It is not about SAs or policies of daemons.
    NotOurs,
}

/// Events are asked for by nobody.
pub(super) const TO_ALL: Address = Address { seq: 0, port: 0, multi: false };

impl Kernel {
    /// Takes over what a worker tells.
    pub fn heard(&mut self, writer: &mut Writer, event: &Event, at: Moment) -> Told {
        match event {
            Event::Soft { sa, .. } => self.warned(sa, at),
            Event::Hard { sa, .. } => self.ended(writer, sa, at),
            Event::Acquire { reqid, flow } => self.wanted(*reqid, flow, at),
            Event::Mapping { sa, from } => self.moved(sa, *from, at),
            _ => Told::NotOurs,
        }
    }

    /// Ends larval SAs whose time is over, and returns the events of it. To be called about once a second.
    pub fn tick(&mut self, at: Moment) -> Vec<(Group, Datagram)> {
        self.log.tell_folded();
        // Daemons set it: IKE may wait for a person who types a password.
        self.associations.set_larval_seconds(self.host.larval_seconds());
        let ended = self.associations.expire_larval(at.unix());
        ended.iter().filter_map(|sa| expiry(sa, true)).collect()
    }

    /// Ends all SAs at once, larval ones too: what is told has daemons make new ones.
    pub fn end_all(&mut self, writer: &mut Writer, at: Moment) -> Vec<(Group, Datagram)> {
        let mut gone = self.associations.flush(ProtocolFilter::ALL);
        for association in &mut gone {
            if let Some(placed) = &association.placed {
                refresh(&mut association.sa, placed, at);
            }
        }
        self.let_go_of_sas(&gone, writer);
        gone.iter().filter_map(|association| expiry(&association.sa, true)).collect()
    }

    fn warned(&mut self, sa: &SaId, at: Moment) -> Told {
        let number = self.in_slot(sa);
        let found = number.and_then(|number| self.associations.by_number(number));
        let Some(found) = found else { return Told::NotOurs };
        if let Some(placed) = &found.placed {
            refresh(&mut found.sa, placed, at);
        }
        tracing::info!(
            "{} reached a soft limit; IKE daemons are told to replace it",
            describe(&found.sa)
        );
        expiry(&found.sa, false)
            .map_or(Told::Nothing, |(group, message)| Told::Daemons(group, message))
    }

    fn ended(&mut self, writer: &mut Writer, sa: &SaId, at: Moment) -> Told {
        let number = self.in_slot(sa);
        let gone = number.and_then(|number| self.associations.remove_number(number));
        let Some(mut gone) = gone else { return Told::NotOurs };
        if let Some(placed) = &gone.placed {
            refresh(&mut gone.sa, placed, at);
        }
        self.let_go_of_sas(std::slice::from_ref(&gone), writer);
        tracing::info!("{} reached a hard limit and was removed", describe(&gone.sa));
        expiry(&gone.sa, true)
            .map_or(Told::Nothing, |(group, message)| Told::Daemons(group, message))
    }

    /// A peer's packets come from elsewhere. Of the same place daemons hear again only after the pause
    /// that they asked for.
    fn moved(&mut self, sa: &SaId, from: SocketAddr, at: Moment) -> Told {
        let number = self.in_slot(sa);
        let found = number.and_then(|number| self.associations.by_number(number));
        let Some(found) = found else { return Told::NotOurs };
        let info = &found.sa.info;
        let Some(encap) = &found.sa.encap else { return Told::Nothing };
        let old = SocketAddr::new(info.source, encap.source_port);
        let pause = found.sa.mapping_threshold.unwrap_or(0);
        let is_known = found
            .mapped
            .is_some_and(|(to, when)| to == from && at.unix().saturating_sub(when) < pause.into());
        if is_known || from == old {
            return Told::Nothing;
        }
        let others = convoy_xfrm::Others::default();
        let mapping = Mapping { sa: found.sa.key(), reqid: info.reqid, old, new: from, others };
        if found.mapped.replace((from, at.unix())).is_none_or(|(before, _)| before != from) {
            tracing::info!(
                "packets of {} now come from {from} instead of {old}; IKE daemons are told",
                describe(&found.sa)
            );
        }
        let message = Reply::Mapping(Box::new(mapping)).build(TO_ALL);
        message.map_or(Told::Nothing, |message| Told::Daemons(Group::Mapping, message))
    }

    /// A packet waits for an SA: daemons are asked once, until their time to make one is over.
    fn wanted(&mut self, group: ReqId, flow: &FlowKey, at: Moment) -> Told {
        let policy =
            self.plane.policy_of(flow, group).and_then(|index| self.policies.by_index(index));
        let Some(policy) = policy else { return Told::NotOurs };
        let Some(template) = policy.templates.first() else { return Told::NotOurs };
        let (from, to) = (flow.src_addr(), flow.dst_addr());
        let (source, destination) = match template.mode {
            Mode::Tunnel => (template.source, template.destination),
            _ => (from, to),
        };
        let source = if source.is_unspecified() {
            self.host.source_for(destination).unwrap_or(source)
        } else {
            source
        };
        self.acquires = self.acquires.checked_add(1).unwrap_or(1);
        let info = SaInfo {
            selector: exactly(flow),
            destination,
            source,
            spi: template.spi,
            protocol: template.protocol,
            limits: Limits {
                add_seconds: Limit { soft: 0, hard: self.associations.larval_seconds() },
                ..Limits::NONE
            },
            usage: Usage { add_time: at.unix(), ..Usage::default() },
            failures: convoy_xfrm::Failures::default(),
            seq: self.acquires,
            reqid: template.reqid,
            mode: template.mode,
            replay_window: 0,
            flags: SaFlags(0),
        };
        let acquire = Acquire {
            protocol: info.protocol,
            spi: info.spi,
            source,
            destination,
            selector: info.selector,
            policy: policy.info,
            algorithms: template.algorithms,
            seq: info.seq,
            templates: policy.templates.clone(),
            security: None,
            policy_type: policy.policy_type,
            mark: policy.mark,
            if_id: policy.if_id,
            cpu: None,
            direction: None,
            others: convoy_xfrm::Others::default(),
        };
        // Daemons may have been asked for one of its kind, and not have answered yet.
        let larval = Sa { if_id: policy.if_id, ..Sa::new(info) };
        if self.associations.want(larval).is_err() {
            return Told::Nothing;
        }
        tracing::info!(
            "a packet from {from} to {to} needs an SA (reqid {}); IKE daemons are asked for one",
            info.reqid
        );
        let message = Reply::Acquire(Box::new(acquire)).build(TO_ALL);
        message.map_or(Told::Nothing, |message| Told::Daemons(Group::Acquire, message))
    }
}

/// The message that an SA reached a limit.
pub(super) fn expiry(sa: &Sa, hard: bool) -> Option<(Group, Datagram)> {
    let expire = Expire {
        sa: sa.info,
        hard,
        mark: sa.mark,
        if_id: sa.if_id,
        cpu: sa.cpu,
        direction: sa.direction,
        others: convoy_xfrm::Others::default(),
    };
    Some((Group::Expire, Reply::Expire(Box::new(expire)).build(TO_ALL)?))
}

/// The selector of one flow and no other.
fn exactly(flow: &FlowKey) -> Selector {
    let host =
        |address: IpAddr| Network { address, prefix_len: if address.is_ipv4() { 32 } else { 128 } };
    let (source_port, destination_port) = match flow.ports {
        Ports::Known { src, dst } => (src, dst),
        Ports::Icmp { ty, code } => (ty.into(), code.into()),
        Ports::Opaque => (0, 0),
    };
    let one = |value| PortMask { value, mask: u16::MAX };
    Selector {
        addresses: Addresses::Networks {
            source: host(flow.src_addr()),
            destination: host(flow.dst_addr()),
        },
        source_port: one(source_port),
        destination_port: one(destination_port),
        protocol: flow.protocol.0,
        interface: 0,
        user: 0,
    }
}
