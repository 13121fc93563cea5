//! Managers: where they come from, and what they point to.

use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    ffi::c_void,
    ptr,
};

use convoy_crypto::{Cpu, KeyLender, Tier, manager::Runner};

use super::{
    burst, chacha, direct, gcm, keys,
    misc::{imb_get_feature_flags, refused_cipher, refused_hash, refused_key},
    raw::{self, set_errno, set_global_errno},
    ring,
    state::{self, MANAGER_BYTES},
};
use crate::types::*;

/// The memory of managers that the library allocates.
const LAYOUT: Layout = match Layout::from_size_align(MANAGER_BYTES, 64) {
    Ok(layout) => layout,
    Err(_) => panic!("a manager has a size"),
};

/// Bytes that a manager takes.
#[unsafe(no_mangle)]
pub extern "C" fn imb_get_mb_mgr_size() -> usize {
    MANAGER_BYTES
}

/// Allocates a manager, which an `init_mb_mgr_*` makes ready; null if there is no memory.
#[unsafe(no_mangle)]
pub extern "C" fn alloc_mb_mgr(flags: u64) -> *mut Mgr {
    // SAFETY: the layout is not empty.
    let memory = unsafe { alloc_zeroed(LAYOUT) };
    if memory.is_null() {
        // ENOMEM
        set_global_errno(12);
        return ptr::null_mut();
    }
    // SAFETY: there is as much memory as that function wants.
    let mgr = unsafe { imb_set_pointers_mb_mgr(memory.cast(), flags, 1) };
    if mgr.is_null() {
        // SAFETY: it was allocated above.
        unsafe { dealloc(memory, LAYOUT) };
    }
    mgr
}

/// Frees a manager of [`alloc_mb_mgr`]'s, wiped; null is nothing to free.
///
/// # Safety
///
/// `mgr` is null, or came from [`alloc_mb_mgr`] and was not freed. Nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_mb_mgr(mgr: *mut Mgr) {
    if mgr.is_null() {
        return;
    }
    // SAFETY: it came from the allocator, with this size.
    unsafe { super::misc::imb_clear_mem(mgr.cast(), MANAGER_BYTES) };
    // SAFETY: as above.
    unsafe { dealloc(mgr.cast(), LAYOUT) };
}

/// Makes memory of the caller's a manager, which an `init_mb_mgr_*` makes ready. If `reset` is 0, what is in it stays: another process
/// may have jobs there.
///
/// # Safety
///
/// `memory` is null, or points to [`imb_get_mb_mgr_size`] bytes, which nobody else uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn imb_set_pointers_mb_mgr(
    memory: *mut c_void,
    flags: u64,
    reset: u32,
) -> *mut Mgr {
    if memory.is_null() || !memory.cast::<Mgr>().is_aligned() {
        set_global_errno(ERR_NULL_MBMGR);
        return ptr::null_mut();
    }
    // As there, where the library was built without emulation of AES, as distributions build it.
    #[cfg(abi_1)]
    if flags & FLAG_AESNI_OFF != 0 {
        set_global_errno(ERR_NO_AESNI_EMU);
        return ptr::null_mut();
    }
    let mgr = memory.cast::<Mgr>();
    if reset != 0 {
        // SAFETY: the caller's promise.
        unsafe { memory.cast::<u8>().write_bytes(0, MANAGER_BYTES) };
        // SAFETY: as above; zeros are a manager.
        let mgr = unsafe { &mut *mgr };
        (mgr.earliest_job, mgr.errno) = (-1, 0);
    }
    // SAFETY: as above; without a reset it was a manager before.
    let this = unsafe { &mut *mgr };
    (this.flags, this.features) = (flags, imb_get_feature_flags());
    this.ooo = state::pointers(mgr);
    set_global_errno(0);
    mgr
}

/// The architecture that a tier counts as.
fn arch_of(tier: Tier) -> u32 {
    match tier {
        Tier::AesNi => ARCH_SSE,
        Tier::Avx => ARCH_AVX,
        Tier::Avx2 | Tier::Vaes256 => ARCH_AVX2,
        Tier::Avx512 | Tier::Vaes512 => ARCH_AVX512,
        _ => ARCH_NONE,
    }
}

