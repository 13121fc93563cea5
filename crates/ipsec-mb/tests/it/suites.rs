//! Parts that jobs are made of.

use std::ptr;

use stand_in::types::*;

use crate::library::Library;

/// A cipher and a hash, which way it goes, and how the buffers lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Suite {
    pub(crate) cipher: u32,
    pub(crate) key_len: usize,
    pub(crate) iv_len: usize,
    pub(crate) hash: u32,
    pub(crate) tag_len: usize,
    pub(crate) encrypt: bool,
    pub(crate) hash_first: bool,
    pub(crate) layout: Layout,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// The cipher writes where it reads; what is hashed begins in front of it.
    InPlace,
    /// The cipher writes elsewhere, and the source is hashed.
    HashSource,
    /// The cipher writes elsewhere, and what it writes is hashed.
    HashOutput,
}

/// Bytes in front of what the cipher works on, which are hashed with it.
const HEADER: usize = 24;

/// Everything that the keys of a suite are expanded to, by the library that will read it.
pub(crate) struct Keys {
    enc: Box<Aligned<240>>,
    dec: Box<Aligned<240>>,
    gcm: Box<Aligned<1280>>,
    parts: [Box<Aligned<240>>; 3],
}

#[repr(C, align(64))]
pub(crate) struct Aligned<const N: usize>(pub(crate) [u8; N]);

fn room<const N: usize>() -> Box<Aligned<N>> {
    Box::new(Aligned([0; N]))
}

/// The place of a key size in arrays of three.
fn size(bytes: usize) -> usize {
    bytes / 8 - 2
}

impl Keys {
    pub(crate) fn new(library: &Library, suite: Suite) -> Self {
        let mut keys =
            Self { enc: room(), dec: room(), gcm: room(), parts: [room(), room(), room()] };
        let secret: Vec<u8> = (0..64u8).map(|i| i.wrapping_mul(7).wrapping_add(3)).collect();
        let f = library.functions();
        let (enc, dec) = (keys.enc.0.as_mut_ptr().cast(), keys.dec.0.as_mut_ptr().cast());
        match suite.cipher {
            CIPHER_CBC | CIPHER_CNTR | CIPHER_CCM | CIPHER_ECB | CIPHER_CNTR_BITLEN
            | CIPHER_CFB => {
                let expand = f.keyexp[size(suite.key_len)].unwrap();
                // SAFETY: there is room for round keys.
                unsafe { expand(secret.as_ptr().cast(), enc, dec) };
                if suite.cipher == CIPHER_CFB {
                    // The cipher's encryption decrypts, too.
                    keys.dec.0 = keys.enc.0;
                }
            }
            CIPHER_GCM => {
                let pre = f.gcm_pre[size(suite.key_len)].unwrap();
                // SAFETY: there is room for key data.
                unsafe { pre(secret.as_ptr().cast(), keys.gcm.0.as_mut_ptr().cast()) };
            }
            _ => keys.enc.0[..32].copy_from_slice(&secret[..32]),
        }
        keys.expand_mac(library, suite, &secret);
        keys
    }

