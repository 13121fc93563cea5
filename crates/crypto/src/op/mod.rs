//! Operations: one packet's worth of work each, gathered into bursts.

mod check;
mod view;

use std::fmt;

pub(crate) use check::ccm_limit;
use check::{Apart, Framed, InPlace, check_apart, check_framed, check_in_place};
pub(crate) use view::{Op, Sink, Whole};

use crate::{
    OpError,
    key::{AeadKey, Key, OpenKey, SealKey},
    nonce::{Nonce, NonceBlock, OpenNonce},
};

/// A packet to be encrypted in place and given an ICV.
///
/// Its parts are checked when it is built, so sealing cannot fail. It is sealed by the first
/// [`seal_burst`](crate::seal_burst) it takes part in; further bursts leave it alone, because its
/// nonce is spent.
pub struct SealOp<'a> {
    key: &'a Key,
    nonce: NonceBlock,
    sealed: bool,
    /// Bytes of a frame's header. An AEAD has none: there it is [`HashedAad::beyond`].
    header: u32,
    beside: &'a [u8],
    data: &'a mut [u8],
    icv: &'a mut [u8],
}

impl<'a> SealOp<'a> {
    /// Puts an operation of an AEAD together. `data` is replaced by its ciphertext, `icv` is
    /// overwritten. (GMAC authenticates `data` and leaves it as it is.)
    ///
    /// # Errors
    ///
    /// [`OpError`] if a part does not have a length that the key's suite calls for, or the suite is
    /// no AEAD. The nonce is gone then.
    #[inline(always)]
    pub fn new(
        key: &'a SealKey,
        nonce: Nonce,
        aad: &'a [u8],
        data: &'a mut [u8],
        icv: &'a mut [u8],
    ) -> Result<Self, OpError> {
        Self::apart(key.inner(), nonce, aad, data, icv)
    }

    /// The same with a key for both ways.
    ///
    /// # Errors
    ///
    /// As for [`new`](Self::new).
    #[inline(always)]
    pub fn with_aead_key(
        key: &'a AeadKey,
        nonce: Nonce,
        aad: &'a [u8],
        data: &'a mut [u8],
        icv: &'a mut [u8],
    ) -> Result<Self, OpError> {
        Self::apart(key.inner(), nonce, aad, data, icv)
    }

    #[inline(always)]
    fn apart(
        key: &'a Key,
        Nonce(nonce): Nonce,
        aad: &'a [u8],
        data: &'a mut [u8],
        icv: &'a mut [u8],
    ) -> Result<Self, OpError> {
        let (aad_len, data_len) = (aad.len(), data.len());
        let lengths = Apart { nonce: nonce.len(), aad: aad_len, data: data_len, icv: icv.len() };
        check_apart(key, lengths)?;
        Ok(Self { key, nonce, sealed: false, header: 0, beside: aad, data, icv })
    }

    /// An operation of AES-GCM whose additional data was hashed but for the last block. The caller answers
    /// for the lengths, and that the nonce is used once.
    #[inline(always)]
    pub(crate) fn hashed(
        key: &'a Key,
        nonce: &[u8; 16],
        aad: HashedAad<'a>,
        data: &'a mut [u8],
        tag: &'a mut [u8; 16],
    ) -> Self {
        let (nonce, HashedAad { beyond, last }) = (NonceBlock::of_gcm(nonce), aad);
        let header = beyond.cast_unsigned();
        Self { key, nonce, sealed: false, header, beside: last, data, icv: tag }
    }

    /// Puts an operation of a pair of cipher and MAC together: what ESP's encrypt-then-MAC needs.
    ///
    /// The text, `frame` from `header` on, is replaced by its ciphertext. The ICV covers the whole
    /// frame and then `trailer`, which is not sent: ESN's high bits, or nothing. The IV is
    /// authenticated only if it is part of the header, as it is in ESP (RFC 4303 section 2.8).
    ///
    /// # Errors
    ///
    /// [`OpError`] if a part does not have a length that the key's suite calls for, or the suite is
    /// an AEAD. The IV is gone then.
    #[inline(always)]
    pub fn framed(
        key: &'a SealKey,
        iv: Nonce,
        frame: &'a mut [u8],
        header: usize,
        trailer: &'a [u8],
        icv: &'a mut [u8],
    ) -> Result<Self, OpError> {
        let (key, Nonce(nonce)) = (key.inner(), iv);
        let lengths = Framed {
            nonce: nonce.len(),
            frame: frame.len(),
            header,
            trailer: trailer.len(),
            icv: icv.len(),
        };
        check_framed(key, lengths)?;
        let nonce = nonce.with_counter(key.limits().counter);
        // Checked to fit.
        let header = header as u32;
        Ok(Self { key, nonce, sealed: false, header, beside: trailer, data: frame, icv })
    }