/// The best tier of an architecture, or of all. Without AES in wide registers if the flags say so, as intel-ipsec-mb has that only
/// together with the extensions which they name.
fn tier(cpu: &Cpu, arch: Option<u32>, flags: u64) -> Option<Tier> {
    let plain = flags & (FLAG_SHANI_OFF | FLAG_GFNI_OFF) != 0;
    let wide = [Tier::Vaes512, Tier::Vaes256];
    let order = [Tier::Vaes512, Tier::Avx512, Tier::Vaes256, Tier::Avx2, Tier::Avx, Tier::AesNi];
    order.into_iter().find(|tier| {
        cpu.has(*tier)
            && arch.is_none_or(|arch| arch == arch_of(*tier))
            && !(plain && wide.contains(tier))
    })
}

/// # Safety
///
/// As for [`init_mb_mgr_auto`].
unsafe fn init(mgr: *mut Mgr, arch: Option<u32>) -> u32 {
    // SAFETY: the caller's promise.
    let Ok(this) = (unsafe { raw::object(mgr, 0) }) else {
        set_global_errno(ERR_NULL_MBMGR);
        return ARCH_NONE;
    };
    // A manager that the caller allocated by itself has no memory behind it.
    if this.ooo.first().is_none_or(|first| *first != state::place(mgr).cast()) {
        set_errno(this, ERR_NULL_MBMGR);
        return ARCH_NONE;
    }
    let ready = raw::cpu().and_then(|cpu| {
        let tier = match arch {
            // Every processor with wider registers has the narrow ones.
            Some(ARCH_SSE) if cpu.has(Tier::AesNi) => Some(Tier::AesNi),
            arch => tier(cpu, arch, this.flags),
        }?;
        Some((tier, Runner::new(cpu, tier).ok()?, KeyLender::with_tier(cpu, tier).ok()?))
    });
    let Some((tier, runner, lender)) = ready else {
        set_errno(this, ERR_MISSING_CPUFLAGS_INIT_MGR);
        return ARCH_NONE;
    };
    (this.earliest_job, this.next_job) = (-1, 0);
    this.used_arch = arch_of(tier);
    this.used_arch_type = if [Tier::Vaes256, Tier::Vaes512].contains(&tier) { 2 } else { 1 };
    this.features = imb_get_feature_flags();
    this.functions = functions();
    #[cfg(not(abi_1))]
    super::later::set_functions(&mut this.later);
    set_errno(this, 0);
    // SAFETY: the pointer says that the memory follows.
    unsafe { state::make(mgr, runner, lender) };
    arch_of(tier)
}

