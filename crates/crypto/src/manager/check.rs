//! Whether a job's parts fit together, and which passes it then takes part in.

use super::job::{Buffer, ChainOrder, Direction, Job, JobCipher, JobHash, Plan, Span};
use crate::{GcmParams, KeyBits, Suite, pass::TRAILER_MAX};

/// Classes of ciphers: what one pass works on together. Those of AES have three numbers each, for
/// the three key sizes.
pub(super) mod cipher {
    pub(in super::super) const CBC_ENCRYPT: u8 = 0;
    pub(in super::super) const CBC_DECRYPT: u8 = 3;
    pub(in super::super) const CTR: u8 = 6;
    pub(in super::super) const CCM_SEAL: u8 = 9;
    pub(in super::super) const CCM_OPEN: u8 = 12;
    pub(in super::super) const AEAD_SEAL: u8 = 15;
    pub(in super::super) const AEAD_OPEN: u8 = 16;
}

/// Classes of MACs: the six hashes of HMAC, then the three key sizes of the CBC-MAC family, for
/// AES-XCBC with its keys derived is AES-CMAC.
pub(super) mod mac {
    pub(in super::super) const CBC_MAC: u8 = 6;
}

/// Most bytes that CBC or a MAC takes, as in operations on packets.
const LANE_MAX: u64 = u32::MAX as u64;

/// Longest payload of ChaCha20-Poly1305 in bytes: block 0 keys the MAC, and 32 bits count (RFC 8439
/// section 2.8).
const CHACHA_MAX: u64 = ((1 << 32) - 2) * 64;

/// The part that the spans cover together; none if one reaches beyond the buffer.
pub(super) fn cover(job: &Job<'_>) -> Option<Span> {
    let room = job.buffer.len();
    let end = job.cipher_span.end().filter(|&end| end <= room)?;
    if matches!(job.hash, JobHash::Null) {
        return Some(job.cipher_span);
    }
    let hash_end = job.hash_span.end().filter(|&end| end <= room)?;
    if job.hash_span.len == 0 {
        return Some(job.cipher_span);
    }
    if job.cipher_span.len == 0 {
        return Some(job.hash_span);
    }
    let offset = job.cipher_span.offset.min(job.hash_span.offset);
    Some(Span { offset, len: end.max(hash_end) - offset })
}

/// The passes that the job takes part in; none if it is invalid. A job out of place has what it
/// covers copied.
pub(super) fn prepare(job: &mut Job<'_>) -> Option<Plan> {
    let cover = cover(job)?;
    let cipher = cipher_class(job)?;
    if matches!(job.buffer, Buffer::ReadOnly(_)) && cipher != Plan::NONE {
        return None;
    }
    let mac = if is_aead(job) {
        aead_rest(job)?;
        Plan::NONE
    } else {
        mac_class(job)?
    };
    if job.iv.len == 12 {
        // Counting begins at 1 for CTR (RFC 3686 section 4); others want zeros there. Mostly that is so, and a byte
        // that was written would be waited for.
        let first = u8::from(matches!(job.cipher, JobCipher::Ctr(_)));
        if job.iv.bytes[15] != first {
            job.iv.bytes[15] = first;
        }
    }
    if let Buffer::Copy { src, dst } = &mut job.buffer {
        let range = cover.offset..cover.offset + cover.len;
        dst.get_mut(range.clone())?.copy_from_slice(src.get(range)?);
    }
    Some(match job.order {
        ChainOrder::CipherThenHash => Plan { cipher, early_mac: Plan::NONE, late_mac: mac },
        ChainOrder::HashThenCipher => Plan { cipher, early_mac: mac, late_mac: Plan::NONE },
    })
}

fn is_aead(job: &Job<'_>) -> bool {
    matches!(job.cipher, JobCipher::Ccm(..) | JobCipher::Aead(..))
}

fn cipher_class(job: &Job<'_>) -> Option<u8> {
    let (iv, len) = (job.iv.len, job.cipher_span.len);
    let cbc = iv == 16 && len.is_multiple_of(16) && len as u64 <= LANE_MAX;
    let (fits, class) = match job.cipher {
        JobCipher::Unset => return None,
        JobCipher::Null => (true, Plan::NONE),
        JobCipher::CbcEncrypt(key) => (cbc, cipher::CBC_ENCRYPT + key.bits()? as u8),
        JobCipher::CbcDecrypt(key) => (cbc, cipher::CBC_DECRYPT + key.bits()? as u8),
        JobCipher::Ctr(key) => {
            // As many blocks as 32 bits count.
            let fits = matches!(iv, 12 | 16) && len as u64 <= 1 << 36;
            (fits, cipher::CTR + key.bits()? as u8)
        }
        JobCipher::Ccm(key, direction) => {
            let field = 8 * u32::from(15u8.checked_sub(iv)?);
            let short = 1u64.checked_shl(field).is_none_or(|limit| (len as u64) < limit);
            let fits = (7..=13).contains(&iv) && short;
            let first = match direction {
                Direction::Encrypt => cipher::CCM_SEAL,
                Direction::Decrypt => cipher::CCM_OPEN,
            };
            (fits, first + key.bits()? as u8)
        }
        JobCipher::Aead(key, direction) => {
            let limit = match key.suite() {
                Suite::Gcm(_) => GcmParams::MAX_DATA,
                Suite::Gmac(_) => 1 << 60,
                Suite::ChaCha20Poly1305 => CHACHA_MAX,
                Suite::Ccm { .. } | Suite::Pair { .. } => return None,
            };
            let class = match direction {
                Direction::Encrypt => cipher::AEAD_SEAL,
                Direction::Decrypt => cipher::AEAD_OPEN,
            };
            (iv == 12 && len as u64 <= limit, class)
        }
    };
    fits.then_some(class)
}