    fn expand_mac(&mut self, library: &Library, suite: Suite, secret: &[u8]) {
        let f = library.functions();
        let [a, b, c] = self.parts.each_mut().map(|part| part.0.as_mut_ptr());
        let hmac = [
            AUTH_HMAC_SHA_1,
            AUTH_HMAC_SHA_224,
            AUTH_HMAC_SHA_256,
            AUTH_HMAC_SHA_384,
            AUTH_HMAC_SHA_512,
            AUTH_MD5,
        ];
        if let Some(which) = hmac.iter().position(|hash| *hash == suite.hash) {
            let one_block = f.one_block[which].unwrap();
            for (pad, to) in [(0x36, a), (0x5c, b)] {
                let mut block = [pad; 128];
                block.iter_mut().zip(&secret[..20]).for_each(|(to, key)| *to ^= key);
                // SAFETY: there is room for a chaining value.
                unsafe { one_block(block.as_ptr().cast(), to.cast()) };
            }
        }
        match suite.hash {
            AUTH_AES_XCBC => {
                let expand = f.xcbc_keyexp.unwrap();
                // SAFETY: there is room for each.
                unsafe { expand(secret.as_ptr().cast(), a.cast(), b.cast(), c.cast()) };
            }
            AUTH_POLY1305 => self.parts[0].0[..32].copy_from_slice(&secret[..32]),
            AUTH_GHASH => {
                let pre = f.ghash_pre.unwrap();
                // SAFETY: there is room for key data.
                unsafe { pre(secret.as_ptr().cast(), self.gcm.0.as_mut_ptr().cast()) };
            }
            AUTH_AES_CMAC | AUTH_AES_CMAC_BITLEN | AUTH_AES_CMAC_256 => {
                let (which, subkeys) = match suite.hash {
                    AUTH_AES_CMAC_256 => (2, f.cmac_subkeys_256.unwrap()),
                    _ => (0, f.cmac_subkeys_128.unwrap()),
                };
                let mut unused = [0u8; 240];
                let expand = f.keyexp[which].unwrap();
                // SAFETY: there is room for round keys.
                unsafe { expand(secret.as_ptr().cast(), a.cast(), unused.as_mut_ptr().cast()) };
                // SAFETY: there is room for subkeys.
                unsafe { subkeys(a.cast(), b.cast(), c.cast()) };
            }
            AUTH_AES_GMAC_128..=AUTH_AES_GMAC_256 => {
                let pre = f.gcm_pre[(suite.hash - AUTH_AES_GMAC_128) as usize].unwrap();
                // SAFETY: there is room for key data.
                unsafe { pre(secret.as_ptr().cast(), self.gcm.0.as_mut_ptr().cast()) };
            }
            _ => {}
        }
    }

    /// Keys in which both libraries must agree: all but GCM's tables.
    pub(crate) fn shared(&self) -> [&[u8]; 5] {
        let [a, b, c] = self.parts.each_ref().map(|part| &part.0[..]);
        [&self.enc.0, &self.dec.0, a, b, c]
    }
}

/// The memory of one job.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Memory {
    src: Vec<u8>,
    dst: Vec<u8>,
    iv: Vec<u8>,
    aad: Vec<u8>,
    pub(crate) tag: Vec<u8>,
    len: usize,
    /// Bits that lengths in bits are short of whole bytes.
    short: u64,
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes, tag {:02x?}", self.len, self.tag)
    }
}

impl Memory {
    pub(crate) fn new(suite: Suite, seed: usize, len: usize) -> Self {
        let byte = |i: usize| (i * 31 + seed * 17 + i / 251) as u8;
        let src: Vec<u8> = (0..HEADER + len + 8).map(byte).collect();
        Self {
            dst: src.iter().map(|byte| byte ^ 0xff).collect(),
            src,
            iv: (0..suite.iv_len).map(|i| byte(i + 1000)).collect(),
            aad: match suite.hash {
                // What comes before the text.
                AUTH_GHASH => (0..16).map(|i| byte(i + 2000)).collect(),
                _ => (0..seed % 29).map(|i| byte(i + 2000)).collect(),
            },
            tag: vec![0xee; suite.tag_len + 8],
            len,
            short: (seed % 8) as u64,
        }
    }

