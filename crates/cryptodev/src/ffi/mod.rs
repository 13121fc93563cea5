//! The border to the library in C: its functions, its types, and what lies in its memory.

mod library;
mod queue;
mod session;

pub(crate) use library::{DeviceInfo, Shim};
pub(crate) use queue::{Queue, Sessions, Work};
pub(crate) use session::{Aead, Auth, BlockCipher, DeviceKey, Session, SessionError};
