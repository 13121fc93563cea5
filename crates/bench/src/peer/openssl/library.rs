//! Finding libcrypto and the functions that are called.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulong, c_void};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use libloading::Library;

use crate::peer::PeerError;

/// Any of the library's objects.
pub(super) type Object = *mut c_void;

/// `OSSL_PARAM`.
#[repr(C)]
pub(super) struct Param {
    pub(super) key: *const c_char,
    pub(super) data_type: c_uint,
    pub(super) data: *mut c_void,
    pub(super) data_size: usize,
    pub(super) return_size: usize,
}

/// `OSSL_PARAM_UTF8_STRING`.
pub(super) const UTF8_STRING: c_uint = 4;

/// A table of functions of libcrypto, found by their names.
macro_rules! functions {
    ($table:ident: $($name:ident: fn($($arg:ty),*) $(-> $ret:ty)?;)*) => {
        /// Functions of the library under their own names.
        #[allow(non_snake_case, reason = "the library's names")]
        pub(in crate::peer) struct $table {
            $(pub(super) $name: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*
        }

        impl $table {
            pub(in crate::peer) fn load(
                library: &libloading::Library,
            ) -> Result<Self, libloading::Error> {
                Ok(Self {
                    $($name: {
                        let name = concat!(stringify!($name), "\0").as_bytes();
                        // SAFETY: the headers of OpenSSL 3 declare it so.
                        *unsafe { library.get(name)? }
                    },)*
                })
            }
        }
    };
}
pub(in crate::peer) use functions;

functions! {
    Functions:
    EVP_CIPHER_fetch: fn(Object, *const c_char, *const c_char) -> Object;
    EVP_CIPHER_free: fn(Object);
    EVP_CIPHER_CTX_new: fn() -> Object;
    EVP_CIPHER_CTX_free: fn(Object);
    EVP_CIPHER_CTX_ctrl: fn(Object, c_int, c_int, *mut c_void) -> c_int;
    EVP_CIPHER_CTX_set_padding: fn(Object, c_int) -> c_int;
    EVP_CipherInit_ex2: fn(Object, Object, *const u8, *const u8, c_int, *const Param) -> c_int;
    EVP_CipherUpdate: fn(Object, *mut u8, *mut c_int, *const u8, c_int) -> c_int;
    EVP_CipherFinal_ex: fn(Object, *mut u8, *mut c_int) -> c_int;
    EVP_MAC_fetch: fn(Object, *const c_char, *const c_char) -> Object;
    EVP_MAC_free: fn(Object);
    EVP_MAC_CTX_new: fn(Object) -> Object;
    EVP_MAC_CTX_free: fn(Object);
    EVP_MAC_init: fn(Object, *const u8, usize, *const Param) -> c_int;
    EVP_MAC_update: fn(Object, *const u8, usize) -> c_int;
    EVP_MAC_final: fn(Object, *mut u8, *mut usize, usize) -> c_int;
    EVP_get_digestbyname: fn(*const c_char) -> *const c_void;
    HMAC_CTX_new: fn() -> Object;
    HMAC_CTX_free: fn(Object);
    HMAC_Init_ex: fn(Object, *const c_void, c_int, *const c_void, *mut c_void) -> c_int;
    HMAC_Update: fn(Object, *const u8, usize) -> c_int;
    HMAC_Final: fn(Object, *mut u8, *mut c_uint) -> c_int;
}

functions! {
    Versions:
    OpenSSL_version: fn(c_int) -> *const c_char;
    OpenSSL_version_num: fn() -> c_ulong;
}

functions! {
    Errors:
    ERR_get_error: fn() -> c_ulong;
    ERR_clear_error: fn();
    ERR_error_string_n: fn(c_ulong, *mut c_char, usize);
}

impl Errors {
    /// The next error in this thread's queue, which is taken out of it.
    pub(in crate::peer) fn next(&self) -> Option<String> {
        // SAFETY: it takes nothing.
        let error = unsafe { (self.ERR_get_error)() };
        if error == 0 {
            return None;
        }
        let mut text: [c_char; 256] = [0; 256];
        // SAFETY: the text has as much room as is told, and is ended with 0.
        unsafe { (self.ERR_error_string_n)(error, text.as_mut_ptr(), text.len()) };
        // SAFETY: as said.
        Some(unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned())
    }

    /// Empties the queue.
    pub(in crate::peer) fn clear(&self) {
        // SAFETY: it takes nothing.
        unsafe { (self.ERR_clear_error)() };
    }
}

/// OpenSSL's libcrypto.
pub struct OpenSsl {
    pub(super) functions: Functions,
    version: String,
    _library: Library,
}

impl std::fmt::Debug for OpenSsl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OpenSsl({})", self.version)
    }
}

impl OpenSsl {
    /// Loads the library, from `path` or from where the system has it.
    ///
    /// # Errors
    /// [`PeerError::Missing`] if there is no such library, [`PeerError::Unfit`] if it is not
    /// OpenSSL 3.
    pub fn load(path: Option<&Path>) -> Result<Rc<Self>, PeerError> {
        let (library, version) = open(path, MEND)?;
        let functions = Functions::load(&library).map_err(|error| unfit(path, &error))?;
        Ok(Rc::new(Self { functions, version, _library: library }))
    }

    /// The library's version, as it tells it.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }
}

/// The first version that has providers: 3.0.0.
const PROVIDERS_SINCE: c_ulong = 0x3000_0000;

const MEND: &str = "install it (Debian and Ubuntu: apt install libssl3, or libssl3t64 in newer \
                    ones), or name libcrypto with --openssl PATH";

/// Loads a library of OpenSSL's.
pub(in crate::peer) fn load(name: &Path, mend: &'static str) -> Result<Library, PeerError> {
    // SAFETY: loading runs the library's initialisers; it is the one the system installed or
    // the user named, which is as trusted as this program.
    unsafe { Library::new(name) }.map_err(|error| PeerError::Missing {
        who: "OpenSSL",
        reason: error.to_string(),
        mend,
    })
}

/// Loads libcrypto from `path`, or from where the system has it. Gives its version, too.
pub(in crate::peer) fn open(
    path: Option<&Path>,
    mend: &'static str,
) -> Result<(Library, String), PeerError> {
    let name = name_of(path);
    let library = load(&name, mend)?;
    let versions = Versions::load(&library).map_err(|error| unfit(path, &error))?;
    // SAFETY: it takes any number and returns a string constant.
    let version = unsafe { (versions.OpenSSL_version)(0) };
    // SAFETY: as said.
    let version = unsafe { CStr::from_ptr(version) }.to_string_lossy().into_owned();
    // SAFETY: it takes nothing.
    if unsafe { (versions.OpenSSL_version_num)() } < PROVIDERS_SINCE {
        let what = format!("{} is {version}; it must be OpenSSL 3.0 or newer", name.display());
        return Err(PeerError::Unfit { who: "OpenSSL", what });
    }
    Ok((library, version))
}

fn name_of(path: Option<&Path>) -> PathBuf {
    path.map_or_else(|| PathBuf::from("libcrypto.so.3"), Path::to_path_buf)
}

/// A function is missing.
pub(super) fn unfit(path: Option<&Path>, error: &libloading::Error) -> PeerError {
    let what = format!("{} is not libcrypto of OpenSSL 3: {error}", name_of(path).display());
    PeerError::Unfit { who: "OpenSSL", what }
}
