//! Unmodified strongSwan daemons on live gateways: charon makes the SAs, Convoy carries the packets.
//!
//! The peer is charon with ESP of its own (plugin `kernel-libipsec`), which is nobody's here, as far
//! as that goes: it knows UDP encapsulation and tunnel mode only, and no extended sequence numbers.
//! For the rest Convoy is on both sides, and charon decides what is negotiated.

mod defaults;
mod flood;
mod interfaces;
mod nat;
mod pluto;
mod suites;
mod traffic;
mod workers;
mod world;
