//! Sequence numbers that outlive the gateway: no number of a key is ever used twice.
//!
//! AES-GCM fails completely when one key seals two packets under one nonce: an observer learns the
//! authentication key and can forge. In ESP the nonce is salt and sequence number (RFC 4106
//! section 3), so a static key may only be used by someone who remembers across restarts which
//! numbers were used. That memory is the *state folder*. Without a writable one static keys are
//! refused; RFC 4106 section 3 forbids them outright unless nonces are guarded.
//!
//! # What is guaranteed
//!
//! **Outbound** ([`Lease`](convoy_ipsec::sequence::Lease)): numbers are leased in blocks. The first
//! number that is *not* leased is written and synced before the block may be used; after a restart
//! the gateway goes on there. An orderly end writes the exact next number, so nothing is skipped;
//! after `kill -9` or power failure at most what was leased ahead is skipped (about two blocks), never
//! repeated. When records cannot be written nothing is granted, and packets are dropped with their
//! reason once the lease is used up.
//!
//! A key keeps its direction for good: one that was inbound here has been used by the peer, so it is
//! refused outbound, also after a restart, and the other way round.
//!
//! This holds for every moment of a crash, for writes torn anywhere, and for damage to one of the
//! two images at any time. It needs a medium that keeps what it reported as synced.
//!
//! Images are tied to the machine, by what there is of its `machine-id` and its DMI product UUID, and to
//! the folder, by the inode of `hash-key` and when that was made: copies are refused. What was written
//! over from a backup in place, or put back with the whole machine, cannot be seen here. Never do that,
//! and never delete the folder while its keys are in use; write new keys instead.
//!
//! **Inbound** ([`ReplayFloor`](convoy_ipsec::replay::ReplayFloor)): a packet accepted before a restart is not
//! accepted again after it. The window's right edge is written every few milliseconds and synced
//! every second while packets arrive. The new floor is
//!
//! * after an orderly end: the exact edge;
//! * after the process was killed: the edge written last, plus four times the most numbers that
//!   passed between two writes within the last seconds, plus 8 (40 in all for a quiet SA that was
//!   just started). The kernel keeps what was written;
//! * after the machine failed, or where the last write was torn: the newest edge on the disk, plus
//!   four times the most numbers that passed between two syncs within the last seconds, plus 32.
//!
//! Numbers pass with packets that are accepted, and with others that are lost on the way: those count
//! too, but at most three for each packet. What the edge moved beyond that was a jump. Peers make
//! them that are started anew after a crash, since they skip what they had leased; a jump of two
//! million numbers in one packet says nothing of how many packets come next, and an allowance of
//! four times as many would make a quiet SA deaf for good.
//!
//! A sync comes early, after 20 ms at the soonest, when the edge moves so far that half of the last
//! allowance is used up, as with every jump. So a packet could be accepted a second time only if it
//! was accepted in the last moment before an unorderly end (some 5 ms for a process, some 20 ms for
//! the machine), and if in that moment numbers jumped, or passed more than four times faster than
//! within the seconds before, or if writes had been failing (which is reported). The price is that
//! after an unorderly end as many new packets of the peer are refused as the allowance is larger than
//! the number it sent meanwhile. A floor above all that could ever have been accepted would have to
//! be as far ahead as a link at full speed gets between two syncs, or as a peer jumps, and a quiet SA
//! would then stay deaf for hours.
//!
//! # How it is stored
//!
//! `hash-key` holds a random key; records are named by HMAC-SHA-256 under it over direction, key and
//! salt, so the folder does not tell keys and does not depend on names or SPIs. `leases-a` and
//! `leases-b` each hold an image of all records with a generation number and a MAC. One of them is
//! always whole on the disk while the other is written. Each image bounds what the next may allow,
//! so that losing the newer one does not lose what it allowed. The folder itself is locked while a
//! gateway runs, and so is the file `lock` for versions that look at that one, so one folder serves
//! one gateway.
//!
//! At each write, and ten times a second, the gateway looks whether folder and files are still those
//! that their path names. What is not there is not found by the next run: nothing is granted any more,
//! and that is told. The folder has an extended attribute (`user.convoy.used`), so that one that was
//! emptied is not taken for a new one; in what was put in its place a file `records-lost` says so.

mod binding;
mod error;
pub(crate) mod fuzzing;
mod hash;
mod image;
mod keeper;
mod ledger;
mod look;
mod pace;
mod storage;
mod store;

pub use binding::Machine;
pub use error::LeaseError;
pub use hash::{HashKey, RecordId};
pub(crate) use hash::{direction_of, number_of};
pub use image::BootId;
pub use keeper::{LeaseEvent, LeaseKeeper};
pub use ledger::{InboundRequest, OutboundRequest};
pub use look::look;
pub(crate) use pace::{LEAST_ALLOWANCE, Progress, allowance};
pub use storage::{Slot, Storage};

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod floor_tests;
