//! OpenSSL as an oracle: its libcrypto is looked for at run time.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_uint, c_void},
    ptr::{null, null_mut},
    sync::OnceLock,
};

use convoy_crypto::{Cipher, GcmParams, HashAlg, KeyBits, MacAlg, Suite};

/// Any of the library's objects.
type Object = *mut c_void;

/// `OSSL_PARAM`.
#[repr(C)]
struct Param {
    key: *const c_char,
    data_type: c_uint,
    data: *mut c_void,
    data_size: usize,
    return_size: usize,
}

macro_rules! functions {
    ($($name:ident: fn($($arg:ty),*) $(-> $ret:ty)?;)*) => {
        /// Functions of the library under their own names, as the headers of OpenSSL 3 declare them.
        #[allow(non_snake_case)]
        struct Functions {
            $($name: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*
        }

        impl Functions {
            fn load(library: *mut c_void) -> Option<Self> {
                Some(Self {
                    $($name: {
                        let name = concat!(stringify!($name), "\0");
                        // SAFETY: the library is loaded and the name ends with a zero.
                        let symbol = unsafe { libc::dlsym(library, name.as_ptr().cast()) };
                        if symbol.is_null() {
                            return None;
                        }
                        // SAFETY: the function is declared so.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($arg),*) $(-> $ret)?
                            >(symbol)
                        }
                    },)*
                })
            }
        }
    };
}

functions! {
    EVP_CIPHER_fetch: fn(Object, *const c_char, *const c_char) -> Object;
    EVP_CIPHER_free: fn(Object);
    EVP_CIPHER_CTX_new: fn() -> Object;
    EVP_CIPHER_CTX_free: fn(Object);
    EVP_CIPHER_CTX_ctrl: fn(Object, c_int, c_int, *mut c_void) -> c_int;
    EVP_CIPHER_CTX_set_padding: fn(Object, c_int) -> c_int;
    EVP_CipherInit_ex2: fn(Object, Object, *const u8, *const u8, c_int, *const Param) -> c_int;
    EVP_CipherUpdate: fn(Object, *mut u8, *mut c_int, *const u8, c_int) -> c_int;
    EVP_CipherFinal_ex: fn(Object, *mut u8, *mut c_int) -> c_int;
    EVP_Q_mac: fn(Object, *const c_char, *const c_char, *const c_char, *const Param, *const u8, usize, *const u8, usize, *mut u8, usize, *mut usize) -> *mut u8;
    OpenSSL_version: fn(c_int) -> *const c_char;
}

/// `EVP_CTRL_AEAD_*`.
const SET_IVLEN: c_int = 0x9;
const GET_TAG: c_int = 0x10;
const SET_TAG: c_int = 0x11;

/// OpenSSL's libcrypto.
pub(crate) struct OpenSsl {
    functions: Functions,
}

/// A packet's secrets and bytes; of an AEAD, `header` is the additional data.
pub(crate) struct Parts<'p> {
    pub(crate) suite: Suite,
    pub(crate) keys: (&'p [u8], &'p [u8]),
    pub(crate) nonce: &'p [u8],
    pub(crate) header: &'p [u8],
    pub(crate) text: &'p mut [u8],
    pub(crate) trailer: &'p [u8],
}