/// What an AEAD job has beside cipher and IV.
fn aead_rest(job: &Job<'_>) -> Option<()> {
    let tag = job.tag.len();
    let tag_fits = match job.cipher {
        JobCipher::Aead(key, _) => tag <= key.suite().icv_bytes(),
        _ => tag <= 16 && tag.is_multiple_of(2),
    };
    let fits = matches!(job.hash, JobHash::Null)
        && job.trailer.is_empty()
        && tag >= 4
        && tag_fits
        && (job.aad.len() as u64) < 1 << 60;
    fits.then_some(())
}

fn mac_class(job: &Job<'_>) -> Option<u8> {
    let (class, whole) = match job.hash {
        JobHash::Null => {
            let nothing = job.tag.is_empty() && job.trailer.is_empty() && job.aad.is_empty();
            return nothing.then_some(Plan::NONE);
        }
        JobHash::Hmac(key) => {
            let alg = key.alg()?;
            (alg as u8, alg.digest_bytes())
        }
        JobHash::Xcbc(key) => (mac::CBC_MAC + KeyBits::Aes128 as u8, key.is_set().then_some(16)?),
        JobHash::Cmac(key) => (mac::CBC_MAC + key.bits()? as u8, 16),
    };
    let fits = (4..=whole).contains(&job.tag.len())
        && job.hash_span.len as u64 <= LANE_MAX
        && job.trailer.len() <= TRAILER_MAX
        && job.aad.is_empty();
    fits.then_some(class)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Cpu, HashAlg, SecretBytes,
        manager::{AesEncryptKey, CmacKey, HmacKeys},
    };

    #[test]
    fn a_cipher_does_not_work_on_what_is_only_read() {
        let (cpu, secret) = (Cpu::without("").unwrap(), SecretBytes::copy_from(&[1; 16]));
        let (cmac, aes) =
            (CmacKey::new(&cpu, &secret).unwrap(), AesEncryptKey::new(&cpu, &secret).unwrap());
        for (cipher, fits) in [(JobCipher::Null, true), (JobCipher::Ctr(&aes), false)] {
            let mut tag = [0; 16];
            let mut job = Job { buffer: Buffer::ReadOnly(&[7; 50]), cipher, ..Job::default() };
            (job.hash, job.tag, job.iv) = (JobHash::Cmac(&cmac), &mut tag, [0; 12].into());
            (job.cipher_span, job.hash_span) = (Span::new(0, 50), Span::new(0, 50));
            assert_eq!(prepare(&mut job).is_some(), fits);
        }
    }

    #[test]
    fn jobs_beyond_what_lanes_count_are_invalid() {
        let (cpu, secret) = (Cpu::without("").unwrap(), SecretBytes::copy_from(&[1; 16]));
        let hmac = HmacKeys::new(&cpu, HashAlg::Md5, &secret);
        let (cmac, aes) =
            (CmacKey::new(&cpu, &secret).unwrap(), AesEncryptKey::new(&cpu, &secret).unwrap());
        let mut tag = [0; 16];
        for hash in [JobHash::Hmac(&hmac), JobHash::Cmac(&cmac)] {
            let mut job = Job { hash, tag: &mut tag, ..Job::default() };
            for (len, fits) in [(u32::MAX as usize, true), (1 << 32, false), (1 << 40, false)] {
                job.hash_span = Span::new(0, len);
                assert_eq!(mac_class(&job).is_some(), fits, "{hash:?} over {len} bytes");
            }
        }
        let mut job = Job { cipher: JobCipher::CbcEncrypt(&aes), ..Job::default() };
        job.iv = [0; 16].into();
        for (len, fits) in [((1 << 32) - 16, true), (1 << 32, false), (1 << 40, false)] {
            job.cipher_span = Span::new(0, len);
            assert_eq!(cipher_class(&job).is_some(), fits, "CBC over {len} bytes");
        }
    }
}
