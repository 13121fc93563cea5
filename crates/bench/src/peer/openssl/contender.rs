//! OpenSSL as a contender: EVP for ciphers, and for MACs the faster of EVP and HMAC's own calls.
//!
//! Contexts hold expanded keys and are made once; a packet gives its IV.

use std::ffi::{CString, c_int, c_void};
use std::ptr::{null, null_mut};
use std::rc::Rc;

use convoy_crypto::{Cipher, GcmParams, HashAlg, KeyBits, MacAlg, Suite};

use super::library::{Object, OpenSsl, Param, UTF8_STRING};
use crate::contender::Contender;
use crate::suite::{ESP_HEADER, Layout as _};
use crate::workload::{Arena, Direction, Packet, Workload};

/// `EVP_CTRL_AEAD_*`.
const SET_IVLEN: c_int = 0x9;
const GET_TAG: c_int = 0x10;
const SET_TAG: c_int = 0x11;

/// Contenders for each interface that fits the workload; none if OpenSSL lacks the suite.
#[must_use]
pub fn contenders(library: &Rc<OpenSsl>, work: &Workload) -> Vec<Box<dyn Contender>> {
    let mut all: Vec<Box<dyn Contender>> = Vec::new();
    match work.suite {
        Suite::Pair { cipher, integrity } => {
            for api in [MacApi::Evp, MacApi::Hmac] {
                if let Some(pair) = Pair::new(library, work, cipher, integrity.alg(), api) {
                    all.push(Box::new(pair));
                }
            }
        }
        _ => {
            if let Some(aead) = Aead::new(library, work) {
                all.push(Box::new(aead));
            }
        }
    }
    all
}

/// A cipher's context for one key and direction.
struct CipherContext {
    context: Object,
    library: Rc<OpenSsl>,
}

impl CipherContext {
    fn new(
        library: &Rc<OpenSsl>,
        name: &str,
        key: &[u8],
        direction: Direction,
        lengths: Option<(usize, usize)>,
    ) -> Option<Self> {
        let functions = &library.functions;
        let name = CString::new(name).ok()?;
        // SAFETY: the default library context, a name, no properties.
        let cipher = unsafe { (functions.EVP_CIPHER_fetch)(null_mut(), name.as_ptr(), null()) };
        if cipher.is_null() {
            return None;
        }
        // SAFETY: it takes nothing.
        let context = unsafe { (functions.EVP_CIPHER_CTX_new)() };
        let this = Self { context, library: library.clone() };
        let enc = c_int::from(direction == Direction::Seal);
        let init = functions.EVP_CipherInit_ex2;
        // SAFETY: context and cipher are alive; neither key nor IV yet.
        let mut good = unsafe { init(context, cipher, null(), null(), enc, null()) } == 1;
        if let Some((iv, icv)) = lengths {
            good &= this.control(SET_IVLEN, iv, null_mut());
            // The length must be known before the key; decryption takes it with some ICV only.
            let mut some = [0; 16];
            let tag = if enc == 0 { some.as_mut_ptr() } else { null_mut() };
            good &= this.control(SET_TAG, icv, tag);
        }
        // SAFETY: the context is alive and its cipher's key has this length.
        good &= unsafe { init(context, null_mut(), key.as_ptr(), null(), enc, null()) } == 1;
        // SAFETY: the context is alive.
        good &= unsafe { (functions.EVP_CIPHER_CTX_set_padding)(context, 0) } == 1;
        // SAFETY: the context holds a reference of its own.
        unsafe { (functions.EVP_CIPHER_free)(cipher) };
        good.then_some(this)
    }

    #[inline(always)]
    fn control(&self, what: c_int, size: usize, data: *mut u8) -> bool {
        let control = self.library.functions.EVP_CIPHER_CTX_ctrl;
        // SAFETY: the context is alive, and `data` has `size` bytes or is null.
        unsafe { control(self.context, what, size as c_int, data.cast()) == 1 }
    }

    /// Begins a packet: the key stays.
    #[inline(always)]
    fn begin(&self, iv: *const u8) -> bool {
        let init = self.library.functions.EVP_CipherInit_ex2;
        // SAFETY: the context is alive; the IV has the length the context was set up for.
        unsafe { init(self.context, null_mut(), null(), iv, -1, null()) == 1 }
    }

    #[inline(always)]
    fn update(&self, out: *mut u8, data: *const u8, len: usize) -> bool {
        let mut written = 0;
        let update = self.library.functions.EVP_CipherUpdate;
        // SAFETY: the context is alive; `data` has `len` bytes, and `out` is null or the same.
        unsafe { update(self.context, out, &raw mut written, data, len as c_int) == 1 }
    }

