//! Results of aws-lc and RustCrypto for a job.

use aes::cipher::{BlockCipherEncrypt, BlockSizeUser, consts::U16 as Block};
use aws_lc_rs::{
    aead::{self, Aad, LessSafeKey, Nonce, UnboundKey},
    cipher::{
        self, DecryptionContext, EncryptionContext, StreamingDecryptingKey, StreamingEncryptingKey,
        UnboundCipherKey,
    },
    cmac, hmac as aws_hmac,
    iv::FixedLength,
};
use ccm::{
    Ccm, KeyInit, KeySizeUser,
    aead::AeadInOut,
    consts::{U4, U7, U8, U11, U12, U13, U16},
};
use convoy_crypto::{
    HashAlg, MacAlg,
    manager::{ChainOrder, Direction},
};
use hmac::Mac as _;

use super::{Case, Mode, Outcome};

pub(crate) fn outcome(case: &Case) -> Outcome {
    let mut buffer = case.dst.clone().unwrap_or_else(|| case.src.clone());
    copy_covered(case, &mut buffer);
    let mut tag = None;
    if case.order == ChainOrder::HashThenCipher {
        tag = mac(case, &buffer);
    }
    let text = &mut buffer[case.cipher.offset..][..case.cipher.len];
    let aead_tag = cipher(case, text);
    if case.order == ChainOrder::CipherThenHash {
        tag = mac(case, &buffer);
    }
    let mut tag = aead_tag.or(tag).unwrap_or_default();
    tag.truncate(case.tag.len());
    Outcome { buffer, tag, valid: true }
}

fn copy_covered(case: &Case, buffer: &mut [u8]) {
    let mut spans = vec![case.cipher];
    if case.mac != MacAlg::Null {
        spans.push(case.hash);
        spans.retain(|span| span.len > 0);
    }
    let Some(from) = spans.iter().map(|span| span.offset).min() else { return };
    let to = spans.iter().map(|span| span.offset + span.len).max().unwrap_or(from);
    buffer[from..to].copy_from_slice(&case.src[from..to]);
}

/// Transforms the text; of an AEAD, returns the tag that belongs to the plaintext.
fn cipher(case: &Case, text: &mut [u8]) -> Option<Vec<u8>> {
    match case.mode {
        Mode::Null => None,
        Mode::Cbc(_) => {
            let iv: [u8; 16] = case.iv[..].try_into().unwrap();
            let out = match case.direction {
                Direction::Encrypt => cbc_encrypt(&case.key, iv, text),
                Direction::Decrypt => cbc_decrypt(&case.key, iv, text),
            };
            text.copy_from_slice(&out);
            None
        }
        Mode::Ctr(_) => {
            let mut iv = case.iv.clone();
            if iv.len() == 12 {
                iv.extend([0, 0, 0, 1]);
            }
            ctr(&case.key, iv.try_into().unwrap(), text);
            None
        }
        Mode::Ccm(_) => Some(ccm_tag(case, text)),
        Mode::Gmac(_) => Some(aead(case, &[&case.aad[..], text].concat(), &mut []).1),
        Mode::Gcm(_) | Mode::ChaCha => {
            let (out, tag) = aead(case, &case.aad, text);
            text.copy_from_slice(&out);
            Some(tag)
        }
    }
}

fn unbound(key: &[u8]) -> UnboundCipherKey {
    let algorithm = match key.len() {
        16 => &cipher::AES_128,
        24 => &cipher::AES_192,
        _ => &cipher::AES_256,
    };
    UnboundCipherKey::new(algorithm, key).unwrap()
}

/// CBC pads there, which adds one block; it is dropped.
fn cbc_encrypt(key: &[u8], iv: [u8; 16], text: &[u8]) -> Vec<u8> {
    let context = EncryptionContext::Iv128(FixedLength::from(iv));
    let mut key = StreamingEncryptingKey::less_safe_cbc_pkcs7(unbound(key), context).unwrap();
    let mut out = vec![0; text.len() + 16];
    let written = key.update(text, &mut out).unwrap().written().len();
    assert_eq!(written, text.len());
    out.truncate(written);
    out
}

/// The last block is held back there, for it might be padding; one more is appended.
fn cbc_decrypt(key: &[u8], iv: [u8; 16], text: &[u8]) -> Vec<u8> {
    let context = DecryptionContext::Iv128(FixedLength::from(iv));
    let mut key = StreamingDecryptingKey::cbc_pkcs7(unbound(key), context).unwrap();
    let mut out = vec![0; text.len() + 32];
    let written = key.update(&[text, &[0; 16]].concat(), &mut out).unwrap().written().len();
    assert_eq!(written, text.len());
    out.truncate(written);
    out
}

fn ctr(key: &[u8], iv: [u8; 16], text: &mut [u8]) {
    // aws-lc counts with 128 bits, the packet modes with 32: cut where those wrap.
    let start = u32::from_be_bytes(iv[12..].try_into().unwrap());
    let before = (u64::from(u32::MAX - start) + 1) * 16;
    let cut = usize::try_from(before).unwrap_or(usize::MAX).min(text.len());
    let (front, back) = text.split_at_mut(cut);
    let mut wrapped = iv;
    wrapped[12..].fill(0);
    for (iv, part) in [(iv, front), (wrapped, back)] {
        let context = EncryptionContext::Iv128(FixedLength::from(iv));
        let mut key = StreamingEncryptingKey::less_safe_ctr(unbound(key), context).unwrap();
        let mut out = vec![0; part.len() + 16];
        let written = key.update(part, &mut out).unwrap().written().len();
        part.copy_from_slice(&out[..written]);
    }
}

