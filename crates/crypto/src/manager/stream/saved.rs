//! A message under way, put down in plain memory between two parts.

use std::ops::Deref;

use zeroize::Zeroize;

use super::{GcmStream, Phase, StreamError};
use crate::{AeadKey, pass::GcmState};

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

/// What saved messages have in front of their form.
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

const PHASES: [Phase; 5] = [Phase::Aad, Phase::Whole, Phase::Parts, Phase::Ended, Phase::Verified];

impl<K: Deref<Target = AeadKey>> GcmStream<K> {
    /// Puts the message down, to [go on](Self::resume) later. Of the two that there are now only one may.
    pub fn save(&mut self, saved: &mut GcmSaved) {
        self.close();
        let GcmState { hash, mask, keystream } = &self.state;
        (saved.hash, saved.mask, saved.keystream) = (*hash, *mask, *keystream);
        (saved.aad_len, saved.data_len, saved.origin) = (self.aad_len, self.data_len, self.origin);
        let phase = PHASES.iter().position(|phase| *phase == self.phase).unwrap_or_default();
        let [a, b, c, d] = MARK;
        saved.form = [a, b, c, d, phase as u8, u8::from(self.short_iv), 0, 0];
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

    fn saved_nothing(key: &AeadKey) {
        assert_eq!(GcmStream::resume(key, true, &GcmSaved::NONE).unwrap_err(), StreamError::Ended);
    }
}
