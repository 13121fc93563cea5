//! The table of descriptors: which of them are netlink sockets, and what is remembered of each.
//!
//! Everything is an atomic in a static table, so a look never waits and nothing is allocated, also
//! in signal handlers and in the child of `vfork`. A changed entry is seen in pieces at worst by
//! threads that use a descriptor while another one makes it, which no program does.

use std::sync::atomic::{
    AtomicI32, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// Descriptors from this number on cannot be led to Convoy.
pub const DESCRIPTORS: usize = 4096;
/// Epoll instances a descriptor may be registered with, and have its registrations survive.
pub const WATCHES: usize = 4;
/// Requests that can wait for an answer at once and get an error when the server goes.
pub const PENDING: usize = 8;

/// Number that identifies a file behind a descriptor: 0 is none, even ones are sockets by their inode, odd
/// ones timers by their interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity(pub u64);

impl Identity {
    /// No file.
    pub const NONE: Self = Self(0);

    /// A socket.
    #[must_use]
    pub const fn socket(inode: u64) -> Self {
        Self(inode << 1)
    }

    /// A timer that stands in for a server, with its interval in nanoseconds.
    #[must_use]
    pub const fn timer(interval: u64) -> Self {
        Self(interval << 1 | 1)
    }

    /// True if it is a timer, that is, if there is no server.
    #[must_use]
    pub const fn is_parked(self) -> bool {
        self.0 & 1 == 1
    }
}

/// A registration of a descriptor with an epoll instance.
#[derive(Debug)]
pub struct Watch {
    /// The epoll descriptor plus 1; 0 for no registration.
    epoll: AtomicI32,
    events: AtomicU32,
    data: AtomicU64,
}

/// State kept for a descriptor.
#[derive(Debug)]
pub struct Slot {
    identity: AtomicU64,
    /// The identity that the file is about to have.
    coming: AtomicU64,
    /// The process whose thread replaces the file, or 0.
    owner: AtomicI32,
    /// The netlink port; 0 before the socket is bound.
    pub port: AtomicU32,
    /// The groups joined, as a mask.
    pub groups: AtomicU32,
    /// The port and the group mask it is connected to, usually 0.
    pub peer: [AtomicU32; 2],
    /// Options of `SOL_NETLINK` that are on, as a mask.
    pub options: AtomicU32,
    /// `SOCK_RAW` or `SOCK_DGRAM`.
    pub style: AtomicI32,
    /// `SO_RCVBUF` and `SO_SNDBUF` as the application set them, or 0.
    pub buffers: [AtomicI32; 2],
    /// Milliseconds until the next attempt to reach a server.
    pub backoff: AtomicU32,
    /// 1 if a request was refused because answers to others were still to be read, else 0.
    pub refused: AtomicU32,
    /// Requests without an answer: 1 in the upper half, the sequence number in the lower.
    pending: [AtomicU64; PENDING],
    watches: [Watch; WATCHES],
}

impl Slot {
    const fn new() -> Self {
        Self {
            identity: AtomicU64::new(0),
            coming: AtomicU64::new(0),
            owner: AtomicI32::new(0),
            port: AtomicU32::new(0),
            groups: AtomicU32::new(0),
            peer: [const { AtomicU32::new(0) }; 2],
            options: AtomicU32::new(0),
            style: AtomicI32::new(0),
            buffers: [const { AtomicI32::new(0) }; 2],
            backoff: AtomicU32::new(0),
            refused: AtomicU32::new(0),
            pending: [const { AtomicU64::new(0) }; PENDING],
            watches: [const {
                Watch {
                    epoll: AtomicI32::new(0),
                    events: AtomicU32::new(0),
                    data: AtomicU64::new(0),
                }
            }; WATCHES],
        }
    }

    /// The file it was last seen to be.
    pub fn identity(&self) -> Identity {
        Identity(self.identity.load(Acquire))
    }

    /// Makes it a fresh netlink socket.
    pub fn occupy(&self, identity: Identity, style: i32) {
        self.identity.store(0, Release);
        self.coming.store(0, Relaxed);
        self.owner.store(0, Relaxed);
        for number in [&self.port, &self.groups, &self.options, &self.backoff, &self.refused] {
            number.store(0, Relaxed);
        }
        for number in &self.peer {
            number.store(0, Relaxed);
        }
        for number in &self.buffers {
            number.store(0, Relaxed);
        }
        self.forget_pending();
        for watch in &self.watches {
            watch.epoll.store(0, Relaxed);
        }
        self.style.store(style, Relaxed);
        self.identity.store(identity.0, Release);
    }

    /// Makes it another descriptor of the file that `from` is.
    pub fn duplicate(&self, from: &Self) {
        self.occupy(Identity::NONE, from.style.load(Relaxed));
        let numbers = [
            (&self.port, &from.port),
            (&self.groups, &from.groups),
            (&self.options, &from.options),
            (&self.backoff, &from.backoff),
            (&self.peer[0], &from.peer[0]),
            (&self.peer[1], &from.peer[1]),
        ];
        for (to, from) in numbers {
            to.store(from.load(Relaxed), Relaxed);
        }
        for (to, from) in self.buffers.iter().zip(&from.buffers) {
            to.store(from.load(Relaxed), Relaxed);
        }
        self.identity.store(from.identity().0, Release);
    }

    /// True if the descriptor is still what it was; `is` tells if it has an identity.
    /// An entry that is out of date is emptied.
    pub fn verify(&self, is: impl Fn(Identity) -> bool) -> bool {
        loop {
            let noted = self.identity();
            if noted == Identity::NONE {
                return false;
            }
            let coming = Identity(self.coming.load(Acquire));
            if is(noted) || (coming != Identity::NONE && is(coming)) {
                return true;
            }
            // Replaced meanwhile? Then look again.
            if self.identity.compare_exchange(noted.0, 0, AcqRel, Acquire).is_ok() {
                return false;
            }
        }
    }

    /// Says that the file is about to be replaced.
    pub fn announce(&self, identity: Identity) {
        self.coming.store(identity.0, Release);
    }

    /// Says that the file was replaced.
    pub fn replaced(&self, identity: Identity) {
        self.identity.store(identity.0, Release);
        self.coming.store(0, Release);
    }

    /// Takes the right to replace the file for a thread of process `pid`. A right that was held when
    /// a parent forked is void.
    pub fn claim(&self, pid: i32) -> bool {
        let held = self.owner.load(Acquire);
        held != pid && self.owner.compare_exchange(held, pid, AcqRel, Acquire).is_ok()
    }

    /// Gives the right back.
    pub fn release(&self) {
        self.owner.store(0, Release);
    }

    /// Notes a request that will be answered. With too many of them, one is forgotten.
    pub fn expect(&self, seq: u32) {
        let entry = 1 << 32 | u64::from(seq);
        let free = self
            .pending
            .iter()
            .find(|place| place.compare_exchange(0, entry, AcqRel, Relaxed).is_ok());
        if free.is_none() {
            self.pending[0].store(entry, Release);
        }
    }

    /// Notes that a request was answered; tells whether it was expected.
    pub fn answered(&self, seq: u32) -> bool {
        let entry = 1 << 32 | u64::from(seq);
        self.pending.iter().any(|place| place.compare_exchange(entry, 0, AcqRel, Relaxed).is_ok())
    }

    /// True if a request waits for its answer.
    pub fn awaits(&self, seq: u32) -> bool {
        let entry = 1 << 32 | u64::from(seq);
        self.pending.iter().any(|place| place.load(Acquire) == entry)
    }

    /// A request that waits for its answer.
    pub fn unanswered(&self) -> Option<u32> {
        let entry =
            self.pending.iter().map(|place| place.load(Acquire)).find(|entry| *entry != 0)?;
        u32::try_from(entry & u64::from(u32::MAX)).ok()
    }

    /// Waits for no answers any more.
    pub fn forget_pending(&self) {
        for place in &self.pending {
            place.store(0, Relaxed);
        }
    }

    /// Remembers a registration with an epoll instance.
    pub fn watch(&self, epoll: i32, events: u32, data: u64) {
        let known = self.watches.iter().find(|watch| watch.epoll.load(Relaxed) == epoll + 1);
        let free = || self.watches.iter().find(|watch| watch.epoll.load(Relaxed) == 0);
        if let Some(watch) = known.or_else(free) {
            watch.events.store(events, Relaxed);
            watch.data.store(data, Relaxed);
            watch.epoll.store(epoll + 1, Release);
        }
    }

    /// Forgets a registration.
    pub fn unwatch(&self, epoll: i32) {
        for watch in &self.watches {
            let _ = watch.epoll.compare_exchange(epoll + 1, 0, AcqRel, Relaxed);
        }
    }

    /// The registrations: epoll descriptor, events, data.
    pub fn watches(&self) -> [Option<(i32, u32, u64)>; WATCHES] {
        std::array::from_fn(|at| {
            let watch = &self.watches[at];
            let epoll = watch.epoll.load(Acquire);
            (epoll != 0).then(|| (epoll - 1, watch.events.load(Relaxed), watch.data.load(Relaxed)))
        })
    }
}

static TABLE: [Slot; DESCRIPTORS] = [const { Slot::new() }; DESCRIPTORS];

/// The entry of a descriptor, if the table is that long.
#[inline]
pub fn slot(fd: i32) -> Option<&'static Slot> {
    TABLE.get(usize::try_from(fd).ok()?)
}

