//! What a program has of Convoy's library crates that names them as dependencies: the examples of their READMEs run
//! here, with none of the flags and profiles of Convoy's own workspace.

#[doc = include_str!("../../../crates/crypto/README.md")]
pub mod crypto {}

#[doc = include_str!("../../../crates/packet/README.md")]
pub mod packet {}

#[doc = include_str!("../../../crates/rustls/README.md")]
pub mod rustls {}

#[doc = include_str!("../../../crates/wire/README.md")]
pub mod wire {}
