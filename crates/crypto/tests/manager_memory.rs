//! A job manager takes no memory once it has been made, and keys of jobs leave nothing behind.
//!
//! The allocator of this program counts what each thread takes, and looks at what it gives back.

// Helpers are no tests, and the lint spares only those.
#![allow(clippy::unwrap_used)]

mod common;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

use common::{cpu, tiers};
use convoy_crypto::{
    HashAlg, SecretBytes,
    manager::{
        AesDecryptKey, AesEncryptKey, Buffer, CmacKey, HmacKeys, JobCipher, JobHash, Manager, Span,
        XcbcKey,
    },
};

struct Inspector;

thread_local! {
    /// Blocks taken.
    static TAKEN: Cell<usize> = const { Cell::new(0) };
    /// Blocks given back, and bytes in them that were not zero.
    static LEFT: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

// SAFETY: every call is passed to the system's allocator; freed blocks are only read first.
unsafe impl GlobalAlloc for Inspector {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // Fails only while a thread ends, when nobody counts.
        let _ = TAKEN.try_with(|taken| taken.set(taken.get() + 1));
        // SAFETY: the caller's promise is passed on. Zeroed, because padding is read on freeing.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the block is still allocated, has this size, and was zeroed or written throughout.
        let bytes = unsafe { std::slice::from_raw_parts(block, layout.size()) };
        let left = bytes.iter().filter(|&&byte| byte != 0).count();
        let _ = LEFT.try_with(|sum| sum.set((sum.get().0 + 1, sum.get().1 + left)));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(block, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Inspector = Inspector;

/// Blocks that `work` gave back, and what was left in them.
fn left(work: impl FnOnce()) -> (usize, usize) {
    LEFT.set((0, 0));
    work();
    LEFT.get()
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
