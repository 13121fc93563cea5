//! SAs come, change and go.

use std::fmt;
use std::net::IpAddr;

use convoy_ipsec::event::SaId;
use convoy_ipsec::snapshot::Writer;
use convoy_xfrm::{
    Address, AllocSpi, AsyncEvent, Datagram, Errno, FlushSa, Group, Refusal, Reply, Sa, SaDeleted,
    SaInfo, SaQuery,
};

use super::transaction::{ChangedSa, NewSa};
use super::{Carried, Kernel, OnInterface};
use crate::xfrm::plane::{refresh, unkept};
use crate::xfrm::{Answer, Client, Moment};

/// An SA in words, without its keys, put together only when shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Described {
    spi: u32,
    source: IpAddr,
    destination: IpAddr,
    reqid: u32,
    if_id: u32,
}

impl fmt::Display for Described {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { spi, source, destination, reqid, if_id } = self;
        write!(f, "SA {spi:08x} {source} -> {destination} (reqid {reqid}{})", OnInterface(*if_id))
    }
}

pub(super) fn describe(sa: &Sa) -> Described {
    let SaInfo { spi, source, destination, reqid, .. } = sa.info;
    let spi = spi.map_or(0, convoy_wire::Spi::get);
    Described { spi, source, destination, reqid, if_id: sa.if_id }
}

/// Answers that change nothing else.
fn carried(answer: Answer) -> Carried {
    Carried { answer, ..Carried::default() }
}

fn event(group: Group, message: Option<Datagram>) -> Answer {
    let events = message.map(|message| (group, message)).into_iter().collect();
    Answer { events, ..Answer::default() }
}

impl Kernel {
    pub(super) fn new_sa(
        &mut self,
        writer: &mut Writer,
        client: &Client,
        mut sa: Sa,
        to: Address,
        at: Moment,
    ) -> Result<Carried, Refusal> {
        let checked = self.check(&sa, self.course(&sa, false))?;
        self.associations.is_free(&sa)?;
        begin(&mut sa, at);
        let placed = NewSa::new(self, writer).place(&sa, &checked, None, at)?;
        let number = placed.record(|sas| sas.add(sa, at.unix()))?.commit()?;
        self.note_beside(number);
        Ok(self.tell_sa(number, "added", client, |now| now.answer(false, to)))
    }

    /// `UPDSA`: a larval SA gets its keys, a live one changes.
    pub(super) fn update_sa(
        &mut self,
        writer: &mut Writer,
        client: &Client,
        mut sa: Sa,
        to: Address,
        at: Moment,
    ) -> Result<Carried, Refusal> {
        let is_larval = self.associations.twin(&sa).map(|twin| twin.is_larval);
        let course = self.course(&sa, is_larval.as_ref().is_ok_and(|is| *is));
        let checked = self.check(&sa, course)?;
        if is_larval? {
            begin(&mut sa, at);
            let placed = NewSa::new(self, writer).place(&sa, &checked, None, at)?;
            let number = placed.record(|sas| sas.update(sa, at.unix()))?.commit()?;
            self.note_beside(number);
            return Ok(self.tell_sa(number, "added", client, |now| now.answer(true, to)));
        }
        let twin = self.associations.twin(&sa)?;
        if sa.if_id != 0 && sa.if_id != twin.sa.if_id {
            let text = "Convoy moves no SA to another interface (if_id)";
            return Err(Refusal::new(Errno::EOPNOTSUPP, text));
        }
        let changed = ChangedSa::record(self, sa, at)?;
        let number = changed.redraw(writer, at)?.commit()?;
        Ok(self.tell_sa(number, "changed", client, |now| now.answer(true, to)))
    }

    /// Tells daemons and people of an SA that came or changed.
    fn tell_sa(
        &mut self,
        number: u64,
        verb: &str,
        client: &Client,
        message: impl FnOnce(&Sa) -> Datagram,
    ) -> Carried {
        let Some(now) = self.associations.of_number(number) else { return Carried::default() };
        self.log.changed(client, format_args!("{} {verb}", describe(&now.sa)));
        carried(event(Group::Sa, Some(message(&now.sa))))
    }

