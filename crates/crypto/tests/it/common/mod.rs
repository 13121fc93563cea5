//! Code that several test programs share: ways to set a key up, and packets that own their bytes.

// No test program uses all of it.
#![allow(dead_code)]

pub(crate) mod guarded;
pub(crate) mod openssl;
pub(crate) mod packet;
pub(crate) mod setup;
pub(crate) mod vectors;

pub(crate) use packet::{Packet, open, seal};
pub(crate) use setup::*;
