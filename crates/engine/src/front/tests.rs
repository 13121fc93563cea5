//! Tests of the front end's promises, with an engine that a test drives by hand, and with one that lies.

mod faults;
mod hand;

use std::sync::Arc;

use convoy_crypto::{Cpu, KeyMaterial, Nonce, OpenKey, SealKey, SecretBytes, Suite};
use convoy_packet::{Arena, FrameSize, Pool};

use crate::{Context, EngineKey, Job, KeyId, Op, Span, Status};

/// A suite, with where its parts lie in the packets of these tests.
#[derive(Clone, Copy)]
pub(in crate::front) struct Form {
    suite: &'static str,
    cipher: usize,
    integrity: usize,
    nonce: u8,
    header: u32,
    aad: u8,
    icv: usize,
}

pub(in crate::front) const FORMS: [Form; 2] = [
    Form {
        suite: "aes-128-gcm-16",
        cipher: 16,
        integrity: 0,
        nonce: 12,
        header: 0,
        aad: 8,
        icv: 16,
    },
    Form {
        suite: "aes-128-cbc+hmac-sha1-96",
        cipher: 16,
        integrity: 20,
        nonce: 16,
        header: 8,
        aad: 4,
        icv: 12,
    },
];

/// Bytes in front of the text in these tests.
const FRONT: u32 = 10;

impl Form {
    /// Its keys for both ways; `mark` makes them differ from others.
    pub(in crate::front) fn keys(self, mark: u8) -> (EngineKey, EngineKey) {
        let cpu = Cpu::detect().unwrap();
        let suite: Suite = self.suite.parse().unwrap();
        let material = || KeyMaterial {
            cipher: SecretBytes::copy_from(&vec![mark; self.cipher]),
            integrity: SecretBytes::copy_from(&vec![mark ^ 0x55; self.integrity]),
        };
        let seal = SealKey::new(&cpu, suite, material()).unwrap();
        let open = OpenKey::new(&cpu, suite, material()).unwrap();
        (EngineKey::Seal(Arc::new(seal)), EngineKey::Open(Arc::new(open)))
    }

    /// A job that seals `blocks` blocks under the nonce made of `number`.
    pub(in crate::front) fn seal(
        self,
        pool: &mut Pool,
        key: u32,
        number: u64,
        blocks: usize,
    ) -> Job {
        let (text, icv) = (blocks * 16, self.icv);
        let mut packet = vec![number as u8; FRONT as usize + text];
        packet.iter_mut().zip((0_u8..=255).cycle()).for_each(|(byte, n)| *byte ^= n);
        packet.resize(packet.len() + icv, 0);
        let op = Op::Seal(Nonce::front(Self::nonce_bytes(number), self.nonce));
        self.job(pool, key, number, op, &packet)
    }

    /// A job that opens what such a job has sealed.
    fn open(self, pool: &mut Pool, key: u32, number: u64, packet: &[u8]) -> Job {
        let nonce = convoy_crypto::OpenNonce::front(Self::nonce_bytes(number), self.nonce);
        self.job(pool, key, number, Op::Open(nonce), packet)
    }

    fn nonce_bytes(number: u64) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[4..12].copy_from_slice(&number.to_be_bytes());
        bytes
    }

    fn job(self, pool: &mut Pool, key: u32, number: u64, op: Op, packet: &[u8]) -> Job {
        let mut frame = pool.alloc().unwrap();
        frame.fill_from(packet).unwrap();
        Job {
            text: Span { start: FRONT, len: (packet.len() - FRONT as usize - self.icv) as u32 },
            key: KeyId(key),
            header: self.header,
            aad_len: self.aad,
            aad: [number as u8; 20],
            op,
            context: Context { slot: key, note: !key, value: number },
            ..Job::idle(frame)
        }
    }
}

/// Status and packet that software makes of a job.
fn in_software(key: &EngineKey, job: &Job) -> (Status, Vec<u8>) {
    let mut packet = job.frame.data().to_vec();
    let status = crate::inline::run_copy(key, job, &mut packet);
    (status, packet)
}

pub(in crate::front) fn arena(frames: u32) -> &'static Arena {
    Arena::map(frames, FrameSize::for_packet(1500)).unwrap()
}

/// Nothing was lost: every frame is back.
fn assert_all_back(pool: Pool) {
    let arena = pool.arena();
    drop(pool);
    assert_eq!((arena.leaked(), arena.in_depot()), (0, arena.frames() as usize));
}
