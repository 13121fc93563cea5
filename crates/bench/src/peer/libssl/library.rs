//! Finding libssl and the functions that are called.

use std::ffi::{c_char, c_int, c_long, c_void};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use libloading::Library;

use crate::peer::PeerError;
use crate::peer::openssl::library::{Errors, functions, load, open};

/// Any of the library's objects.
pub(super) type Object = *mut c_void;

functions! {
    Ssl:
    TLS_client_method: fn() -> *const c_void;
    SSL_CTX_new: fn(*const c_void) -> Object;
    SSL_CTX_free: fn(Object);
    SSL_CTX_ctrl: fn(Object, c_int, c_long, *mut c_void) -> c_long;
    SSL_CTX_set_options: fn(Object, u64) -> u64;
    SSL_CTX_set_cipher_list: fn(Object, *const c_char) -> c_int;
    SSL_CTX_set_ciphersuites: fn(Object, *const c_char) -> c_int;
    SSL_new: fn(Object) -> Object;
    SSL_free: fn(Object);
    SSL_ctrl: fn(Object, c_int, c_long, *mut c_void) -> c_long;
    SSL_set_fd: fn(Object, c_int) -> c_int;
    SSL_connect: fn(Object) -> c_int;
    SSL_read: fn(Object, *mut c_void, c_int) -> c_int;
    SSL_write: fn(Object, *const c_void, c_int) -> c_int;
    SSL_get_error: fn(Object, c_int) -> c_int;
    SSL_get_current_cipher: fn(Object) -> *const c_void;
    SSL_CIPHER_get_name: fn(*const c_void) -> *const c_char;
}

const MEND: &str =
    "install it (Debian and Ubuntu: apt install libssl3, or libssl3t64 in newer ones)";

/// OpenSSL's libssl, and the libcrypto it stands on.
pub struct LibSsl {
    pub(super) ssl: Ssl,
    errors: Errors,
    version: String,
    _libraries: [Library; 2],
}

impl std::fmt::Debug for LibSsl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LibSsl({})", self.version)
    }
}

impl LibSsl {
    /// Loads libssl, from `folder` or from where the system has it.
    ///
    /// # Errors
    /// [`PeerError::Missing`] if there is no such library, [`PeerError::Unfit`] if it is not OpenSSL 3.
    pub fn load(folder: Option<&Path>) -> Result<Rc<Self>, PeerError> {
        let file = |name: &str| folder.map(|folder| folder.join(name));
        // libcrypto first: libssl then finds the one beside it.
        let (crypto, version) = open(file("libcrypto.so.3").as_deref(), MEND)?;
        let name = file("libssl.so.3").unwrap_or_else(|| PathBuf::from("libssl.so.3"));
        let library = load(&name, MEND)?;
        let unfit = |error: libloading::Error| PeerError::Unfit {
            who: "OpenSSL",
            what: format!("libssl and libcrypto are not those of OpenSSL 3: {error}"),
        };
        let ssl = Ssl::load(&library).map_err(unfit)?;
        let errors = Errors::load(&crypto).map_err(unfit)?;
        Ok(Rc::new(Self { ssl, errors, version, _libraries: [library, crypto] }))
    }

    /// The library's version, as it tells it.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The first error in the queue of this thread, which is emptied.
    pub(super) fn error(&self) -> Option<String> {
        let error = self.errors.next();
        self.errors.clear();
        error
    }
}