    pub(super) fn delete_sa(
        &mut self,
        writer: &mut Writer,
        client: &Client,
        query: &SaQuery,
        to: Address,
        at: Moment,
    ) -> Result<Carried, Refusal> {
        let mut gone = self.associations.remove(&query.key)?;
        self.let_go_of_sas(std::slice::from_ref(&gone), writer);
        if let Some(placed) = &gone.placed {
            refresh(&mut gone.sa, placed, at);
        }
        self.log.changed(client, format_args!("{} removed", describe(&gone.sa)));
        let deleted = Reply::DelSa(SaDeleted { sa: Box::new(gone.sa) });
        Ok(carried(event(Group::Sa, deleted.build(to))))
    }

    pub(super) fn flush_sas(
        &mut self,
        writer: &mut Writer,
        client: &Client,
        flush: &FlushSa,
        to: Address,
    ) -> Result<Carried, Refusal> {
        let gone = self.associations.flush(flush.protocol);
        self.let_go_of_sas(&gone, writer);
        if gone.is_empty() {
            return Ok(Carried::default());
        }
        tracing::info!(by = %client.command, pid = client.pid, "{} SAs flushed", gone.len());
        let flushed = FlushSa { protocol: flush.protocol, ..FlushSa::default() };
        Ok(carried(event(Group::Sa, Reply::FlushSa(flushed).build(to))))
    }

    pub(super) fn allocate_spi(
        &mut self,
        request: &AllocSpi,
        to: Address,
        at: Moment,
    ) -> Result<Carried, Refusal> {
        let wanted = self.plane.spis(request, |class| self.associations.waiting_in(class));
        let sa = self.associations.allocate(request, at.unix(), Some(wanted), draw)?;
        let replies = vec![sa.answer(false, to)];
        Ok(carried(Answer { replies, ..Answer::default() }))
    }

    /// `NEWAE`: how often events tell is kept; numbers of a live SA are its worker's.
    pub(super) fn set_state(&mut self, event: &AsyncEvent) -> Result<Carried, Refusal> {
        let found = self.associations.get_mut(&event.sa)?;
        let state = &event.state;
        if state.replay.is_some() || state.replay_esn.is_some() || state.usage.is_some() {
            let text = "Convoy sets numbers and counters when an SA is added, and not later";
            return Err(Refusal::new(Errno::EOPNOTSUPP, text));
        }
        let kept = &mut found.sa.state;
        let before = (kept.replay_threshold, kept.timer_threshold);
        kept.replay_threshold = state.replay_threshold.or(kept.replay_threshold);
        kept.timer_threshold = state.timer_threshold.or(kept.timer_threshold);
        if let Some(Err(error)) = self.keep.as_mut().map(|keep| keep.put_sa(found)) {
            let kept = &mut found.sa.state;
            (kept.replay_threshold, kept.timer_threshold) = before;
            return Err(unkept(&error));
        }
        Ok(Carried::default())
    }

    /// The number of the SA that workers mean, if it is still there.
    pub(super) fn in_slot(&self, sa: &SaId) -> Option<u64> {
        let number = *self.by_slot.get(&(sa.direction, sa.slot))?;
        let placed = self.associations.of_number(number)?.placed.as_ref()?;
        // Another one may have got the slot since, also one of this SPI that a daemon moved.
        (placed.serial == sa.serial).then_some(number)
    }
}

/// Sets the usage of an SA before it comes: none, or what a daemon that moves it says. It is shown with
/// the names that kernels show.
fn begin(sa: &mut Sa, at: Moment) {
    sa.transform.canonical();
    // Software does what no device does, as with a kernel.
    sa.offload = None;
    let fresh = convoy_xfrm::Usage { add_time: at.unix(), ..convoy_xfrm::Usage::default() };
    sa.info.usage = sa.state.usage.unwrap_or(fresh);
}

/// A random number from `low` to `high`.
fn draw(low: u32, high: u32) -> u32 {
    let mut bytes = [0; 8];
    // Without random numbers the first free SPI is taken: it is a name and no secret.
    let _ = getrandom::fill(&mut bytes);
    let span = u64::from(high.saturating_sub(low)) + 1;
    let offset = u64::from_ne_bytes(bytes) % span;
    low.saturating_add(u32::try_from(offset).unwrap_or(0))
}
