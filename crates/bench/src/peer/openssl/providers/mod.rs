//! Providers of OpenSSL, each in a library context of its own.

mod context;

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_ulong, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr::null;
use std::rc::Rc;

use libloading::Library;

use super::library::{Errors, Object, Param, functions, open, unfit};
use crate::peer::PeerError;

pub use context::{Context, Refused};

functions! {
    ProviderFunctions:
    OSSL_LIB_CTX_new: fn() -> Object;
    OSSL_LIB_CTX_free: fn(Object);
    OSSL_PROVIDER_load: fn(Object, *const c_char) -> Object;
    OSSL_PROVIDER_unload: fn(Object) -> c_int;
    EVP_CIPHER_fetch: fn(Object, *const c_char, *const c_char) -> Object;
    EVP_CIPHER_free: fn(Object);
    EVP_CIPHER_get_key_length: fn(Object) -> c_int;
    EVP_CIPHER_get_iv_length: fn(Object) -> c_int;
    EVP_CIPHER_get_flags: fn(Object) -> c_ulong;
    EVP_CIPHER_CTX_new: fn() -> Object;
    EVP_CIPHER_CTX_free: fn(Object);
    EVP_CIPHER_CTX_ctrl: fn(Object, c_int, c_int, *mut c_void) -> c_int;
    EVP_CIPHER_CTX_get_iv_length: fn(Object) -> c_int;
    EVP_CIPHER_CTX_set_params: fn(Object, *const Param) -> c_int;
    EVP_CipherInit_ex: fn(Object, Object, Object, *const u8, *const u8, c_int) -> c_int;
    EVP_CipherUpdate: fn(Object, *mut u8, *mut c_int, *const u8, c_int) -> c_int;
    EVP_CipherFinal_ex: fn(Object, *mut u8, *mut c_int) -> c_int;
}

/// OpenSSL's libcrypto, as what loads providers.
pub struct Libcrypto {
    functions: ProviderFunctions,
    errors: Errors,
    version: String,
    _library: Library,
}

impl std::fmt::Debug for Libcrypto {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Libcrypto({})", self.version)
    }
}

const MEND: &str = "install it (Debian and Ubuntu: apt install libssl3, or libssl3t64 in newer \
                    ones), or name libcrypto with --libcrypto FILE";

impl Libcrypto {
    /// Loads the library, from `path` or from where the system has it.
    ///
    /// # Errors
    /// [`PeerError::Missing`] if there is no such library, [`PeerError::Unfit`] if it is not
    /// OpenSSL 3 or newer.
    pub fn load(path: Option<&Path>) -> Result<Rc<Self>, PeerError> {
        let (library, version) = open(path, MEND)?;
        let functions = ProviderFunctions::load(&library).map_err(|error| unfit(path, &error))?;
        let errors = Errors::load(&library).map_err(|error| unfit(path, &error))?;
        Ok(Rc::new(Self { functions, errors, version, _library: library }))
    }

    /// The library's version, as it tells it.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The errors that libcrypto has noted since they were last asked for.
    #[must_use]
    pub fn errors(&self) -> String {
        let texts: Vec<_> = std::iter::from_fn(|| self.errors.next()).collect();
        if texts.is_empty() { "OpenSSL does not say why".to_owned() } else { texts.join("; ") }
    }
}

/// A library context with one provider in it.
pub struct Side {
    context: Object,
    provider: Object,
    library: Rc<Libcrypto>,
}

impl std::fmt::Debug for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Side({})", self.library.version)
    }
}