impl OpenSsl {
    /// The library, if this machine has it; says so if not.
    pub(crate) fn find() -> Option<&'static Self> {
        static LIBRARY: OnceLock<Option<OpenSsl>> = OnceLock::new();
        let library = LIBRARY.get_or_init(Self::load).as_ref();
        if library.is_none() {
            println!("SKIPPED: comparing with OpenSSL: there is no libcrypto.so.3 of OpenSSL 3");
        }
        library
    }

    fn load() -> Option<Self> {
        // SAFETY: loading runs the library's initialisers; it is the one that the system installed.
        let library = unsafe { libc::dlopen(c"libcrypto.so.3".as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return None;
        }
        let functions = Functions::load(library)?;
        // SAFETY: it takes any number and returns a string constant.
        let version = unsafe { (functions.OpenSSL_version)(0) };
        // SAFETY: as said.
        println!("oracle: {}", unsafe { CStr::from_ptr(version) }.to_string_lossy());
        Some(Self { functions })
    }

    /// Encrypts the text and returns the ICV.
    pub(crate) fn seal(&self, parts: &mut Parts<'_>) -> Vec<u8> {
        self.seal_cut(parts, parts.suite.icv_bytes())
    }

    /// The same with an ICV of another length.
    pub(crate) fn seal_cut(&self, parts: &mut Parts<'_>, icv_len: usize) -> Vec<u8> {
        let Parts { suite, keys, nonce, header, text, trailer } = parts;
        let mut icv = match *suite {
            Suite::Gcm(GcmParams { key_bits, .. }) => {
                self.aead(&aes(key_bits, "GCM"), keys.0, nonce, header, text, 16)
            }
            Suite::Gmac(key_bits) => {
                let all = [header, &**text].concat();
                self.aead(&aes(key_bits, "GCM"), keys.0, nonce, &all, &mut [], 16)
            }
            Suite::Ccm { key_bits, .. } => {
                self.aead(&aes(key_bits, "CCM"), keys.0, nonce, header, text, icv_len)
            }
            Suite::ChaCha20Poly1305 => {
                self.aead("ChaCha20-Poly1305", keys.0, nonce, header, text, 16)
            }
            Suite::Pair { cipher, integrity } => {
                match cipher {
                    Cipher::Null => {}
                    Cipher::AesCbc(bits) => self.cbc(bits, true, keys.0, nonce, text),
                    Cipher::TripleDesCbc => {
                        self.crypt("DES-EDE3-CBC", true, keys.0, nonce, text);
                    }
                    Cipher::CamelliaCbc(bits) => {
                        let name = format!("CAMELLIA-{}-CBC", bits.bits());
                        self.crypt(&name, true, keys.0, nonce, text);
                    }
                    Cipher::AesCtr(bits) => {
                        let block = [nonce, &[0, 0, 0, 1][..]].concat();
                        self.ctr(bits, keys.0, &block, text);
                    }
                }
                self.mac(integrity.alg(), keys.1, &[header, &**text, trailer].concat())
            }
        };
        icv.truncate(icv_len);
        icv
    }

    /// AES-CBC in either direction.
    pub(crate) fn cbc(&self, bits: KeyBits, encrypt: bool, key: &[u8], iv: &[u8], text: &mut [u8]) {
        self.crypt(&aes(bits, "CBC"), encrypt, key, iv, text);
    }

    /// AES in counter mode; `block` is the first counter block.
    pub(crate) fn ctr(&self, bits: KeyBits, key: &[u8], block: &[u8], text: &mut [u8]) {
        self.crypt(&aes(bits, "CTR"), true, key, block, text);
    }

    /// The whole MAC of a message.
    pub(crate) fn mac(&self, alg: MacAlg, key: &[u8], message: &[u8]) -> Vec<u8> {
        match alg {
            MacAlg::Null => Vec::new(),
            MacAlg::Hmac(hash) => self.q_mac("HMAC", digest(hash), key, message),
            MacAlg::AesCmac(bits) => self.q_mac("CMAC", &aes(bits, "CBC"), key, message),
            MacAlg::AesXcbc => self.xcbc(key, message),
        }
    }

    fn q_mac(&self, name: &str, sub: &str, key: &[u8], message: &[u8]) -> Vec<u8> {
        let (name, sub) = (CString::new(name).unwrap(), CString::new(sub).unwrap());
        let mut out = [0; 64];
        let mut len = 0;
        // SAFETY: names end with zeros, and lengths are those of the slices.
        let made = unsafe {
            (self.functions.EVP_Q_mac)(
                null_mut(),
                name.as_ptr(),
                null(),
                sub.as_ptr(),
                null(),
                key.as_ptr(),
                key.len(),
                message.as_ptr(),
                message.len(),
                out.as_mut_ptr(),
                out.len(),
                &raw mut len,
            )
        };
        assert!(!made.is_null(), "OpenSSL refuses {name:?} of {sub:?}");
        out[..len].to_vec()
    }

    /// RFC 3566 section 4 on top of AES-CBC, for OpenSSL has no XCBC.
    fn xcbc(&self, key: &[u8], message: &[u8]) -> Vec<u8> {
        let derived = |n: u8| {
            let mut block = [n; 16];
            self.cbc(KeyBits::Aes128, true, key, &[0; 16], &mut block);
            block
        };
        let mut chain = message.to_vec();
        let mask = if chain.is_empty() || !chain.len().is_multiple_of(16) {
            chain.push(0x80);
            chain.resize(chain.len().next_multiple_of(16), 0);
            derived(3)
        } else {
            derived(2)
        };
        let last = chain.len() - 16;
        chain[last..].iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
        self.cbc(KeyBits::Aes128, true, &derived(1), &[0; 16], &mut chain);
        chain[last..].to_vec()
    }

    fn context(&self, name: &str, encrypt: bool) -> Context<'_> {
        let functions = &self.functions;
        let name = CString::new(name).unwrap();
        // SAFETY: the default library context, a name, no properties.
        let cipher = unsafe { (functions.EVP_CIPHER_fetch)(null_mut(), name.as_ptr(), null()) };
        assert!(!cipher.is_null(), "OpenSSL has no {name:?}");
        // SAFETY: it takes nothing.
        let context = unsafe { (functions.EVP_CIPHER_CTX_new)() };
        let init = functions.EVP_CipherInit_ex2;
        // SAFETY: context and cipher are alive; neither key nor IV yet.
        let good = unsafe { init(context, cipher, null(), null(), c_int::from(encrypt), null()) };
        assert_eq!(good, 1);
        // SAFETY: the context holds a reference of its own.
        unsafe { (functions.EVP_CIPHER_free)(cipher) };
        Context { context, functions }
    }

    fn crypt(&self, name: &str, encrypt: bool, key: &[u8], iv: &[u8], text: &mut [u8]) {
        let context = self.context(name, encrypt);
        context.set_keys(key, iv);
        // SAFETY: the context is alive.
        let good = unsafe { (self.functions.EVP_CIPHER_CTX_set_padding)(context.context, 0) };
        assert_eq!(good, 1);
        context.update_in_place(text);
        context.finish();
    }

    fn aead(
        &self,
        name: &str,
        key: &[u8],
        nonce: &[u8],
        aad: &[u8],
        text: &mut [u8],
        tag_len: usize,
    ) -> Vec<u8> {
        let context = self.context(name, true);
        context.control(SET_IVLEN, nonce.len(), null_mut());
        let ccm = name.ends_with("CCM");
        if ccm {
            context.control(SET_TAG, tag_len, null_mut());
        }
        context.set_keys(key, nonce);
        if ccm {
            // CCM must know the length first.
            context.update(null_mut(), null(), text.len());
        }
        if !aad.is_empty() {
            context.update(null_mut(), aad.as_ptr(), aad.len());
        }
        if ccm || !text.is_empty() {
            context.update_in_place(text);
        }
        context.finish();
        let mut tag = vec![0; tag_len];
        context.control(GET_TAG, tag_len, tag.as_mut_ptr());
        tag
    }
}

