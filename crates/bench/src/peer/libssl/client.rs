//! TLS connections as a client, over sockets that do not block.

use std::ffi::{CStr, CString, c_int, c_long, c_void};
use std::fmt;
use std::os::fd::{AsFd, AsRawFd as _};
use std::ptr;
use std::rc::Rc;

use serde::{Deserialize, Serialize};

use super::library::{LibSsl, Object};

/// `SSL_CTRL_SET_MIN_PROTO_VERSION`, `SSL_CTRL_SET_MAX_PROTO_VERSION`.
const SET_VERSIONS: [c_int; 2] = [123, 124];
/// `SSL_CTRL_SET_TLSEXT_HOSTNAME`.
const SET_HOST_NAME: c_int = 55;
/// `SSL_OP_NO_ENCRYPT_THEN_MAC`.
const NO_ENCRYPT_THEN_MAC: u64 = 1 << 19;
/// `SSL_ERROR_WANT_READ`, `SSL_ERROR_WANT_WRITE`, `SSL_ERROR_ZERO_RETURN`.
const WANT_READ: c_int = 2;
const WANT_WRITE: c_int = 3;
const CLOSED: c_int = 6;

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Version {
    /// RFC 5246.
    #[serde(rename = "1.2")]
    Tls12,
    /// RFC 8446.
    #[serde(rename = "1.3")]
    Tls13,
}

impl Version {
    /// Its number on the wire.
    const fn number(self) -> c_long {
        match self {
            Self::Tls12 => 0x0303,
            Self::Tls13 => 0x0304,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tls12 => "TLS 1.2",
            Self::Tls13 => "TLS 1.3",
        })
    }
}

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ClientError(String);

/// State of a call on a socket that does not block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Done; of bytes, so many.
    Done(usize),
    /// It goes on when the socket can be read.
    WantRead,
    /// It goes on when the socket can be written.
    WantWrite,
    /// The other end has closed the connection in order.
    Closed,
}

/// Version and cipher that connections share.
pub struct Client {
    context: Object,
    library: Rc<LibSsl>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({:?})", self.library)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // SAFETY: it is alive, and freed once.
        unsafe { (self.library.ssl.SSL_CTX_free)(self.context) };
    }
}

impl Client {
    /// Clients of one version and one cipher, by OpenSSL's name of it. They do not verify the server.
    ///
    /// # Errors
    /// [`ClientError`] when the library does not know the cipher.
    pub fn new(
        library: &Rc<LibSsl>,
        version: Version,
        cipher: &str,
        encrypt_then_mac: bool,
    ) -> Result<Self, ClientError> {
        let ssl = &library.ssl;
        // SAFETY: it takes nothing.
        let method = unsafe { (ssl.TLS_client_method)() };
        // SAFETY: the method is the library's own.
        let context = unsafe { (ssl.SSL_CTX_new)(method) };
        if context.is_null() {
            return Err(failed(library, "SSL_CTX_new"));
        }
        let client = Self { context, library: library.clone() };
        for set in SET_VERSIONS {
            // SAFETY: the context is alive; these controls take a number.
            let done =
                unsafe { (ssl.SSL_CTX_ctrl)(context, set, version.number(), ptr::null_mut()) };
            if done != 1 {
                return Err(failed(library, "the version of TLS"));
            }
        }
        if !encrypt_then_mac {
            // SAFETY: the context is alive.
            unsafe { (ssl.SSL_CTX_set_options)(context, NO_ENCRYPT_THEN_MAC) };
        }
        let name =
            CString::new(cipher).map_err(|_| ClientError("a cipher with a zero".to_owned()))?;
        let set = match version {
            Version::Tls12 => ssl.SSL_CTX_set_cipher_list,
            Version::Tls13 => ssl.SSL_CTX_set_ciphersuites,
        };
        // SAFETY: the context is alive, and the name ends with a zero.
        if unsafe { set(context, name.as_ptr()) } != 1 {
            return Err(failed(library, &format!("the cipher {cipher}")));
        }
        Ok(client)
    }

