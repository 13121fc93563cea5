//! A message under way, put down in plain memory between two parts.

use std::ops::Deref;

use zeroize::Zeroize;

use super::{GcmStream, Phase, StreamError, nonce_block, short_block, whole};
use crate::{AeadKey, GcmParams, Suite, isa::part::GcmState, op::HashedAad};

/// A message of AES-GCM under way, without its key: integers in C's layout, 88 bytes.
///
/// Memory of its size and alignment may be looked at as one of these whatever it holds; what was not
/// [saved](GcmStream::save) goes on as a message that nobody began. It is as secret as the key, and is not wiped on drop.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct GcmSaved {
    hash: [u8; 16],
    aad_len: u64,
    data_len: u64,
    keystream: [u8; 16],
    origin: [u8; 16],
    mask: [u8; 16],
    /// A mark, the phase and whether the IV is short, a byte each.
    form: [u8; 8],
}

const _: () = assert!(size_of::<GcmSaved>() == 88);

/// First bytes of the form of saved messages.
const MARK: [u8; 4] = *b"CvG1";

impl GcmSaved {
    /// No message.
    pub const NONE: Self = Self {
        hash: [0; 16],
        aad_len: 0,
        data_len: 0,
        keystream: [0; 16],
        origin: [0; 16],
        mask: [0; 16],
        form: [0; 8],
    };

    /// A message that has begun, as [`GcmStream::seal`] and [`GcmStream::aad`] do it, before its key is at hand: with an IV of 12 bytes and
    /// at most 16 bytes of additional data. None of more.
    #[inline]
    #[must_use]
    pub fn begun(nonce: &[u8; 12], aad: &[u8]) -> Option<Self> {
        let (hash, aad_len) = (short_block(aad.get(..16.min(aad.len()))?), aad.len() as u64);
        let begun = Self {
            hash,
            aad_len,
            origin: nonce_block(nonce),
            form: form(Phase::Aad, true),
            ..Self::NONE
        };
        (aad.len() <= 16).then_some(begun)
    }

    /// True if [`first_text`](Self::first_text) does the next part, of so many bytes.
    #[inline]
    #[must_use]
    pub fn takes_first_text(&self, key: &AeadKey, bytes: usize) -> bool {
        self.form == form(Phase::Aad, true)
            && self.aad_len <= HashedAad::MOST
            && (1..=GcmParams::MAX_DATA).contains(&(bytes as u64))
            && matches!(key.suite(), Suite::Gcm(_))
    }

    /// Encrypts or decrypts the first text of a message in place, as [`GcmStream::update`] does, where the message is put down: without
    /// a copy of it. Returns whether it [takes](Self::takes_first_text) it; if not, nothing is done.
    #[inline]
    pub fn first_text(&mut self, key: &AeadKey, seal: bool, data: &mut [u8]) -> bool {
        let len = data.len() as u64;
        let aad = HashedAad::ending(self.aad_len, &self.hash);
        let is_done = self.takes_first_text(key, data.len())
            && whole(key.inner(), seal, &self.origin, aad, data, &mut self.mask);
        if is_done {
            (self.data_len, self.form) = (len, form(Phase::Whole, true));
        }
        is_done
    }

    /// Ends a message whose text came in one part, as [`GcmStream::tag`] does, without its key: its tag. None of others.
    #[inline]
    pub fn end_whole(&mut self) -> Option<[u8; 16]> {
        if self.form != form(Phase::Whole, true) {
            return None;
        }
        // There until another part follows.
        self.hash = self.mask;
        self.form = form(Phase::Ended, true);
        Some(self.hash)
    }

    /// Wipes it.
    pub fn wipe(&mut self) {
        self.hash.zeroize();
        self.keystream.zeroize();
        self.mask.zeroize();
        *self = Self::NONE;
    }
}

impl std::fmt::Debug for GcmSaved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "GcmSaved({} bytes of text)", self.data_len)
    }
}

/// Form of a saved message: all that is saved besides numbers and blocks.
#[inline]
fn form(phase: Phase, short_iv: bool) -> [u8; 8] {
    let phase = PHASES.iter().position(|known| *known == phase).unwrap_or_default();
    let [a, b, c, d] = MARK;
    [a, b, c, d, phase as u8, u8::from(short_iv), 0, 0]
}

const PHASES: [Phase; 5] = [Phase::Aad, Phase::Whole, Phase::Parts, Phase::Ended, Phase::Verified];

impl<K: Deref<Target = AeadKey>> GcmStream<K> {
    /// Puts the message down, to [go on](Self::resume) later. Of the two that there are now only one may.
    pub fn save(&mut self, saved: &mut GcmSaved) {
        self.close();
        let GcmState { hash, mask, keystream } = &self.state;
        (saved.hash, saved.mask, saved.keystream) = (*hash, *mask, *keystream);
        (saved.aad_len, saved.data_len, saved.origin) = (self.aad_len, self.data_len, self.origin);
        saved.form = form(self.phase, self.short_iv);
    }

