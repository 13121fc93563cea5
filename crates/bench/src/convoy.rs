//! Convoy as a contender.

use arrayvec::ArrayVec;
use convoy_crypto::{
    Cpu, KeyError, KeyMaterial, Nonce, OpenKey, OpenOp, SealKey, SealOp, SecretBytes, Tier,
    Verdict, open_burst, seal_burst,
};

use crate::contender::Contender;
use crate::suite::{Layout as _, aad_bytes};
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
        for keys in &work.keys {
            let material = || KeyMaterial {
                cipher: SecretBytes::copy_from(&keys.cipher),
                integrity: SecretBytes::copy_from(&keys.mac),
            };
            this.seal.push(SealKey::with_tier(cpu, tier, work.suite, material())?);
            this.open.push(OpenKey::with_tier(cpu, tier, work.suite, material())?);
        }
        Ok(this)
    }
}

/// Hands frame and ICV of every packet to `each`. A loop and not an iterator: chains of adapters are
/// not always inlined, and what is not costs as much as a short packet.
#[inline(always)]
fn for_each<'a>(
    work: &'a Workload,
    arena: &'a mut Arena,
    mut each: impl FnMut(&'a Packet, &'a mut [u8], &'a mut [u8]),
) {
    let (header, icv) = (work.suite.header_bytes(), work.suite.icv_bytes());
    let mut rest = arena.bytes_mut();
    let mut at = 0;
    for packet in &work.packets {
        let (_, tail) = rest.split_at_mut(packet.start - at);
        let (frame, tail) = tail.split_at_mut(header + packet.text);
        let (icv, tail) = tail.split_at_mut(icv);
        at = packet.start + frame.len() + icv.len();
        rest = tail;
        each(packet, frame, icv);
    }
}

impl Convoy {
    /// `N` is the suite's length of nonces.
    fn seal<const N: usize>(&self, work: &Workload, arena: &mut Arena) {
        let mut ops: ArrayVec<_, MAX_BURST> = ArrayVec::new();
        let (header, aad) = (work.suite.header_bytes(), aad_bytes(work.suite));
        if work.suite.is_aead() {
            for_each(work, arena, |packet, frame, icv| {
                let (key, nonce) = (&self.seal[packet.key], Nonce::new(nonce::<N>(packet)));
                let (front, text) = frame.split_at_mut(header);
                if let Ok(op) = SealOp::new(key, nonce, &front[..aad], text, icv) {
                    ops.push(op);
                }
            });
        } else {
            for_each(work, arena, |packet, frame, icv| {
                let (key, nonce) = (&self.seal[packet.key], Nonce::new(nonce::<N>(packet)));
                if let Ok(op) = SealOp::framed(key, nonce, frame, header, &[], icv) {
                    ops.push(op);
                }
            });
        }
        seal_burst(&mut ops);
    }

    /// `N` is the suite's length of nonces.
    fn open<const N: usize>(&self, work: &Workload, arena: &mut Arena) -> usize {
        let mut ops: ArrayVec<_, MAX_BURST> = ArrayVec::new();
        let (header, aad) = (work.suite.header_bytes(), aad_bytes(work.suite));
        if work.suite.is_aead() {
            for_each(work, arena, |packet, frame, icv| {
                let key = &self.open[packet.key];
                let (front, text) = frame.split_at_mut(header);
                if let Ok(op) = OpenOp::new(key, nonce::<N>(packet), &front[..aad], text, icv) {
                    ops.push(op);
                }
            });
        } else {
            for_each(work, arena, |packet, frame, icv| {
                let key = &self.open[packet.key];
                if let Ok(op) = OpenOp::framed(key, nonce::<N>(packet), frame, header, &[], icv) {
                    ops.push(op);
                }
            });
        }
        open_burst(&mut ops);
        ops.iter().filter(|op| op.verdict() == Verdict::Authentic).count()
    }
}

#[inline(always)]
fn nonce<const N: usize>(packet: &Packet) -> [u8; N] {
    packet.nonce.first_chunk().copied().unwrap_or([0; N])
}

impl Contender for Convoy {
    fn who(&self) -> &'static str {
        "convoy"
    }

    fn api(&self) -> &str {
        self.tier.name()
    }

    fn seal(&mut self, work: &Workload, arena: &mut Arena) {
        match work.suite.nonce_bytes() {
            0 => Self::seal::<0>(self, work, arena),
            11 => Self::seal::<11>(self, work, arena),
            16 => Self::seal::<16>(self, work, arena),
            _ => Self::seal::<12>(self, work, arena),
        }
    }

    fn open(&mut self, work: &Workload, arena: &mut Arena) -> usize {
        match work.suite.nonce_bytes() {
            0 => Self::open::<0>(self, work, arena),
            11 => Self::open::<11>(self, work, arena),
            16 => Self::open::<16>(self, work, arena),
            _ => Self::open::<12>(self, work, arena),
        }
    }
}
