//! Checks that a job's parts fit together, and the choice of the passes that it takes part in.

use super::{
    job::{Buffer, ChainOrder, Direction, Job, JobCipher, JobError, JobHash, Span},
    plan::{CipherPass, MacPass, Plan, Planned},
};
use crate::{KeyBits, Suite, isa::job::TRAILER_MAX, key::LANE_MAX, op::ccm_limit};

/// The part that the spans cover together.
fn cover(job: &Job<'_>) -> Result<Span, JobError> {
    let room = job.buffer.len();
    let within = |span: Span| span.end().filter(|&end| end <= room).ok_or(JobError::Span);
    let end = within(job.cipher_span)?;
    if matches!(job.hash, JobHash::Null) {
        return Ok(job.cipher_span);
    }
    let hash_end = within(job.hash_span)?;
    if job.hash_span.len == 0 {
        return Ok(job.cipher_span);
    }
    if job.cipher_span.len == 0 {
        return Ok(job.hash_span);
    }
    let offset = job.cipher_span.offset.min(job.hash_span.offset);
    Ok(Span { offset, len: end.max(hash_end) - offset })
}

/// The passes that the job takes part in. A job out of place has what it covers copied.
pub(super) fn prepare(job: &mut Job<'_>) -> Result<Plan, JobError> {
    let cover = cover(job)?;
    let cipher = cipher_pass(job)?;
    if matches!(job.buffer, Buffer::ReadOnly(_)) && cipher != Planned::NONE {
        return Err(JobError::ReadOnly);
    }
    let mac = if is_aead(job) {
        aead_rest(job)?;
        Planned::NONE
    } else {
        mac_pass(job)?
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
        let (from, to) = (src.get(range.clone()), dst.get_mut(range));
        let (Some(from), Some(to)) = (from, to) else { return Err(JobError::Span) };
        to.copy_from_slice(from);
    }
    Ok(match job.order {
        ChainOrder::CipherThenHash => Plan { cipher, early_mac: Planned::NONE, late_mac: mac },
        ChainOrder::HashThenCipher => Plan { cipher, early_mac: mac, late_mac: Planned::NONE },
    })
}

fn is_aead(job: &Job<'_>) -> bool {
    matches!(job.cipher, JobCipher::Ccm(..) | JobCipher::Aead(..))
}

fn cipher_pass(job: &Job<'_>) -> Result<Planned<CipherPass>, JobError> {
    let (iv, len) = (job.iv.len, job.cipher_span.len);
    let size = |bits: Option<KeyBits>| bits.ok_or(JobError::CipherKey);
    let cbc = (iv == 16, len.is_multiple_of(16) && len as u64 <= LANE_MAX);
    let ((iv_fits, length_fits), pass) = match job.cipher {
        JobCipher::Unset => return Err(JobError::Cipher),
        JobCipher::Null => return Ok(Planned::NONE),
        JobCipher::CbcEncrypt(key) => {
            (cbc, Planned::new(CipherPass::CbcEncrypt(size(key.bits())?)))
        }
        JobCipher::CbcDecrypt(key) => {
            (cbc, Planned::new(CipherPass::CbcDecrypt(size(key.bits())?)))
        }
        JobCipher::Ctr(key) => {
            // As many blocks as 32 bits count.
            let fits = (matches!(iv, 12 | 16), len as u64 <= 1 << 36);
            (fits, Planned::new(CipherPass::Ctr(size(key.bits())?)))
        }
        JobCipher::Ccm(key, direction) => {
            let bits = size(key.bits())?;
            let pass = match direction {
                Direction::Encrypt => Planned::new(CipherPass::CcmSeal(bits)),
                Direction::Decrypt => Planned::new(CipherPass::CcmOpen(bits)),
            };
            (((7..=13).contains(&iv), len as u64 <= ccm_limit(iv)), pass)
        }
        JobCipher::Aead(key, direction) => {
            if !matches!(key.suite(), Suite::Gcm(_) | Suite::Gmac(_) | Suite::ChaCha20Poly1305) {
                return Err(JobError::CipherKey);
            }
            let fits = (iv == 12, len as u64 <= key.inner().limits().data);
            (fits, Planned::new(CipherPass::Aead(direction)))
        }
    };
    match (iv_fits, length_fits) {
        (true, true) => Ok(pass),
        (false, _) => Err(JobError::IvLength),
        (true, false) => Err(JobError::CipherLength),
    }
}

/// Checks the parts of an AEAD job beside cipher and IV.
fn aead_rest(job: &Job<'_>) -> Result<(), JobError> {
    let tag = job.tag.len();
    let tag_fits = match job.cipher {
        JobCipher::Aead(key, _) => tag <= key.suite().icv_bytes(),
        _ => tag <= 16 && tag.is_multiple_of(2),
    };
    if !matches!(job.hash, JobHash::Null) {
        return Err(JobError::Hash);
    }
    if !job.trailer.is_empty() {
        return Err(JobError::Trailer);
    }
    if tag < 4 || !tag_fits {
        return Err(JobError::TagLength);
    }
    if job.aad.len() as u64 >= 1 << 60 { Err(JobError::Aad) } else { Ok(()) }
}

fn mac_pass(job: &Job<'_>) -> Result<Planned<MacPass>, JobError> {
    let (pass, whole) = match job.hash {
        JobHash::Null => {
            return match (job.tag.is_empty(), job.trailer.is_empty(), job.aad.is_empty()) {
                (true, true, true) => Ok(Planned::NONE),
                (false, ..) => Err(JobError::TagLength),
                (true, false, _) => Err(JobError::Trailer),
                (true, true, false) => Err(JobError::Aad),
            };
        }
        JobHash::Hmac(key) => {
            let alg = key.alg().ok_or(JobError::HashKey)?;
            (Planned::new(MacPass::Hmac(alg)), alg.digest_bytes())
        }
        JobHash::Xcbc(key) if key.is_set() => (Planned::new(MacPass::CbcMac(KeyBits::Aes128)), 16),
        JobHash::Xcbc(_) => return Err(JobError::HashKey),
        JobHash::Cmac(key) => {
            let bits = key.bits().ok_or(JobError::HashKey)?;
            (Planned::new(MacPass::CbcMac(bits)), 16)
        }
    };
    let fits = [
        ((4..=whole).contains(&job.tag.len()), JobError::TagLength),
        (job.hash_span.len as u64 <= LANE_MAX, JobError::HashLength),
        (job.trailer.len() <= TRAILER_MAX, JobError::Trailer),
        (job.aad.is_empty(), JobError::Aad),
    ];
    match fits.into_iter().find(|(fits, _)| !fits) {
        None => Ok(pass),
        Some((_, error)) => Err(error),
    }
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
            assert_eq!(prepare(&mut job).is_ok(), fits);
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
                assert_eq!(mac_pass(&job).is_ok(), fits, "{hash:?} over {len} bytes");
            }
        }
        let mut job = Job { cipher: JobCipher::CbcEncrypt(&aes), ..Job::default() };
        job.iv = [0; 16].into();
        for (len, fits) in [((1 << 32) - 16, true), (1 << 32, false), (1 << 40, false)] {
            job.cipher_span = Span::new(0, len);
            assert_eq!(cipher_pass(&job).is_ok(), fits, "CBC over {len} bytes");
        }
    }
}
