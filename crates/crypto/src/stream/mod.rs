//! Messages of AEADs that come in parts.

mod chacha;
pub(crate) mod chacha_steps;
mod error;
mod gcm;
pub(crate) mod gcm_steps;

pub use chacha::{ChaChaSaved, ChaChaStream};
pub use error::StreamError;
pub use gcm::{GcmSaved, GcmStream};