    /// Puts an operation of any suite together, of a packet that lies in one piece as ESP's does:
    /// `header` bytes, `text` bytes, the ICV, and whatever follows, which is left alone. An AEAD has no
    /// header here; its additional data is `beside`. For a pair that is the trailer, see
    /// [`framed`](Self::framed).
    ///
    /// # Errors
    ///
    /// [`OpError`] if a part does not have a length that the key's suite calls for, or the packet is too
    /// short for its parts. The nonce is gone then.
    #[inline(always)]
    pub fn in_place(
        key: &'a SealKey,
        Nonce(nonce): Nonce,
        packet: &'a mut [u8],
        Lengths { header, text }: Lengths,
        beside: &'a [u8],
    ) -> Result<Self, OpError> {
        let key = key.inner();
        let (nonce_len, packet_len, beside_len) = (nonce.len(), packet.len(), beside.len());
        let lengths =
            InPlace { nonce: nonce_len, packet: packet_len, header, text, beside: beside_len };
        let layout = check_in_place(key, lengths)?;
        let nonce = nonce.with_counter(key.limits().counter);
        let (data, rest) = packet.split_at_mut(layout.end);
        let icv = &mut rest[..layout.icv];
        Ok(Self { key, nonce, sealed: false, header: header as u32, beside, data, icv })
    }

    /// True if the packet has been sealed.
    #[inline]
    #[must_use]
    pub const fn is_sealed(&self) -> bool {
        self.sealed
    }
}

/// Bytes of a packet in one piece: those in front of the text, and those of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// Bytes of the header.
    pub header: usize,
    /// Bytes of the text.
    pub text: usize,
}

/// Result of opening a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Not opened yet: `data` is still ciphertext.
    Pending,
    /// Authentic: `data` is the plaintext.
    Authentic,
    /// Not authentic: `data` has been wiped.
    Forged,
}

/// Progress of opening a packet. What is not over counts as [`Verdict::Pending`], so that a packet
/// passes for nothing else should the work on it be cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Nothing has been done.
    Due,
    /// The ICV matches; the text may have to be decrypted yet.
    Matches,
    /// The ICV does not match; the text has not been wiped yet.
    Refused,
    /// Over.
    Authentic,
    /// Over.
    Forged,
    /// Over; nothing was compared.
    Decrypted,
}

/// Additional data that was hashed but for the last block.
#[derive(Clone, Copy)]
pub(crate) struct HashedAad<'a> {
    /// Number of its bytes less that of `last`; negative if `last` has more.
    beyond: i32,
    /// The last block with the hash of all before added, or all of it, or nothing.
    last: &'a [u8],
}

impl<'a> HashedAad<'a> {
    /// The most bytes that it tells.
    pub(crate) const MOST: u64 = i32::MAX as u64;

    /// Additional data that is there as a whole.
    #[inline(always)]
    pub(crate) fn whole(aad: &'a [u8]) -> Self {
        Self { beyond: 0, last: aad }
    }

    /// So many bytes, of which `last` has the last ones, with zeros behind them.
    #[inline(always)]
    pub(crate) fn ending(bytes: u64, last: &'a [u8; 16]) -> Self {
        match bytes {
            0 => Self::whole(&[]),
            _ => Self { beyond: bytes.min(Self::MOST) as i32 - 16, last },
        }
    }
}

/// Use of the ICV that the packet should have, by an operation that opens.
enum Icv<'a> {
    /// Compares it with the one that came.
    Compare(&'a [u8]),
    /// Gives it to somebody who compares.
    Give(&'a mut [u8; 16]),
}

/// A packet to be verified and decrypted in place.
///
/// Its parts are checked when it is built. It is opened by the first
/// [`open_burst`](crate::open_burst) it takes part in; further bursts leave it alone.
pub struct OpenOp<'a> {
    key: &'a Key,
    nonce: NonceBlock,
    stage: Stage,
    /// As [`SealOp`] has it.
    header: u32,
    beside: &'a [u8],
    data: &'a mut [u8],
    icv: Icv<'a>,
}