    #[inline(always)]
    fn finish(&self) -> bool {
        let mut rest = [0u8; 32];
        let mut written = 0;
        let last = self.library.functions.EVP_CipherFinal_ex;
        // SAFETY: the context is alive; the output has room for a block.
        unsafe { last(self.context, rest.as_mut_ptr(), &raw mut written) == 1 }
    }
}

impl Drop for CipherContext {
    fn drop(&mut self) {
        // SAFETY: made by EVP_CIPHER_CTX_new, and nobody else has it.
        unsafe { (self.library.functions.EVP_CIPHER_CTX_free)(self.context) };
    }
}

fn aes_name(bits: KeyBits, mode: &str) -> String {
    format!("AES-{}-{mode}", bits.bits())
}

/// An AEAD.
struct Aead {
    seal: Vec<CipherContext>,
    open: Vec<CipherContext>,
    suite: Suite,
}

impl Aead {
    fn new(library: &Rc<OpenSsl>, work: &Workload) -> Option<Self> {
        let name = match work.suite {
            Suite::Gcm(GcmParams { key_bits, .. }) | Suite::Gmac(key_bits) => {
                aes_name(key_bits, "GCM")
            }
            Suite::Ccm { key_bits, .. } => aes_name(key_bits, "CCM"),
            Suite::ChaCha20Poly1305 => "ChaCha20-Poly1305".to_owned(),
            Suite::Pair { .. } => return None,
        };
        let lengths = matches!(work.suite, Suite::Ccm { .. })
            .then(|| (work.suite.nonce_bytes(), work.suite.icv_bytes()));
        let contexts = |direction| {
            let keys = work.keys.iter();
            keys.map(|keys| CipherContext::new(library, &name, &keys.cipher, direction, lengths))
                .collect::<Option<Vec<_>>>()
        };
        Some(Self {
            seal: contexts(Direction::Seal)?,
            open: contexts(Direction::Open)?,
            suite: work.suite,
        })
    }

    /// Everything between IV and ICV.
    #[inline(always)]
    fn body(&self, context: &CipherContext, frame: *mut u8, packet: &Packet) -> bool {
        let header = self.suite.header_bytes();
        let text = frame.wrapping_add(header);
        match self.suite {
            Suite::Gmac(_) => context.update(null_mut(), frame, header + packet.text),
            Suite::Ccm { .. } => {
                // CCM must know the length first.
                context.update(null_mut(), null(), packet.text)
                    && context.update(null_mut(), frame, ESP_HEADER)
                    && context.update(text, text, packet.text)
            }
            _ => {
                context.update(null_mut(), frame, ESP_HEADER)
                    && context.update(text, text, packet.text)
            }
        }
    }
}

impl Contender for Aead {
    fn who(&self) -> &'static str {
        "openssl"
    }

    fn api(&self) -> &str {
        "evp"
    }

    fn seal(&mut self, work: &Workload, arena: &mut Arena) {
        let bytes = arena.bytes_mut().as_mut_ptr();
        let icv_len = self.suite.icv_bytes();
        for packet in &work.packets {
            let context = &self.seal[packet.key];
            let frame = bytes.wrapping_add(packet.start);
            let icv = frame.wrapping_add(self.suite.header_bytes() + packet.text);
            // Failure leaves wrong bytes, which the comparison before the measurement finds.
            let _ = context.begin(packet.nonce.as_ptr())
                && self.body(context, frame, packet)
                && context.finish()
                && context.control(GET_TAG, icv_len, icv);
        }
    }

    fn open(&mut self, work: &Workload, arena: &mut Arena) -> usize {
        let bytes = arena.bytes_mut().as_mut_ptr();
        let icv_len = self.suite.icv_bytes();
        let is_ccm = matches!(self.suite, Suite::Ccm { .. });
        let mut authentic = 0;
        for packet in &work.packets {
            let context = &self.open[packet.key];
            let frame = bytes.wrapping_add(packet.start);
            let icv = frame.wrapping_add(self.suite.header_bytes() + packet.text);
            // CCM verifies with the text, the others at the end.
            let good = context.begin(packet.nonce.as_ptr())
                && context.control(SET_TAG, icv_len, icv)
                && self.body(context, frame, packet)
                && (is_ccm || context.finish());
            authentic += usize::from(good);
        }
        authentic
    }
}

