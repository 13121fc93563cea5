//! A message under way, put down in plain memory between two parts.

use std::{fmt, ops::Deref};

use zeroize::Zeroize;

use super::{ChaCha, ChaChaStream, Phase, StreamError};
use crate::{AeadKey, isa::part::ChaChaState, poly::Poly};

/// A message of ChaCha20-Poly1305 under way, without its key: integers in C's layout, 112 bytes.
///
/// Memory of its size and alignment may be looked at as one of these whatever it holds; what was not
/// [saved](ChaChaStream::save) is no message. It is as secret as the key, and is not wiped on drop.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ChaChaSaved {
    accumulator: [u64; 3],
    multiplier: [u64; 2],
    pad: [u64; 2],
    tail: [u8; 16],
    nonce: [u8; 16],
    aad_len: u64,
    data_len: u64,
    /// A mark, and the phase.
    form: [u8; 8],
}

const _: () = assert!(size_of::<ChaChaSaved>() == 112);

/// First bytes of the form of saved messages.
const MARK: [u8; 4] = *b"CvC1";

impl ChaChaSaved {
    /// No message.
    pub const NONE: Self = Self {
        accumulator: [0; 3],
        multiplier: [0; 2],
        pad: [0; 2],
        tail: [0; 16],
        nonce: [0; 16],
        aad_len: 0,
        data_len: 0,
        form: [0; 8],
    };

    /// Wipes it.
    pub fn wipe(&mut self) {
        self.accumulator.zeroize();
        self.multiplier.zeroize();
        self.pad.zeroize();
        self.tail.zeroize();
        *self = Self::NONE;
    }

    /// Ends the message, which needs no key any more: its tag, whichever way it goes. Whoever opens compares it with the
    /// one that came, in constant time.
    ///
    /// # Errors
    ///
    /// [`StreamError::Ended`] if no message was put down here.
    pub fn tag(&self) -> Result<[u8; 16], StreamError> {
        let (phase, mut state) = self.state()?;
        match phase {
            Phase::Aad => state.pad((self.aad_len % 16) as usize),
            Phase::Text => state.pad((self.data_len % 16) as usize),
            _ => return Err(StreamError::Ended),
        }
        state.mac.lengths(self.aad_len, self.data_len);
        Ok(state.mac.finish().to_le_bytes())
    }

    fn state(&self) -> Result<(Phase, ChaChaState), StreamError> {
        let [a, b, c, d, phase, ..] = self.form;
        let phase = [Phase::Aad, Phase::Text].get(usize::from(phase)).copied();
        let phase = phase.filter(|_| [a, b, c, d] == MARK).ok_or(StreamError::Ended)?;
        let [low, high] = self.pad;
        let pad = u128::from(low) | u128::from(high) << 64;
        let mac = Poly::from_parts(self.accumulator, self.multiplier, pad);
        Ok((phase, ChaChaState { mac, tail: self.tail }))
    }
}

impl fmt::Debug for ChaChaSaved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChaChaSaved({} bytes of text)", self.data_len)
    }
}

impl<K: Deref<Target = AeadKey>> ChaChaStream<K> {
    /// Puts the message down, to [go on](Self::resume) later. Of the two that there are now only one may.
    ///
    /// # Errors
    ///
    /// [`StreamError::Ended`] if its tag was made; [`StreamError::OutOfMemory`] before its text.
    pub fn save(&mut self, saved: &mut ChaChaSaved) -> Result<(), StreamError> {
        self.begin_mac()?;
        let phase = match self.phase {
            Phase::Begun | Phase::Aad => 0,
            Phase::Text => 1,
            Phase::Ended | Phase::Verified => return Err(StreamError::Ended),
        };
        let (accumulator, multiplier, pad) = self.state.mac.parts();
        (saved.accumulator, saved.multiplier) = (accumulator, multiplier);
        (saved.pad, saved.tail) = ([pad as u64, (pad >> 64) as u64], self.state.tail);
        (saved.nonce, saved.aad_len, saved.data_len) = (self.nonce, self.aad_len, self.data_len);
        let [a, b, c, d] = MARK;
        saved.form = [a, b, c, d, phase, 0, 0, 0];
        Ok(())
    }

    /// Takes a message up again where it was put down, with the same key.
    ///
    /// # Errors
    ///
    /// [`StreamError::Ended`] if none was put down there; [`StreamError::NotChaCha20Poly1305`].
    pub fn resume(key: K, seal: bool, saved: &ChaChaSaved) -> Result<Self, StreamError> {
        if ChaCha::of(key.inner()).is_none() {
            return Err(StreamError::NotChaCha20Poly1305(key.suite()));
        }
        let (phase, state) = saved.state()?;
        let ChaChaSaved { nonce, aad_len, data_len, .. } = *saved;
        Ok(Self { key, seal, phase, nonce, aad_len, data_len, state, window: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cpu, SecretBytes, Suite};

    #[test]
    fn a_message_put_down_between_parts_goes_on() {
        let cpu = Cpu::without("").unwrap();
        for tier in cpu.tiers() {
            let (suite, secret) = (Suite::ChaCha20Poly1305, SecretBytes::copy_from(&[3; 32]));
            let key = &AeadKey::with_tier(&cpu, tier, suite, secret).unwrap();
            let aads: [&[u8]; 4] = [b"", b"some", &[4; 16], &[5; 45]];
            for (aad, parts) in
                aads.into_iter().zip([[0; 3], [5, 70, 2000], [64, 1500, 1], [1, 0, 2]])
            {
                let text: Vec<u8> = (0..parts.iter().sum::<usize>()).map(|i| i as u8).collect();
                let (mut whole, mut cut) = (text.clone(), text);
                let mut stream = ChaChaStream::seal(key, &[8; 12]).unwrap();
                stream.aad(aad).unwrap();
                stream.update(&mut whole).unwrap();
                let expected = stream.tag().unwrap();

                let mut saved = ChaChaSaved::NONE;
                let mut stream = ChaChaStream::seal(key, &[8; 12]).unwrap();
                stream.aad(aad).unwrap();
                stream.save(&mut saved).unwrap();
                let mut rest = &mut cut[..];
                for part in parts {
                    let (front, behind) = rest.split_at_mut(part);
                    let mut stream = ChaChaStream::resume(key, true, &saved).unwrap();
                    stream.update(front).unwrap();
                    stream.save(&mut saved).unwrap();
                    rest = behind;
                }
                assert_eq!((cut, saved.tag().unwrap()), (whole, expected), "{tier} {parts:?}");
            }
            let error = ChaChaStream::resume(key, true, &ChaChaSaved::NONE).unwrap_err();
            assert_eq!(error, StreamError::Ended);
        }
    }
}
