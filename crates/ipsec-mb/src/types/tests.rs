//! Offsets, as a C program printed them that includes the header of 1.3.0 or of 2.0.2.

use std::mem::{offset_of, size_of};

use super::*;

/// Value of version 1, or of version 2.
fn of(first: usize, second: usize) -> usize {
    if cfg!(abi_1) { first } else { second }
}

fn same(offsets: &[(usize, usize)]) {
    for (row, (here, header)) in offsets.iter().enumerate() {
        assert_eq!(here, header, "row {row}");
    }
}

#[test]
fn the_job_lies_as_the_header_says() {
    same(&[
        (offset_of!(Job, enc_keys), 0),
        (offset_of!(Job, dec_keys), 8),
        (offset_of!(Job, key_len), 16),
        (offset_of!(Job, src), 24),
        (offset_of!(Job, dst), 32),
        (offset_of!(Job, cipher_offset), 40),
        (offset_of!(Job, cipher_len), 48),
        (offset_of!(Job, hash_offset), 56),
        (offset_of!(Job, hash_len), 64),
        (offset_of!(Job, iv), 72),
        (offset_of!(Job, iv_len), 80),
        (offset_of!(Job, tag), 88),
        (offset_of!(Job, tag_len), 96),
        (offset_of!(Job, u), 104),
        (offset_of!(Job, status), 128),
        (offset_of!(Job, cipher_mode), 132),
        (offset_of!(Job, cipher_direction), 136),
        (offset_of!(Job, hash_alg), 140),
        (offset_of!(Job, chain_order), 144),
        (offset_of!(Job, user_data), 152),
        (offset_of!(Job, user_data2), 160),
        (offset_of!(Job, cipher_func), 168),
        (offset_of!(Job, hash_func), 176),
        (offset_of!(Job, sgl_state), 184),
        (offset_of!(Job, next_iv), 192),
        (offset_of!(Job, session), 200),
        (size_of::<Job>(), of(200, 216)),
    ]);
}

#[test]
fn the_manager_lies_as_the_header_says() {
    same(&[
        (offset_of!(Mgr, flags), 0),
        (offset_of!(Mgr, features), 8),
        (offset_of!(Mgr, used_arch_type), 55),
        (offset_of!(Mgr, used_arch), 56),
        (offset_of!(Mgr, errno), 60),
        (offset_of!(Mgr, functions), 64),
        (offset_of!(Mgr, later), 1016),
        (offset_of!(Mgr, earliest_job), of(1016, 1104)),
        (offset_of!(Mgr, next_job), of(1020, 1108)),
        (offset_of!(Mgr, jobs), of(1024, 1112)),
        (offset_of!(Mgr, ooo), of(52224, 56408)),
        (size_of::<Mgr>(), of(52520, 56744)),
    ]);
}

