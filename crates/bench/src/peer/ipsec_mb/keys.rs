//! Keys in the forms that intel-ipsec-mb's jobs point to.

use std::ffi::c_void;

use convoy_crypto::{Cipher, GcmParams, HashAlg, KeyBits, MacAlg, Suite};

use super::layout::GCM_KEY_DATA;
use super::library::IpsecMb;
use crate::workload::{Arena, Keys};

/// Places inside the store, all at cache lines.
const ENC: usize = 0;
const DEC: usize = 256;
const MAC: usize = 512;
const MAC_2: usize = 768;
const MAC_3: usize = 832;
const GCM: usize = 1024;

/// Everything expanded from the keys of one SA.
pub(super) struct Material {
    /// Memory that the pointers point into; its bytes never move.
    _store: Arena,
    pub(super) enc: *const c_void,
    pub(super) dec: *const c_void,
    pub(super) gcm: *const c_void,
    /// The MAC's part of a job.
    pub(super) mac: [usize; 3],
}

impl Material {
    /// Expands the keys; none if the library lacks what the suite needs.
    pub(super) fn new(library: &IpsecMb, suite: Suite, keys: &Keys) -> Option<Self> {
        let mut store = Arena::new(GCM + GCM_KEY_DATA);
        let base = store.bytes_mut().as_mut_ptr();
        let at = |offset: usize| base.wrapping_add(offset);
        match suite {
            Suite::Gcm(GcmParams { key_bits, .. }) | Suite::Gmac(key_bits) => {
                let pre = library.functions.gcm_pre[size_index(key_bits)]?;
                // SAFETY: the key has the length of the function's name, and the output has room
                // for the key data of every version.
                unsafe { pre(keys.cipher.as_ptr(), at(GCM)) };
            }
            Suite::ChaCha20Poly1305 => {
                store.bytes_mut()[ENC..][..keys.cipher.len()].copy_from_slice(&keys.cipher);
            }
            Suite::Ccm { key_bits: bits, .. }
            | Suite::Pair { cipher: Cipher::AesCbc(bits) | Cipher::AesCtr(bits), .. } => {
                expand(library, bits, &keys.cipher, at(ENC), at(DEC))?;
            }
            Suite::Pair { cipher: Cipher::Null, .. } => {}
            Suite::Pair { cipher: Cipher::TripleDesCbc | Cipher::CamelliaCbc(_), .. } => {
                return None;
            }
        }
        let mac = match suite {
            Suite::Pair { integrity, .. } => mac(library, integrity.alg(), &keys.mac, base)?,
            _ => [0; 3],
        };
        let gcm = matches!(suite, Suite::Gcm(_) | Suite::Gmac(_));
        let (enc, dec) = if gcm { (GCM, GCM) } else { (ENC, DEC) };
        Some(Self {
            enc: at(enc).cast_const().cast(),
            dec: at(dec).cast_const().cast(),
            gcm: at(GCM).cast_const().cast(),
            mac,
            _store: store,
        })
    }
}

fn mac(library: &IpsecMb, alg: MacAlg, key: &[u8], base: *mut u8) -> Option<[usize; 3]> {
    let at = |offset: usize| base.wrapping_add(offset);
    match alg {
        MacAlg::Null => return None,
        MacAlg::Hmac(hash) => {
            let one_block = library.functions.one_block[hash_index(hash)]?;
            for (pad, place) in [(0x36, MAC), (0x5c, MAC_2)] {
                let mut block = [pad; 128];
                for (byte, key) in block.get_mut(..hash.block_bytes())?.iter_mut().zip(key) {
                    *byte ^= key;
                }
                // SAFETY: it reads one block and writes one state of at most 64 bytes.
                unsafe { one_block(block.as_ptr(), at(place)) };
            }
        }
        MacAlg::AesXcbc => {
            let expand = library.functions.xcbc_keyexp?;
            // SAFETY: the key has 16 bytes; K1 expanded has 176, K2 and K3 have 16 each.
            unsafe { expand(key.as_ptr(), at(MAC), at(MAC_2), at(MAC_3)) };
        }
        MacAlg::AesCmac(bits) => {
            let mut unused = [0u128; 16];
            expand(library, bits, key, at(MAC), unused.as_mut_ptr().cast())?;
            let subkeys = match bits {
                KeyBits::Aes128 => library.functions.cmac_subkeys_128?,
                KeyBits::Aes192 => return None,
                KeyBits::Aes256 => library.functions.cmac_subkeys_256?,
            };
            // SAFETY: it reads the expanded key and writes two blocks.
            unsafe { subkeys(at(MAC), at(MAC_2), at(MAC_3)) };
        }
    }
    Some([MAC, MAC_2, MAC_3].map(|place| at(place).expose_provenance()))
}

fn expand(library: &IpsecMb, bits: KeyBits, key: &[u8], enc: *mut u8, dec: *mut u8) -> Option<()> {
    let expand = library.functions.keyexp[size_index(bits)]?;
    // SAFETY: the key has the length of the function's name; both schedules have room for 15 round
    // keys and are aligned to 16.
    unsafe { expand(key.as_ptr(), enc, dec) };
    Some(())
}

/// Index into arrays by AES key size.
pub(super) const fn size_index(bits: KeyBits) -> usize {
    match bits {
        KeyBits::Aes128 => 0,
        KeyBits::Aes192 => 1,
        KeyBits::Aes256 => 2,
    }
}

const fn hash_index(hash: HashAlg) -> usize {
    match hash {
        HashAlg::Sha1 => 0,
        HashAlg::Sha224 => 1,
        HashAlg::Sha256 => 2,
        HashAlg::Sha384 => 3,
        HashAlg::Sha512 => 4,
        HashAlg::Md5 => 5,
    }
}
