//! Fragments on their way in: put together on the wire side, told their ports on the plain sides.
//!
//! ESP is opened only when whole, so [`Reassembly`] puts outer packets together where the socket
//! has not done it (RFC 4303 section 3.4.1). Inner fragments stay fragments, however large the
//! packet they make: [`Flows`] gives each the ports of its packet's first fragment, so that
//! policies see every part of a packet alike (RFC 4301 section 7, stateful fragment checking).
//!
//! Both hold a bounded number of frames for a bounded time. What cannot be held any more is dropped
//! and counted. Where there is no room, whoever has most gives way. Names are hashed with a secret seed, so that nobody
//! can aim at one place.

mod flows;
mod held;
mod piece;
mod reassembly;
mod sets;

pub(super) use flows::Flows;
pub(super) use reassembly::Reassembly;

/// Time to wait for a packet's other fragments: 30 s, in nanoseconds. RFC 8200 section 4.5 and RFC
/// 1122 section 3.3.2 give hosts a minute; a gateway's memory is not its own.
const PATIENCE_NS: u64 = 30_000_000_000;