/// By which of its interfaces a MAC is made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MacApi {
    Evp,
    Hmac,
}

/// A MAC's context for one key.
struct MacContext {
    context: Object,
    api: MacApi,
    library: Rc<OpenSsl>,
}

impl MacContext {
    fn new(library: &Rc<OpenSsl>, alg: MacAlg, key: &[u8], api: MacApi) -> Option<Self> {
        match (api, alg) {
            (MacApi::Hmac, MacAlg::Hmac(hash)) => Self::hmac(library, hash, key),
            (MacApi::Evp, MacAlg::Hmac(hash)) => {
                Self::evp(library, "HMAC", "digest", digest(hash), key)
            }
            (MacApi::Evp, MacAlg::AesCmac(bits)) => {
                Self::evp(library, "CMAC", "cipher", &aes_name(bits, "CBC"), key)
            }
            // It has no XCBC.
            _ => None,
        }
    }

    fn evp(
        library: &Rc<OpenSsl>,
        mac: &str,
        parameter: &str,
        value: &str,
        key: &[u8],
    ) -> Option<Self> {
        let functions = &library.functions;
        let (mac, parameter) = (CString::new(mac).ok()?, CString::new(parameter).ok()?);
        let value = CString::new(value).ok()?;
        // SAFETY: the default library context, a name, no properties.
        let mac = unsafe { (functions.EVP_MAC_fetch)(null_mut(), mac.as_ptr(), null()) };
        if mac.is_null() {
            return None;
        }
        // SAFETY: the MAC is alive; the context holds a reference of its own.
        let context = unsafe { (functions.EVP_MAC_CTX_new)(mac) };
        // SAFETY: as said.
        unsafe { (functions.EVP_MAC_free)(mac) };
        let this = Self { context, api: MacApi::Evp, library: library.clone() };
        let text = |key: &CString, data: &CString| Param {
            key: key.as_ptr(),
            data_type: UTF8_STRING,
            data: data.as_ptr().cast_mut().cast(),
            data_size: data.as_bytes().len(),
            return_size: 0,
        };
        let end =
            Param { key: null(), data_type: 0, data: null_mut(), data_size: 0, return_size: 0 };
        let params = [text(&parameter, &value), end];
        let init = functions.EVP_MAC_init;
        // SAFETY: context, key and parameters are alive, and the latter end with a null key.
        let good = unsafe { init(context, key.as_ptr(), key.len(), params.as_ptr()) } == 1;
        good.then_some(this)
    }

    fn hmac(library: &Rc<OpenSsl>, hash: HashAlg, key: &[u8]) -> Option<Self> {
        let functions = &library.functions;
        let name = CString::new(digest(hash)).ok()?;
        // SAFETY: it takes a name.
        let digest = unsafe { (functions.EVP_get_digestbyname)(name.as_ptr()) };
        if digest.is_null() {
            return None;
        }
        // SAFETY: it takes nothing.
        let context = unsafe { (functions.HMAC_CTX_new)() };
        let this = Self { context, api: MacApi::Hmac, library: library.clone() };
        let (bytes, len) = (key.as_ptr().cast::<c_void>(), key.len() as c_int);
        // SAFETY: context, key and digest are alive.
        let good =
            unsafe { (functions.HMAC_Init_ex)(context, bytes, len, digest, null_mut()) } == 1;
        good.then_some(this)
    }

    /// The whole MAC of `data`, in up to 64 bytes.
    #[inline(always)]
    fn mac(&self, data: *const u8, len: usize, out: &mut [u8; 64]) -> bool {
        let (functions, context) = (&self.library.functions, self.context);
        match self.api {
            MacApi::Evp => {
                let mut written = 0;
                // SAFETY: the context is alive and keeps its key.
                let good = unsafe { (functions.EVP_MAC_init)(context, null(), 0, null()) } == 1;
                // SAFETY: `data` has `len` bytes.
                let good = good && unsafe { (functions.EVP_MAC_update)(context, data, len) } == 1;
                let (to, last) = (out.as_mut_ptr(), functions.EVP_MAC_final);
                // SAFETY: the output has 64 bytes, as it is told.
                good && unsafe { last(context, to, &raw mut written, 64) } == 1
            }
            MacApi::Hmac => {
                let mut written = 0;
                let init = functions.HMAC_Init_ex;
                // SAFETY: the context is alive and keeps its key and digest.
                let good = unsafe { init(context, null(), 0, null(), null_mut()) } == 1;
                // SAFETY: `data` has `len` bytes.
                let good = good && unsafe { (functions.HMAC_Update)(context, data, len) } == 1;
                let (to, last) = (out.as_mut_ptr(), functions.HMAC_Final);
                // SAFETY: no digest has more than 64 bytes.
                good && unsafe { last(context, to, &raw mut written) } == 1
            }
        }
    }
}

