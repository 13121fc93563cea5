//! From a packet to a job.

use convoy_crypto::{Cipher, GcmParams, HashAlg, KeyBits, MacAlg, Suite};

use super::keys::{Material, size_index};
use super::layout::{CIPHER_HASH, DECRYPT, ENCRYPT, HASH_CIPHER, Job, auth, cipher};
use crate::suite::{ESP_HEADER, Layout as _};
use crate::workload::{Direction, Packet};

/// Fields that jobs of one suite and direction share.
#[derive(Clone)]
pub(super) struct Shape {
    pub(super) template: Job,
    pub(super) header: usize,
    pub(super) icv: usize,
    /// Bytes in front of the text that are hashed with it.
    hashed: usize,
    iv: Iv,
    union: Union,
}

/// Source of the IV.
#[derive(Clone, Copy)]
enum Iv {
    /// The packet carries it behind its ESP header.
    InFrame,
    /// The packet carries only a part of it.
    Nonce,
}

/// Content of a job's union.
#[derive(Clone, Copy)]
enum Union {
    /// Pointers to the MAC's keys.
    Mac,
    /// Additional data of this many bytes, from the frame's beginning.
    Aad(usize),
    /// GMAC's key, nonce and its length.
    Gmac,
}

impl Shape {
    /// None if the library has no such suite.
    pub(super) fn new(suite: Suite, direction: Direction) -> Option<Self> {
        let (cipher_mode, hash_alg, union) = algorithms(suite)?;
        let iv = match suite {
            Suite::Pair { cipher: Cipher::AesCbc(_), .. } => Iv::InFrame,
            _ => Iv::Nonce,
        };
        let header = suite.header_bytes();
        let seals = direction == Direction::Seal;
        // CCM's MAC is over the plaintext.
        let hash_first = seals == matches!(suite, Suite::Ccm { .. });
        // What is authenticated besides the text goes as additional data. GMAC's does not.
        let with_aad = suite.is_aead() && !matches!(suite, Suite::Gmac(_));
        let hash_offset = if with_aad { header } else { 0 };
        let template = Job {
            cipher_mode,
            hash_alg,
            direction: if seals { ENCRYPT } else { DECRYPT },
            chain_order: if hash_first { HASH_CIPHER } else { CIPHER_HASH },
            key_len: suite.key_bytes() as u64,
            iv_len: iv_bytes(suite) as u64,
            tag_len: suite.icv_bytes() as u64,
            cipher_offset: header as u64,
            hash_offset: hash_offset as u64,
            ..Job::EMPTY
        };
        Some(Self {
            template,
            header,
            icv: suite.icv_bytes(),
            hashed: header - hash_offset,
            iv,
            union,
        })
    }

    /// Writes into `job`, a copy of the template, what is the packet's own.
    #[inline(always)]
    pub(super) fn fill(
        &self,
        job: &mut Job,
        key: &Material,
        packet: &Packet,
        arena: *mut u8,
        tag: *mut u8,
    ) {
        let frame = arena.wrapping_add(packet.start);
        job.enc_keys = key.enc;
        job.dec_keys = key.dec;
        job.src = frame;
        job.dst = frame.wrapping_add(self.header);
        job.cipher_len = packet.text as u64;
        job.hash_len = (self.hashed + packet.text) as u64;
        job.iv = match self.iv {
            Iv::InFrame => frame.wrapping_add(ESP_HEADER),
            Iv::Nonce => packet.nonce.as_ptr(),
        };
        job.tag = tag;
        job.u = match self.union {
            Union::Mac => key.mac,
            Union::Aad(len) => [frame.expose_provenance(), len, 0],
            Union::Gmac => {
                [key.gcm.expose_provenance(), packet.nonce.as_ptr().expose_provenance(), 12]
            }
        };
    }

    /// Pointer to the packet's ICV.
    #[inline(always)]
    pub(super) const fn icv_of(&self, packet: &Packet, arena: *mut u8) -> *mut u8 {
        arena.wrapping_add(packet.start + self.header + packet.text)
    }
}

const fn iv_bytes(suite: Suite) -> usize {
    match suite {
        // The counter's first value goes with the nonce.
        Suite::Pair { cipher: Cipher::AesCtr(_), .. } => 16,
        _ => suite.nonce_bytes(),
    }
}

fn algorithms(suite: Suite) -> Option<(u32, u32, Union)> {
    Some(match suite {
        Suite::Gcm(_) => (cipher::GCM, auth::GCM, Union::Aad(ESP_HEADER)),
        Suite::Gmac(bits) => (cipher::NULL, auth::GMAC_128 + size_index(bits) as u32, Union::Gmac),
        Suite::Ccm { key_bits: KeyBits::Aes192, .. } => return None,
        Suite::Ccm { .. } => (cipher::CCM, auth::CCM, Union::Aad(ESP_HEADER)),
        Suite::ChaCha20Poly1305 => {
            (cipher::CHACHA20_POLY1305, auth::CHACHA20_POLY1305, Union::Aad(ESP_HEADER))
        }
        Suite::Pair { cipher, integrity } => {
            let mode = match cipher {
                Cipher::Null => cipher::NULL,
                Cipher::AesCbc(_) => cipher::CBC,
                Cipher::AesCtr(_) => cipher::CTR,
                Cipher::TripleDesCbc | Cipher::CamelliaCbc(_) => return None,
            };
            (mode, mac(integrity.alg(), integrity.icv_bytes())?, Union::Mac)
        }
    })
}

fn mac(alg: MacAlg, icv: usize) -> Option<u32> {
    let (number, lengths): (u32, &[usize]) = match alg {
        MacAlg::Null => return None,
        MacAlg::Hmac(HashAlg::Md5) => (auth::HMAC_MD5, &[12, 16]),
        MacAlg::Hmac(HashAlg::Sha1) => (auth::HMAC_SHA1, &[12, 20]),
        MacAlg::Hmac(HashAlg::Sha224) => (auth::HMAC_SHA224, &[14, 28]),
        MacAlg::Hmac(HashAlg::Sha256) => (auth::HMAC_SHA256, &[16, 32]),
        MacAlg::Hmac(HashAlg::Sha384) => (auth::HMAC_SHA384, &[24, 48]),
        MacAlg::Hmac(HashAlg::Sha512) => (auth::HMAC_SHA512, &[32, 64]),
        MacAlg::AesXcbc => (auth::XCBC, &[12]),
        MacAlg::AesCmac(KeyBits::Aes128) => (auth::CMAC, &[12, 16]),
        MacAlg::AesCmac(KeyBits::Aes192) => return None,
        MacAlg::AesCmac(KeyBits::Aes256) => (auth::CMAC_256, &[12, 16]),
    };
    lengths.contains(&icv).then_some(number)
}

/// Index by AES key size of a suite's AEAD; none if it has none.
pub(super) const fn aead_size(suite: Suite) -> Option<usize> {
    match suite {
        Suite::Gcm(GcmParams { key_bits, .. }) | Suite::Gmac(key_bits) => {
            Some(size_index(key_bits))
        }
        _ => None,
    }
}
