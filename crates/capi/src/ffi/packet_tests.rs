//! Jobs of AEADs: with whole tags, which go straight into bursts, and with shorter ones, which do not.

// C has no such thing as a single unsafe operation: a sequence of calls is what is tested.
#![allow(clippy::multiple_unsafe_ops_per_block)]

use std::ptr;

use crate::{
    ffi::*,
    types::{
        AeadKey, AesDecKey, AesEncKey, CONVOY_CIPHER_AEAD, CONVOY_DIRECTION_DECRYPT,
        CONVOY_DIRECTION_ENCRYPT, CONVOY_ERR_ARGS, CONVOY_HASH_AES_CMAC, CONVOY_MAX_BYTES,
        CONVOY_OK, CONVOY_STATUS_COMPLETED, CONVOY_STATUS_INVALID_ARGS, CONVOY_TIER_AUTO,
        CONVOY_TIER_PORTABLE, Job,
    },
};

/// Bytes of a packet's memory.
const ROOM: usize = 400;

/// A manager and keys of the three AEADs, freed at the end.
struct Library {
    mgr: *mut Mgr,
    keys: [*mut AeadKey; 3],
}

impl Library {
    fn new(tier: i32) -> Self {
        let (mut mgr, mut keys) = (ptr::null_mut(), [ptr::null_mut(); 3]);
        let secret = [3u8; 32];
        // SAFETY: pointers are to locals of the right size.
        unsafe {
            assert_eq!(convoy_mgr_new(tier, &raw mut mgr), CONVOY_OK);
            let key = secret.as_ptr();
            assert_eq!(convoy_gcm_key_new(tier, key, 16, &raw mut keys[0]), CONVOY_OK);
            assert_eq!(convoy_gmac_key_new(tier, key, 32, &raw mut keys[1]), CONVOY_OK);
            assert_eq!(convoy_chacha20_poly1305_key_new(tier, key, &raw mut keys[2]), CONVOY_OK);
        }
        Self { mgr, keys }
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: made above, and freed once.
        unsafe { convoy_mgr_free(self.mgr) };
        // SAFETY: as above.
        self.keys.into_iter().for_each(|key| unsafe { convoy_aead_key_free(key) });
    }
}

/// A packet's memory: additional data of 12 bytes, text from byte 20 on.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Packet {
    src: [u8; ROOM],
    dst: [u8; ROOM],
    iv: [u8; 12],
    tag: [u8; 16],
}

impl Packet {
    fn new(number: usize) -> Self {
        let byte = |i: usize| (i * 7 + number) as u8;
        let (src, iv) = (std::array::from_fn(byte), std::array::from_fn(byte));
        Self { src, dst: [0xaa; ROOM], iv, tag: [0xbb; 16] }
    }

    /// A job on it, every third one out of place, with a tag of so many bytes.
    fn job(&mut self, number: usize, len: usize, tag_len: usize, key: *const AeadKey) -> Job {
        let dst = if number.is_multiple_of(3) { &mut self.dst } else { &mut self.src };
        let mut job = Job {
            dst: dst.as_mut_ptr(),
            cipher_offset: 20,
            cipher_len: len,
            iv: self.iv.as_ptr(),
            iv_len: 12,
            aad_len: if number.is_multiple_of(5) { 0 } else { 12 },
            tag: self.tag.as_mut_ptr(),
            tag_len,
            cipher_mode: CONVOY_CIPHER_AEAD,
            cipher_direction: [CONVOY_DIRECTION_ENCRYPT, CONVOY_DIRECTION_DECRYPT][number % 2],
            ..Job::default()
        };
        job.src = if number.is_multiple_of(3) { self.src.as_ptr() } else { dst.as_ptr() };
        job.aad = if job.aad_len == 0 { ptr::null() } else { job.src };
        job.cipher_key.aead = key;
        job
    }
}

/// Ways in which jobs are submitted.
#[derive(Clone, Copy, Debug)]
enum Call {
    Jobs,
    UncheckedJobs,
    Burst,
    UncheckedBurst,
}

impl Call {
    const ALL: [Self; 4] = [Self::Jobs, Self::UncheckedJobs, Self::Burst, Self::UncheckedBurst];

