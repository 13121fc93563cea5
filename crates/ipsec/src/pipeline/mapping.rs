//! Source addresses of packets in UDP: a NAT may give a peer another address or port at any time, and
//! then control is told (RFC 3948 section 3.1.2 leaves what to do about it to others).

use std::net::{IpAddr, SocketAddr};

use convoy_engine::Job;

use super::commit::Verdict;
use super::layout::UDP_HEADER;
use super::sa::InboundSa;
use super::slab::Slab;
use super::watch::Watched;
use crate::clock::Now;
use crate::event::Event;
use crate::sa::SaSlot;

/// For so many nanoseconds nothing more is told of an SA.
const PAUSE: u64 = 1_000_000_000;
/// Most SAs to be told of at once. What finds no room is found again with the SA's next packet.
const WAITING_MAX: usize = 64;

/// Peers whose packets come from elsewhere, and of which control is still to be told.
#[derive(Debug)]
pub(super) struct Mappings {
    /// From when on each slot may be told of again.
    next: Vec<u64>,
    /// Each slot once.
    waiting: Vec<Moved>,
}

#[derive(Debug)]
struct Moved {
    slot: u32,
    epoch: u32,
    from: SocketAddr,
}

impl Mappings {
    pub(super) fn new() -> Self {
        Self { next: Vec::new(), waiting: Vec::with_capacity(WAITING_MAX) }
    }

    /// Takes an SA with encapsulation in; not on the data path.
    pub(super) fn add(&mut self, slot: u32) {
        let slots = slot as usize + 1;
        if self.next.len() < slots {
            self.next.resize(slots, 0);
        }
        if let Some(next) = self.next.get_mut(slot as usize) {
            *next = 0;
        }
    }

    /// Looks where the last accepted one of an SA's packets came from. Only what is authentic and new
    /// counts: anybody can send the rest.
    #[inline(never)]
    pub(super) fn look(
        &mut self,
        now: Now,
        sa: &InboundSa,
        slot: u32,
        run: &[Job],
        verdicts: &[Verdict],
    ) {
        let judged = run.iter().rev().zip(verdicts.iter().rev());
        let last = judged.into_iter().find(|(_, verdict)| verdict.is_none());
        let from = last.and_then(|(job, _)| source(sa, job));
        let Some(encap) = &sa.spec.encap else { return };
        let usual = SocketAddr::new(sa.spec.endpoints.remote, encap.remote_port);
        if let Some(from) = from.filter(|from| *from != usual) {
            self.note(now, Moved { slot, epoch: sa.epoch, from });
        }
    }

    #[cold]
    fn note(&mut self, now: Now, moved: Moved) {
        let next = self.next.get_mut(moved.slot as usize);
        let Some(next) = next.filter(|next| now.0 >= **next) else { return };
        let has_room = self.waiting.len() < WAITING_MAX;
        match self.waiting.iter_mut().find(|other| other.slot == moved.slot) {
            Some(other) => *other = moved,
            None if has_room => self.waiting.push(moved),
            None => return,
        }
        *next = now.0.saturating_add(PAUSE);
    }

    /// True if there is something to tell.
    #[inline]
    pub(super) fn has_news(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Tells events until `tell` takes no more; what it did not take stays for the next time.
    pub(super) fn tell(&mut self, sas: &Slab<InboundSa>, tell: &mut impl FnMut(Event) -> bool) {
        while let Some(&Moved { slot, epoch, from }) = self.waiting.last() {
            // An SA that has changed since may have been told of it.
            if let Some(sa) = sas.get(slot).filter(|sa| sa.epoch == epoch)
                && !tell(Event::Mapping { sa: sa.id(SaSlot(slot)), from })
            {
                return;
            }
            self.waiting.pop();
        }
    }
}

/// Address and UDP port that a packet of an SA with encapsulation came from.
fn source(sa: &InboundSa, job: &Job) -> Option<SocketAddr> {
    let packet = job.frame.data();
    let esp = (job.text.start as usize).checked_sub(sa.layout.lengths().prefix_len())?;
    let udp = packet.get(esp.checked_sub(UDP_HEADER)?..)?;
    let address: IpAddr = match sa.spec.endpoints.remote {
        IpAddr::V4(_) => packet.get(12..)?.first_chunk::<4>().copied()?.into(),
        IpAddr::V6(_) => packet.get(8..)?.first_chunk::<16>().copied()?.into(),
    };
    Some(SocketAddr::new(address, u16::from_be_bytes(*udp.first_chunk()?)))
}