/// Text and tag of GCM or ChaCha20-Poly1305. Both are stream ciphers: decrypting is encrypting, with
/// the tag of what comes out.
fn aead(case: &Case, aad: &[u8], text: &mut [u8]) -> (Vec<u8>, Vec<u8>) {
    let algorithm = match (case.mode, case.key.len()) {
        (Mode::ChaCha, _) => &aead::CHACHA20_POLY1305,
        (_, 16) => &aead::AES_128_GCM,
        (_, 24) => &aead::AES_192_GCM,
        _ => &aead::AES_256_GCM,
    };
    let key = LessSafeKey::new(UnboundKey::new(algorithm, &case.key).unwrap());
    let seal = |text: &[u8]| {
        let nonce = Nonce::assume_unique_for_key(case.iv[..].try_into().unwrap());
        let mut out = text.to_vec();
        let tag = key.seal_in_place_separate_tag(nonce, Aad::from(aad), &mut out).unwrap();
        (out, tag.as_ref().to_vec())
    };
    let (out, tag) = seal(text);
    match case.direction {
        Direction::Encrypt => (out, tag),
        Direction::Decrypt => {
            let (again, tag) = seal(&out);
            assert_eq!(again, text);
            (out, tag)
        }
    }
}

fn ccm_tag(case: &Case, text: &mut [u8]) -> Vec<u8> {
    match case.key.len() {
        16 => ccm_of::<aes::Aes128>(case, text),
        24 => ccm_of::<aes::Aes192>(case, text),
        _ => ccm_of::<aes::Aes256>(case, text),
    }
}

fn ccm_of<A>(case: &Case, text: &mut [u8]) -> Vec<u8>
where
    A: BlockCipherEncrypt + BlockSizeUser<BlockSize = Block> + KeyInit + KeySizeUser,
{
    match (case.iv.len(), case.tag.len()) {
        (11, 8) => ccm_with(&Ccm::<A, U8, U11>::new_from_slice(&case.key).unwrap(), case, text),
        (12, 16) => ccm_with(&Ccm::<A, U16, U12>::new_from_slice(&case.key).unwrap(), case, text),
        (13, 4) => ccm_with(&Ccm::<A, U4, U13>::new_from_slice(&case.key).unwrap(), case, text),
        (7, 12) => ccm_with(&Ccm::<A, U12, U7>::new_from_slice(&case.key).unwrap(), case, text),
        other => panic!("the oracle knows no CCM of {other:?}"),
    }
}

/// As for [`aead`]: CCM encrypts with a stream, and its tag is of the plaintext.
fn ccm_with<C: AeadInOut>(ccm: &C, case: &Case, text: &mut [u8]) -> Vec<u8> {
    let nonce = case.iv[..].try_into().unwrap();
    let before = text.to_vec();
    let tag = ccm.encrypt_inout_detached(nonce, &case.aad, text.into()).unwrap().to_vec();
    if case.direction == Direction::Encrypt {
        return tag;
    }
    let mut again = text.to_vec();
    let tag = ccm.encrypt_inout_detached(nonce, &case.aad, again.as_mut_slice().into()).unwrap();
    assert_eq!(again, before);
    tag.to_vec()
}

fn mac(case: &Case, buffer: &[u8]) -> Option<Vec<u8>> {
    let message = || [&buffer[case.hash.offset..][..case.hash.len], &case.trailer[..]].concat();
    match case.mac {
        MacAlg::Null => None,
        MacAlg::Hmac(alg) => Some(hmac_of(alg, &case.mac_key, &message())),
        MacAlg::AesXcbc => Some(xcbc(&case.mac_key, &message())),
        MacAlg::AesCmac(_) => {
            let algorithm = match case.mac_key.len() {
                16 => cmac::AES_128,
                24 => cmac::AES_192,
                _ => cmac::AES_256,
            };
            let key = cmac::Key::new(algorithm, &case.mac_key).unwrap();
            Some(cmac::sign(&key, &message()).unwrap().as_ref().to_vec())
        }
    }
}

fn hmac_of(alg: HashAlg, key: &[u8], message: &[u8]) -> Vec<u8> {
    let algorithm = match alg {
        HashAlg::Md5 => {
            let mut mac = hmac::Hmac::<md5::Md5>::new_from_slice(key).unwrap();
            mac.update(message);
            return mac.finalize().into_bytes().to_vec();
        }
        HashAlg::Sha1 => aws_hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        HashAlg::Sha224 => aws_hmac::HMAC_SHA224,
        HashAlg::Sha256 => aws_hmac::HMAC_SHA256,
        HashAlg::Sha384 => aws_hmac::HMAC_SHA384,
        HashAlg::Sha512 => aws_hmac::HMAC_SHA512,
    };
    aws_hmac::sign(&aws_hmac::Key::new(algorithm, key), message).as_ref().to_vec()
}

/// RFC 3566 section 4, by way of the last block of CBC.
fn xcbc(key: &[u8], message: &[u8]) -> Vec<u8> {
    let derived = |byte: u8| cbc_encrypt(key, [0; 16], &[byte; 16]);
    let (k1, k2, k3) = (derived(1), derived(2), derived(3));
    let mut padded = message.to_vec();
    let whole = !message.is_empty() && message.len().is_multiple_of(16);
    if !whole {
        padded.push(0x80);
        padded.resize(message.len() / 16 * 16 + 16, 0);
    }
    let last = padded.len() - 16;
    let mask = if whole { k2 } else { k3 };
    padded[last..].iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
    cbc_encrypt(&k1, [0; 16], &padded)[last..].to_vec()
}