    /// Fills in a job, with all that the header has but numbers of sessions.
    pub(crate) fn describe(&mut self, job: &mut Job, suite: Suite, keys: &Keys) {
        let is_gcm = suite.cipher == CIPHER_GCM;
        (job.enc_keys, job.dec_keys) = if is_gcm {
            (keys.gcm.0.as_ptr().cast(), keys.gcm.0.as_ptr().cast())
        } else {
            (keys.enc.0.as_ptr().cast(), keys.dec.0.as_ptr().cast())
        };
        job.key_len = suite.key_len as u64;
        let (src, dst) = (self.src.as_mut_ptr(), self.dst.as_mut_ptr());
        job.src = src;
        (job.cipher_offset, job.cipher_len) = (HEADER as u64, self.len as u64);
        let aead = [CIPHER_CCM, CIPHER_CHACHA20_POLY1305].contains(&suite.cipher);
        let front = if aead { 0 } else { HEADER };
        job.dst = match suite.layout {
            Layout::InPlace => src.wrapping_add(HEADER),
            _ => dst.wrapping_add(HEADER),
        };
        let hashed = match suite.layout {
            Layout::HashOutput => dst.wrapping_add(HEADER - front),
            _ => src.wrapping_add(HEADER - front),
        };
        // A hash of what is elsewhere has an offset that leads there; sums wrap.
        job.hash_offset = match aead {
            true => HEADER as u64,
            false => (hashed.addr().wrapping_sub(src.addr())) as u64,
        };
        job.hash_len = (front + self.len) as u64;
        if suite.cipher == CIPHER_CNTR_BITLEN {
            job.cipher_len = 8 * job.cipher_len - self.short;
        }
        if suite.hash == AUTH_AES_CMAC_BITLEN {
            job.hash_len = 8 * job.hash_len - self.short;
        }
        (job.iv, job.iv_len) = (self.iv.as_ptr(), self.iv.len() as u64);
        (job.tag, job.tag_len) = (self.tag.as_mut_ptr(), suite.tag_len as u64);
        job.cipher_mode = suite.cipher;
        job.hash_alg = suite.hash;
        job.cipher_direction = if suite.encrypt { DIR_ENCRYPT } else { DIR_DECRYPT };
        job.chain_order = if suite.hash_first { ORDER_HASH_CIPHER } else { ORDER_CIPHER_HASH };
        let part = |i: usize| keys.parts[i].0.as_ptr().expose_provenance();
        job.u = match suite.hash {
            AUTH_AES_GMAC | AUTH_AES_CCM | AUTH_CHACHA20_POLY1305 => {
                [self.aad.as_ptr().expose_provenance(), self.aad.len(), 0]
            }
            AUTH_AES_GMAC_128..=AUTH_AES_GMAC_256 => {
                let key = keys.gcm.0.as_ptr().expose_provenance();
                [key, self.aad.as_ptr().expose_provenance(), self.aad.len()]
            }
            AUTH_GHASH => {
                let key = keys.gcm.0.as_ptr().expose_provenance();
                [key, self.aad.as_ptr().expose_provenance(), 0]
            }
            _ => [part(0), part(1), part(2)],
        };
        (job.sgl_state, job.status) = (0, 0);
        (job.cipher_func, job.hash_func, job.next_iv) = (None, None, ptr::null_mut());
    }
}

const MACS: [(u32, usize); 10] = [
    (AUTH_HMAC_SHA_1, 12),
    (AUTH_HMAC_SHA_1, 20),
    (AUTH_HMAC_SHA_224, 14),
    (AUTH_HMAC_SHA_256, 16),
    (AUTH_HMAC_SHA_384, 24),
    (AUTH_HMAC_SHA_512, 32),
    (AUTH_MD5, 12),
    (AUTH_AES_XCBC, 12),
    (AUTH_AES_CMAC, 16),
    (AUTH_AES_CMAC_256, 12),
];

/// Ciphers that kernels have no pass for.
const CIPHERS_APART: [(u32, usize, usize); 10] = [
    (CIPHER_ECB, 16, 0),
    (CIPHER_ECB, 24, 0),
    (CIPHER_ECB, 32, 0),
    (CIPHER_CNTR_BITLEN, 16, 16),
    (CIPHER_CNTR_BITLEN, 24, 16),
    (CIPHER_CNTR_BITLEN, 32, 16),
    (CIPHER_CFB, 16, 16),
    (CIPHER_CFB, 24, 16),
    (CIPHER_CFB, 32, 16),
    (CIPHER_CHACHA20, 32, 12),
];

/// Hashes likewise.
const HASHES_APART: [(u32, usize); 8] = [
    (AUTH_SHA_1, 20),
    (AUTH_SHA_224, 28),
    (AUTH_SHA_256, 32),
    (AUTH_SHA_384, 48),
    (AUTH_SHA_512, 64),
    (AUTH_AES_CMAC_BITLEN, 4),
    (AUTH_GHASH, 16),
    (AUTH_POLY1305, 16),
];

