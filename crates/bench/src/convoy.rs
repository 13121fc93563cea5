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

/// Hands the parts of every packet to `each`. A loop and not an iterator: chains of adapters are
/// not always inlined, and what is not costs as much as a short packet.
#[inline(always)]
fn for_each<'a>(
    work: &'a Workload,
    arena: &'a mut Arena,
    mut each: impl FnMut(&'a Packet, Parts<'a>),
) {
    let (header, icv) = (work.suite.header_bytes(), work.suite.icv_bytes());
    let mut rest = arena.bytes_mut();
    let mut at = 0;
    for packet in &work.packets {
        let (_, tail) = rest.split_at_mut(packet.start - at);
        let (frame, tail) = tail.split_at_mut(header + packet.text + icv);
        at = packet.start + frame.len();
        rest = tail;
        let (header, frame) = frame.split_at_mut(header);
        let (text, icv) = frame.split_at_mut(packet.text);
        each(packet, Parts { header, text, icv });
    }
}

impl Contender for Convoy {
    fn who(&self) -> &'static str {
        "convoy"
    }

    fn api(&self) -> &str {
        self.tier.name()
    }

    fn seal(&mut self, work: &Workload, arena: &mut Arena) {
        let mut ops: ArrayVec<_, MAX_BURST> = ArrayVec::new();
        for_each(work, arena, |packet, Parts { header, text, icv }| {
            let key = &self.seal[packet.key];
            let (aad, nonce) = (&header[..ESP_HEADER], Nonce::new(twelve(packet)));
            if let Ok(op) = SealOp::new(key, nonce, aad, text, icv) {
                ops.push(op);
            }
        });
        seal_burst(&mut ops);
    }

    fn open(&mut self, work: &Workload, arena: &mut Arena) -> usize {
        let mut ops: ArrayVec<_, MAX_BURST> = ArrayVec::new();
        for_each(work, arena, |packet, Parts { header, text, icv }| {
            let key = &self.open[packet.key];
            if let Ok(op) = OpenOp::new(key, twelve(packet), &header[..ESP_HEADER], text, icv) {
                ops.push(op);
            }
        });
        open_burst(&mut ops);
        ops.iter().filter(|op| op.verdict() == Verdict::Authentic).count()
    }
}

#[inline(always)]
fn twelve(packet: &Packet) -> [u8; 12] {
    let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = packet.nonce;
    [a, b, c, d, e, f, g, h, i, j, k, l]
}
