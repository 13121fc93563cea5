//! OpenSSL's libcrypto, loaded at run time.

mod contender;
mod library;

pub use contender::contenders;
pub use library::OpenSsl;