impl<'a> OpenOp<'a> {
    /// Puts an operation of an AEAD together. `data` is replaced by its plaintext, or by zeros if it
    /// is not authentic.
    ///
    /// # Errors
    ///
    /// [`OpError`] if a part does not have a length that the key's suite calls for, or the suite is
    /// no AEAD.
    #[inline(always)]
    pub fn new(
        key: &'a OpenKey,
        nonce: impl Into<OpenNonce>,
        aad: &'a [u8],
        data: &'a mut [u8],
        icv: &'a [u8],
    ) -> Result<Self, OpError> {
        Self::apart(key.inner(), nonce.into().0, aad, data, icv)
    }

    /// The same with a key for both ways.
    ///
    /// # Errors
    ///
    /// As for [`new`](Self::new).
    #[inline(always)]
    pub fn with_aead_key(
        key: &'a AeadKey,
        nonce: impl Into<OpenNonce>,
        aad: &'a [u8],
        data: &'a mut [u8],
        icv: &'a [u8],
    ) -> Result<Self, OpError> {
        Self::apart(key.inner(), nonce.into().0, aad, data, icv)
    }

    #[inline(always)]
    fn apart(
        key: &'a Key,
        nonce: NonceBlock,
        aad: &'a [u8],
        data: &'a mut [u8],
        icv: &'a [u8],
    ) -> Result<Self, OpError> {
        let (aad_len, data_len) = (aad.len(), data.len());
        let lengths = Apart { nonce: nonce.len(), aad: aad_len, data: data_len, icv: icv.len() };
        check_apart(key, lengths)?;
        let icv = Icv::Compare(icv);
        Ok(Self { key, nonce, stage: Stage::Due, header: 0, beside: aad, data, icv })
    }

    /// Puts an operation of an AEAD together that verifies nothing: `data` is decrypted and `tag` becomes the ICV
    /// that the packet should have. Whoever calls this compares it with the one that came, in constant time
    /// (as [`tags_match`](crate::manager::tags_match) does), and uses nothing of `data` if the two differ. The
    /// verdict stays [`Verdict::Pending`].
    ///
    /// # Errors
    ///
    /// [`OpError`] if a part does not have a length that the key's suite calls for, or the suite is no AEAD or
    /// one whose tags are cut.
    #[inline(always)]
    pub fn unverified(
        key: &'a AeadKey,
        nonce: impl Into<OpenNonce>,
        aad: &'a [u8],
        data: &'a mut [u8],
        tag: &'a mut [u8; 16],
    ) -> Result<Self, OpError> {
        let (key, nonce) = (key.inner(), nonce.into().0);
        let (aad_len, data_len) = (aad.len(), data.len());
        let lengths = Apart { nonce: nonce.len(), aad: aad_len, data: data_len, icv: tag.len() };
        check_apart(key, lengths)?;
        let icv = Icv::Give(tag);
        Ok(Self { key, nonce, stage: Stage::Due, header: 0, beside: aad, data, icv })
    }

    /// A packet of an AEAD that is decrypted and given the tag that it should have; comparing is left to
    /// the caller, who answers for the lengths. For the additional data see [`SealOp::hashed`].
    #[inline(always)]
    pub(crate) fn without_verdict(
        key: &'a Key,
        nonce: &[u8; 16],
        aad: HashedAad<'a>,
        data: &'a mut [u8],
        tag: &'a mut [u8; 16],
    ) -> Self {
        let (nonce, icv) = (NonceBlock::of_gcm(nonce), Icv::Give(tag));
        let HashedAad { beyond, last } = aad;
        let header = beyond.cast_unsigned();
        Self { key, nonce, stage: Stage::Due, header, beside: last, data, icv }
    }

    /// Puts an operation of a pair of cipher and MAC together; see [`SealOp::framed`]. The text,
    /// `frame` from `header` on, is replaced by its plaintext, or by zeros if the frame is not
    /// authentic.
    ///
    /// # Errors
    ///
    /// [`OpError`] if a part does not have a length that the key's suite calls for, or the suite is
    /// an AEAD.
    #[inline(always)]
    pub fn framed(
        key: &'a OpenKey,
        iv: impl Into<OpenNonce>,
        frame: &'a mut [u8],
        header: usize,
        trailer: &'a [u8],
        icv: &'a [u8],
    ) -> Result<Self, OpError> {
        let (key, nonce) = (key.inner(), iv.into().0);
        let lengths = Framed {
            nonce: nonce.len(),
            frame: frame.len(),
            header,
            trailer: trailer.len(),
            icv: icv.len(),
        };
        check_framed(key, lengths)?;
        let nonce = nonce.with_counter(key.limits().counter);
        // Checked to fit.
        let (header, stage, icv) = (header as u32, Stage::Due, Icv::Compare(icv));
        Ok(Self { key, nonce, stage, header, beside: trailer, data: frame, icv })
    }

