//! Layouts and numbers beside intel-ipsec-mb's own header, where that of this version is installed.
//!
//! `CONVOY_IPSEC_MB_INCLUDE` names the folder of another than the installed one.

use std::{
    fs,
    io::Write as _,
    mem::{offset_of, size_of},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use stand_in::types::*;

/// Expression of C, and its value.
type Row = (String, u64);

/// Fields of a structure: what the header calls them, and where they are here.
macro_rules! fields {
    ($rows:ident, $c:literal, $type:ty: $($field:ident $name:literal),* $(,)?) => {$(
        $rows.push((
            concat!("offsetof(", $c, ", ", $name, ")").to_owned(),
            offset_of!($type, $field) as u64,
        ));
    )*};
}

/// Numbers that have the header's names here.
macro_rules! numbers {
    ($rows:ident: $($name:ident)*) => {$(
        $rows.push((concat!("IMB_", stringify!($name)).to_owned(), $name as u64));
    )*};
}

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    fields! { rows, "IMB_JOB", Job:
        enc_keys "enc_keys", dec_keys "dec_keys", key_len "key_len_in_bytes", src "src", dst "dst",
        cipher_offset "cipher_start_src_offset_in_bytes", cipher_len "msg_len_to_cipher_in_bytes",
        hash_offset "hash_start_src_offset_in_bytes", hash_len "msg_len_to_hash_in_bytes", iv "iv",
        iv_len "iv_len_in_bytes", tag "auth_tag_output", tag_len "auth_tag_output_len_in_bytes",
        u "u", status "status", cipher_mode "cipher_mode", cipher_direction "cipher_direction",
        hash_alg "hash_alg", chain_order "chain_order", user_data "user_data",
        user_data2 "user_data2", cipher_func "cipher_func", hash_func "hash_func",
        sgl_state "sgl_state", next_iv "cipher_fields",
    }
    fields! { rows, "IMB_MGR", Mgr:
        flags "flags", features "features", used_arch "used_arch", errno "imb_errno",
        functions "get_next_job", earliest_job "earliest_job", next_job "next_job", jobs "jobs",
        ooo "aes128_ooo",
    }
    let sizes = [
        ("IMB_JOB", size_of::<Job>()),
        ("IMB_MGR", size_of::<Mgr>()),
        ("struct gcm_key_data", GCM_KEY_BYTES.next_multiple_of(64)),
        ("struct gcm_context_data", size_of::<GcmContext>()),
        ("struct chacha20_poly1305_context_data", size_of::<ChaChaContext>()),
        ("struct IMB_SGL_IOV", size_of::<Segment>()),
    ];
    rows.extend(sizes.map(|(name, size)| (format!("sizeof({name})"), size as u64)));
    let pointers = (size_of::<Mgr>() - offset_of!(Mgr, ooo)) / size_of::<usize>();
    assert_eq!(pointers, OOO);
    rows.extend(slots());
    numbers! { rows:
        VERSION_NUM ARCH_NONE ARCH_SSE ARCH_AVX2 ARCH_AVX512 FLAG_SHANI_OFF FLAG_GFNI_OFF
        STATUS_BEING_PROCESSED STATUS_COMPLETED_CIPHER STATUS_COMPLETED_AUTH STATUS_COMPLETED
        STATUS_INVALID_ARGS STATUS_INTERNAL_ERROR DIR_ENCRYPT DIR_DECRYPT ORDER_CIPHER_HASH
        ORDER_HASH_CIPHER SGL_INIT SGL_UPDATE SGL_COMPLETE SGL_ALL
        CIPHER_CBC CIPHER_CNTR CIPHER_NULL CIPHER_GCM CIPHER_CCM CIPHER_CHACHA20_POLY1305
        CIPHER_CHACHA20_POLY1305_SGL CIPHER_GCM_SGL CIPHER_NUM
        AUTH_HMAC_SHA_1 AUTH_HMAC_SHA_224 AUTH_HMAC_SHA_256 AUTH_HMAC_SHA_384 AUTH_HMAC_SHA_512
        AUTH_AES_XCBC AUTH_MD5 AUTH_NULL AUTH_AES_GMAC AUTH_AES_CCM AUTH_AES_CMAC AUTH_AES_GMAC_128
        AUTH_AES_GMAC_192 AUTH_AES_GMAC_256 AUTH_AES_CMAC_256 AUTH_CHACHA20_POLY1305
        AUTH_CHACHA20_POLY1305_SGL AUTH_GCM_SGL AUTH_NUM
        FEATURE_SHANI FEATURE_AESNI FEATURE_PCLMULQDQ FEATURE_CMOV FEATURE_SSE4_2 FEATURE_AVX
        FEATURE_AVX2 FEATURE_AVX512F FEATURE_AVX512DQ FEATURE_AVX512CD FEATURE_AVX512BW
        FEATURE_AVX512VL FEATURE_VAES FEATURE_VPCLMULQDQ FEATURE_SAFE_DATA FEATURE_SAFE_PARAM
        FEATURE_GFNI FEATURE_AVX512_IFMA FEATURE_BMI2
        ERR_NULL_MBMGR ERR_JOB_NULL_SRC ERR_JOB_NULL_DST ERR_JOB_NULL_KEY ERR_JOB_NULL_IV
        ERR_JOB_NULL_AUTH ERR_JOB_NULL_AAD ERR_JOB_CIPH_LEN ERR_JOB_AUTH_LEN ERR_JOB_IV_LEN
        ERR_JOB_KEY_LEN ERR_JOB_AUTH_TAG_LEN ERR_JOB_AAD_LEN ERR_JOB_SRC_OFFSET ERR_JOB_CHAIN_ORDER
        ERR_CIPH_MODE ERR_HASH_ALGO ERR_JOB_NULL_AUTH_KEY ERR_JOB_NULL_SGL_CTX ERR_JOB_NULL_NEXT_IV
        ERR_JOB_PON_PLI ERR_NULL_SRC ERR_NULL_DST ERR_NULL_KEY ERR_NULL_EXP_KEY ERR_NULL_IV
        ERR_NULL_AUTH ERR_NULL_AAD ERR_CIPH_LEN ERR_AUTH_LEN ERR_IV_LEN ERR_KEY_LEN ERR_AUTH_TAG_LEN
        ERR_AAD_LEN ERR_SRC_OFFSET ERR_NULL_AUTH_KEY ERR_NULL_CTX ERR_JOB_NULL_HMAC_OPAD
        ERR_JOB_NULL_HMAC_IPAD ERR_JOB_NULL_XCBC_K1_EXP ERR_JOB_NULL_XCBC_K2 ERR_JOB_NULL_XCBC_K3
        ERR_JOB_CIPH_DIR ERR_JOB_NULL_GHASH_INIT_TAG ERR_MISSING_CPUFLAGS_INIT_MGR ERR_NULL_JOB
        ERR_QUEUE_SPACE ERR_NULL_BURST ERR_BURST_SIZE ERR_BURST_OOO ERR_SELFTEST
    }
    own(&mut rows);
    rows
}

