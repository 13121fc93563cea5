//! OpenSSL's libcrypto, loaded at run time.

mod contender;
pub(in crate::peer) mod library;
mod providers;

pub use contender::contenders;
pub use library::OpenSsl;
pub use providers::{Cipher, Context, Libcrypto, Refused, Side};
