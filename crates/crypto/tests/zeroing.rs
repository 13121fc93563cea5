//! Keys leave nothing behind: every heap block a key occupied is zero when it is given back.
//!
//! The allocator of this program looks at blocks as they are freed. It watches one thread at a
//! time, so nothing else disturbs the count. And it counts what is taken, which during a burst must
//! be nothing.

mod common;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

use common::{Packet, cpu, tiers};
#[cfg(target_arch = "x86_64")]
use convoy_crypto::Tier;
use convoy_crypto::{
    GcmParams, IcvLen, KeyBits, Nonce, OpenKey, OpenOp, SealKey, SealOp, SecretBytes, open_burst,
    seal_burst,
};

struct Inspector;

/// What the inspector saw while it watched: blocks freed, and bytes in them that were not zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    blocks: usize,
    bytes: usize,
    left: usize,
}

thread_local! {
    static TAKEN: Cell<usize> = const { Cell::new(0) };
    static WATCH: Cell<Option<Seen>> = const { Cell::new(None) };
}

// SAFETY: every call is passed to the system's allocator; freed blocks are only read first.
unsafe impl GlobalAlloc for Inspector {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // Fails only while a thread ends, when nobody counts.
        let _ = TAKEN.try_with(|taken| taken.set(taken.get() + 1));
        // SAFETY: the caller's promise is passed on. Zeroed, because padding that nobody writes is
        // read on freeing.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if let Ok(Some(mut seen)) = WATCH.try_with(Cell::get) {
            // SAFETY: the block is still allocated, has this size, and was zeroed or written
            // throughout.
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
            // Setting up consumes the secret and may use scratch memory: nothing may stay there
            // either.
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

#[test]
fn bursts_take_no_memory() {
    for tier in tiers() {
        let mut packets: Vec<_> = (0..300)
            .map(|i| Packet::of_shape(KeyBits::ALL[i % 3], IcvLen::ALL[i % 3], 8, i * 5, i as u64))
            .collect();
        let keys: Vec<_> =
            packets.iter().map(|p| common::seal_key(tier, p.params, &p.key)).collect();
        let open_keys: Vec<_> =
            packets.iter().map(|p| common::open_key(tier, p.params, &p.key)).collect();
        let mut ops: Vec<_> = packets
            .iter_mut()
            .zip(&keys)
            .map(|(p, key)| {
                SealOp::new(key, Nonce::new(p.nonce), &p.aad, &mut p.data, &mut p.icv)
                    .expect("lengths fit")
            })
            .collect();
        let before = TAKEN.get();
        seal_burst(&mut ops);
        assert_eq!(TAKEN.get(), before, "sealing on {tier}");
        let mut ops: Vec<_> = packets
            .iter_mut()
            .zip(&open_keys)
            .map(|(p, key)| {
                OpenOp::new(key, p.nonce, &p.aad, &mut p.data, &p.icv).expect("lengths fit")
            })
            .collect();
        let before = TAKEN.get();
        open_burst(&mut ops);
        assert_eq!(TAKEN.get(), before, "opening on {tier}");
        assert!(before > 0, "the allocator counts");
    }
}

/// The sixteen registers that only AVX-512 has, which no other code touches by chance.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn upper_registers() -> [[u8; 64]; 16] {
    let mut contents = [[0; 64]; 16];
    let to = contents.as_mut_ptr();
    // SAFETY: the caller has AVX-512 F, and the array has room for all sixteen.
    unsafe {
        std::arch::asm!(
            "vmovdqu64 [{to}], zmm16",
            "vmovdqu64 [{to} + 64], zmm17",
            "vmovdqu64 [{to} + 128], zmm18",
            "vmovdqu64 [{to} + 192], zmm19",
            "vmovdqu64 [{to} + 256], zmm20",
            "vmovdqu64 [{to} + 320], zmm21",
            "vmovdqu64 [{to} + 384], zmm22",
            "vmovdqu64 [{to} + 448], zmm23",
            "vmovdqu64 [{to} + 512], zmm24",
            "vmovdqu64 [{to} + 576], zmm25",
            "vmovdqu64 [{to} + 640], zmm26",
            "vmovdqu64 [{to} + 704], zmm27",
            "vmovdqu64 [{to} + 768], zmm28",
            "vmovdqu64 [{to} + 832], zmm29",
            "vmovdqu64 [{to} + 896], zmm30",
            "vmovdqu64 [{to} + 960], zmm31",
            to = in(reg) to,
            options(nostack, preserves_flags),
        );
    }
    contents
}

/// Puts a pattern into two of them.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn soil_registers() {
    // SAFETY: the caller has AVX-512 F; the registers written are declared.
    unsafe {
        std::arch::asm!(
            "vpternlogd zmm16, zmm16, zmm16, 0xff",
            "vpternlogd zmm31, zmm31, zmm31, 0xff",
            out("zmm16") _,
            out("zmm31") _,
            options(nomem, nostack, preserves_flags),
        );
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn bursts_leave_nothing_in_vector_registers() {
    let wide: Vec<_> = tiers().into_iter().filter(|tier| tier.needs(Tier::Avx512)).collect();
    if wide.is_empty() {
        println!("SKIPPED: no tier with 32 registers");
        return;
    }
    // SAFETY: the tiers above need AVX-512 F.
    unsafe { soil_registers() };
    // SAFETY: as above.
    let soiled = unsafe { upper_registers() };
    assert_eq!(
        (soiled[0], soiled[15]),
        ([0xff; 64], [0xff; 64]),
        "the test itself sees what is in registers"
    );
    let params = GcmParams::new(KeyBits::Aes256, IcvLen::Icv16);
    let key = |tier| {
        SealKey::with_tier(&cpu(), tier, params, SecretBytes::copy_from(&[7; 32]))
            .expect("32 bytes")
    };
    for tier in wide {
        // A narrower tier sharing the burst must not narrow the wiping.
        let (wide_key, narrow_key) = (key(tier), key(Tier::AesNi));
        let (mut a, mut b, mut icv_a, mut icv_b) = ([1; 2000], [1; 100], [0; 16], [0; 16]);
        let mut ops = [
            SealOp::new(&wide_key, Nonce::new([1; 12]), b"", &mut a, &mut icv_a)
                .expect("lengths fit"),
            SealOp::new(&narrow_key, Nonce::new([2; 12]), b"", &mut b, &mut icv_b)
                .expect("lengths fit"),
        ];
        // SAFETY: as above.
        unsafe { soil_registers() };
        seal_burst(&mut ops);
        // SAFETY: as above.
        let left = unsafe { upper_registers() };
        assert_eq!(left, [[0; 64]; 16], "{tier}");
    }
}
