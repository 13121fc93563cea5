//! `libconvoy_openssl.so`: a provider for OpenSSL 3 that does AES-GCM, ChaCha20-Poly1305, and AES-CBC with
//! HMAC for TLS, with Convoy's kernels.
//!
//! Programs that use OpenSSL, such as nginx, take it without being changed or built anew: a
//! configuration file of OpenSSL names the library (`docs/tls.md`, `convoy openssl-conf`). It is not
//! linked with libcrypto, so one file serves every OpenSSL from 3.0 on.
//!
//! * [`gcm`](mod@gcm) is what OpenSSL calls a cipher context, in safe Rust: keys, IVs, tags, records
//!   of TLS 1.2, and messages in any number of parts, by which TLS 1.3 and everybody else works.
//! * [`chacha`] is that of ChaCha20-Poly1305.
//! * [`cbc`] is that of the composites of AES-CBC and HMAC: records of TLS 1.0 to 1.2, one by one or several
//!   at once.
//! * [`offer`] says which of them are offered: those that are no slower on this processor than OpenSSL's own.
//! * `ffi` is the border: dispatch tables, parameters, errors. All unsafe code is there. A panic ends
//!   at the border as an error.
//! * [`stats`] counts what was done in a file that processes share.
//!
//! The provider behaves as OpenSSL's default provider, error for error; [`differences`] lists the exceptions.

#![deny(unsafe_code)]

pub mod cbc;
pub mod chacha;
#[doc = include_str!("../differences.md")]
pub mod differences {}
#[allow(unsafe_code)]
mod ffi;
pub mod gcm;
mod message;
pub mod offer;
mod random;
mod reason;
pub mod stats;

/// The name under which a configuration lists the provider, and which properties ask for
/// (`?provider=convoy`).
pub const PROVIDER: &str = "convoy";

pub use reason::Reason;
