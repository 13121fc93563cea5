//! Packets whose policy protects and has no SA yet (RFC 4301 section 5.1).
//!
//! Where the snapshot says that somebody can make SAs on demand, such a packet waits while control
//! is asked for one. When the next snapshot comes, all that wait are classified again, in order and
//! before new packets. What has waited too long, or finds no room, is dropped under its reason.

use std::collections::VecDeque;

use convoy_wire::FlowKey;

use super::Now;
use super::bin::Bin;
use super::packet::Packet;
use crate::drop_reason::DropReason;
use crate::event::Event;
use crate::sa::ReqId;

/// Packets that may wait in one worker.
const FRAMES: usize = 256;
/// Packets that may wait for one group of SAs.
const FRAMES_EACH: usize = 64;
/// Groups of SAs that may be waited for in one worker.
const GROUPS: usize = 64;
/// How long a packet waits, and how long it takes until an SA is asked for again: after five seconds
/// whoever sent the packet has sent it anew.
const WAIT_NS: u64 = 5_000_000_000;

/// What packets wait for.
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

/// SAs that are waited for.
#[derive(Debug)]
struct Wanted {
    need: Need,
    /// The first packet's.
    flow: FlowKey,
    frames: usize,
    /// When its SA was last asked for.
    asked: Option<Now>,
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
    /// How many at the front have not been classified under the present snapshot.
    again: usize,
    wanted: Vec<Wanted>,
    /// How many of `wanted` are owed.
    owed: usize,
}

impl Acquire {
    pub(super) fn new() -> Self {
        Self {
            held: VecDeque::with_capacity(FRAMES),
            again: 0,
            wanted: Vec::with_capacity(GROUPS),
            owed: 0,
        }
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
        let full = self.held.len() >= FRAMES;
        let Some(wanted) = self.want(need, packet.info.flow, now) else {
            return bin.drop(packet.frame, DropReason::AcquireFull);
        };
        if full || wanted.frames >= FRAMES_EACH {
            return bin.drop(packet.frame, DropReason::AcquireFull);
        }
        wanted.frames += 1;
        bin.counters.held_for_sa.add(1);
        self.held.push_back(Held { packet, need, since });
    }

    /// The entry of a group of SAs; makes one, or asks anew, where there is need and room.
    fn want(&mut self, need: Need, flow: FlowKey, now: Now) -> Option<&mut Wanted> {
        let known = self.wanted.iter().position(|wanted| wanted.need == need);
        let fresh = Wanted { need, flow, frames: 0, asked: None, owed: false };
        let at = match known {
            Some(at) => at,
            None if self.wanted.len() < GROUPS => {
                self.wanted.push(fresh);
                self.wanted.len() - 1
            }
            None => {
                let at = self.wanted.iter().position(|wanted| wanted.is_idle(now))?;
                *self.wanted.get_mut(at)? = fresh;
                at
            }
        };
        let wanted = self.wanted.get_mut(at)?;
        if !wanted.owed && wanted.may_ask(now) {
            (wanted.owed, wanted.flow, wanted.asked) = (true, flow, Some(now));
            self.owed += 1;
        }
        Some(wanted)
    }

    /// There is a new snapshot: all that wait are to be classified again.
    pub(super) fn look_again(&mut self) {
        self.again = self.held.len();
    }

    /// How many wait to be classified again.
    pub(super) fn again(&self) -> usize {
        self.again
    }

    /// Takes packets that are to be classified again and came at the same moment, which is returned.
    pub(super) fn take(&mut self, into: &mut Vec<Packet>) -> Option<Now> {
        let since = self.held.front().filter(|_| self.again > 0)?.since;
        while self.again > 0 && into.len() < into.capacity() {
            let Some(held) = self.held.pop_front_if(|held| held.since == since) else { break };
            self.again -= 1;
            self.forget(held.need);
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

    fn forget(&mut self, need: Need) {
        if let Some(wanted) = self.wanted.iter_mut().find(|wanted| wanted.need == need) {
            wanted.frames -= 1;
        }
    }

    /// Whether there is something to tell.
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