    /// Puts an operation of any suite together; see [`SealOp::in_place`].
    ///
    /// # Errors
    ///
    /// [`OpError`] if a part does not have a length that the key's suite calls for, or the packet is too
    /// short for its parts.
    #[inline(always)]
    pub fn in_place(
        key: &'a OpenKey,
        nonce: impl Into<OpenNonce>,
        packet: &'a mut [u8],
        Lengths { header, text }: Lengths,
        beside: &'a [u8],
    ) -> Result<Self, OpError> {
        let (key, nonce) = (key.inner(), nonce.into().0);
        let (nonce_len, packet_len, beside_len) = (nonce.len(), packet.len(), beside.len());
        let lengths =
            InPlace { nonce: nonce_len, packet: packet_len, header, text, beside: beside_len };
        let layout = check_in_place(key, lengths)?;
        let nonce = nonce.with_counter(key.limits().counter);
        let (data, rest) = packet.split_at_mut(layout.end);
        let icv = Icv::Compare(&rest[..layout.icv]);
        Ok(Self { key, nonce, stage: Stage::Due, header: header as u32, beside, data, icv })
    }

    /// Result of the operation.
    #[inline]
    #[must_use]
    pub const fn verdict(&self) -> Verdict {
        match self.stage {
            Stage::Authentic => Verdict::Authentic,
            Stage::Forged => Verdict::Forged,
            Stage::Due | Stage::Matches | Stage::Refused | Stage::Decrypted => Verdict::Pending,
        }
    }

    /// The plaintext, if the packet was opened and is authentic; of a frame, what is behind the
    /// header.
    #[inline]
    #[must_use]
    pub fn into_plaintext(self) -> Option<&'a mut [u8]> {
        let text = self.data.get_mut(self.header as usize..);
        text.filter(|_| self.stage == Stage::Authentic)
    }
}

