//! A job manager takes no memory once it has been made, and keys of jobs leave nothing behind.

use convoy_crypto::{
    HashAlg, SecretBytes,
    manager::{
        AesDecryptKey, AesEncryptKey, Buffer, CmacKey, HmacKeys, JobCipher, JobHash, Manager, Span,
        XcbcKey,
    },
};

use super::{TAKEN, watch};
use crate::common::{cpu, tiers};

/// Blocks that `work` gave back, and bytes in them that were not zero.
fn left(work: impl FnOnce()) -> (usize, usize) {
    let seen = watch(work);
    (seen.blocks, seen.left)
}

#[test]
fn a_manager_takes_no_memory_for_jobs() {
    let cpu = cpu();
    let key = AesEncryptKey::new(&cpu, &SecretBytes::copy_from(&[1; 32])).unwrap();
    let mac = HmacKeys::new(&cpu, HashAlg::Sha512, &SecretBytes::copy_from(&[2; 99]));
    for tier in tiers() {
        let mut packets = vec![([0u8; 600], [0u8; 32]); 500];
        let mut manager = Manager::with_tier(&cpu, tier).unwrap();
        let before = TAKEN.get();
        assert!(before > 0, "the allocator counts");
        let mut returned = 0;
        for (number, (packet, tag)) in packets.iter_mut().enumerate() {
            let job = manager.next_job();
            (job.buffer, job.tag) = (Buffer::InPlace(packet), tag);
            (job.cipher, job.cipher_span) =
                (JobCipher::CbcEncrypt(&key), Span::new(16, 16 * (number % 30)));
            (job.hash, job.hash_span) = (JobHash::Hmac(&mac), Span::new(0, number));
            // Every seventh is invalid for want of an IV.
            if number % 7 != 0 {
                job.iv = [3; 16].into();
            }
            returned += usize::from(manager.submit().is_some());
            if number == 333 {
                returned += usize::from(manager.flush().is_some());
            }
        }
        while manager.flush().is_some() {
            returned += 1;
        }
        assert_eq!((returned, TAKEN.get()), (500, before), "{tier}");
    }
}

#[test]
fn keys_of_jobs_are_wiped_on_drop() {
    let cpu = cpu();
    let secret = SecretBytes::copy_from(&[0xa5; 16]);
    let encrypt = AesEncryptKey::new(&cpu, &secret).unwrap();
    let decrypt = AesDecryptKey::new(&cpu, &secret).unwrap();
    let (xcbc, cmac) = (XcbcKey::new(&cpu, &secret).unwrap(), CmacKey::new(&cpu, &secret).unwrap());
    let hmac = HmacKeys::new(&cpu, HashAlg::Sha256, &secret);
    assert_eq!(left(|| drop(encrypt)), (1, 0));
    assert_eq!(left(|| drop(decrypt)), (1, 0));
    assert_eq!(left(|| drop(xcbc)), (1, 0));
    assert_eq!(left(|| drop(cmac)), (1, 0));
    assert_eq!(left(|| drop(hmac)), (1, 0));
    // Making one from another leaves nothing of the first.
    let mut made = None;
    let (blocks, bytes) = left(|| made = Some(AesDecryptKey::new(&cpu, &secret).unwrap()));
    assert_eq!((blocks, bytes), (1, 0));
    let soiled = vec![1u8; 7];
    assert_eq!(left(|| drop(soiled)), (1, 7), "the allocator sees what is left");
}
