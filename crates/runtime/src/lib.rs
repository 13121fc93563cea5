//! Workers: receive, pipeline, transmit.
//!
//! A gateway has one or more workers. Each owns its ports, its pipelines with the hot state of the
//! SAs it owns, and its stock of frames; nothing of that is shared. A packet that arrives at one
//! worker but belongs to an SA of another goes there through a ring.
//!
//! * [`Worker`] is one worker, driven a [`turn`](Worker::turn) at a time;
//! * [`Runtime`] gives each worker a thread, lets it sleep when there is nothing to do, and ends
//!   all of them without losing what is under way;
//! * [`CryptoPool`] is threads that do the cryptography of workers, and [`EngineChoice`] says who does it;
//! * [`Wiring`] adds wire ports to workers that run, and removes them;
//! * [`WorkerStats`] is what workers publish about themselves.
//!
//! This crate opens no ports and knows no configuration files; it is handed ports and snapshots.
#![forbid(unsafe_code)]

mod clock;
mod engines;
mod events;
mod gather;
mod links;
mod pin;
mod plain;
mod pool;
mod ports;
mod runtime;
mod sleep;
mod stats;
mod wake;
mod wiring;
mod worker;

pub use clock::now;
pub use engines::{Devices, EngineChoice};
pub use events::Events;
pub use pin::{PinError, may_pin, pin_current_thread};
pub use pool::{CryptoPool, PoolError, Processor};
pub use ports::{WireMatch, WirePort, WorkerPorts};
pub use runtime::{Failure, Runtime, StartError, StopReport, ThreadConfig};
pub use stats::{EngineStats, PortTotals, WorkerStats};
pub use wake::Waker;
pub use wiring::{WireId, WirePlace, Wiring, WiringError};
pub use worker::{Surroundings, Worker};