    /// Submits all jobs; they end up as they came back.
    fn submit(self, mgr: *mut Mgr, jobs: &mut [Job]) {
        let (first, count) = (jobs.as_mut_ptr(), jobs.len());
        let mut back = Vec::new();
        // SAFETY: tests promise what a C program would, but for what they try out.
        unsafe {
            match self {
                Self::Burst => drop(convoy_submit_burst(mgr, first, count)),
                Self::UncheckedBurst => drop(convoy_submit_burst_nocheck(mgr, first, count)),
                Self::Jobs | Self::UncheckedJobs => {
                    for job in &*jobs {
                        *convoy_get_next_job(mgr) = *job;
                        let done = match self {
                            Self::Jobs => convoy_submit_job(mgr),
                            _ => convoy_submit_job_nocheck(mgr),
                        };
                        back.extend(done.as_ref().copied());
                    }
                    while let Some(done) = convoy_flush_job(mgr).as_ref() {
                        back.push(*done);
                    }
                    jobs.copy_from_slice(&back);
                }
            }
        }
    }
}

#[test]
fn whole_tags_and_short_ones_agree_in_every_way_of_submitting() {
    let lens = [0, 1, 15, 16, 17, 64, 100, 256, 300, 380];
    for tier in [CONVOY_TIER_AUTO, CONVOY_TIER_PORTABLE] {
        let library = Library::new(tier);
        let run = |way: Call, tag_len| {
            let mut packets: Vec<_> = (0..150).map(Packet::new).collect();
            let jobs = packets.iter_mut().enumerate().map(|(number, packet)| {
                packet.job(number, lens[number / 3 % 10], tag_len, library.keys[number % 7 % 3])
            });
            let mut jobs: Vec<_> = jobs.collect();
            way.submit(library.mgr, &mut jobs);
            assert!(jobs.iter().all(|job| job.status == CONVOY_STATUS_COMPLETED), "{way:?}");
            packets
        };
        let mut short = run(Call::Burst, 12);
        assert!(short.iter().all(|packet| packet.tag[12..] == [0xbb; 4]));
        for way in Call::ALL {
            let whole = run(way, 16);
            for (whole, short) in whole.iter().zip(&mut short) {
                short.tag[12..].copy_from_slice(&whole.tag[12..]);
            }
            assert_eq!(whole, short, "{way:?}");
        }
    }
}

#[test]
fn jobs_come_back_in_order_whatever_way_they_take() {
    let library = Library::new(CONVOY_TIER_AUTO);
    let mut packets: Vec<_> = (0..100).map(Packet::new).collect();
    let jobs = packets.iter_mut().enumerate().map(|(number, packet)| {
        // The first go into a burst, the second do not, the third are invalid.
        let tag_len = [16, 12, 3][number % 3];
        let job = packet.job(number, 50, tag_len, library.keys[0]);
        Job { user_data: ptr::without_provenance_mut(number), ..job }
    });
    let jobs: Vec<_> = jobs.collect();
    for way in Call::ALL {
        let mut jobs = jobs.clone();
        way.submit(library.mgr, &mut jobs);
        for (number, job) in jobs.iter().enumerate() {
            let status =
                if number % 3 == 2 { CONVOY_STATUS_INVALID_ARGS } else { CONVOY_STATUS_COMPLETED };
            assert_eq!((job.user_data.addr(), job.status), (number, status), "{way:?}");
        }
    }
}

