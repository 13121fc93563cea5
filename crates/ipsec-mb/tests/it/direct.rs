//! Direct calls.

use stand_in::types::*;

use crate::{library::Library, suites::Aligned};

/// A message through the direct calls of one library: whole, in parts, and authenticated alone.
fn gcm(library: &Library, bits: usize, seal: bool, text: &[u8], shift: usize) -> [Vec<u8>; 3] {
    let f = library.functions();
    let secret: Vec<u8> = (0..32).map(|i| i * 5 + 1).collect();
    let mut data = Aligned([0u8; 1280 + 64]);
    let key = data.0[shift..].as_mut_ptr().cast();
    // SAFETY: there is room for key data, wherever it lies.
    unsafe { f.gcm_pre[bits].unwrap()(secret.as_ptr().cast(), key) };
    let (iv, aad) = ([9u8; 12], [3u8; 21]);
    // Programs have it anywhere, too.
    let mut context = Aligned([0u8; 88 + 24]);
    let mut whole = vec![0; text.len() + 16];
    let (out, tag) = whole.split_at_mut(text.len());
    let run = if seal { f.gcm_enc[bits] } else { f.gcm_dec[bits] }.unwrap();
    let ctx = context.0[shift / 8..].as_mut_ptr().cast::<GcmContext>();
    let len = text.len() as u64;
    let (iv_at, aad_at) = (iv.as_ptr(), aad.as_ptr());
    // SAFETY: all lengths are right.
    unsafe {
        run(
            key,
            ctx,
            out.as_mut_ptr(),
            text.as_ptr(),
            len,
            iv_at,
            aad_at,
            21,
            tag.as_mut_ptr(),
            16,
        );
    }
    let mut parts = vec![0; text.len() + 16];
    let (out, tag) = parts.split_at_mut(text.len());
    // SAFETY: as above.
    unsafe { f.gcm_init[bits].unwrap()(key, ctx, iv_at, aad_at, 21) };
    let update = if seal { f.gcm_enc_update[bits] } else { f.gcm_dec_update[bits] }.unwrap();
    let steps = [1, 15, 16, 40, 7, 300];
    let (mut at, mut step) = (0, steps.iter().cycle());
    while at < text.len() {
        let len = (*step.next().unwrap()).min(text.len() - at);
        // SAFETY: as above.
        unsafe { update(key, ctx, out[at..].as_mut_ptr(), text[at..].as_ptr(), len as u64) };
        at += len;
    }
    let end = if seal { f.gcm_enc_finalize[bits] } else { f.gcm_dec_finalize[bits] }.unwrap();
    // SAFETY: as above.
    unsafe { end(key, ctx, tag.as_mut_ptr(), 16) };
    let mut mac = vec![0; 12];
    // SAFETY: as above.
    unsafe { f.gmac_init[bits].unwrap()(key, ctx, text.as_ptr(), text.len().clamp(1, 40) as u64) };
    for part in text.chunks(33) {
        let (src, len) = (part.as_ptr(), part.len() as u64);
        // SAFETY: as above.
        unsafe { f.gmac_update[bits].unwrap()(key, ctx, src, len) };
    }
    // SAFETY: as above.
    unsafe { f.gmac_finalize[bits].unwrap()(key, ctx, mac.as_mut_ptr(), 12) };
    [whole, parts, mac]
}

#[test]
fn gcm_and_gmac_are_the_peer_s() {
    let (ours, peer) = (Library::ours(), Library::peer());
    let text: Vec<u8> = (0..3000u32).map(|i| (i * i / 7) as u8).collect();
    for bits in 0..3 {
        for len in [0, 1, 15, 16, 17, 64, 100, 128, 600, 1500, 3000] {
            // The IV of GMAC is of the text.
            let text = &text[..len];
            for seal in [true, false] {
                let mine = gcm(&ours, bits, seal, text, 0);
                let [whole, parts, _] = &mine;
                assert_eq!(whole, parts, "{len} bytes");
                assert_eq!(mine, gcm(&ours, bits, seal, text, 24), "key data anywhere");
                if len > 0
                    && let Some(peer) = &peer
                {
                    assert_eq!(mine, gcm(peer, bits, seal, text, 0), "{len} bytes, {bits}");
                }
            }
        }
    }
}

