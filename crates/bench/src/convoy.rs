//! Convoy as a contender.

use arrayvec::ArrayVec;
use convoy_crypto::{
    Cpu, KeyError, Nonce, OpenKey, OpenOp, SealKey, SealOp, SecretBytes, Suite, Tier, Verdict,
    open_burst, seal_burst,
};

use crate::contender::Contender;
use crate::suite::{ESP_HEADER, Layout as _};
use crate::workload::{Arena, Packet, Workload};

/// Most packets of a burst.
pub const MAX_BURST: usize = 256;

/// Convoy on one tier.
#[derive(Debug)]
pub struct Convoy {
    seal: Vec<SealKey>,
    open: Vec<OpenKey>,
    tier: Tier,
}

impl Convoy {
    /// Sets the workload's keys up for `tier`.
    ///
    /// # Errors
    /// [`KeyError`] if `cpu` lacks the tier.
    pub fn new(cpu: &Cpu, tier: Tier, work: &Workload) -> Result<Self, KeyError> {
        let mut this = Self { seal: Vec::new(), open: Vec::new(), tier };
        let Suite::Gcm(params) = work.suite else { return Err(KeyError::TierUnavailable(tier)) };
        for keys in &work.keys {
            let secret = || SecretBytes::copy_from(&keys.cipher);
            this.seal.push(SealKey::with_tier(cpu, tier, params, secret())?);
            this.open.push(OpenKey::with_tier(cpu, tier, params, secret())?);
        }
        Ok(this)
    }
}

/// A packet's parts in the arena.
struct Parts<'a> {
    header: &'a [u8],
    text: &'a mut [u8],
    icv: &'a mut [u8],
}

/// The parts of every packet, one after the other.
#[inline(always)]
fn parts<'a>(
    work: &'a Workload,
    arena: &'a mut Arena,
) -> impl Iterator<Item = (&'a Packet, Parts<'a>)> {
    let (header, icv) = (work.suite.header_bytes(), work.suite.icv_bytes());
    let mut rest = arena.bytes_mut();
    let mut at = 0;
    work.packets.iter().map(move |packet| {
        let (_, tail) = std::mem::take(&mut rest).split_at_mut(packet.start - at);
        let (frame, tail) = tail.split_at_mut(header + packet.text + icv);
        at = packet.start + frame.len();
        rest = tail;
        let (header, frame) = frame.split_at_mut(header);
        let (text, icv) = frame.split_at_mut(packet.text);
        (packet, Parts { header, text, icv })
    })
}

impl Contender for Convoy {
    fn who(&self) -> &'static str {
        "convoy"
    }

    fn api(&self) -> &str {
        self.tier.name()
    }

    fn seal(&mut self, work: &Workload, arena: &mut Arena) {
        let ops = parts(work, arena).filter_map(|(packet, Parts { header, text, icv })| {
            let key = &self.seal[packet.key];
            SealOp::new(key, Nonce::new(twelve(packet)), &header[..ESP_HEADER], text, icv).ok()
        });
        let mut ops: ArrayVec<_, MAX_BURST> = ops.collect();
        seal_burst(&mut ops);
    }

    fn open(&mut self, work: &Workload, arena: &mut Arena) -> usize {
        let ops = parts(work, arena).filter_map(|(packet, Parts { header, text, icv })| {
            let key = &self.open[packet.key];
            OpenOp::new(key, twelve(packet), &header[..ESP_HEADER], text, icv).ok()
        });
        let mut ops: ArrayVec<_, MAX_BURST> = ops.collect();
        open_burst(&mut ops);
        ops.iter().filter(|op| op.verdict() == Verdict::Authentic).count()
    }
}

fn twelve(packet: &Packet) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce.copy_from_slice(&packet.nonce[..12]);
    nonce
}