impl fmt::Debug for SealOp<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealOp")
            .field("suite", &self.key.suite())
            .field("data_len", &self.data.len())
            .field("sealed", &self.sealed)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for OpenOp<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenOp")
            .field("suite", &self.key.suite())
            .field("data_len", &self.data.len())
            .field("verdict", &self.verdict())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cpu, KeyMaterial, SecretBytes, Suite};

    fn key(suite: &str) -> SealKey {
        let suite: Suite = suite.parse().unwrap();
        let secret = |bytes| SecretBytes::copy_from(&vec![1; bytes]);
        let material = KeyMaterial {
            cipher: secret(suite.key_bytes()),
            integrity: secret(suite.integrity_key_bytes()),
        };
        SealKey::new(&Cpu::without("").unwrap(), suite, material).unwrap()
    }

    #[test]
    fn a_packet_that_work_stops_on_is_neither_authentic_nor_decrypted_again() {
        let suite: Suite = "null+hmac-sha1-96".parse().unwrap();
        let material = KeyMaterial {
            cipher: SecretBytes::copy_from(&[]),
            integrity: SecretBytes::copy_from(&[1; 20]),
        };
        let key = OpenKey::new(&Cpu::without("").unwrap(), suite, material).unwrap();
        for (tag, verdict, text) in
            [([5; 20], Verdict::Authentic, [7; 10]), ([6; 20], Verdict::Forged, [0; 10])]
        {
            let mut frame = [7; 10];
            let mut op = OpenOp::framed(&key, [], &mut frame, 0, b"", &[5; 12]).unwrap();
            op.split().1.finish(&tag);
            assert_eq!((op.verdict(), op.is_due()), (Verdict::Pending, false));
            op.conclude();
            assert_eq!(op.verdict(), verdict);
            assert_eq!(frame, text);
        }
    }

    #[test]
    fn an_operation_that_verifies_nothing_gives_the_tag_that_should_have_come() {
        for cpu in [Cpu::detect().unwrap(), Cpu::without("").unwrap()] {
            for name in ["aes-256-gcm-16", "aes-128-gmac-16", "chacha20-poly1305", "aes-128-ccm-16"]
            {
                let suite: Suite = name.parse().unwrap();
                let secret = vec![1; suite.key_bytes()];
                let material = KeyMaterial {
                    cipher: SecretBytes::copy_from(&secret),
                    integrity: Vec::new().into(),
                };
                let key = AeadKey::new(&cpu, suite, material).unwrap();
                let len = suite.nonce_bytes() as u8;
                for text in [0, 16, 100] {
                    let (mut data, mut icv) = (vec![5; text], [0; 16]);
                    let nonce = Nonce::front([9; 16], len);
                    let op = SealOp::with_aead_key(&key, nonce, b"aad", &mut data, &mut icv);
                    crate::seal_burst(&mut [op.unwrap()]);
                    let mut tag = [0; 16];
                    let nonce = OpenNonce::front([9; 16], len);
                    let op = OpenOp::unverified(&key, nonce, b"aad", &mut data, &mut tag);
                    let mut ops = [op.unwrap()];
                    crate::open_burst(&mut ops);
                    assert_eq!(ops[0].verdict(), Verdict::Pending);
                    assert_eq!((data, tag), (vec![5; text], icv), "{name}");
                }
                let cut: OpError = OpenOp::unverified(&key, [0; 3], b"", &mut [], &mut [0; 16])
                    .map(drop)
                    .unwrap_err();
                assert!(matches!(cut, OpError::NonceLength { .. }), "{name}");
            }
        }
    }

    #[test]
    fn packets_too_short_for_their_parts_are_refused() {
        let refused = |suite: &str, nonce, len, header, text| {
            let (key, mut packet) = (key(suite), vec![0; len]);
            let lengths = Lengths { header, text };
            let op = SealOp::in_place(&key, nonce, &mut packet, lengths, b"");
            op.map(drop).unwrap_err()
        };
        let (gcm, cbc) = ("aes-128-gcm-16", "aes-128-cbc+hmac-sha1-96");
        let short = |needed, given| OpError::PacketTooShort { needed, given };
        let nonce = || Nonce::new([0; 12]);
        assert_eq!(refused(gcm, nonce(), 20, 0, 21), short(37, 20));
        assert_eq!(refused(gcm, nonce(), 20, 0, 5), short(21, 20));
        assert_eq!(refused(gcm, nonce(), 20, 1, usize::MAX), short(usize::MAX, 20));
        let error = refused(gcm, nonce(), 40, 8, 16);
        assert!(matches!(error, OpError::WrongForm { .. }), "{error:?}");
        let error = refused(gcm, Nonce::new([0; 11]), 40, 0, 16);
        assert_eq!(error, OpError::NonceLength { expected: 12, given: 11 });
        assert_eq!(refused(cbc, Nonce::new([0; 16]), 51, 24, 16), short(52, 51));
        let error = refused(cbc, Nonce::new([0; 16]), 60, 24, 17);
        assert_eq!(error, OpError::NotWholeBlocks { block: 16, given: 17 });
    }

    #[test]
    fn an_operation_in_place_does_what_one_of_parts_does() {
        for (suite, header) in [("aes-128-gcm-8", 0), ("aes-128-cbc+hmac-sha1-96", 24)] {
            let key = key(suite);
            let (nonce, icv) = (key.suite().nonce_bytes() as u8, key.icv_bytes());
            let nonce = || Nonce::front([9; 16], nonce);
            let text = header + 32;
            let (mut whole, mut frame) = ([6; 100], [6; 100]);
            let lengths = Lengths { header, text: text - header };
            let op = SealOp::in_place(&key, nonce(), &mut whole, lengths, b"beside").unwrap();
            crate::seal_burst(&mut [op]);
            let (data, rest) = frame.split_at_mut(text);
            let tag = &mut rest[..icv];
            let op = match header {
                0 => SealOp::new(&key, nonce(), b"beside", data, tag),
                _ => SealOp::framed(&key, nonce(), data, header, b"beside", tag),
            };
            crate::seal_burst(&mut [op.unwrap()]);
            assert_eq!(whole, frame, "{suite}");
            assert_ne!(whole[header..text + icv], [6; 100][header..text + icv]);
            assert_eq!(whole[text + icv..], [6; 100][text + icv..]);
        }
    }
}