/// Programs have other things behind key data, which is shorter where they do not define `LINUX`.
#[test]
fn key_data_ends_where_the_header_says() {
    let f = *Library::ours().functions();
    for (bits, shift) in [(0, 0), (1, 8), (2, 64), (2, 16)] {
        let mut room = Aligned([0xa5u8; 1408]);
        let data = room.0[shift..].as_mut_ptr().cast();
        // SAFETY: there is room for the key and for key data.
        unsafe { f.gcm_pre[bits].unwrap()([7u8; 32].as_ptr().cast(), data) };
        let behind = &room.0[shift + GCM_KEY_BYTES..];
        assert!(behind.iter().all(|byte| *byte == 0xa5), "{bits} {shift}");
    }
}

fn chacha(library: &Library, seal: bool, text: &[u8], steps: &[usize]) -> Vec<u8> {
    let f = library.functions();
    let (secret, iv, aad) = ([7u8; 32], [8u8; 12], [9u8; 19]);
    // Anywhere, as programs have it.
    let mut context = Aligned([0u8; 192 + 1]);
    let (key, ctx) = (secret.as_ptr().cast(), context.0[1..].as_mut_ptr().cast::<ChaChaContext>());
    let mut out = vec![0; text.len() + 16];
    // SAFETY: all lengths are right.
    unsafe { f.chacha_init.unwrap()(key, ctx, iv.as_ptr().cast(), aad.as_ptr().cast(), 19) };
    let update = if seal { f.chacha_enc_update } else { f.chacha_dec_update }.unwrap();
    let (mut at, mut step) = (0, steps.iter().cycle());
    while at < text.len() {
        let len = (*step.next().unwrap()).min(text.len() - at);
        let (dst, src) = (out[at..].as_mut_ptr().cast(), text[at..].as_ptr().cast());
        // SAFETY: as above.
        unsafe { update(key, ctx, dst, src, len as u64) };
        at += len;
    }
    let tag = out[text.len()..].as_mut_ptr().cast();
    // SAFETY: as above.
    unsafe { f.chacha_finalize.unwrap()(ctx, tag, 16) };
    out
}

#[test]
fn chacha20_poly1305_is_the_peer_s() {
    let (ours, peer) = (Library::ours(), Library::peer());
    let text: Vec<u8> = (0..5000u32).map(|i| (i * i / 7) as u8).collect();
    for len in [0, 1, 15, 16, 17, 63, 64, 65, 100, 600, 1500, 5000] {
        for seal in [true, false] {
            let whole = chacha(&ours, seal, &text[..len], &[usize::MAX]);
            assert_eq!(whole, chacha(&ours, seal, &text[..len], &[3, 64, 1200, 1]), "{len} bytes");
            if let Some(peer) = &peer {
                assert_eq!(whole, chacha(peer, seal, &text[..len], &[usize::MAX]), "{len} bytes");
            }
        }
    }
}

#[test]
fn keys_of_hmac_are_the_peer_s() {
    let (ours, peer) = (Library::ours(), Library::peer());
    let key: Vec<u8> = (0..200).collect();
    let values = |library: &Library, hash, len| {
        let mut out = [[0u8; 64]; 2];
        let [ipad, opad] = &mut out;
        let (ipad, opad) = (ipad.as_mut_ptr().cast(), opad.as_mut_ptr().cast());
        let expand = library.ipad_opad()?;
        // SAFETY: there is room for each.
        unsafe { expand(library.mgr(), hash, key.as_ptr().cast(), len, ipad, opad) };
        Some((out, library.errno()))
    };
    for hash in (AUTH_HMAC_SHA_1..=AUTH_HMAC_SHA_512).chain([AUTH_MD5]) {
        for len in [0, 1, 20, 64, 65, 128, 129, 200] {
            let Some(mine) = values(&ours, hash, len) else {
                assert!(!ours.has_sessions(), "version 2 makes them");
                continue;
            };
            assert_eq!(mine.1, if hash == AUTH_MD5 && len > 64 { ERR_KEY_LEN } else { 0 });
            if let Some(theirs) = peer.as_ref().and_then(|peer| values(peer, hash, len)) {
                assert_eq!(mine.0, theirs.0, "hash {hash}, {len} bytes");
            }
        }
    }
}

