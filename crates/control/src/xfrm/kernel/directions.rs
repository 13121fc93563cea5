//! Direction of the packets of SAs.
//!
//! Daemons need not say it. A kernel needs no answer, for it looks SAs up by their addresses; workers do, and an SA
//! that is used both ways would give nonces twice. Mostly the host's addresses say it. Where neither end is here,
//! as on the second node of a pair and before an address comes, policies and other SAs are asked, and as long as they
//! say nothing the SA receives: that harms nothing.

use std::collections::HashMap;
use std::net::IpAddr;

use convoy_ipsec::selector::Direction;
use convoy_ipsec::snapshot::Writer;
use convoy_xfrm::{Datagram, Group, Sa, SaInfo};

use super::Kernel;
use super::events::expiry;
use super::sas::describe;
use super::transaction::NewSa;
use crate::xfrm::Moment;
use crate::xfrm::plane::{Course, direction_of, refresh};

impl Kernel {
    /// Direction of an SA's packets: as it says, or as the host's addresses do, or its key's last SA, or policies and
    /// other SAs. One whose SPI was chosen here receives.
    pub(super) fn course(&self, sa: &Sa, is_larval: bool) -> Course {
        self.course_of(sa, is_larval, &mut |address| self.host.is_local(address))
    }

    fn course_of(
        &self,
        sa: &Sa,
        is_larval: bool,
        is_local: &mut dyn FnMut(IpAddr) -> bool,
    ) -> Course {
        let SaInfo { source, destination, .. } = sa.info;
        let said = sa.direction.map(direction_of);
        if said.or_else(|| is_larval.then_some(Direction::Inbound)) == Some(Direction::Inbound) {
            // Nobody asks for its source.
            let (direction, source_is_here) = (Direction::Inbound, false);
            return Course { direction, is_guess: false, source_is_here };
        }
        let source_is_here = is_local(source);
        let known = |direction| Course { direction, is_guess: false, source_is_here };
        if let Some(direction) = said {
            return known(direction);
        }
        match (is_local(destination), source_is_here) {
            (true, false) => return known(Direction::Inbound),
            (false, true) => return known(Direction::Outbound),
            _ => {}
        }
        if let Some(direction) = self.plane.remembered(sa).or_else(|| self.plane.said_of(sa)) {
            return known(direction);
        }
        match source_is_here {
            // Both ends are here.
            true => known(Direction::Outbound),
            false => Course { direction: Direction::Inbound, is_guess: true, source_is_here },
        }
    }

    /// An SA came: those beside it whose direction is a guess are to be looked at.
    pub(super) fn note_beside(&mut self, number: u64) {
        if self.guesses.is_empty() {
            return;
        }
        if let Some(came) = self.associations.of_number(number) {
            self.undecided.extend(self.plane.guesses_beside(&came.sa));
        }
    }

    /// Decides about SAs of which something says the direction by now. What is returned is to be told to daemons: SAs
    /// that are gone because they cannot send.
    pub(super) fn decide_directions(
        &mut self,
        writer: &mut Writer,
        at: Moment,
    ) -> Vec<(Group, Datagram)> {
        let mut told = Vec::new();
        // Each that is decided may say something of others.
        while let Some(slot) = self.undecided.pop() {
            let Some(&number) = self.by_slot.get(&(Direction::Inbound, slot)) else { continue };
            told.extend(self.decide_direction(writer, number, &mut HashMap::new(), at));
        }
        told
    }

    /// The same of all: packets may have come by them, and the host's addresses may have `changed`. To be called about
    /// once a second.
    pub fn review_directions(
        &mut self,
        writer: &mut Writer,
        changed: bool,
        at: Moment,
    ) -> Vec<(Group, Datagram)> {
        let all: Vec<_> = self.guesses.iter().copied().collect();
        let (mut told, mut known) = (Vec::new(), HashMap::new());
        for number in all {
            if changed || self.has_received(number) {
                told.extend(self.decide_direction(writer, number, &mut known, at));
            }
        }
        told.extend(self.decide_directions(writer, at));
        told
    }

    fn has_received(&self, number: u64) -> bool {
        let placed = self.associations.of_number(number).and_then(|found| found.placed.as_ref());
        placed.is_some_and(|placed| placed.counters.packets.get() > 0)
    }

    /// `known` are addresses of which the host was asked.
    fn decide_direction(
        &mut self,
        writer: &mut Writer,
        number: u64,
        known: &mut HashMap<IpAddr, bool>,
        at: Moment,
    ) -> Option<(Group, Datagram)> {
        if !self.guesses.contains(&number) {
            return None;
        }
        let found = self.associations.of_number(number)?;
        let host = &self.host;
        let mut is_local =
            |address| *known.entry(address).or_insert_with(|| host.is_local(address));
        let course = self.course_of(&found.sa, false, &mut is_local);
        if self.has_received(number) || (!course.is_guess && course.direction == Direction::Inbound)
        {
            self.confirm(number);
            return None;
        }
        if course.is_guess { None } else { self.turn(writer, number, course, at) }
    }

    /// The guess was right: the SA receives.
    fn confirm(&mut self, number: u64) {
        self.guesses.remove(&number);
        let Some(found) = self.associations.by_number(number) else { return };
        if let Some(placed) = &mut found.placed {
            self.plane.confirm(placed);
        }
        tracing::info!("{} is inbound", describe(&found.sa));
        self.note_beside(number);
    }

    /// The guess was wrong, and nothing came by the SA: it sends.
    fn turn(
        &mut self,
        writer: &mut Writer,
        number: u64,
        course: Course,
        at: Moment,
    ) -> Option<(Group, Datagram)> {
        let mut found = self.associations.remove_number(number)?;
        if let Some(placed) = &found.placed {
            refresh(&mut found.sa, placed, at);
        }
        self.let_go_of_sas(std::slice::from_ref(&found), writer);
        let mut sa = found.sa;
        // The database takes over what the SA did before.
        sa.state.usage = Some(sa.info.usage);
        let checked = self.check(&sa, course);
        let (what, lost) = (describe(&sa), expiry(&sa, true));
        let again = checked.and_then(|checked| {
            let placed = NewSa::new(self, writer).place(&sa, &checked, None, at)?;
            placed.record(|sas| sas.add(sa, at.unix()))?.commit()
        });
        match again {
            Ok(number) => {
                self.note_beside(number);
                tracing::info!("{what} is outbound");
                None
            }
            Err(refusal) => {
                tracing::error!(
                    "{what} is outbound, cannot be installed so, and was removed: {refusal}"
                );
                lost
            }
        }
    }

    /// SAs whose direction is not known, in words.
    pub fn unknown_directions(&self) -> Option<String> {
        let first = self.associations.of_number(*self.guesses.first()?)?;
        let SaInfo { source, destination, .. } = first.sa.info;
        let others = match self.guesses.len() {
            1 => String::new(),
            count => format!(" ({} other SAs likewise)", count - 1),
        };
        Some(format!(
            "direction of {} is not known: neither {source} nor {destination} is an address of this host, and \
             no policy names it; it is inbound until the address is added{others}",
            describe(&first.sa)
        ))
    }
}
