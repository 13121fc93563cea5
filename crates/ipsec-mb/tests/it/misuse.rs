//! Every function that the shared library exports, and every one that a manager points to, with arguments that are null.
//!
//! They are listed by what there is, symbols of the file and words of the manager, so that none is left out.

use std::{
    env,
    ffi::{CString, c_void},
    mem::{offset_of, size_of},
    process::Command,
    ptr, slice,
};

use stand_in::types::*;

/// Any function of C: it takes of the arguments what it knows.
type Any = unsafe extern "C" fn(
    *mut c_void,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
) -> usize;

/// Exported symbols, in order.
#[cfg(abi_1)]
const EXPORTS: &[&str] = &[
    "alloc_mb_mgr",
    "des_key_schedule",
    "free_mb_mgr",
    "imb_clear_mem",
    "imb_get_errno",
    "imb_get_feature_flags",
    "imb_get_mb_mgr_size",
    "imb_get_strerror",
    "imb_get_version",
    "imb_get_version_str",
    "imb_set_pointers_mb_mgr",
    "init_mb_mgr_auto",
    "init_mb_mgr_avx",
    "init_mb_mgr_avx2",
    "init_mb_mgr_avx512",
    "init_mb_mgr_sse",
    "kasumi_f8_iv_gen",
    "kasumi_f9_iv_gen",
    "snow3g_f8_iv_gen",
    "snow3g_f9_iv_gen",
    "zuc_eea3_iv_gen",
    "zuc_eia3_iv_gen",
];
#[cfg(not(abi_1))]
const EXPORTS: &[&str] = &[
    "alloc_mb_mgr",
    "des_cfb_one",
    "des_key_schedule",
    "free_mb_mgr",
    "imb_aead_burst_get_size",
    "imb_cipher_burst_get_size",
    "imb_clear_mem",
    "imb_get_arch_type_string",
    "imb_get_errno",
    "imb_get_feature_flags",
    "imb_get_mb_mgr_size",
    "imb_get_strerror",
    "imb_get_version",
    "imb_get_version_str",
    "imb_hash_burst_get_size",
    "imb_hmac_ipad_opad",
    "imb_quic_aes_gcm",
    "imb_quic_chacha20_poly1305",
    "imb_quic_hp_aes_ecb",
    "imb_quic_hp_chacha20",
    "imb_self_test_get_cb",
    "imb_self_test_set_cb",
    "imb_set_pointers_mb_mgr",
    "imb_set_session",
    "imb_sm4_gcm_pre",
    "init_mb_mgr_auto",
    "init_mb_mgr_avx2",
    "init_mb_mgr_avx512",
    "init_mb_mgr_sse",
    "kasumi_f8_iv_gen",
    "kasumi_f9_iv_gen",
    "snow3g_f8_iv_gen",
    "snow3g_f9_iv_gen",
    "zuc_eea3_iv_gen",
    "zuc_eia3_iv_gen",
];

/// Exports that have nothing to refuse: they ask for nothing, or take null.
const NEVER_WRONG: &[&str] = &[
    "alloc_mb_mgr",
    "free_mb_mgr",
    "imb_clear_mem",
    "imb_get_errno",
    "imb_get_feature_flags",
    "imb_get_mb_mgr_size",
    "imb_get_strerror",
    "imb_get_version",
    "imb_get_version_str",
];

/// Exports that return an error and note none.
const RETURN_ERRORS: &[&str] = &[
    "imb_aead_burst_get_size",
    "imb_cipher_burst_get_size",
    "imb_get_arch_type_string",
    "imb_hash_burst_get_size",
    "imb_self_test_get_cb",
    "imb_self_test_set_cb",
];

/// Exports that want no more than memory: a manager is told of before it is ready.
const WANT_NO_MORE: &[&str] =
    &["imb_set_pointers_mb_mgr", "imb_self_test_get_cb", "imb_self_test_set_cb"];

/// The file of the shared library, loaded: tests of this crate's Rust library have another error number than it.
struct File {
    library: libloading::Library,
    names: Vec<String>,
    /// Memory that is neither a manager nor a key.
    zeros: Vec<u64>,
}

impl File {
    fn load() -> Option<Self> {
        let name = format!("lib{}.so", env!("CARGO_PKG_NAME").replace('-', "_"));
        let path = env::current_exe().unwrap().with_file_name(name);
        let Ok(output) = Command::new("nm").args(["-D", "--defined-only"]).arg(&path).output()
        else {
            eprintln!("SKIPPED: there is no nm, which lists what a library exports");
            return None;
        };
        assert!(output.status.success(), "{}: {output:?}", path.display());
        let text = String::from_utf8(output.stdout).unwrap();
        let names = text.lines().filter_map(|line| line.split_whitespace().nth(2));
        let names = names.map(str::to_owned).collect();
        // SAFETY: it is the library here, without constructors.
        let library = unsafe { libloading::Library::new(&path) }.unwrap();
        Some(Self { library, names, zeros: vec![0; 1 << 15] })
    }