/// A job over parts of a message, done when it is submitted.
fn submit(library: &Library, job: Job) {
    let f = library.functions();
    // SAFETY: the manager is there. Version 1 has the same fields in front, and room for no others.
    let lent = unsafe { f.get_next_job.unwrap()(library.mgr()) };
    // SAFETY: the library lends it.
    unsafe { std::ptr::copy_nonoverlapping((&raw const job).cast::<u8>(), lent.cast(), 200) };
    // SAFETY: the job is good.
    let back = unsafe { f.submit_job.unwrap()(library.mgr()) };
    assert_eq!(back, lent);
    // SAFETY: it was handed back.
    assert_eq!(unsafe { (*back).status }, STATUS_COMPLETED);
}

/// A message through jobs over its parts: one job for each, or one for all.
fn in_parts(library: &Library, gcm: bool, text: &[u8], one_job: bool) -> Vec<u8> {
    let (secret, iv, aad) = ([7u8; 32], [8u8; 12], [9u8; 19]);
    let mut data = Aligned([0u8; 1280]);
    // SAFETY: there is room for key data.
    unsafe {
        library.functions().gcm_pre[2].unwrap()(secret.as_ptr().cast(), data.0.as_mut_ptr().cast());
    }
    // Anywhere, as a driver of DPDK has it.
    let mut context = Aligned([0u8; 192 + 4]);
    let mut out = vec![0; text.len() + 16];
    let key = if gcm { data.0.as_ptr() } else { secret.as_ptr() };
    let mut job = Job::EMPTY;
    (job.enc_keys, job.dec_keys, job.key_len) = (key.cast(), key.cast(), 32);
    (job.iv, job.iv_len, job.cipher_direction) = (iv.as_ptr(), 12, DIR_ENCRYPT);
    (job.cipher_mode, job.hash_alg) = match gcm {
        true => (CIPHER_GCM_SGL, AUTH_GCM_SGL),
        false => (CIPHER_CHACHA20_POLY1305_SGL, AUTH_CHACHA20_POLY1305_SGL),
    };
    job.chain_order = ORDER_CIPHER_HASH;
    let context = context.0[4..].as_mut_ptr().expose_provenance();
    job.u = [aad.as_ptr().expose_provenance(), aad.len(), context];
    let (body, tag) = out.split_at_mut(text.len());
    (job.tag, job.tag_len) = (tag.as_mut_ptr(), 16);
    let mut segments = Vec::new();
    for (src, dst) in text.chunks(100).zip(body.chunks_mut(100)) {
        let (len, dst) = (src.len() as u64, dst.as_mut_ptr());
        segments.push(Segment { src: src.as_ptr(), dst, len });
    }
    if one_job {
        job.sgl_state = SGL_ALL;
        job.src = segments.as_ptr().cast();
        job.dst = std::ptr::without_provenance_mut(segments.len());
        submit(library, job);
        return out;
    }
    submit(library, Job { sgl_state: SGL_INIT, ..job });
    for Segment { src, dst, len } in segments {
        let (cipher_len, hash_len) = (len, len);
        submit(library, Job { sgl_state: SGL_UPDATE, src, dst, cipher_len, hash_len, ..job });
    }
    submit(library, Job { sgl_state: SGL_COMPLETE, ..job });
    out
}

#[test]
fn jobs_over_parts_are_the_peer_s() {
    let (ours, peer) = (Library::ours(), Library::peer());
    let text: Vec<u8> = (0..1234u32).map(|i| (i * i / 7) as u8).collect();
    for gcm in [true, false] {
        for len in [0, 1, 100, 150, 1234] {
            let all = in_parts(&ours, gcm, &text[..len], true);
            assert_eq!(all, in_parts(&ours, gcm, &text[..len], false), "{len} bytes");
            if let Some(peer) = &peer {
                assert_eq!(all, in_parts(peer, gcm, &text[..len], true), "{len} bytes");
            }
        }
    }
}
