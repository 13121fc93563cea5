//! AES-GCM and ChaCha20-Poly1305 of [rustls](https://docs.rs/rustls) on Convoy's kernels, in TLS 1.2 and TLS 1.3.
//!
//! rustls takes its cryptography from a [`CryptoProvider`]. [`with_convoy_aead`] gives one that encrypts and
//! decrypts records with `convoy-crypto`; key exchange, signatures, hashes and random numbers stay those of
//! the provider it is given.
//!
//! ```
//! use std::sync::Arc;
//!
//! use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let provider = convoy_rustls::with_convoy_aead(aws_lc_rs::default_provider())?;
//! let config = ClientConfig::builder_with_provider(Arc::new(provider))
//!     .with_safe_default_protocol_versions()?
//!     .with_root_certificates(RootCertStore::empty())
//!     .with_no_client_auth();
//! # let _ = config;
//! # Ok(())
//! # }
//! ```
//!
//! `provider.install_default()` makes it the provider of every configuration of the process that names none.
//!
//! Differences from the provider it is given:
//!
//! * A suite with an AEAD of Convoy's does not count as approved by FIPS, whatever the rest of it is.
//! * QUIC packets are not records; they stay with the provider it is given. So does ChaCha20-Poly1305 on processors
//!   without the CPU tier `vaes512`.
//!
//! The example `records` measures both providers in turn.

#![forbid(unsafe_code)]

#[cfg(doc)]
use rustls::crypto::CryptoProvider;

mod aead;
mod suites;
mod tls12;
mod tls13;

pub use suites::with_convoy_aead;
