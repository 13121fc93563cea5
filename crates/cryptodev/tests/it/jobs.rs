//! Jobs at random, and what software makes of them.

use std::sync::Arc;

use convoy_crypto::{Cpu, KeyMaterial, Nonce, OpenKey, OpenNonce, SealKey, SecretBytes, Suite};
use convoy_engine::lookaside::run_copy;
use convoy_engine::{Context, EngineKey, Job, KeyId, Op, Span, Status};
use convoy_packet::{Arena, FrameSize, Pool};

/// Bytes in front of the text that nothing covers, in packets of a pair with more behind them.
const FRONT: u32 = 20;
/// The ESP header and an IV, which a MAC covers.
const HEADER: u32 = 24;

pub(crate) fn arena() -> &'static Arena {
    Arena::map(4096, FrameSize::for_packet(1500)).unwrap()
}

/// xorshift64 (Marsaglia 2003).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

/// Both keys of a suite.
pub(crate) struct Keys {
    suite: Suite,
    pub(crate) seal: EngineKey,
    pub(crate) open: EngineKey,
}

impl Keys {
    pub(crate) fn new(suite: Suite, mark: u8) -> Self {
        let cpu = Cpu::detect().unwrap();
        let material = || KeyMaterial {
            cipher: SecretBytes::copy_from(&vec![mark; suite.key_bytes()]),
            integrity: SecretBytes::copy_from(&vec![mark ^ 0x55; suite.integrity_key_bytes()]),
        };
        let seal = SealKey::keeping(&cpu, suite, material()).unwrap();
        let open = OpenKey::keeping(&cpu, suite, material()).unwrap();
        Self { suite, seal: EngineKey::Seal(Arc::new(seal)), open: EngineKey::Open(Arc::new(open)) }
    }

    /// Seals a packet of random length, or opens one that software has sealed.
    pub(crate) fn job(&self, pool: &mut Pool, number: u64, random: &mut Random) -> Job {
        let is_aead = self.suite.is_aead();
        let esn = random.below(2) == 0;
        let aad_len = match (is_aead, esn) {
            (true, true) => 12,
            (true, false) => 8,
            (false, true) => 4,
            (false, false) => 0,
        };
        let header = if is_aead { 0 } else { HEADER };
        let text = 16 * (random.below(88) as usize + 1);
        let icv = self.suite.icv_bytes();
        let mut packet: Vec<u8> =
            (0..FRONT as usize + header as usize + text).map(|_| random.below(256) as u8).collect();
        packet.resize(packet.len() + icv, 0);
        let mut bytes = [0; 16];
        bytes[4..12].copy_from_slice(&number.to_be_bytes());
        let nonce = self.suite.nonce_bytes() as u8;
        let mut frame = pool.alloc().unwrap();
        frame.fill_from(&packet).unwrap();
        let mut job = Job {
            text: Span { start: FRONT + header, len: text as u32 },
            header,
            aad_len,
            aad: [number as u8; 20],
            op: Op::Seal(Nonce::front(bytes, nonce)),
            context: Context { slot: 0, note: 0, value: number },
            ..Job::idle(frame)
        };
        if random.below(2) == 0 {
            return job;
        }
        let (status, mut sealed) = in_software(&self.seal, &job);
        assert_eq!(status, Status::Done);
        if random.below(5) == 0 {
            let at = FRONT as usize + random.below((sealed.len() - FRONT as usize) as u64) as usize;
            sealed[at] ^= 1 << random.below(8);
        }
        job.frame.data_mut().copy_from_slice(&sealed);
        job.op = Op::Open(OpenNonce::front(bytes, nonce));
        job.key = KeyId(1);
        job
    }
}

pub(crate) fn in_software(key: &EngineKey, job: &Job) -> (Status, Vec<u8>) {
    let mut packet = job.frame.data().to_vec();
    let status = run_copy(key, job, &mut packet);
    (status, packet)
}
