//! Cycles of the crypto library alone for a burst.

use std::hint::black_box;

use arrayvec::ArrayVec;
use convoy_crypto::{Nonce, OpenOp, SealOp, Suite, Verdict, open_burst, seal_burst, time_stamp};
use convoy_packet::{BURST_MAX, Burst, Pool};

use super::site::Site;
use super::traffic::Traffic;
use crate::mix::Numbers;
use crate::suite::{Layout as _, aad_bytes};

/// Seals and opens bursts under the keys of a [`Site`] with no pipeline around: in frames of the
/// same arena, texts as long as those of the pipelines and at the same place of the frame, keys,
/// nonces and texts named to the library inside the measured time.
#[derive(Debug)]
pub struct Alone {
    suite: Suite,
    frames: Burst,
    parts: Vec<Part>,
}

/// One packet.
#[derive(Clone, Copy, Debug)]
struct Part {
    sa: usize,
    nonce: [u8; 16],
}

/// Cycles that a burst took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cycles {
    /// To be sealed.
    pub seal: u64,
    /// To be opened.
    pub open: u64,
}

impl Alone {
    /// Takes frames for a burst of `burst` packets; `None` when `pool` has not so many.
    #[must_use]
    pub fn new(suite: Suite, burst: usize, pool: &mut Pool) -> Option<Self> {
        let mut frames = Burst::new();
        for _ in 0..burst.min(BURST_MAX) {
            // The burst has room for as many.
            drop(frames.push(pool.alloc()?));
        }
        Some(Self { suite, frames, parts: Vec::with_capacity(burst) })
    }

    /// Gives the frames back.
    pub fn release(mut self, pool: &mut Pool) {
        self.frames.release(pool);
    }

    /// Seals and opens burst number `burst`. `None` if a packet did not come out authentic.
    pub fn measure(&mut self, site: &Site, traffic: &Traffic, burst: u64) -> Option<Cycles> {
        self.fill(site, traffic, burst)?;
        match self.suite.nonce_bytes() {
            0 => self.run::<0>(site),
            11 => self.run::<11>(site),
            16 => self.run::<16>(site),
            _ => self.run::<12>(site),
        }
    }

    /// Writes the packets as the pipelines find and leave them: text at the frame's usual place.
    fn fill(&mut self, site: &Site, traffic: &Traffic, burst: u64) -> Option<()> {
        let mut numbers = Numbers::new(burst);
        self.parts.clear();
        let lengths = traffic.lengths().iter();
        let packets = traffic.flows(burst).zip(lengths).zip(self.frames.as_mut_slice());
        for (number, ((flow, &len), frame)) in packets.enumerate() {
            traffic.write(frame, flow, number as u64, len).then_some(())?;
            let trailer = self.suite.esp_text_bytes(len) - len;
            frame.grow_back(trailer).ok()?.fill(1);
            frame.grow_back(self.suite.icv_bytes()).ok()?;
            let header = frame.grow_front(self.suite.header_bytes()).ok()?;
            numbers.fill(header);
            let mut nonce = [0; 16];
            numbers.fill(&mut nonce);
            self.parts.push(Part { sa: site.shape.sa_of(flow), nonce });
        }
        Some(())
    }

    /// `N` is the suite's length of nonces.
    fn run<const N: usize>(&mut self, site: &Site) -> Option<Cycles> {
        let start = time_stamp();
        self.seal::<N>(site);
        let middle = time_stamp();
        let opened = self.open::<N>(site);
        let end = time_stamp();
        black_box(self.frames.as_slice());
        let cycles = Cycles { seal: middle - start, open: end - middle };
        (opened == self.parts.len()).then_some(cycles)
    }

    fn seal<const N: usize>(&mut self, site: &Site) {
        let mut ops: ArrayVec<_, BURST_MAX> = ArrayVec::new();
        let (suite, header) = (self.suite, self.suite.header_bytes());
        let (aad, icv) = (aad_bytes(suite), suite.icv_bytes());
        for (part, frame) in self.parts.iter().zip(self.frames.as_mut_slice()) {
            let (Some(sa), Some(nonce)) =
                (site.outbound.get(part.sa), part.nonce.first_chunk::<N>())
            else {
                continue;
            };
            let nonce = Nonce::new(*nonce);
            let bytes = frame.data_mut();
            let Some((bytes, icv)) = bytes.split_at_mut_checked(bytes.len() - icv) else {
                continue;
            };
            let op = if suite.is_aead() {
                let Some((front, text)) = bytes.split_at_mut_checked(header) else { continue };
                SealOp::new(&sa.key, nonce, &front[..aad], text, icv)
            } else {
                SealOp::framed(&sa.key, nonce, bytes, header, &[], icv)
            };
            if let Ok(op) = op {
                ops.push(op);
            }
        }
        seal_burst(&mut ops);
    }

    fn open<const N: usize>(&mut self, site: &Site) -> usize {
        let mut ops: ArrayVec<_, BURST_MAX> = ArrayVec::new();
        let (suite, header) = (self.suite, self.suite.header_bytes());
        let (aad, icv) = (aad_bytes(suite), suite.icv_bytes());
        for (part, frame) in self.parts.iter().zip(self.frames.as_mut_slice()) {
            let (Some(sa), Some(nonce)) =
                (site.inbound.get(part.sa), part.nonce.first_chunk::<N>())
            else {
                continue;
            };
            let bytes = frame.data_mut();
            let Some((bytes, icv)) = bytes.split_at_mut_checked(bytes.len() - icv) else {
                continue;
            };
            let op = if suite.is_aead() {
                let Some((front, text)) = bytes.split_at_mut_checked(header) else { continue };
                OpenOp::new(&sa.key, *nonce, &front[..aad], text, icv)
            } else {
                OpenOp::framed(&sa.key, *nonce, bytes, header, &[], icv)
            };
            if let Ok(op) = op {
                ops.push(op);
            }
        }
        open_burst(&mut ops);
        ops.iter().filter(|op| op.verdict() == Verdict::Authentic).count()
    }
}
