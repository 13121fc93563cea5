//! Keys leave nothing behind: every heap block a key occupied is zero when it is given back.
//!
//! The allocator of this program looks at blocks as they are freed. It watches one thread at a time, so nothing else
//! disturbs the count.

mod common;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

use common::{cpu, tiers};
use convoy_crypto::{GcmParams, IcvLen, KeyBits, OpenKey, SealKey, SecretBytes};

struct Inspector;

/// What the inspector saw while it watched: blocks freed, and bytes in them that were not zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    blocks: usize,
    bytes: usize,
    left: usize,
}

thread_local! {
    static WATCH: Cell<Option<Seen>> = const { Cell::new(None) };
}

// SAFETY: every call is passed to the system's allocator; freed blocks are only read first.
unsafe impl GlobalAlloc for Inspector {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is passed on. Zeroed, because padding that nobody writes is read on freeing.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if let Ok(Some(mut seen)) = WATCH.try_with(Cell::get) {
            // SAFETY: the block is still allocated, has this size, and was zeroed or written throughout.
            let bytes = unsafe { std::slice::from_raw_parts(block, layout.size()) };
            seen.blocks += 1;
            seen.bytes += bytes.len();
            seen.left += bytes.iter().filter(|&&byte| byte != 0).count();
            WATCH.set(Some(seen));
        }
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(block, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Inspector = Inspector;

/// What was left in the blocks that `work` freed.
fn watch(work: impl FnOnce()) -> Seen {
    WATCH.set(Some(Seen::default()));
    work();
    WATCH.take().expect("set above")
}

#[test]
fn the_inspector_sees_what_is_left() {
    let secret = vec![0xa5u8; 100];
    assert_eq!(watch(|| drop(secret)), Seen { blocks: 1, bytes: 100, left: 100 });
}

#[test]
fn secrets_are_wiped_on_drop() {
    let secret = SecretBytes::copy_from(&[0xa5; 32]);
    assert_eq!(watch(|| drop(secret)), Seen { blocks: 1, bytes: 32, left: 0 });
    let mut roomy = Vec::with_capacity(500);
    roomy.extend_from_slice(&[0xa5; 32]);
    let seen = watch(|| drop(SecretBytes::from(roomy)));
    assert_eq!(seen, Seen { blocks: 2, bytes: 532, left: 0 });
}

#[test]
fn keys_are_wiped_on_drop_on_every_tier() {
    for tier in tiers() {
        for key_bits in KeyBits::ALL {
            let params = GcmParams::new(key_bits, IcvLen::Icv16);
            let secret = || SecretBytes::from(vec![0xa5; key_bits.bytes()]);
            let (seal_secret, open_secret) = (secret(), secret());
            // Setting up consumes the secret and may use scratch memory: nothing may stay there either.
            let mut keys = None;
            let set_up = watch(|| {
                keys = Some((
                    SealKey::with_tier(&cpu(), tier, params, seal_secret)
                        .expect("a tier of this machine"),
                    OpenKey::with_tier(&cpu(), tier, params, open_secret)
                        .expect("a tier of this machine"),
                ));
            });
            assert_eq!((set_up.left, set_up.blocks), (0, 2), "setting up on {tier}");
            let dropped = watch(|| drop(keys));
            assert_eq!((dropped.left, dropped.blocks), (0, 2), "dropping on {tier}");
            assert!(
                dropped.bytes > 2 * 16 * (key_bits.rounds() + 1),
                "keys on {tier} are smaller than their tables"
            );
        }
    }
}