#[cfg(abi_1)]
fn own(rows: &mut Vec<Row>) {
    numbers! { rows: ARCH_AVX FLAG_AESNI_OFF ERR_NO_AESNI_EMU }
}

#[cfg(not(abi_1))]
fn own(rows: &mut Vec<Row>) {
    fields! { rows, "IMB_MGR", Mgr: used_arch_type "used_arch_type" }
    numbers! { rows: ERR_BURST_SUITE_ID ERR_JOB_SGL_STATE }
}

/// The functions of the manager, one after another.
fn slots() -> Vec<Row> {
    let sizes = |name: &str| [128, 192, 256].map(|bits| name.replace('#', &bits.to_string()));
    let plain =
        |names: &str| -> Vec<String> { names.split_whitespace().map(str::to_owned).collect() };
    let mut names = plain(
        "get_next_job submit_job submit_job_nocheck get_completed_job flush_job queue_size keyexp_128 \
         keyexp_192 keyexp_256 cmac_subkey_gen_128 xcbc_keyexp des_key_sched sha1_one_block \
         sha224_one_block sha256_one_block sha384_one_block sha512_one_block md5_one_block sha1 \
         sha224 sha256 sha384 sha512 aes128_cfb_one",
    );
    for name in [
        "gcm#_enc",
        "gcm#_dec",
        "gcm#_init",
        "gcm#_enc_update",
        "gcm#_dec_update",
        "gcm#_enc_finalize",
        "gcm#_dec_finalize",
        "gcm#_precomp",
        "gcm#_pre",
    ] {
        names.extend(sizes(name));
    }
    names.extend(plain(
        "eea3_1_buffer eea3_4_buffer eea3_n_buffer eia3_1_buffer f8_1_buffer f8_1_buffer_bit f8_2_buffer \
         f8_3_buffer f8_4_buffer f8_n_buffer f9_1_buffer f9_1_buffer_user kasumi_init_f8_key_sched \
         kasumi_init_f9_key_sched kasumi_key_sched_size snow3g_f8_1_buffer_bit snow3g_f8_1_buffer \
         snow3g_f8_2_buffer snow3g_f8_4_buffer snow3g_f8_8_buffer snow3g_f8_n_buffer \
         snow3g_f8_8_buffer_multikey snow3g_f8_n_buffer_multikey snow3g_f9_1_buffer \
         snow3g_init_key_sched snow3g_key_sched_size ghash eia3_n_buffer",
    ));
    for name in ["gcm#_init_var_iv", "gmac#_init", "gmac#_update", "gmac#_finalize"] {
        names.extend(sizes(name));
    }
    names.extend(plain(
        "hec_32 hec_64 cmac_subkey_gen_256 ghash_pre crc32_ethernet_fcs crc16_x25 crc32_sctp crc24_lte_a \
         crc24_lte_b crc16_fp_data crc11_fp_header crc7_fp_header crc10_iuup_data crc6_iuup_header \
         crc32_wimax_ofdma_data crc8_wimax_ofdma_hcs chacha20_poly1305_init \
         chacha20_poly1305_enc_update chacha20_poly1305_dec_update chacha20_poly1305_finalize \
         get_next_burst submit_burst submit_burst_nocheck flush_burst submit_cipher_burst \
         submit_cipher_burst_nocheck submit_hash_burst submit_hash_burst_nocheck",
    ));
    assert_eq!(names.len() * size_of::<usize>(), size_of::<Functions>());
    if !cfg!(abi_1) {
        names.extend(plain(
            "aes256_cfb_one aes_ecb_128_quic aes_ecb_256_quic set_suite_id chacha20_poly1305_quic \
             chacha20_hp_quic sm4_keyexp self_test_cb_fn self_test_cb_arg submit_aead_burst \
             submit_aead_burst_nocheck",
        ));
    }
    let at = |i: usize| (offset_of!(Mgr, functions) + i * size_of::<usize>()) as u64;
    let row = |(i, name): (usize, String)| (format!("offsetof(IMB_MGR, {name})"), at(i));
    names.into_iter().enumerate().map(row).collect()
}

