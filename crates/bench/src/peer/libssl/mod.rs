//! OpenSSL's libssl as a TLS client, loaded at run time: it alone knows all the ciphers of the study.

mod client;
mod library;

pub use client::{Client, ClientError, Connection, Progress, Version};
pub use library::LibSsl;
