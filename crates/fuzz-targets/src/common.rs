//! Packets of any suite, as the tests of `crypto` have them.

// The bodies need less than these tests.
#![allow(dead_code)]

#[path = "../../crypto/tests/it/common/packet.rs"]
mod packet;
#[path = "../../crypto/tests/it/common/setup.rs"]
mod setup;

pub(crate) use packet::{Packet, open, seal};
pub(crate) use setup::*;
