//! Frames in one mapped arena, pools and bursts.
//!
//! A [`Frame`] owns one fixed-size chunk of an [`Arena`] and holds one packet in it, with room in
//! front for headers that are still to come. Frames are taken from a worker's own [`Pool`] and
//! given back to it; a [`Burst`] carries up to [`BURST_MAX`] of them from stage to stage.
//!
//! The arena is one page-aligned anonymous mapping divided into power-of-two chunks, which is the
//! layout an AF_XDP UMEM or a device's DMA window asks for.
//!
//! This crate knows nothing of what the bytes mean: headers are `convoy-wire`'s subject.
//!
//! ```
//! use convoy_packet::{Arena, Burst, FrameSize, HEADROOM};
//!
//! let arena = Arena::map(256, FrameSize::for_packet(1500)).unwrap();
//! let mut pool = arena.pool();
//! let mut burst = Burst::new();
//!
//! let mut frame = pool.alloc().unwrap();
//! frame.fill_from(b"a packet").unwrap();
//! frame.grow_front(4).unwrap().copy_from_slice(b"hdr:");
//! assert_eq!(frame.data(), b"hdr:a packet");
//! assert_eq!(frame.headroom(), HEADROOM - 4);
//!
//! burst.push(frame).unwrap();
//! burst.release(&mut pool);
//! assert_eq!(arena.leaked(), 0);
//! ```
#![deny(unsafe_code)]

mod burst;
#[allow(unsafe_code)]
mod frame;
mod pool;

pub use burst::{BURST_MAX, Burst};
pub use frame::{Arena, ArenaError, Frame, FrameSize, HEADROOM, InterfaceId, NoRoom};
pub use pool::Pool;