#[test]
fn every_wrong_packet_is_refused_and_nothing_of_it_touched() {
    let library = Library::new(CONVOY_TIER_AUTO);
    let (mut packet, fresh) = (Packet::new(0), Packet::new(0));
    // Encrypting, out of place, with additional data at the front of the source.
    let key = library.keys[0];
    let job = packet.job(6, 100, 16, key);
    let far = ptr::without_provenance_mut::<u8>(usize::MAX - 40);
    let mut other = [job];
    let key_memory = key.cast::<u8>();
    let wrong = [
        ("no direction", Job { cipher_direction: 0, ..job }),
        ("unknown direction", Job { cipher_direction: 3, ..job }),
        ("a hash", Job { hash_alg: CONVOY_HASH_AES_CMAC, ..job }),
        ("unknown order", Job { chain_order: 2, ..job }),
        ("a trailer", Job { trailer: job.iv, trailer_len: 4, ..job }),
        ("no iv", Job { iv_len: 0, ..job }),
        ("null iv, to be hashed", Job { iv: ptr::null(), iv_len: 16, ..job }),
        ("tag in such an iv", Job { iv_len: 16, iv: job.tag.wrapping_sub(8), ..job }),
        ("tag too short beside one", Job { iv_len: 16, tag_len: 3, ..job }),
        ("a hash beside one", Job { iv_len: 16, hash_alg: CONVOY_HASH_AES_CMAC, ..job }),
        ("no direction beside one", Job { iv_len: 16, cipher_direction: 0, ..job }),
        ("null dst beside one", Job { iv_len: 16, dst: ptr::null_mut(), ..job }),
        ("absurd iv", Job { iv_len: usize::MAX, ..job }),
        ("tag too long", Job { tag_len: 17, ..job }),
        ("null src", Job { src: ptr::null(), ..job }),
        ("null dst", Job { dst: ptr::null_mut(), ..job }),
        ("null iv", Job { iv: ptr::null(), ..job }),
        ("null tag", Job { tag: ptr::null_mut(), ..job }),
        ("null aad", Job { aad: ptr::null(), ..job }),
        ("src at the end of memory", Job { src: far, ..job }),
        ("dst at the end of memory", Job { dst: far, ..job }),
        ("tag at the end of memory", Job { tag: far.wrapping_add(30), ..job }),
        ("aad at the end of memory", Job { aad: far.wrapping_add(30), ..job }),
        ("absurd length", Job { cipher_len: usize::MAX - 10, ..job }),
        ("absurd offset", Job { cipher_offset: usize::MAX - 110, ..job }),
        ("absurd aad", Job { aad_len: usize::MAX / 2, ..job }),
        ("beyond the limit", Job { cipher_offset: CONVOY_MAX_BYTES - 99, ..job }),
        ("dst within src", Job { dst: job.src.cast_mut().wrapping_add(99), ..job }),
        ("src within dst", Job { src: job.dst.wrapping_add(99), ..job }),
        ("tag in dst", Job { tag: job.dst.wrapping_add(20 + 99), ..job }),
        ("tag in src", Job { tag: job.src.cast_mut().wrapping_add(5), ..job }),
        ("tag in aad", Job { tag: job.src.cast_mut().wrapping_add(11), ..job }),
        ("text in aad", Job { aad: job.dst.wrapping_add(9), ..job }),
        ("tag in the iv", Job { iv: job.tag, ..job }),
        ("tag in the key", Job { tag: key_memory, ..job }),
        ("text in the key", Job { dst: key_memory.wrapping_sub(20), ..job }),
        ("tag in the jobs", Job { tag: other.as_mut_ptr().cast::<u8>().wrapping_add(8), ..job }),
        ("text in the jobs", Job { dst: other.as_mut_ptr().cast::<u8>(), ..job }),
    ];
    for (what, wrong) in wrong {
        other[0] = wrong;
        // SAFETY: wrong pointers are what is tried out.
        assert_eq!(unsafe { convoy_submit_burst(library.mgr, other.as_mut_ptr(), 1) }, 0, "{what}");
        assert_eq!(other[0].status, CONVOY_STATUS_INVALID_ARGS, "{what}");
        assert_eq!(packet, fresh, "{what}");
    }
    other[0] = job;
    // SAFETY: a good job.
    assert_eq!(unsafe { convoy_submit_burst(library.mgr, other.as_mut_ptr(), 1) }, 1);
    assert!(
        packet.src == fresh.src && packet.dst[20..120] != [0xaa; 100] && packet.tag != fresh.tag
    );
    assert!(packet.dst[..20] == [0xaa; 20] && packet.dst[120..] == [0xaa; ROOM - 120]);
}

