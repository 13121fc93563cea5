//! DPDK's crypto devices over intel-ipsec-mb beside Convoy's bursts, by `dpdk-test-crypto-perf`.
//!
//! That program is DPDK's own measurement, so neither side is measured by the other's. It cannot take turns with Convoy burst by
//! burst, as peers do that are libraries. So a round is a run of the program and then Convoy's bursts, on the same processor; both
//! time short windows, shorter than a scheduler's slice, and the median window of a round is its value. A ratio is that of two
//! values of one round. DPDK's gateway `ipsec-secgw` and Convoy's worker are set beside each other the same way.

pub mod contest;
mod gateway;
pub mod options;
pub mod printed;
pub mod program;
pub mod report;
pub mod results;
pub mod rounds;
mod saturated;
mod sealed;
pub mod secgw;
mod windows;

/// Packets of a burst: what DPDK's examples take.
pub const BURST: usize = 32;
/// Packets of a window: a tenth of a millisecond for short ones, about one for long ones.
pub const PACKETS: usize = 32 * BURST;
/// Windows of one size in a round; odd, so that one of them is in the middle. The program takes 32 at most.
pub const WINDOWS: usize = 15;
/// Sizes that the program takes at most.
pub const SIZES_MAX: usize = 32;