/// The entry of a descriptor that was a netlink socket when last seen.
#[inline]
pub fn occupied(fd: i32) -> Option<&'static Slot> {
    slot(fd).filter(|slot| slot.identity.load(Acquire) != 0)
}

/// All entries of that kind, with their descriptors.
pub fn all() -> impl Iterator<Item = (i32, &'static Slot)> {
    (0..)
        .map_while(|fd| slot(fd).map(|slot| (fd, slot)))
        .filter(|(_, slot)| slot.identity.load(Acquire) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_out_of_date_is_emptied() {
        let slot = Slot::new();
        slot.occupy(Identity::socket(5), 3);
        assert!(slot.verify(|is| is == Identity::socket(5)));
        assert!(!slot.verify(|_| false));
        assert_eq!(slot.identity(), Identity::NONE);
    }

    #[test]
    fn an_entry_is_believed_while_its_file_is_replaced() {
        let slot = Slot::new();
        slot.occupy(Identity::socket(5), 3);
        slot.announce(Identity::timer(9));
        assert!(slot.verify(|is| is == Identity::socket(5)));
        assert!(slot.verify(|is| is == Identity::timer(9)));
        slot.replaced(Identity::timer(9));
        assert!(slot.identity().is_parked());
        assert!(!slot.verify(|is| is == Identity::socket(5)));
    }

    #[test]
    fn only_one_thread_replaces_and_a_childs_parent_does_not_count() {
        let slot = Slot::new();
        assert!(slot.claim(10));
        assert!(!slot.claim(10));
        assert!(slot.claim(11), "the right of another process is void here");
        slot.release();
        assert!(slot.claim(10));
    }

    #[test]
    fn requests_wait_until_they_are_answered() {
        let slot = Slot::new();
        slot.expect(0);
        slot.expect(7);
        assert_eq!(slot.unanswered(), Some(0));
        assert!(slot.answered(0) && !slot.answered(0));
        assert_eq!(slot.unanswered(), Some(7));
        (0..20).for_each(|seq| slot.expect(seq));
        slot.forget_pending();
        assert_eq!(slot.unanswered(), None);
    }

    #[test]
    fn registrations_are_kept_per_epoll_instance() {
        let slot = Slot::new();
        slot.watch(4, 1, 100);
        slot.watch(4, 5, 101);
        slot.watch(0, 1, 102);
        assert_eq!(
            slot.watches().iter().flatten().collect::<Vec<_>>(),
            [&(4, 5, 101), &(0, 1, 102)]
        );
        slot.unwatch(4);
        assert_eq!(slot.watches().iter().flatten().count(), 1);
    }
}
