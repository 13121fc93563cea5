//! The calls of EVP by which libssl seals and opens records, on one `EVP_CIPHER_CTX`.

use std::ffi::{c_int, c_uint};
use std::ptr::{null, null_mut};
use std::rc::Rc;

use super::{Cipher, Object, Param, number};

/// `EVP_CTRL_*` of `openssl/evp.h`.
const SET_IVLEN: c_int = 0x9;
const GET_TAG: c_int = 0x10;
const SET_TAG: c_int = 0x11;
const SET_IV_FIXED: c_int = 0x12;
const TLS_AAD: c_int = 0x16;
const SET_MAC_KEY: c_int = 0x17;
const MULTIBLOCK_AAD: c_int = 0x19;
const MULTIBLOCK_ENCRYPT: c_int = 0x1a;

/// `OSSL_PARAM_INTEGER`, `OSSL_PARAM_UNSIGNED_INTEGER`.
const INTEGER: c_uint = 1;
const UNSIGNED: c_uint = 2;

/// Bytes that the additional data of a record has before TLS 1.3 (RFC 5246 section 6.2.3.3).
const AAD: usize = 13;

/// `EVP_CTRL_TLS1_1_MULTIBLOCK_PARAM`.
#[repr(C)]
struct Multiblock {
    out: *mut u8,
    input: *const u8,
    len: usize,
    interleave: c_uint,
}

/// A call of EVP was refused. Why, [`Side::errors`](super::Side::errors) tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused(pub &'static str);

/// A key in one direction, as libssl holds it for a connection.
pub struct Context {
    raw: Object,
    seals: bool,
    /// Bytes that the records need for which the last additional data of several was given.
    room: usize,
    cipher: Rc<Cipher>,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Context({:?}, seals: {})", self.cipher, self.seals)
    }
}

type Done = Result<(), Refused>;

#[inline(always)]
fn done(result: c_int, what: &'static str) -> Done {
    if result > 0 { Ok(()) } else { Err(Refused(what)) }
}

