//! Functions that handle keys leave nothing of them in vector registers, not even in those that only C's library uses.

use std::{arch::asm, ffi::c_void};

use stand_in::types::*;

use crate::{library::Library, suites::Aligned};

/// Contents of the vector registers.
type Registers = [[u64; 8]; 32];

extern "C" fn call(work: &mut &mut dyn FnMut()) {
    work();
}

/// Contents of the registers right behind `work`. They are zeros before.
fn left_by(mut work: impl FnMut()) -> Registers {
    let mut registers = [[0; 8]; 32];
    let mut work: &mut dyn FnMut() = &mut work;
    // SAFETY: the call is one of C's ABI, whose registers are all declared as overwritten; what is written lies within the
    // registers' place.
    unsafe {
        asm!(
            "vzeroall
             .irp n, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
             vpxord zmm\\n, zmm\\n, zmm\\n
             .endr
             call {call}
             .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, \
             16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
             vmovdqu64 [r12], zmm\\n
             add r12, 64
             .endr",
            call = sym call,
            in("rdi") &raw mut work,
            inout("r12") &raw mut registers => _,
            clobber_abi("C"),
        );
    }
    registers
}

/// A key with no two bytes alike, in whatever is made of it here.
const KEY: [u8; 32] = [
    0x91, 0x1b, 0x52, 0xc3, 0x74, 0xe5, 0x36, 0x87, 0xd8, 0x29, 0xfa, 0x4b, 0xac, 0x0d, 0x6e, 0xbf,
    0x18, 0x99, 0xea, 0x5b, 0xcc, 0x3d, 0x7e, 0xef, 0x20, 0xa1, 0xf2, 0x43, 0x84, 0x15, 0xd6, 0x67,
];

/// True if eight bytes of secrets are there.
fn hold(registers: &Registers, secrets: &[u8]) -> bool {
    let words: Vec<u64> =
        secrets.windows(8).map(|eight| u64::from_le_bytes(eight.try_into().unwrap())).collect();
    registers.iter().flatten().any(|half| *half != 0 && words.contains(half))
}

#[test]
fn keys_are_not_left_in_registers() {
    if !is_x86_feature_detected!("avx512f") {
        eprintln!("SKIPPED: the processor lacks the registers that are looked at, of AVX-512");
        return;
    }
    let library = Library::ours();
    let f = library.functions();
    let (mut enc, mut dec) = (Aligned([0u8; 240]), Aligned([0u8; 240]));
    let (key, place) = (KEY.as_ptr().cast(), enc.0.as_mut_ptr());
    for expand in f.keyexp {
        let other = dec.0.as_mut_ptr();
        // SAFETY: there is room for round keys.
        let left = left_by(|| unsafe { expand.unwrap()(key, place.cast(), other.cast()) });
        assert!(!hold(&left, &enc.0) && !hold(&left, &dec.0) && !hold(&left, &KEY));
    }
    let mut subkeys = Aligned([0u8; 240]);
    let to = subkeys.0.as_mut_ptr();
    let (first, second) = (to.cast(), to.wrapping_add(16).cast());
    let round_keys = enc.0.as_ptr().cast();
    // SAFETY: there is room for subkeys.
    let left = left_by(|| unsafe { f.cmac_subkeys_256.unwrap()(round_keys, first, second) });
    assert!(!hold(&left, &subkeys.0) && !hold(&left, &enc.0));
    let (second, third) = (to.wrapping_add(176).cast(), to.wrapping_add(192).cast());
    // SAFETY: as above.
    let left = left_by(|| unsafe { f.xcbc_keyexp.unwrap()(key, first, second, third) });
    assert!(!hold(&left, &subkeys.0) && !hold(&left, &KEY));
    let (mut text, iv) = ([0x55u8; 16], [9u8; 16]);
    let (at, iv): (*mut c_void, _) = (text.as_mut_ptr().cast(), iv.as_ptr().cast());
    // SAFETY: all lengths are right.
    let left = left_by(|| unsafe { f.cfb_one_128.unwrap()(at, at, iv, round_keys, 16) });
    assert!(!hold(&left, &enc.0[..176]));
    let mut block = [0u8; 128];
    block[..32].copy_from_slice(&KEY);
    for one_block in f.one_block {
        let block = block.as_ptr().cast();
        // SAFETY: a block of any hash is no longer, and there is room for its value.
        let left = left_by(|| unsafe { one_block.unwrap()(block, first) });
        assert!(!hold(&left, &subkeys.0) && !hold(&left, &KEY));
    }
}

#[test]
fn keys_of_gcm_are_not_left_in_registers() {
    if !is_x86_feature_detected!("avx512f") {
        eprintln!("SKIPPED: the processor lacks the registers that are looked at, of AVX-512");
        return;
    }
    let library = Library::ours();
    let f = library.functions();
    let mut data = Aligned([0u8; 1280 + 64]);
    let mut context = GcmContext::NONE;
    let (mut text, mut tag) = ([0x55; 100], [0; 16]);
    let (iv, aad) = ([9; 12], [3; 21]);
    // Aligned, and not.
    for shift in [0, 8] {
        let to = data.0[shift..].as_mut_ptr().cast();
        let secrets = |data: &Aligned<1344>| data.0[shift..shift + GCM_KEY_BYTES].to_vec();
        // SAFETY: there is room for key data.
        let left = left_by(|| unsafe { f.gcm_pre[2].unwrap()(KEY.as_ptr().cast(), to) });
        assert!(!hold(&left, &secrets(&data)));
        let (ctx, at, len) = (&raw mut context, text.as_mut_ptr(), text.len() as u64);
        let (iv, aad, tag) = (iv.as_ptr(), aad.as_ptr(), tag.as_mut_ptr());
        let seal = f.gcm_enc[2].unwrap();
        // SAFETY: all lengths are right.
        let left = left_by(|| unsafe { seal(to, ctx, at, at, len, iv, aad, 21, tag, 16) });
        assert!(!hold(&left, &secrets(&data)));
        let begin = f.gcm_init[2].unwrap();
        // SAFETY: as above.
        let left = left_by(|| unsafe { begin(to, ctx, iv, aad, 21) });
        assert!(!hold(&left, &secrets(&data)));
        let go_on = f.gcm_enc_update[2].unwrap();
        // SAFETY: as above.
        let left = left_by(|| unsafe { go_on(to, ctx, at, at, len) });
        assert!(!hold(&left, &secrets(&data)));
        let end = f.gcm_enc_finalize[2].unwrap();
        // SAFETY: as above.
        let left = left_by(|| unsafe { end(to, ctx, tag, 16) });
        assert!(!hold(&left, &secrets(&data)));
        let expand = f.ghash_pre.unwrap();
        // SAFETY: as above.
        let left = left_by(|| unsafe { expand(KEY.as_ptr().cast(), to) });
        assert!(!hold(&left, &secrets(&data)) && !hold(&left, &KEY[..16]));
        let hash = f.ghash.unwrap();
        // SAFETY: as above.
        let left = left_by(|| unsafe { hash(to, at.cast(), len, tag.cast(), 16) });
        assert!(!hold(&left, &secrets(&data)));
    }
}
