//! Finding libssl and the functions that are called.

use std::ffi::{CStr, c_char, c_int, c_long, c_ulong, c_void};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use libloading::Library;

use crate::peer::PeerError;
use crate::peer::openssl::library::functions;

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

functions! {
    Crypto:
    OpenSSL_version: fn(c_int) -> *const c_char;
    ERR_get_error: fn() -> c_ulong;
    ERR_clear_error: fn();
    ERR_error_string_n: fn(c_ulong, *mut c_char, usize);
}

/// OpenSSL's libssl, and the libcrypto it stands on.
pub struct LibSsl {
    pub(super) ssl: Ssl,
    pub(super) crypto: Crypto,
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
        // libcrypto first: libssl then finds the one beside it.
        let crypto = open(folder, "libcrypto.so.3")?;
        let ssl = open(folder, "libssl.so.3")?;
        let unfit = |error: libloading::Error| PeerError::Unfit {
            who: "OpenSSL",
            what: format!("libssl and libcrypto are not those of OpenSSL 3: {error}"),
        };
        let functions = Ssl::load(&ssl).map_err(unfit)?;
        let of_crypto = Crypto::load(&crypto).map_err(unfit)?;
        // SAFETY: it takes any number and returns a string constant.
        let version = unsafe { (of_crypto.OpenSSL_version)(0) };
        // SAFETY: as said.
        let version = unsafe { CStr::from_ptr(version) }.to_string_lossy().into_owned();
        let libraries = [ssl, crypto];
        Ok(Rc::new(Self { ssl: functions, crypto: of_crypto, version, _libraries: libraries }))
    }

    /// The library's version, as it tells it.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// What the queue of errors of this thread says, and empties it.
    pub(super) fn error(&self) -> Option<String> {
        let mut text = [0 as c_char; 256];
        // SAFETY: it takes nothing.
        let code = unsafe { (self.crypto.ERR_get_error)() };
        if code == 0 {
            return None;
        }
        // SAFETY: there is room for as many bytes, and it ends them with a zero.
        unsafe { (self.crypto.ERR_error_string_n)(code, text.as_mut_ptr(), text.len()) };
        // SAFETY: it takes nothing.
        unsafe { (self.crypto.ERR_clear_error)() };
        // SAFETY: as said.
        Some(unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned())
    }
}

fn open(folder: Option<&Path>, name: &str) -> Result<Library, PeerError> {
    let path = folder.map_or_else(|| PathBuf::from(name), |folder| folder.join(name));
    // SAFETY: loading runs the library's initialisers; it is the one the system installed or the user
    // named, which is as trusted as this program.
    unsafe { Library::new(path) }.map_err(|error| PeerError::Missing {
        who: "OpenSSL",
        reason: error.to_string(),
        mend: "install it (Debian and Ubuntu: apt install libssl3, or libssl3t64 in newer ones)",
    })
}