    /// Takes a message up again where it was put down, with the same key. Which way it goes matters to its text alone.
    ///
    /// # Errors
    ///
    /// [`StreamError::Ended`] if none was put down there; [`StreamError::NotGcm`].
    pub fn resume(key: K, seal: bool, saved: &GcmSaved) -> Result<Self, StreamError> {
        let [a, b, c, d, phase, short_iv, ..] = saved.form;
        let phase = PHASES.get(usize::from(phase)).filter(|_| [a, b, c, d] == MARK);
        let GcmSaved { hash, mask, keystream, .. } = *saved;
        let mut stream = Self {
            key,
            seal,
            phase: *phase.ok_or(StreamError::Ended)?,
            origin: saved.origin,
            short_iv: short_iv != 0,
            aad_len: saved.aad_len,
            data_len: saved.data_len,
            next: [0; 16],
            state: GcmState { hash, mask, keystream },
            short_parts: 0,
            window: None,
        };
        stream.gcm()?;
        stream.next = stream.counter();
        Ok(stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cpu, GcmParams, IcvLen, KeyBits, SecretBytes};

    #[test]
    fn a_message_put_down_between_parts_goes_on() {
        let cpu = Cpu::without("").unwrap();
        let params = GcmParams::new(KeyBits::Aes128, IcvLen::Icv16);
        for tier in cpu.tiers() {
            let secret = SecretBytes::copy_from(&[3; 16]);
            let key = &AeadKey::with_tier(&cpu, tier, params, secret).unwrap();
            for (iv, parts) in [(12, [0, 1, 15]), (12, [16, 40, 3]), (7, [5, 300, 0]), (12, [0; 3])]
            {
                let iv = &[8; 12][..iv];
                let text: Vec<u8> = (0..parts.iter().sum::<usize>()).map(|i| i as u8).collect();
                let (mut whole, mut cut) = (text.clone(), text.clone());
                let mut stream = GcmStream::seal(key, iv).unwrap();
                stream.aad(b"additional data").unwrap();
                stream.update(&mut whole).unwrap();
                let expected = stream.tag().unwrap();

                let mut saved = GcmSaved::NONE;
                let mut stream = GcmStream::seal(key, iv).unwrap();
                stream.aad(b"additional").unwrap();
                stream.save(&mut saved);
                let mut stream = GcmStream::resume(key, true, &saved).unwrap();
                stream.aad(b" data").unwrap();
                stream.save(&mut saved);
                let mut rest = &mut cut[..];
                for part in parts {
                    let (front, behind) = rest.split_at_mut(part);
                    let mut stream = GcmStream::resume(key, true, &saved).unwrap();
                    stream.update(front).unwrap();
                    stream.save(&mut saved);
                    rest = behind;
                }
                let tag = GcmStream::resume(key, true, &saved).unwrap().tag().unwrap();
                assert_eq!((cut, tag), (whole, expected), "{tier} {parts:?}");
            }
            saved_nothing(key);
        }
    }

    #[test]
    fn beginning_and_end_of_one_part_need_no_key() {
        let cpu = Cpu::without("").unwrap();
        let params = GcmParams::new(KeyBits::Aes256, IcvLen::Icv16);
        for tier in cpu.tiers() {
            let secret = SecretBytes::copy_from(&[3; 32]);
            let key = &AeadKey::with_tier(&cpu, tier, params, secret).unwrap();
            for (aad, len) in [(0, 64), (1, 0), (8, 17), (16, 300), (13, 1)] {
                let (aad, nonce) = (&[0x5a; 16][..aad], [8; 12]);
                let (mut whole, mut saved_text) = (vec![7; len], vec![7; len]);
                let mut stream = GcmStream::seal(key, &nonce).unwrap();
                stream.aad(aad).unwrap();
                stream.update(&mut whole).unwrap();
                let expected = stream.tag().unwrap();

                let mut saved = GcmSaved::begun(&nonce, aad).unwrap();
                assert!(saved.end_whole().is_none(), "it has no text yet");
                let mut stream = GcmStream::resume(key, true, &saved).unwrap();
                stream.update(&mut saved_text).unwrap();
                stream.save(&mut saved);
                let tag = saved.end_whole();
                assert_eq!(tag.is_some(), len > 0, "{tier}");
                let tag = tag.unwrap_or_else(|| {
                    GcmStream::resume(key, true, &saved).unwrap().tag().unwrap()
                });
                assert_eq!((saved_text, tag), (whole, expected), "{tier} {len}");
            }
        }
        assert!(GcmSaved::begun(&[0; 12], &[0; 17]).is_none());
        assert!({ GcmSaved::NONE }.end_whole().is_none());
    }

    fn saved_nothing(key: &AeadKey) {
        assert_eq!(GcmStream::resume(key, true, &GcmSaved::NONE).unwrap_err(), StreamError::Ended);
    }
}
