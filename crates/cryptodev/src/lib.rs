//! An engine over DPDK's crypto devices: whatever accelerator DPDK drives, and its software devices.
//!
//! DPDK is not linked. A small library in C, `shim/`, is built where DPDK is installed (`make cryptodev`) and
//! loaded when a device is opened; all that knows DPDK's types is there. [`Cryptodev::open`] brings a
//! device up, and [`Cryptodev::engine`] gives a queue pair of it to one worker and direction.
//!
//! Sources stay as they are until a request comes back: a device gets them described and writes its results
//! elsewhere, or works on a copy where it cannot reach the host's memory.
//!
//! DPDK starts once in a process, and for good: devices share the arguments of the first that is opened.

#![deny(unsafe_code)]

mod device;
mod engine;
mod error;
#[allow(unsafe_code)]
mod ffi;
mod suite;

pub use device::{Cryptodev, Settings};
pub use error::CryptodevError;