/// These beside one another and beside those of passes, and each by itself.
pub(crate) fn apart() -> Vec<Suite> {
    let macs = [(AUTH_HMAC_SHA_256, 16), (AUTH_AES_GMAC_192, 16), (AUTH_NULL, 0)];
    let ciphers = [(CIPHER_CBC, 32, 16), (CIPHER_CNTR, 16, 12), (CIPHER_NULL, 0, 0)];
    let mut suites = crossed(&CIPHERS_APART, &macs);
    suites.extend(crossed(&ciphers, &HASHES_APART));
    // Beside one another not all, but each once.
    for (i, cipher) in CIPHERS_APART.into_iter().enumerate() {
        suites.extend(crossed(&[cipher], &[HASHES_APART[i % HASHES_APART.len()]]));
    }
    // Version 1 has no jobs of CFB.
    suites.retain(|suite| suite.cipher < CIPHER_NUM);
    suites
}

/// Every pair of a cipher and a MAC, and each by itself.
pub(crate) fn pairs() -> Vec<Suite> {
    let ciphers = [
        (CIPHER_CBC, 16, 16),
        (CIPHER_CBC, 24, 16),
        (CIPHER_CBC, 32, 16),
        (CIPHER_CNTR, 16, 12),
        (CIPHER_CNTR, 24, 16),
        (CIPHER_CNTR, 32, 12),
        (CIPHER_NULL, 0, 0),
    ];
    let mut macs = MACS.to_vec();
    macs.push((AUTH_NULL, 0));
    crossed(&ciphers, &macs)
}

/// Every pair of both, in all directions, orders and layouts.
fn crossed(ciphers: &[(u32, usize, usize)], macs: &[(u32, usize)]) -> Vec<Suite> {
    let layouts = [Layout::InPlace, Layout::HashSource, Layout::HashOutput];
    let mut suites = Vec::new();
    for &(cipher, key_len, iv_len) in ciphers {
        for &(hash, tag_len) in macs {
            for (encrypt, hash_first) in [(true, false), (false, true), (true, true)] {
                for layout in layouts {
                    // What a hash reads that comes first is nobody's output.
                    if hash_first && layout == Layout::HashOutput {
                        continue;
                    }
                    suites.push(Suite {
                        cipher,
                        key_len,
                        iv_len,
                        hash,
                        tag_len,
                        encrypt,
                        hash_first,
                        layout,
                    });
                }
            }
        }
    }
    suites
}

/// Every AEAD, and GMAC by itself.
pub(crate) fn aeads() -> Vec<Suite> {
    let mut suites = Vec::new();
    let kinds = [
        (CIPHER_GCM, 16, 12, AUTH_AES_GMAC, 16),
        (CIPHER_GCM, 24, 12, AUTH_AES_GMAC, 12),
        (CIPHER_GCM, 32, 12, AUTH_AES_GMAC, 8),
        (CIPHER_GCM, 32, 16, AUTH_AES_GMAC, 16),
        (CIPHER_GCM, 16, 5, AUTH_AES_GMAC, 16),
        (CIPHER_CCM, 16, 13, AUTH_AES_CCM, 16),
        (CIPHER_CCM, 32, 11, AUTH_AES_CCM, 8),
        (CIPHER_CCM, 16, 7, AUTH_AES_CCM, 4),
        (CIPHER_CHACHA20_POLY1305, 32, 12, AUTH_CHACHA20_POLY1305, 16),
    ];
    for (cipher, key_len, iv_len, hash, tag_len) in kinds {
        for encrypt in [true, false] {
            for layout in [Layout::InPlace, Layout::HashSource] {
                let hash_first = (cipher == CIPHER_CCM) == encrypt;
                suites.push(Suite {
                    cipher,
                    key_len,
                    iv_len,
                    hash,
                    tag_len,
                    encrypt,
                    hash_first,
                    layout,
                });
            }
        }
    }
    for hash in AUTH_AES_GMAC_128..=AUTH_AES_GMAC_256 {
        suites.push(Suite {
            cipher: CIPHER_NULL,
            key_len: 0,
            iv_len: 0,
            hash,
            tag_len: 16,
            encrypt: true,
            hash_first: false,
            layout: Layout::InPlace,
        });
    }
    suites
}

/// A length that the suite takes.
pub(crate) fn length(suite: Suite, wish: usize) -> usize {
    match suite.cipher {
        CIPHER_CBC | CIPHER_ECB | CIPHER_CFB => wish.div_ceil(16).max(1) * 16,
        CIPHER_CNTR | CIPHER_CNTR_BITLEN | CIPHER_CHACHA20 => wish.max(1),
        _ => wish,
    }
}