#[test]
fn the_functions_lie_as_the_header_says() {
    let at = offset_of!(Mgr, functions);
    same(&[
        (at + offset_of!(Functions, get_next_job), 64),
        (at + offset_of!(Functions, submit_job), 72),
        (at + offset_of!(Functions, submit_job_nocheck), 80),
        (at + offset_of!(Functions, get_completed_job), 88),
        (at + offset_of!(Functions, flush_job), 96),
        (at + offset_of!(Functions, queue_size), 104),
        (at + offset_of!(Functions, keyexp), 112),
        (at + offset_of!(Functions, cmac_subkeys_128), 136),
        (at + offset_of!(Functions, xcbc_keyexp), 144),
        (at + offset_of!(Functions, des_key_sched), 152),
        (at + offset_of!(Functions, one_block), 160),
        (at + offset_of!(Functions, plain_hashes), 208),
        (at + offset_of!(Functions, cfb_one_128), 248),
        (at + offset_of!(Functions, gcm_enc), 256),
        (at + offset_of!(Functions, gcm_dec), 280),
        (at + offset_of!(Functions, gcm_init), 304),
        (at + offset_of!(Functions, gcm_enc_update), 328),
        (at + offset_of!(Functions, gcm_dec_update), 352),
        (at + offset_of!(Functions, gcm_enc_finalize), 376),
        (at + offset_of!(Functions, gcm_dec_finalize), 400),
        (at + offset_of!(Functions, gcm_precomp), 424),
        (at + offset_of!(Functions, gcm_pre), 448),
        (at + offset_of!(Functions, mobile), 472),
        (at + offset_of!(Functions, ghash), 680),
        (at + offset_of!(Functions, eia3_n_buffer), 688),
        (at + offset_of!(Functions, gcm_init_var_iv), 696),
        (at + offset_of!(Functions, gmac_init), 720),
        (at + offset_of!(Functions, gmac_update), 744),
        (at + offset_of!(Functions, gmac_finalize), 768),
        (at + offset_of!(Functions, hec), 792),
        (at + offset_of!(Functions, cmac_subkeys_256), 808),
        (at + offset_of!(Functions, ghash_pre), 816),
        (at + offset_of!(Functions, crc), 824),
        (at + offset_of!(Functions, chacha_init), 920),
        (at + offset_of!(Functions, chacha_enc_update), 928),
        (at + offset_of!(Functions, chacha_dec_update), 936),
        (at + offset_of!(Functions, chacha_finalize), 944),
        (at + offset_of!(Functions, get_next_burst), 952),
        (at + offset_of!(Functions, submit_burst), 960),
        (at + offset_of!(Functions, submit_burst_nocheck), 968),
        (at + offset_of!(Functions, flush_burst), 976),
        (at + offset_of!(Functions, submit_cipher_burst), 984),
        (at + offset_of!(Functions, submit_cipher_burst_nocheck), 992),
        (at + offset_of!(Functions, submit_hash_burst), 1000),
        (at + offset_of!(Functions, submit_hash_burst_nocheck), 1008),
        (size_of::<Functions>(), 119 * size_of::<usize>()),
    ]);
}

#[cfg(not(abi_1))]
#[test]
fn what_version_2_has_besides_lies_as_the_header_says() {
    let (job, mgr) = (offset_of!(Job, session), offset_of!(Mgr, later));
    same(&[
        (job + offset_of!(Session, suite_id), 200),
        (job + offset_of!(Session, session_id), 208),
        (mgr + offset_of!(Later, cfb_one_256), 1016),
        (mgr + offset_of!(Later, ecb_quic), 1024),
        (mgr + offset_of!(Later, set_suite_id), 1040),
        (mgr + offset_of!(Later, chacha_quic), 1048),
        (mgr + offset_of!(Later, sm4_keyexp), 1064),
        (mgr + offset_of!(Later, self_test), 1072),
        (mgr + offset_of!(Later, self_test_arg), 1080),
        (mgr + offset_of!(Later, submit_aead_burst), 1088),
        (mgr + offset_of!(Later, submit_aead_burst_nocheck), 1096),
    ]);
}

#[test]
fn keys_and_contexts_fit_where_the_header_has_them() {
    assert_eq!((size_of::<GcmContext>(), align_of::<GcmContext>()), (88, 8));
    assert_eq!((size_of::<ChaChaContext>(), align_of::<ChaChaContext>()), (192, 8));
}

#[test]
fn every_error_has_a_text() {
    // The number behind the last one.
    let end = if cfg!(abi_1) { 2053 } else { 2054 };
    assert!((2001..end).all(|number| error_text(number).is_some()));
    assert!(error_text(2000).is_none() && error_text(end).is_none());
    // Version 1 has another one in front of this.
    assert_eq!(ERR_JOB_NULL_HMAC_OPAD, if cfg!(abi_1) { 2039 } else { 2038 });
    assert_eq!(ERR_SELFTEST, if cfg!(abi_1) { 2052 } else { 2051 });
}