/// The folder of this version's header; none where there is none, which is said.
fn include() -> Option<PathBuf> {
    let named = std::env::var_os("CONVOY_IPSEC_MB_INCLUDE");
    let folder = named.map_or_else(|| PathBuf::from("/usr/include"), PathBuf::from);
    let text = fs::read_to_string(folder.join("intel-ipsec-mb.h"));
    let line = format!("#define IMB_VERSION_NUM 0x{VERSION_NUM:x}\n");
    if text.is_ok_and(|text| text.contains(&line)) {
        return Some(folder);
    }
    let (major, minor) = (VERSION_NUM >> 16, VERSION_NUM >> 8 & 0xff);
    let version = format!("{major}.{minor}.{}", VERSION_NUM & 0xff);
    eprintln!("SKIPPED: {} has no intel-ipsec-mb.h of version {version}", folder.display());
    None
}

#[test]
fn layouts_and_numbers_are_those_of_the_header() {
    let Some(include) = include() else { return };
    if !compiles(&include, "-DLINUX", &rows()) {
        return;
    }
    // Programs that do not define LINUX have key data of this size.
    compiles(&include, "-ULINUX", &[("sizeof(struct gcm_key_data)".into(), GCM_KEY_BYTES as u64)]);
}

/// Has a compiler of C compare; false where there is none, which is said.
fn compiles(include: &Path, option: &str, rows: &[Row]) -> bool {
    let mut program = "#include <stddef.h>\n#include <intel-ipsec-mb.h>\n".to_owned();
    for (expression, value) in rows {
        let line = format!("_Static_assert({expression} == {value}, \"{expression}\");\n");
        program.push_str(&line);
    }
    let compiler = Command::new("cc")
        .args([option, "-fsyntax-only", "-x", "c", "-", "-I"])
        .arg(include)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut compiler) = compiler else {
        eprintln!("SKIPPED: there is no compiler of C, cc");
        return false;
    };
    compiler.stdin.take().unwrap().write_all(program.as_bytes()).unwrap();
    let output = compiler.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    true
}
