//! Steps between a request and the first packet that it is about.
//!
//! An SA that comes (`NEWSA`, and `UPDSA` of a larval one, [`NewSa`]):
//!
//! 1. **Check** that workers can do what it asks for (`Plane::check`).
//! 2. **Place** it: a slot, a worker, the groups that policies name it by, its sequence numbers and the cell that
//!    keeps them. A draft of the next snapshot has it.
//! 3. **Record** it in the database: requests find it.
//! 4. **Commit**: write it into the journal, so that the next run of the gateway has it, and publish the draft, so
//!    that workers see it at their next burst. The journal is the last that may refuse.
//! 5. The gateway waits until every worker has seen it, and only then the answer goes out.
//!
//! An SA that changes ([`ChangedSa`]) and a policy ([`NewPolicy`]) go the same way, and are recorded before they are
//! placed: the database says what an SA is after the change, and which number a policy has.
//!
//! Each step consumes the one before: none is left out, and none comes twice. A step that fails, or is dropped,
//! takes back all that the steps before it made, last things first.
//!
//! SAs and policies that go ([`gone`]) leave the database, the snapshot and the journal. None of that fails.

mod changed_sa;
mod gone;
mod new_sa;
mod policy;

pub(super) use changed_sa::ChangedSa;
pub(super) use new_sa::NewSa;
pub(super) use policy::{NewPolicy, PublishedPolicy};