impl Context {
    /// A context for one direction, without a key.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn new(cipher: &Rc<Cipher>, seals: bool) -> Result<Self, Refused> {
        let functions = cipher.functions();
        // SAFETY: it takes nothing.
        let raw = unsafe { (functions.EVP_CIPHER_CTX_new)() };
        if raw.is_null() {
            return Err(Refused("EVP_CIPHER_CTX_new"));
        }
        let context = Self { raw, seals, room: 0, cipher: cipher.clone() };
        let enc = c_int::from(seals);
        let init = functions.EVP_CipherInit_ex;
        // SAFETY: context and cipher are alive; neither key nor IV yet.
        let result = unsafe { init(raw, cipher.raw, null_mut(), null(), null(), enc) };
        done(result, "EVP_CipherInit_ex with a cipher")?;
        Ok(context)
    }

    /// Gives the key, and the IV if there is one.
    ///
    /// # Errors
    /// [`Refused`]; also if they do not have the cipher's lengths.
    pub fn key(&mut self, key: &[u8], iv: Option<&[u8]>) -> Done {
        if key.len() != self.cipher.key_len {
            return Err(Refused("a key of another length"));
        }
        self.init(Some(key), iv)
    }

    /// Gives the IV of the next message.
    ///
    /// # Errors
    /// [`Refused`]; also if it does not have the cipher's length.
    #[inline(always)]
    pub fn iv(&mut self, iv: &[u8]) -> Done {
        self.init(None, Some(iv))
    }

    #[inline(always)]
    fn init(&mut self, key: Option<&[u8]>, iv: Option<&[u8]>) -> Done {
        if iv.is_some_and(|iv| iv.len() != self.cipher.iv_len) {
            return Err(Refused("an IV of another length"));
        }
        let start = |bytes: Option<&[u8]>| bytes.map_or(null(), <[u8]>::as_ptr);
        let (key, iv, enc) = (start(key), start(iv), c_int::from(self.seals));
        let init = self.cipher.functions().EVP_CipherInit_ex;
        // SAFETY: the context is alive; key and IV are null or of their lengths.
        let result = unsafe { init(self.raw, null_mut(), null_mut(), key, iv, enc) };
        done(result, "EVP_CipherInit_ex")
    }

    /// Bytes of the IV, which libssl asks for at each record of TLS 1.3.
    #[inline(always)]
    #[must_use]
    pub fn iv_len(&self) -> usize {
        // SAFETY: the context is alive.
        let len = unsafe { (self.cipher.functions().EVP_CIPHER_CTX_get_iv_length)(self.raw) };
        usize::try_from(len).unwrap_or(0)
    }

    #[inline(always)]
    fn control(&mut self, what: c_int, data: &mut [u8]) -> c_int {
        let control = self.cipher.functions().EVP_CIPHER_CTX_ctrl;
        let len = c_int::try_from(data.len()).unwrap_or(0);
        // SAFETY: the context is alive, and the data has so many bytes.
        unsafe { control(self.raw, what, len, data.as_mut_ptr().cast()) }
    }

    /// Says how long IVs are.
    ///
    /// # Errors
    /// [`Refused`]; also if that is not the cipher's own length.
    pub fn set_iv_len(&mut self, len: usize) -> Done {
        let control = self.cipher.functions().EVP_CIPHER_CTX_ctrl;
        if len != self.cipher.iv_len {
            return Err(Refused("an IV of another length"));
        }
        // SAFETY: the context is alive; this control takes no data.
        let result = unsafe { control(self.raw, SET_IVLEN, len as c_int, null_mut()) };
        done(result, "EVP_CTRL_AEAD_SET_IVLEN")
    }

    /// Gives the part of the nonce that stays, for TLS 1.2.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn fixed_iv(&mut self, fixed: &[u8]) -> Done {
        done(self.control(SET_IV_FIXED, &mut fixed.to_vec()), "EVP_CTRL_AEAD_SET_IV_FIXED")
    }

    /// Gives the key of the MAC.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn mac_key(&mut self, key: &[u8]) -> Done {
        done(self.control(SET_MAC_KEY, &mut key.to_vec()), "EVP_CTRL_AEAD_SET_MAC_KEY")
    }

    /// Says which version of TLS it is (0x0303 is TLS 1.2), and that the MAC is the cipher's own.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn tls_version(&mut self, version: c_int) -> Done {
        let mac_size = 0usize;
        let end =
            Param { key: null(), data_type: 0, data: null_mut(), data_size: 0, return_size: 0 };
        let params = [
            number(c"tls-version", INTEGER, &version),
            number(c"tls-mac-size", UNSIGNED, &mac_size),
            end,
        ];
        let set = self.cipher.functions().EVP_CIPHER_CTX_set_params;
        // SAFETY: the context is alive; the list ends with a null key, and its data are alive.
        let result = unsafe { set(self.raw, params.as_ptr()) };
        done(result, "EVP_CIPHER_CTX_set_params")
    }

    /// Gives the additional data of the next record, and gets by how many bytes it grows.
    ///
    /// # Errors
    /// [`Refused`].
    #[inline(always)]
    pub fn tls_aad(&mut self, mut aad: [u8; AAD]) -> Result<usize, Refused> {
        let grows = self.control(TLS_AAD, &mut aad);
        done(grows, "EVP_CTRL_AEAD_TLS1_AAD").map(|()| grows as usize)
    }

    /// Says which tag a message must have.
    ///
    /// # Errors
    /// [`Refused`].
    #[inline(always)]
    pub fn set_tag(&mut self, tag: &mut [u8; 16]) -> Done {
        done(self.control(SET_TAG, tag), "EVP_CTRL_AEAD_SET_TAG")
    }

    /// The tag of the message that was sealed.
    ///
    /// # Errors
    /// [`Refused`].
    #[inline(always)]
    pub fn tag(&mut self, tag: &mut [u8; 16]) -> Done {
        done(self.control(GET_TAG, tag), "EVP_CTRL_AEAD_GET_TAG")
    }

    /// Authenticates bytes of a message ahead of its text.
    ///
    /// # Errors
    /// [`Refused`].
    #[inline(always)]
    pub fn aad(&mut self, aad: &[u8]) -> Done {
        self.update(null_mut(), aad.as_ptr(), aad.len())
    }

    /// Seals or opens in place: a part of a message, or a whole record whose additional data was
    /// given.
    ///
    /// # Errors
    /// [`Refused`].
    #[inline(always)]
    pub fn in_place(&mut self, data: &mut [u8]) -> Done {
        let at = data.as_mut_ptr();
        self.update(at, at.cast_const(), data.len())
    }

    /// Seals or opens the next part of a message from one place to another.
    ///
    /// # Errors
    /// [`Refused`]; also if the output has less room than the input.
    #[inline(always)]
    pub fn to_other_place(&mut self, data: &[u8], out: &mut [u8]) -> Done {
        if out.len() < data.len() {
            return Err(Refused("too little room for a part"));
        }
        self.update(out.as_mut_ptr(), data.as_ptr(), data.len())
    }

    #[inline(always)]
    fn update(&mut self, out: *mut u8, data: *const u8, len: usize) -> Done {
        let update = self.cipher.functions().EVP_CipherUpdate;
        let mut written = 0;
        // Whole blocks are given, or whole records; so no more is written than was given.
        // SAFETY: the context is alive; `data` has `len` bytes, and `out` is null, the same, or has as many.
        let result = unsafe { update(self.raw, out, &raw mut written, data, len as c_int) };
        done(result, "EVP_CipherUpdate")
    }

    /// Ends a message; when opening, says whether it has the tag that was set.
    ///
    /// # Errors
    /// [`Refused`].
    #[inline(always)]
    pub fn finish(&mut self) -> Done {
        let mut rest = [0u8; 32];
        let mut written = 0;
        let last = self.cipher.functions().EVP_CipherFinal_ex;
        // SAFETY: the context is alive; the output has room for a block.
        let result = unsafe { last(self.raw, rest.as_mut_ptr(), &raw mut written) };
        done(result, "EVP_CipherFinal_ex")
    }

    /// Gives the additional data of several records of `len` bytes of text together, without a length in
    /// it, and gets how long they become.
    ///
    /// # Errors
    /// [`Refused`].
    #[inline(always)]
    pub fn multiblock_aad(
        &mut self,
        aad: [u8; AAD],
        len: usize,
        records: u32,
    ) -> Result<usize, Refused> {
        let param = Multiblock { out: null_mut(), input: aad.as_ptr(), len, interleave: records };
        let room = self.multiblock_control(MULTIBLOCK_AAD, param);
        self.room = usize::try_from(room).unwrap_or(0);
        done(room, "EVP_CTRL_TLS1_1_MULTIBLOCK_AAD").map(|()| self.room)
    }

    /// Seals the text as the records whose additional data was given; their headers and IVs are made,
    /// too.
    ///
    /// # Errors
    /// [`Refused`]; also if the output has less room than they need.
    #[inline(always)]
    pub fn multiblock(&mut self, out: &mut [u8], text: &[u8], records: u32) -> Done {
        if out.len() < self.room {
            return Err(Refused("too little room for several records"));
        }
        let (out, input) = (out.as_mut_ptr(), text.as_ptr());
        let param = Multiblock { out, input, len: text.len(), interleave: records };
        done(
            self.multiblock_control(MULTIBLOCK_ENCRYPT, param),
            "EVP_CTRL_TLS1_1_MULTIBLOCK_ENCRYPT",
        )
    }

    #[inline(always)]
    fn multiblock_control(&mut self, what: c_int, mut param: Multiblock) -> c_int {
        let control = self.cipher.functions().EVP_CIPHER_CTX_ctrl;
        let (len, data) = (size_of::<Multiblock>() as c_int, &raw mut param);
        // SAFETY: the context is alive. Of the additional data 13 bytes are read; the text is as long
        // as it says, and the output as long as the context said that it must be.
        unsafe { control(self.raw, what, len, data.cast()) }
    }

    /// Reasons of the last refusal.
    #[must_use]
    pub fn errors(&self) -> String {
        self.cipher.side.errors()
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: made by EVP_CIPHER_CTX_new, and nobody else has it.
        unsafe { (self.cipher.functions().EVP_CIPHER_CTX_free)(self.raw) };
    }
}