    /// A connection over `socket`, which outlives it and does not block.
    ///
    /// # Errors
    /// [`ClientError`] for want of memory.
    pub fn connection(&self, socket: impl AsFd) -> Result<Connection, ClientError> {
        let ssl = &self.library.ssl;
        // SAFETY: the context is alive; the connection holds it.
        let object = unsafe { (ssl.SSL_new)(self.context) };
        if object.is_null() {
            return Err(failed(&self.library, "SSL_new"));
        }
        let connection = Connection { object, library: self.library.clone() };
        let name = c"localhost".as_ptr().cast_mut().cast();
        // SAFETY: the connection is alive, and the name is copied.
        unsafe { (ssl.SSL_ctrl)(object, SET_HOST_NAME, 0, name) };
        // SAFETY: the connection is alive.
        if unsafe { (ssl.SSL_set_fd)(object, socket.as_fd().as_raw_fd()) } != 1 {
            return Err(failed(&self.library, "SSL_set_fd"));
        }
        Ok(connection)
    }
}

/// One connection.
pub struct Connection {
    object: Object,
    library: Rc<LibSsl>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connection")
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: it is alive, and freed once.
        unsafe { (self.library.ssl.SSL_free)(self.object) };
    }
}

impl Connection {
    /// Goes on with the handshake.
    ///
    /// # Errors
    /// [`ClientError`] when it fails.
    pub fn handshake(&mut self) -> Result<Progress, ClientError> {
        // SAFETY: the connection is alive.
        let done = unsafe { (self.library.ssl.SSL_connect)(self.object) };
        self.outcome(done, "handshake")
    }

    /// Writes.
    ///
    /// # Errors
    /// [`ClientError`] when the connection is broken.
    pub fn write(&mut self, text: &[u8]) -> Result<Progress, ClientError> {
        let (from, len) = (text.as_ptr().cast::<c_void>(), length(text.len()));
        // SAFETY: the connection is alive, and the text has as many bytes.
        let done = unsafe { (self.library.ssl.SSL_write)(self.object, from, len) };
        self.outcome(done, "write")
    }

    /// Reads what has come.
    ///
    /// # Errors
    /// [`ClientError`] when the connection is broken, or a record was not authentic.
    pub fn read(&mut self, text: &mut [u8]) -> Result<Progress, ClientError> {
        let (to, len) = (text.as_mut_ptr().cast::<c_void>(), length(text.len()));
        // SAFETY: the connection is alive, and there is room for as many bytes.
        let done = unsafe { (self.library.ssl.SSL_read)(self.object, to, len) };
        self.outcome(done, "read")
    }

    fn outcome(&self, done: c_int, what: &str) -> Result<Progress, ClientError> {
        if let Ok(done @ 1..) = usize::try_from(done) {
            return Ok(Progress::Done(done));
        }
        // SAFETY: the connection is alive, and `done` is what its last call gave.
        match unsafe { (self.library.ssl.SSL_get_error)(self.object, done) } {
            WANT_READ => Ok(Progress::WantRead),
            WANT_WRITE => Ok(Progress::WantWrite),
            CLOSED => Ok(Progress::Closed),
            _ => Err(failed(&self.library, what)),
        }
    }

    /// OpenSSL's name of the cipher that was agreed on.
    #[must_use]
    pub fn cipher(&self) -> Option<String> {
        // SAFETY: the connection is alive.
        let cipher = unsafe { (self.library.ssl.SSL_get_current_cipher)(self.object) };
        if cipher.is_null() {
            return None;
        }
        // SAFETY: it is the library's own.
        let name = unsafe { (self.library.ssl.SSL_CIPHER_get_name)(cipher) };
        // SAFETY: names are string constants.
        Some(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
    }
}

fn length(bytes: usize) -> c_int {
    c_int::try_from(bytes).unwrap_or(c_int::MAX)
}

fn failed(library: &LibSsl, what: &str) -> ClientError {
    let why = library.error().unwrap_or_else(|| std::io::Error::last_os_error().to_string());
    ClientError(format!("{what}: {why}"))
}