impl Side {
    /// With OpenSSL's own default provider, or with the one in a file.
    ///
    /// # Errors
    /// [`PeerError::Unfit`] if OpenSSL cannot load it, with its reasons.
    pub fn new(library: &Rc<Libcrypto>, provider: Option<&Path>) -> Result<Rc<Self>, PeerError> {
        let unfit = |what: String| PeerError::Unfit { who: "the provider", what };
        let name = match provider {
            None => c"default".to_owned(),
            Some(file) => {
                // Only an absolute name is taken as it is.
                let file = std::path::absolute(file).map_err(|error| unfit(error.to_string()))?;
                CString::new(file.as_os_str().as_bytes()).map_err(|e| unfit(e.to_string()))?
            }
        };
        let functions = &library.functions;
        library.errors.clear();
        // SAFETY: it takes nothing.
        let context = unsafe { (functions.OSSL_LIB_CTX_new)() };
        // SAFETY: the context is alive, and the name a string. Loading runs the provider's
        // initialisers; whoever named it trusts it.
        let provider = unsafe { (functions.OSSL_PROVIDER_load)(context, name.as_ptr()) };
        let side = Self { context, provider, library: library.clone() };
        if context.is_null() || provider.is_null() {
            let (name, why) = (name.to_string_lossy(), library.errors());
            return Err(unfit(format!("OpenSSL cannot load {name}: {why}")));
        }
        Ok(Rc::new(side))
    }

    /// A cipher of the provider, by one of its names; `None` if it has none.
    #[must_use]
    pub fn cipher(self: &Rc<Self>, name: &CStr) -> Option<Rc<Cipher>> {
        let functions = &self.library.functions;
        // SAFETY: the context is alive; a name, no properties.
        let raw = unsafe { (functions.EVP_CIPHER_fetch)(self.context, name.as_ptr(), null()) };
        if raw.is_null() {
            self.library.errors.clear();
            return None;
        }
        // SAFETY: the cipher is alive.
        let key = unsafe { (functions.EVP_CIPHER_get_key_length)(raw) };
        // SAFETY: the cipher is alive.
        let iv = unsafe { (functions.EVP_CIPHER_get_iv_length)(raw) };
        // SAFETY: the cipher is alive.
        let flags = unsafe { (functions.EVP_CIPHER_get_flags)(raw) };
        let len = |len: c_int| usize::try_from(len).unwrap_or(0);
        let (key_len, iv_len) = (len(key), len(iv));
        Some(Rc::new(Cipher { raw, key_len, iv_len, flags, side: self.clone() }))
    }

    /// The errors that libcrypto has noted since they were last asked for.
    #[must_use]
    pub fn errors(&self) -> String {
        self.library.errors()
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        if !self.provider.is_null() {
            // SAFETY: loaded once, and everything fetched from it is gone.
            unsafe { (self.library.functions.OSSL_PROVIDER_unload)(self.provider) };
        }
        // SAFETY: made by OSSL_LIB_CTX_new, or null.
        unsafe { (self.library.functions.OSSL_LIB_CTX_free)(self.context) };
    }
}

/// A cipher of one provider.
pub struct Cipher {
    raw: Object,
    key_len: usize,
    iv_len: usize,
    flags: c_ulong,
    side: Rc<Side>,
}

impl std::fmt::Debug for Cipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cipher(key of {} bytes)", self.key_len)
    }
}

impl Cipher {
    /// Bytes of the key.
    #[must_use]
    pub fn key_len(&self) -> usize {
        self.key_len
    }

    /// True if it seals several records of TLS in one call.
    #[must_use]
    pub fn has_multiblock(&self) -> bool {
        /// `EVP_CIPH_FLAG_TLS1_1_MULTIBLOCK`.
        const MULTIBLOCK: c_ulong = 0x40_0000;
        self.flags & MULTIBLOCK != 0
    }

    /// Whose it is.
    #[must_use]
    pub fn side(&self) -> &Rc<Side> {
        &self.side
    }

    fn functions(&self) -> &ProviderFunctions {
        &self.side.library.functions
    }
}

impl Drop for Cipher {
    fn drop(&mut self) {
        // SAFETY: fetched once.
        unsafe { (self.functions().EVP_CIPHER_free)(self.raw) };
    }
}

/// Names a parameter that is a number.
fn number<T>(key: &'static CStr, kind: c_uint, value: &T) -> Param {
    Param {
        key: key.as_ptr(),
        data_type: kind,
        data: std::ptr::from_ref(value).cast_mut().cast(),
        data_size: size_of::<T>(),
        return_size: usize::MAX,
    }
}
