//! Packets whose policy protects and has no SA yet (RFC 4301 section 5.1).
//!
//! Where the snapshot says that SAs can be made on demand, such a packet waits while control
//! is asked for one. When the next snapshot comes, all that wait are classified again, in order and
//! before new packets. What has waited too long, or finds no room, is dropped under its reason.
//!
//! Policies share the places: those of one number take no more of them than are free then, which is half
//! of what others left, and leaves some for the next number. So neither a policy for
//! many hosts in transport mode, where each destination asks for an SA of its own, nor a flood under
//! another one keeps others from their SAs.

use std::collections::VecDeque;

use convoy_wire::FlowKey;

use super::bin::Bin;
use super::packet::Packet;
use crate::clock::Now;
use crate::drop_reason::DropReason;
use crate::event::Event;
use crate::sa::ReqId;

/// Packets that may wait in one worker.
const FRAMES: usize = 256;
/// Packets that may wait for one SA.
const FRAMES_EACH: usize = 64;
/// SAs that may be waited for in one worker.
const SAS: usize = 64;
/// Time that a packet waits, and until an SA is asked for again, in nanoseconds: after five seconds
/// the sender has sent the packet anew.
const WAIT_NS: u64 = 5_000_000_000;

/// SAs that packets wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Need {
    /// The SAs that their policy names.
    pub(super) reqid: ReqId,
    /// Source and destination, where those have SAs of their own.
    pub(super) hosts: Option<([u8; 16], [u8; 16])>,
}

/// A packet that waits.
#[derive(Debug)]
struct Held {
    packet: Packet,
    need: Need,
    since: Now,
}

/// An SA that is waited for.
#[derive(Debug)]
struct Wanted {
    need: Need,
    /// The first packet's.
    flow: FlowKey,
    frames: usize,
    /// Time at which its SA was last asked for.
    asked: Option<Now>,
    /// True if all that waited for it went on: it came. When it is missing again, it is asked for at once.
    came: bool,
    /// Not yet told.
    owed: bool,
}

impl Wanted {
    fn is_idle(&self, now: Now) -> bool {
        self.frames == 0 && !self.owed && self.may_ask(now)
    }

    fn may_ask(&self, now: Now) -> bool {
        self.asked.is_none_or(|asked| is_over(asked, now))
    }
}

fn is_over(since: Now, now: Now) -> bool {
    now.0.saturating_sub(since.0) >= WAIT_NS
}

/// The packets of one worker that wait for SAs. Allocates when it is made only.
#[derive(Debug)]
pub(super) struct Acquire {
    held: VecDeque<Held>,
    /// Number of packets at the front that have not been classified under the present snapshot.
    again: usize,
    wanted: Vec<Wanted>,
    /// Number of `wanted` that are owed.
    owed: usize,
    /// True if the packets that are classified now have waited.
    have_waited: bool,
}

impl Acquire {
    pub(super) fn new() -> Self {
        Self {
            held: VecDeque::with_capacity(FRAMES),
            again: 0,
            wanted: Vec::with_capacity(SAS),
            owed: 0,
            have_waited: false,
        }
    }

    /// True if packets wait.
    pub(super) fn is_waited_for(&self) -> bool {
        !self.held.is_empty()
    }

    /// Lets a packet wait that came at `since`, and asks for its SA unless that was done lately.
    pub(super) fn hold(
        &mut self,
        packet: Packet,
        need: Need,
        since: Now,
        now: Now,
        bin: &mut Bin<'_>,
    ) {
        let free = FRAMES.saturating_sub(self.held.len());
        let of_number = self.wanted.iter().filter(|wanted| wanted.need.reqid == need.reqid);
        let has_share = of_number.map(|wanted| wanted.frames).sum::<usize>() < free;
        let Some(wanted) = self.want(need, packet.info.flow, now) else {
            return bin.drop(packet.frame, DropReason::AcquireFull);
        };
        if !has_share || wanted.frames >= FRAMES_EACH {
            return bin.drop(packet.frame, DropReason::AcquireFull);
        }
        wanted.frames += 1;
        bin.counters.held_for_sa.add(1);
        self.held.push_back(Held { packet, need, since });
    }