    fn get(&self, name: &str) -> Any {
        let name = CString::new(name).unwrap();
        // SAFETY: each is a function.
        *unsafe { self.library.get::<Any>(name.as_bytes_with_nul()) }.unwrap()
    }

    /// Calls with a pointer, and null and nothing else.
    fn call(&self, name: &str, first: *mut c_void) -> usize {
        call(self.get(name), first)
    }

    /// True if the library notes that a call is wrong.
    fn refuses(&self, function: Any, first: *mut c_void) -> bool {
        // An allocation notes that there is no error.
        let mgr = self.call("alloc_mb_mgr", ptr::null_mut());
        self.call("free_mb_mgr", ptr::with_exposed_provenance_mut(mgr));
        assert_eq!(self.call("imb_get_errno", ptr::null_mut()) as u32, 0);
        call(function, first);
        self.call("imb_get_errno", ptr::null_mut()) as u32 != 0
    }

    fn firsts(&mut self) -> [*mut c_void; 2] {
        [ptr::null_mut(), self.zeros.as_mut_ptr().cast()]
    }
}

fn call(function: Any, first: *mut c_void) -> usize {
    // SAFETY: functions find out that pointers are null, and that memory of zeros is no manager; lengths are zero.
    unsafe { function(first, 0, 0, 0, 0, 0, 0, 0, 0, 0) }
}

#[test]
fn every_function_refuses_null() {
    let Some(mut file) = File::load() else { return };
    assert_eq!(file.names, EXPORTS);
    for first in file.firsts() {
        for &name in EXPORTS {
            if !first.is_null() && WANT_NO_MORE.contains(&name) {
                continue;
            }
            if RETURN_ERRORS.contains(&name) {
                assert_ne!(file.call(name, first) as u32, 0, "{name}");
            } else if !NEVER_WRONG.contains(&name) {
                assert!(file.refuses(file.get(name), first), "{name}: {first:?}");
            }
        }
    }
    for name in NEVER_WRONG.iter().filter(|name| **name != "alloc_mb_mgr") {
        file.call(name, ptr::null_mut());
    }
    every_slot_refuses_null(&mut file);
}

fn every_slot_refuses_null(file: &mut File) {
    let mgr = file.call("alloc_mb_mgr", ptr::null_mut());
    let mgr: *mut Mgr = ptr::with_exposed_provenance_mut(mgr);
    file.call("init_mb_mgr_auto", mgr.cast());
    let words = (offset_of!(Mgr, earliest_job) - offset_of!(Mgr, functions)) / size_of::<usize>();
    let start = mgr.wrapping_byte_add(offset_of!(Mgr, functions)).cast::<usize>();
    // SAFETY: all of it was set up. Pointers have no padding.
    let words = unsafe { slice::from_raw_parts(start, words) }.to_vec();
    let wide = size_of::<usize>();
    let precomp = offset_of!(Functions, gcm_precomp) / wide;
    for first in file.firsts() {
        for (slot, word) in words.iter().enumerate() {
            // What is not a function, a function without errors, and one that completes whatever is there.
            if is_silent(slot) || ((precomp..precomp + 3).contains(&slot) && !first.is_null()) {
                continue;
            }
            assert_ne!(*word, 0, "slot {slot}");
            let pointer = ptr::with_exposed_provenance::<c_void>(*word);
            // SAFETY: it is a pointer to a function.
            let function = unsafe { std::mem::transmute::<*const c_void, Any>(pointer) };
            assert!(file.refuses(function, first), "slot {slot}: {first:?}");
        }
    }
    file.call("free_mb_mgr", mgr.cast());
}

/// True if a slot is the program's own, or of a function that knows no errors.
#[cfg(abi_1)]
fn is_silent(_: usize) -> bool {
    false
}

#[cfg(not(abi_1))]
fn is_silent(slot: usize) -> bool {
    let silent = [
        offset_of!(Later, set_suite_id),
        offset_of!(Later, self_test),
        offset_of!(Later, self_test_arg),
    ];
    let first = offset_of!(Mgr, later) - offset_of!(Mgr, functions);
    silent.contains(&(slot * size_of::<usize>()).wrapping_sub(first))
}
