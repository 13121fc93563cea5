//! One file per verb.

pub(crate) mod ask;
#[cfg(feature = "bench")]
pub mod bench;
pub(crate) mod check;
pub(crate) mod crypto;
pub(crate) mod doctor;
pub(crate) mod enable;
pub(crate) mod exec;
pub(crate) mod genkey;
pub(crate) mod helper;
pub(crate) mod init;
pub(crate) mod keys;
pub(crate) mod manual;
pub(crate) mod open;
#[cfg(feature = "provider")]
pub mod openssl_conf;
pub(crate) mod policy;
pub(crate) mod reload;
pub(crate) mod replay;
pub(crate) mod run;
pub(crate) mod sa;
pub(crate) mod status;
pub(crate) mod trace;