    /// The entry of an SA that is waited for; makes one, or asks anew, where there is need and room.
    fn want(&mut self, need: Need, flow: FlowKey, now: Now) -> Option<&mut Wanted> {
        let known = self.wanted.iter().position(|wanted| wanted.need == need);
        let at = known.or_else(|| self.place(need, flow, now))?;
        let wanted = self.wanted.get_mut(at)?;
        // What has waited did not find it in the present snapshot either, and waits on.
        if core::mem::take(&mut wanted.came) && !self.have_waited {
            wanted.asked = None;
        }
        if !wanted.owed && wanted.may_ask(now) {
            (wanted.owed, wanted.flow, wanted.asked) = (true, flow, Some(now));
            self.owed += 1;
        }
        Some(wanted)
    }

    /// A new entry, if the share of its number allows one more.
    fn place(&mut self, need: Need, flow: FlowKey, now: Now) -> Option<usize> {
        let (mut busy, mut of_number, mut idle) = (0, 0, None);
        for (at, wanted) in self.wanted.iter().enumerate() {
            if wanted.is_idle(now) {
                idle = idle.or(Some(at));
            } else {
                busy += 1;
                of_number += usize::from(wanted.need.reqid == need.reqid);
            }
        }
        if of_number >= SAS.saturating_sub(busy) {
            return None;
        }
        let fresh = Wanted { need, flow, frames: 0, asked: None, came: false, owed: false };
        if let Some(at) = idle {
            *self.wanted.get_mut(at)? = fresh;
            return Some(at);
        }
        self.wanted.push(fresh);
        Some(self.wanted.len() - 1)
    }

    /// New packets are classified from here on.
    pub(super) fn begin(&mut self) {
        self.have_waited = false;
    }

    /// There is a new snapshot: all that wait are to be classified again.
    pub(super) fn look_again(&mut self) {
        self.again = self.held.len();
    }

    /// Number of packets that wait to be classified again.
    pub(super) fn again(&self) -> usize {
        self.again
    }

    /// Takes packets that are to be classified again and came at the same moment, which is returned.
    pub(super) fn take(&mut self, into: &mut Vec<Packet>) -> Option<Now> {
        self.have_waited = true;
        let since = self.held.front().filter(|_| self.again > 0)?.since;
        while self.again > 0 && into.len() < into.capacity() {
            let Some(held) = self.held.pop_front_if(|held| held.since == since) else { break };
            self.again -= 1;
            if let Some(wanted) = self.forget(held.need) {
                // Until one of them waits again.
                wanted.came = wanted.frames == 0;
            }
            into.push(held.packet);
        }
        Some(since)
    }

    /// Drops what has waited too long.
    pub(super) fn tick(&mut self, now: Now, bin: &mut Bin<'_>) {
        while let Some(held) = self.held.pop_front_if(|held| is_over(held.since, now)) {
            self.again = self.again.saturating_sub(1);
            self.forget(held.need);
            bin.drop(held.packet.frame, DropReason::AcquireTimeout);
        }
    }

    /// Drops all that waits.
    pub(super) fn release(&mut self, bin: &mut Bin<'_>) {
        self.again = 0;
        for held in self.held.drain(..) {
            bin.drop(held.packet.frame, DropReason::AcquireTimeout);
        }
        self.wanted.clear();
        self.owed = 0;
    }

    fn forget(&mut self, need: Need) -> Option<&mut Wanted> {
        let wanted = self.wanted.iter_mut().find(|wanted| wanted.need == need)?;
        wanted.frames -= 1;
        Some(wanted)
    }

    /// True if there is something to tell.
    pub(super) fn has_news(&self) -> bool {
        self.owed > 0
    }

    /// Asks for SAs until `tell` takes no more; what it did not take comes again.
    pub(super) fn tell(&mut self, tell: &mut impl FnMut(Event) -> bool) {
        for wanted in self.wanted.iter_mut().filter(|wanted| wanted.owed) {
            let Wanted { need, flow, .. } = *wanted;
            if !tell(Event::Acquire { reqid: need.reqid, flow }) {
                return;
            }
            wanted.owed = false;
            self.owed -= 1;
        }
    }
}