#[test]
fn what_lies_between_text_and_tag_may_be_the_key() {
    // One piece of memory with a text in front, a tag behind, and the jobs between them.
    #[repr(C)]
    struct Memory {
        front: [u8; 64],
        jobs: [Job; 1],
        behind: [u8; 64],
    }
    let library = Library::new(CONVOY_TIER_AUTO);
    let packet = Packet::new(0);
    let mut seen = Vec::new();
    for turned in [false, true] {
        let (front, behind) = ([1; 64], [1; 64]);
        let mut memory = Box::new(Memory { front, jobs: [Job::default()], behind });
        let first = &raw mut *memory;
        // SAFETY: fields of what was just made.
        let parts = unsafe { (&raw mut (*first).front, &raw mut (*first).behind) };
        let (text, tag) = if turned { (parts.1, parts.0) } else { parts };
        let mut job = Packet::new(0).job(2, 50, 16, library.keys[0]);
        (job.src, job.dst, job.cipher_offset) = (text.cast(), text.cast(), 0);
        (job.tag, job.iv, job.aad_len) = (tag.cast(), packet.iv.as_ptr(), 0);
        // SAFETY: the job and all that it points to are there, and nothing overlaps.
        unsafe {
            let jobs = (&raw mut (*first).jobs).cast::<Job>();
            jobs.write(job);
            assert_eq!(convoy_submit_burst(library.mgr, jobs, 1), 1);
            seen.push((*text, *tag));
        }
    }
    assert!(seen[0] == seen[1] && seen[0].0[..50] != [1; 50]);
}

#[test]
fn a_checked_job_is_checked_among_others_that_are_not() {
    let library = Library::new(CONVOY_TIER_AUTO);
    let mut packets: Vec<_> = (0..3).map(Packet::new).collect();
    let jobs: Vec<_> =
        packets.iter_mut().map(|packet| packet.job(2, 50, 16, library.keys[0])).collect();
    let mut statuses = Vec::new();
    // SAFETY: two good jobs that nobody checks, and one whose tag is in its text, which is refused.
    unsafe {
        for (number, job) in jobs.into_iter().enumerate() {
            *convoy_get_next_job(library.mgr) = job;
            if number == 1 {
                let lent = convoy_get_next_job(library.mgr);
                *lent = Job { tag: job.dst.wrapping_add(30), ..job };
                // What a caller writes there says nothing.
                (*lent).reserved[0] = 1;
                assert!(convoy_submit_job(library.mgr).is_null());
            } else {
                assert!(convoy_submit_job_nocheck(library.mgr).is_null());
            }
        }
        while let Some(job) = convoy_flush_job(library.mgr).as_ref() {
            statuses.push(job.status);
        }
        assert!(convoy_submit_job_nocheck(library.mgr).is_null(), "none was lent");
        assert!(convoy_submit_job_nocheck(ptr::null_mut()).is_null());
        assert!(convoy_submit_burst_nocheck(ptr::null_mut(), ptr::null_mut(), 1) < 0);
    }
    let (good, bad) = (CONVOY_STATUS_COMPLETED, CONVOY_STATUS_INVALID_ARGS);
    assert_eq!(statuses, [good, bad, good]);
    assert_eq!(packets[1], Packet::new(1));
}

#[test]
fn keys_of_other_kinds_are_no_aead_keys() {
    let library = Library::new(CONVOY_TIER_AUTO);
    let zeroed = |_| std::mem::MaybeUninit::<AesEncKey>::zeroed();
    let (mut enc, mut dec) = (zeroed(()), std::mem::MaybeUninit::<AesDecKey>::zeroed());
    let mut packet = Packet::new(0);
    let wrong: *const AeadKey = enc.as_ptr().cast();
    // SAFETY: all pointers are to locals of the right size, but for the kind of key, which is tried out.
    unsafe {
        let secret = [1u8; 16];
        let code = convoy_aes_keyexp_128(secret.as_ptr(), enc.as_mut_ptr(), dec.as_mut_ptr());
        assert_eq!(code, CONVOY_OK);
        for tag_len in [12, 16] {
            let mut job = packet.job(2, 50, tag_len, wrong);
            assert_eq!(convoy_submit_burst(library.mgr, &raw mut job, 1), 0);
            assert_eq!(job.status, CONVOY_STATUS_INVALID_ARGS);
            let (iv, text, tag) = (job.iv, job.dst, job.tag);
            let code = convoy_aead_encrypt(wrong, iv, ptr::null(), 0, text, text, 50, tag, tag_len);
            assert_eq!(code, CONVOY_ERR_ARGS);
        }
        let (iv, none, mut stream) = (packet.iv.as_ptr(), ptr::null(), ptr::null_mut());
        let code =
            convoy_aead_init(wrong, CONVOY_DIRECTION_ENCRYPT, iv, 12, none, 0, &raw mut stream);
        assert_eq!((code, stream), (CONVOY_ERR_ARGS, ptr::null_mut()));
    }
    assert_eq!(packet, Packet::new(0));
}
