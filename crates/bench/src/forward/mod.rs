//! `convoy bench forward`: how many packets a second one core passes while next to none is lost, and how long
//! they take under load.
//!
//! ```text
//!            ┌─ ring of 4,096 ─► plain ┐         ┌ wire ─► ring ─┐
//! generator ─┤                         ├ worker ─┤               ├─► sinks and delay
//!     ▲      └─ ring of 4,096 ─► wire ─┘         └ plain ─► ring ┘         │
//!     └──────────────── ESP packets, a few thousand later ◄────────────────┘
//! ```
//!
//! The worker is the gateway's own thread ([`convoy_runtime::Runtime`]) on a processor of its own. Generator,
//! sinks and the delay are one thread on another processor ([`generator`]). Half of the packets that it offers are inner
//! packets, which the worker protects; half are ESP packets, which the worker opens: those that it protected
//! itself some thousand packets before. Each packet offered is one packet that the core has to pass, so the rate
//! counts both directions together. Every inner packet comes back in the end, and is compared byte by byte.
//!
//! Packets are offered at even spaces by the time-stamp counter. A ring that is full loses what comes, as a
//! network card does. The highest load that loses at most one packet in 10,000 is searched ([`search`]); how long
//! packets take at a part of it counts from when each was due.

pub mod gateway;
pub mod generator;
pub mod grid;
pub mod latency;
pub mod model;
pub mod plan;
pub mod point;
pub mod radar;
pub mod report;
pub mod results;
pub mod search;
pub mod watch;