struct Context<'l> {
    context: Object,
    functions: &'l Functions,
}

impl Context<'_> {
    fn set_keys(&self, key: &[u8], iv: &[u8]) {
        let init = self.functions.EVP_CipherInit_ex2;
        // SAFETY: the context is alive; its cipher's key and IV have these lengths; -1
        // leaves the direction.
        let good = unsafe { init(self.context, null_mut(), key.as_ptr(), iv.as_ptr(), -1, null()) };
        assert_eq!(good, 1);
    }

    fn control(&self, what: c_int, size: usize, data: *mut u8) {
        let control = self.functions.EVP_CIPHER_CTX_ctrl;
        // SAFETY: the context is alive, and `data` has `size` bytes or is null.
        let good = unsafe { control(self.context, what, size as c_int, data.cast()) };
        assert_eq!(good, 1, "control {what:#x}");
    }

    fn update(&self, out: *mut u8, data: *const u8, len: usize) {
        let mut written = 0;
        let update = self.functions.EVP_CipherUpdate;
        // SAFETY: the context is alive; `data` has `len` bytes, and `out` is null or the same.
        let good = unsafe { update(self.context, out, &raw mut written, data, len as c_int) };
        assert_eq!(good, 1);
    }

    fn update_in_place(&self, text: &mut [u8]) {
        let at = text.as_mut_ptr();
        self.update(at, at, text.len());
    }

    fn finish(&self) {
        let mut rest = [0u8; 32];
        let mut written = 0;
        let last = self.functions.EVP_CipherFinal_ex;
        // SAFETY: the context is alive; the output has room for a block.
        let good = unsafe { last(self.context, rest.as_mut_ptr(), &raw mut written) };
        assert_eq!((good, written), (1, 0));
    }
}

impl Drop for Context<'_> {
    fn drop(&mut self) {
        // SAFETY: made by EVP_CIPHER_CTX_new, and nobody else has it.
        unsafe { (self.functions.EVP_CIPHER_CTX_free)(self.context) };
    }
}

fn aes(bits: KeyBits, mode: &str) -> String {
    format!("AES-{}-{mode}", bits.bits())
}

const fn digest(hash: HashAlg) -> &'static str {
    match hash {
        HashAlg::Md5 => "MD5",
        HashAlg::Sha1 => "SHA1",
        HashAlg::Sha224 => "SHA224",
        HashAlg::Sha256 => "SHA256",
        HashAlg::Sha384 => "SHA384",
        HashAlg::Sha512 => "SHA512",
    }
}