/// Everything that macros of the header call.
fn functions() -> Functions {
    const CIPHER: Option<RefusedFn> = Some(refused_cipher);
    const HASH: Option<RefusedFn> = Some(refused_hash);
    const KEY: Option<RefusedFn> = Some(refused_key);
    macro_rules! sizes {
        ($function:path) => {{
            use $function as function;
            [Some(function::<128>), Some(function::<192>), Some(function::<256>)]
        }};
    }
    Functions {
        get_next_job: Some(ring::get_next_job),
        submit_job: Some(ring::submit_job),
        submit_job_nocheck: Some(ring::submit_job),
        get_completed_job: Some(ring::get_completed_job),
        flush_job: Some(ring::flush_job),
        queue_size: Some(ring::queue_size),
        keyexp: sizes!(keys::keyexp),
        cmac_subkeys_128: Some(keys::cmac_subkeys::<128>),
        xcbc_keyexp: Some(keys::xcbc_keyexp),
        des_key_sched: KEY,
        one_block: [
            Some(keys::one_block::<{ AUTH_HMAC_SHA_1 }>),
            Some(keys::one_block::<{ AUTH_HMAC_SHA_224 }>),
            Some(keys::one_block::<{ AUTH_HMAC_SHA_256 }>),
            Some(keys::one_block::<{ AUTH_HMAC_SHA_384 }>),
            Some(keys::one_block::<{ AUTH_HMAC_SHA_512 }>),
            Some(keys::one_block::<{ AUTH_MD5 }>),
        ],
        plain_hashes: [
            Some(direct::digest::<{ AUTH_SHA_1 }>),
            Some(direct::digest::<{ AUTH_SHA_224 }>),
            Some(direct::digest::<{ AUTH_SHA_256 }>),
            Some(direct::digest::<{ AUTH_SHA_384 }>),
            Some(direct::digest::<{ AUTH_SHA_512 }>),
        ],
        cfb_one_128: Some(direct::cfb_one::<128>),
        gcm_enc: sizes!(gcm::enc),
        gcm_dec: sizes!(gcm::dec),
        gcm_init: sizes!(gcm::init),
        gcm_enc_update: sizes!(gcm::enc_update),
        gcm_dec_update: sizes!(gcm::dec_update),
        gcm_enc_finalize: sizes!(gcm::finalize),
        gcm_dec_finalize: sizes!(gcm::finalize),
        gcm_precomp: sizes!(gcm::precomp),
        gcm_pre: sizes!(gcm::pre),
        mobile: {
            let mut mobile = [CIPHER; 26];
            // Of KASUMI's f8 and f9, and of SNOW3G.
            for at in [12, 13, 24] {
                mobile[at] = KEY;
            }
            mobile
        },
        ghash: Some(gcm::ghash),
        eia3_n_buffer: HASH,
        gcm_init_var_iv: sizes!(gcm::init_var_iv),
        gmac_init: sizes!(gcm::gmac_init),
        gmac_update: sizes!(gcm::gmac_update),
        gmac_finalize: sizes!(gcm::finalize),
        hec: [HASH; 2],
        cmac_subkeys_256: Some(keys::cmac_subkeys::<256>),
        ghash_pre: Some(gcm::ghash_pre),
        crc: [HASH; 12],
        chacha_init: Some(chacha::init),
        chacha_enc_update: Some(chacha::enc_update),
        chacha_dec_update: Some(chacha::dec_update),
        chacha_finalize: Some(chacha::finalize),
        get_next_burst: Some(ring::get_next_burst),
        submit_burst: Some(ring::submit_burst),
        submit_burst_nocheck: Some(ring::submit_burst_nocheck),
        flush_burst: Some(ring::flush_burst),
        submit_cipher_burst: Some(burst::submit_cipher_burst),
        submit_cipher_burst_nocheck: Some(burst::submit_cipher_burst),
        submit_hash_burst: Some(burst::submit_hash_burst),
        submit_hash_burst_nocheck: Some(burst::submit_hash_burst),
    }
}

/// Makes a manager ready, with the best kernels that the processor has; writes which architecture they count as.
///
/// # Safety
///
/// `mgr` is null, or a manager of [`alloc_mb_mgr`]'s or [`imb_set_pointers_mb_mgr`]'s. `arch` is null or points to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn init_mb_mgr_auto(mgr: *mut Mgr, arch: *mut u32) {
    // SAFETY: the caller's promise.
    let used = unsafe { init(mgr, None) };
    if !arch.is_null() && arch.is_aligned() {
        // SAFETY: as above.
        unsafe { arch.write(used) };
    }
}

/// Makes a manager ready, with kernels for registers of 128 bits.
///
/// # Safety
///
/// As for [`init_mb_mgr_auto`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn init_mb_mgr_sse(mgr: *mut Mgr) {
    // SAFETY: the caller's promise.
    unsafe { init(mgr, Some(ARCH_SSE)) };
}

/// Makes a manager ready, with kernels for registers of 128 bits that are written apart from what is read (AVX).
///
/// # Safety
///
/// As for [`init_mb_mgr_auto`].
#[cfg(abi_1)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn init_mb_mgr_avx(mgr: *mut Mgr) {
    // SAFETY: the caller's promise.
    unsafe { init(mgr, Some(ARCH_AVX)) };
}

/// Makes a manager ready, with kernels for registers of 256 bits.
///
/// # Safety
///
/// As for [`init_mb_mgr_auto`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn init_mb_mgr_avx2(mgr: *mut Mgr) {
    // SAFETY: the caller's promise.
    unsafe { init(mgr, Some(ARCH_AVX2)) };
}

/// Makes a manager ready, with kernels for registers of 512 bits.
///
/// # Safety
///
/// As for [`init_mb_mgr_auto`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn init_mb_mgr_avx512(mgr: *mut Mgr) {
    // SAFETY: the caller's promise.
    unsafe { init(mgr, Some(ARCH_AVX512)) };
}