impl Drop for MacContext {
    fn drop(&mut self) {
        let functions = &self.library.functions;
        match self.api {
            // SAFETY: made by EVP_MAC_CTX_new, and nobody else has it.
            MacApi::Evp => unsafe { (functions.EVP_MAC_CTX_free)(self.context) },
            // SAFETY: made by HMAC_CTX_new, and nobody else has it.
            MacApi::Hmac => unsafe { (functions.HMAC_CTX_free)(self.context) },
        }
    }
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

/// A cipher and a MAC.
struct Pair {
    /// Empty for the NULL cipher.
    seal: Vec<CipherContext>,
    open: Vec<CipherContext>,
    macs: Vec<MacContext>,
    suite: Suite,
    iv_in_frame: bool,
}

impl Pair {
    fn new(
        library: &Rc<OpenSsl>,
        work: &Workload,
        cipher: Cipher,
        mac: MacAlg,
        api: MacApi,
    ) -> Option<Self> {
        let name = match cipher {
            Cipher::Null => None,
            Cipher::AesCbc(bits) => Some(aes_name(bits, "CBC")),
            Cipher::AesCtr(bits) => Some(aes_name(bits, "CTR")),
            Cipher::TripleDesCbc => Some("DES-EDE3-CBC".into()),
            Cipher::CamelliaCbc(bits) => Some(format!("CAMELLIA-{}-CBC", bits.bits())),
        };
        let contexts = |direction| {
            let Some(name) = &name else { return Some(Vec::new()) };
            let keys = work.keys.iter();
            keys.map(|keys| CipherContext::new(library, name, &keys.cipher, direction, None))
                .collect::<Option<Vec<_>>>()
        };
        let macs = work.keys.iter().map(|keys| MacContext::new(library, mac, &keys.mac, api));
        Some(Self {
            macs: macs.collect::<Option<_>>()?,
            seal: contexts(Direction::Seal)?,
            open: contexts(Direction::Open)?,
            suite: work.suite,
            iv_in_frame: work.suite.block_bytes() > 1,
        })
    }

    #[inline(always)]
    fn crypt(&self, contexts: &[CipherContext], frame: *mut u8, packet: &Packet) -> bool {
        let Some(context) = contexts.get(packet.key) else { return true };
        let iv = match self.iv_in_frame {
            true => frame.wrapping_add(ESP_HEADER).cast_const(),
            false => packet.nonce.as_ptr(),
        };
        let text = frame.wrapping_add(self.suite.header_bytes());
        context.begin(iv) && context.update(text, text, packet.text)
    }
}

impl Contender for Pair {
    fn who(&self) -> &'static str {
        "openssl"
    }

    fn api(&self) -> &str {
        match self.macs.first().map(|mac| mac.api) {
            Some(MacApi::Hmac) => "evp+hmac",
            _ => "evp+evp-mac",
        }
    }

    fn seal(&mut self, work: &Workload, arena: &mut Arena) {
        let icv = self.suite.icv_bytes();
        let mut mac = [0; 64];
        for packet in &work.packets {
            let len = self.suite.header_bytes() + packet.text;
            let bytes = &mut arena.bytes_mut()[packet.start..][..len + icv];
            let frame = bytes.as_mut_ptr();
            // Failure leaves wrong bytes, which the comparison before the measurement finds.
            let _ = self.crypt(&self.seal, frame, packet);
            let _ = self.macs[packet.key].mac(frame, len, &mut mac);
            bytes[len..].copy_from_slice(&mac[..icv]);
        }
    }

    fn open(&mut self, work: &Workload, arena: &mut Arena) -> usize {
        let icv = self.suite.icv_bytes();
        let mut mac = [0; 64];
        let mut authentic = 0;
        for packet in &work.packets {
            let len = self.suite.header_bytes() + packet.text;
            let bytes = &mut arena.bytes_mut()[packet.start..][..len + icv];
            let frame = bytes.as_mut_ptr();
            let good =
                self.macs[packet.key].mac(frame, len, &mut mac) && bytes[len..] == mac[..icv];
            authentic += usize::from(good && self.crypt(&self.open, frame, packet));
        }
        authentic
    }
}
