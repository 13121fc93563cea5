//! Positions of the bytes of an ESP packet, and what is authenticated with them.
//!
//! ```text
//!  outer IP | UDP | SPI  sequence |    IV   | inner packet | TFC | padding | pad len | next | ICV
//!  20 or 40 |  8  |  4      4     | 0/8/16  |              | 0 … | 0 … 15  |    1    |   1  | 8 … 32
//!                 |<--- AAD ----->|         |<------------------ text -------------------->|  AEAD
//!                 |<- AAD (GMAC) ---------->|<------------------ text -------------------->|
//!                 |<-------- header ------->|<------------------ text -------------------->|  pair
//! ```
//!
//! All lengths in bytes. With extended sequence numbers an AEAD's additional data has the high half
//! between SPI and low half; a pair's MAC has it behind the text (RFC 4303 section 2.2.1), and
//! neither sends it. The IV of counter modes is the 64-bit sequence number, and their nonce is the
//! salt followed by the IV.

use std::fmt;

use convoy_crypto::{Nonce, OpenNonce, Suite};
use convoy_engine::{AAD_MAX, Span};
use convoy_wire::esp::EspHeader;
use convoy_wire::{EspLayout, Protocol, SeqNum, Spi, esp};
use zeroize::Zeroize;

use super::form::{Any, Form, Known};
use crate::sa::Salt;
use crate::sequence::ReservedSeq;
use crate::suite::{EspSuite, IvKind};

/// Length of a UDP header.
pub(super) const UDP_HEADER: usize = 8;

/// An IV at the front of 128 bits, zeros behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Iv(u128);

impl Iv {
    /// The first half of a random block.
    fn short(block: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(block) >> 64 << 64)
    }

    /// Its first half.
    fn front(self) -> [u8; 8] {
        ((self.0 >> 64) as u64).to_be_bytes()
    }
}

/// Data that is authenticated beside the text and its header.
#[derive(Clone, Copy, Debug)]
enum Beside {
    /// SPI and 32-bit sequence number, then the IV as far as it counts.
    Short,
    /// The same with the 64-bit sequence number.
    Extended,
    /// The high half of the sequence number, as far as it counts.
    High,
}

/// All that the packets of one SA have in common, worked out once.
pub(super) struct Layout {
    lengths: EspLayout,
    iv: IvKind,
    beside: Beside,
    beside_len: u8,
    /// Bytes of header in one piece with the text.
    header: u8,
    nonce_len: u8,
    salt_bits: u8,
    /// The salt, as the front of a nonce.
    salt: u32,
}

impl Layout {
    pub(super) fn new(suite: EspSuite, esn: bool, salt: &Salt) -> Self {
        let lengths = suite.layout();
        let is_aead = suite.suite().is_aead();
        let beside = match (is_aead, esn) {
            (true, false) => Beside::Short,
            (true, true) => Beside::Extended,
            (false, _) => Beside::High,
        };
        let high = if esn { 4 } else { 0 };
        let beside_len = match suite.suite() {
            // RFC 4543 section 3.3: everything is additional data, the IV included.
            Suite::Gmac(_) => 8 + high + lengths.iv_len() as u8,
            Suite::Pair { .. } => high,
            _ => 8 + high,
        };
        let salt_bits = suite.salt_bytes() as u8 * 8;
        let kept = u32::MAX.checked_shl(32 - u32::from(salt_bits)).unwrap_or(0);
        Self {
            lengths,
            iv: suite.iv(),
            beside,
            beside_len,
            header: if is_aead { 0 } else { lengths.prefix_len() as u8 },
            nonce_len: suite.suite().nonce_bytes() as u8,
            salt_bits,
            salt: u32::from_be_bytes(*salt.expose()) & kept,
        }
    }

    /// Of which form its packets are.
    pub(super) fn form(&self) -> Form {
        match (self.iv, self.beside) {
            (IvKind::Sequence, Beside::Short | Beside::Extended) if self.salt_bits == 32 => {
                Form::Counter
            }
            (IvKind::Random, Beside::High) if self.salt_bits == 0 => Form::Cbc,
            _ => Form::Any,
        }
    }

    #[inline(always)]
    fn iv_kind<K: Known>(&self) -> IvKind {
        match K::FORM {
            Form::Any => self.iv,
            Form::Counter => IvKind::Sequence,
            Form::Cbc => IvKind::Random,
        }
    }

    #[inline(always)]
    fn beside<K: Known>(&self) -> Beside {
        match (K::FORM, self.beside) {
            (Form::Any, beside) => beside,
            (Form::Counter, Beside::Extended) => Beside::Extended,
            (Form::Counter, _) => Beside::Short,
            (Form::Cbc, _) => Beside::High,
        }
    }

    /// The lengths.
    #[inline]
    pub(super) fn lengths(&self) -> EspLayout {
        self.lengths
    }

    /// Bytes in front of the text that are in one piece with it.
    #[inline]
    pub(super) fn header(&self) -> u32 {
        u32::from(self.header)
    }

    /// Writes what is authenticated beside text and header; returns how many bytes of it count.
    #[inline(always)]
    pub(super) fn write_beside<K: Known>(
        &self,
        into: &mut [u8; AAD_MAX],
        spi: Spi,
        seq: SeqNum,
        iv: Iv,
    ) -> u8 {
        let iv = iv.front();
        // Each where it lies: put together first, it would go through memory twice.
        match self.beside::<K>() {
            Beside::Short => {
                into[..8].copy_from_slice(&EspHeader::new(spi, seq).to_bytes());
                into[8..16].copy_from_slice(&iv);
            }
            Beside::Extended => {
                into[..4].copy_from_slice(&spi.get().to_be_bytes());
                into[4..12].copy_from_slice(&seq.get().to_be_bytes());
                into[12..].copy_from_slice(&iv);
            }
            Beside::High => into[..4].copy_from_slice(&seq.high().to_be_bytes()),
        }
        self.beside_len
    }

    /// The IV of a packet to be sealed: `random` gives one that nobody can predict, where the suite
    /// needs it.
    #[inline]
    pub(super) fn new_iv(
        &self,
        seq: SeqNum,
        random: impl FnOnce() -> Option<[u8; 16]>,
    ) -> Option<Iv> {
        match self.iv {
            IvKind::None => Some(Iv(0)),
            IvKind::Sequence => Some(Iv(u128::from(seq.get()) << 64)),
            IvKind::Random => random().map(|iv| Iv(u128::from_be_bytes(iv))),
            IvKind::RandomShort => random().map(Iv::short),
        }
    }

    /// The IV of a packet that arrived, from the bytes behind its sequence number.
    #[inline]
    pub(super) fn sent_iv(&self, bytes: &[u8]) -> Option<Iv> {
        match self.iv {
            IvKind::None => Some(Iv(0)),
            IvKind::Sequence | IvKind::RandomShort => {
                let iv = bytes.first_chunk().copied().map(u64::from_be_bytes)?;
                Some(Iv(u128::from(iv) << 64))
            }
            IvKind::Random => bytes.first_chunk().copied().map(u128::from_be_bytes).map(Iv),
        }
    }

    /// The nonce of counter modes with a salt of four bytes, which are most: made of two words.
    #[inline(always)]
    fn salted<K: Known>(&self, iv: Iv) -> Option<[u8; 12]> {
        let has_salt = match K::FORM {
            Form::Any => self.salt_bits == 32,
            Form::Counter => true,
            Form::Cbc => false,
        };
        has_salt.then(|| {
            let mut nonce = [0; 12];
            nonce[..4].copy_from_slice(&self.salt.to_be_bytes());
            nonce[4..].copy_from_slice(&iv.front());
            nonce
        })
    }

    /// Salt, then IV.
    #[inline]
    fn nonce(&self, iv: Iv) -> [u8; 16] {
        (u128::from(self.salt) << 96 | iv.0 >> self.salt_bits).to_be_bytes()
    }

    /// The nonce of a packet to be sealed. The reservation is used up, so no second packet can get
    /// it; the IV was made from it or is random.
    #[inline(always)]
    pub(super) fn seal_nonce<K: Known>(&self, reserved: ReservedSeq, iv: Iv) -> Nonce {
        let _used_up = reserved.into_number();
        match self.salted::<K>(iv) {
            Some(nonce) => Nonce::new(nonce),
            None if K::FORM == Form::Cbc => Nonce::new(iv.0.to_be_bytes()),
            None => Nonce::front(self.nonce(iv), self.nonce_len),
        }
    }

    /// The nonce of a packet to be opened.
    #[inline]
    pub(super) fn open_nonce(&self, iv: Iv) -> OpenNonce {
        match self.salted::<Any>(iv) {
            Some(nonce) => nonce.into(),
            None => OpenNonce::front(self.nonce(iv), self.nonce_len),
        }
    }

    /// Writes ESP header and IV to the front of `into`.
    #[inline]
    fn write_head(&self, into: &mut [u8], (spi, seq, iv): (Spi, SeqNum, Iv)) -> Option<()> {
        self.begin::<Any>(into, (spi, seq), || Some(iv.0.to_be_bytes())).map(drop)
    }

    /// Makes the IV of a packet to be sealed as [`Self::new_iv`] does, and writes ESP header and IV to
    /// the front of `into`.
    #[inline(always)]
    pub(super) fn begin<K: Known>(
        &self,
        into: &mut [u8],
        (spi, seq): (Spi, SeqNum),
        random: impl FnOnce() -> Option<[u8; 16]>,
    ) -> Option<Iv> {
        let (header, place) = into.split_first_chunk_mut::<{ esp::HEADER_LEN }>()?;
        *header = EspHeader::new(spi, seq).to_bytes();
        match self.iv_kind::<K>() {
            IvKind::Sequence => {
                *place.first_chunk_mut()? = seq.get().to_be_bytes();
                Some(Iv(u128::from(seq.get()) << 64))
            }
            IvKind::Random => {
                let iv = random()?;
                *place.first_chunk_mut()? = iv;
                Some(Iv(u128::from_be_bytes(iv)))
            }
            IvKind::RandomShort => {
                let iv = Iv::short(random()?);
                *place.first_chunk_mut()? = iv.front();
                Some(iv)
            }
            IvKind::None => Some(Iv(0)),
        }
    }

    /// Writes what ESP puts before and behind a payload of `payload` bytes, which already lies
    /// behind the place for header and IV at `front`, and stretches it to `filled` bytes (RFC 4303
    /// section 2.7). Returns what is to be encrypted.
    pub(super) fn write_esp(
        &self,
        packet: &mut [u8],
        front: usize,
        (payload, filled): (usize, usize),
        next_header: Protocol,
        numbers: (Spi, SeqNum, Iv),
    ) -> Option<Span> {
        self.write_head(packet.get_mut(front..)?, numbers)?;
        let start = front + self.lengths.prefix_len();
        if filled > payload {
            // The frame still has the bytes of an earlier packet there.
            packet.get_mut(start + payload..start + filled)?.fill(0);
        }
        let behind = packet.get_mut(start + filled..)?;
        let trailer = esp::emit_trailer(behind, self.lengths.pad_len(filled), next_header).ok()?;
        Some(Span { start: start as u32, len: (filled + trailer) as u32 })
    }
}

/// The salt is key material.
impl Drop for Layout {
    fn drop(&mut self) {
        self.salt.zeroize();
    }
}

/// Without the salt, which is key material.
impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layout").field("lengths", &self.lengths).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::super::form::{Cbc, Counter};
    use super::*;

    const SALT: [u8; 4] = [0xa1, 0xa2, 0xa3, 0xa4];

    fn layout(name: &str, esn: bool) -> Layout {
        Layout::new(EspSuite::new(name.parse().unwrap()).unwrap(), esn, &SALT.into())
    }

    fn number() -> (Spi, SeqNum) {
        (Spi::new(0x0909_0909).unwrap(), SeqNum::from_parts(0x0102_0304, 0x0506_0708))
    }

    fn iv_of(layout: &Layout) -> Iv {
        layout.new_iv(number().1, || Some([0x44; 16])).unwrap()
    }

    #[test]
    fn beside_the_text_goes_what_each_rfc_says() {
        let iv = [1, 2, 3, 4, 5, 6, 7, 8];
        let short: &[u8] = &[9, 9, 9, 9, 5, 6, 7, 8];
        let long: &[u8] = &[9, 9, 9, 9, 1, 2, 3, 4, 5, 6, 7, 8];
        for (name, plain, extended) in [
            ("aes-128-gcm-16", short.to_vec(), long.to_vec()),
            ("aes-128-ccm-8", short.to_vec(), long.to_vec()),
            ("chacha20-poly1305", short.to_vec(), long.to_vec()),
            ("aes-256-gmac-16", [short, &iv].concat(), [long, &iv].concat()),
            ("aes-128-cbc+hmac-sha1-96", vec![], vec![1, 2, 3, 4]),
            ("3des-cbc+hmac-sha1-96", vec![], vec![1, 2, 3, 4]),
            ("null+aes-cmac-96", vec![], vec![1, 2, 3, 4]),
        ] {
            for (esn, expected) in [(false, plain), (true, extended)] {
                let layout = layout(name, esn);
                let mut bytes = [0; AAD_MAX];
                let len =
                    layout.write_beside::<Any>(&mut bytes, number().0, number().1, iv_of(&layout));
                assert_eq!(bytes[..usize::from(len)], expected, "{name}, esn {esn}");
            }
        }
    }

    /// ESP header and IV, what is authenticated beside, and the nonce.
    fn written<K: Known>(layout: &Layout) -> ([u8; 24], Vec<u8>, String) {
        let (spi, seq) = number();
        let (mut head, mut beside) = ([0; 24], [0; AAD_MAX]);
        let iv = layout.begin::<K>(&mut head, (spi, seq), || Some([0x44; 16])).unwrap();
        let len = layout.write_beside::<K>(&mut beside, spi, seq, iv);
        let nonce = layout.salted::<K>(iv).map_or_else(
            || layout.nonce(iv)[..layout.nonce_len.into()].to_vec(),
            |salted| salted.to_vec(),
        );
        (head, beside[..len.into()].to_vec(), format!("{nonce:x?}"))
    }

    #[test]
    fn a_form_that_is_known_changes_nothing() {
        let mut forms = Vec::new();
        for suite in Suite::all().filter(|suite| EspSuite::new(*suite).is_ok()) {
            for esn in [false, true] {
                let layout = Layout::new(EspSuite::new(suite).unwrap(), esn, &SALT.into());
                let known = match layout.form() {
                    Form::Any => continue,
                    Form::Counter => written::<Counter>(&layout),
                    Form::Cbc => written::<Cbc>(&layout),
                };
                assert_eq!(known, written::<Any>(&layout), "{suite}, esn {esn}");
                forms.push((layout.form() == Form::Cbc, suite.to_string()));
            }
        }
        for (is_cbc, name) in [(false, "aes-256-gcm-16"), (true, "aes-192-cbc+aes-xcbc-96")] {
            assert!(forms.contains(&(is_cbc, name.into())), "{forms:?}");
        }
    }

    #[test]
    fn the_nonce_is_salt_and_iv() {
        for (name, expected) in [
            ("aes-128-gcm-16", &[0xa1, 0xa2, 0xa3, 0xa4, 1, 2, 3, 4, 5, 6, 7, 8][..]),
            ("aes-128-ctr+hmac-sha1-96", &[0xa1, 0xa2, 0xa3, 0xa4, 1, 2, 3, 4, 5, 6, 7, 8]),
            ("aes-128-ccm-16", &[0xa1, 0xa2, 0xa3, 1, 2, 3, 4, 5, 6, 7, 8]),
            ("aes-128-cbc+hmac-sha1-96", &[0x44; 16]),
            ("3des-cbc+hmac-sha1-96", &[0x44; 8]),
            ("null+hmac-sha1-96", &[]),
        ] {
            let layout = layout(name, true);
            let nonce = layout.nonce(iv_of(&layout));
            assert_eq!(usize::from(layout.nonce_len), expected.len(), "{name}");
            assert_eq!(&nonce[..expected.len()], expected, "{name}");
            let salted = layout.salted::<Any>(iv_of(&layout));
            assert_eq!(salted.is_some(), layout.salt_bits == 32);
            assert!(salted.is_none_or(|salted| salted == expected), "{name}");
            assert!(nonce[expected.len()..].iter().all(|&byte| byte == 0), "{name}");
        }
    }

    #[test]
    fn esp_is_written_around_the_payload_and_its_iv_read_back() {
        for (name, iv, pad) in [
            ("aes-128-gcm-8", &[1, 2, 3, 4, 5, 6, 7, 8][..], &[][..]),
            ("aes-128-cbc+hmac-md5-96", &[0x44; 16], &[1, 2, 3, 4, 5, 6, 7, 8]),
            ("3des-cbc+hmac-md5-96", &[0x44; 8], &[]),
            ("camellia-128-cbc+hmac-md5-96", &[0x44; 16], &[1, 2, 3, 4, 5, 6, 7, 8]),
            ("null+hmac-md5-96", &[], &[]),
        ] {
            let layout = layout(name, false);
            let prefix = 8 + iv.len();
            let mut packet = [0xee; 64];
            packet[4 + prefix..][..6].copy_from_slice(b"abcdef");
            let (spi, seq) = number();
            let numbers = (spi, seq, iv_of(&layout));
            let text = layout.write_esp(&mut packet, 4, (6, 6), Protocol::IPV6, numbers).unwrap();
            let expected = [
                &[0xee, 0xee, 0xee, 0xee, 9, 9, 9, 9, 5, 6, 7, 8][..],
                iv,
                b"abcdef",
                pad,
                &[pad.len() as u8, 41],
            ]
            .concat();
            assert_eq!(packet[..expected.len()], expected, "{name}");
            assert!(packet[expected.len()..].iter().all(|&byte| byte == 0xee), "{name}");
            let (start, len) = (4 + prefix, 8 + pad.len());
            assert_eq!(text, Span { start: start as u32, len: len as u32 });
            assert_eq!(layout.sent_iv(&packet[12..]), Some(iv_of(&layout)));
            if !iv.is_empty() {
                assert_eq!(layout.sent_iv(&packet[12..11 + iv.len()]), None, "{name}: cut off");
            }
        }
    }

    #[test]
    fn what_fills_a_packet_up_is_zero() {
        let layout = layout("aes-128-gcm-16", false);
        let mut packet = [0xee; 64];
        let (spi, seq) = number();
        let numbers = (spi, seq, iv_of(&layout));
        let text = layout.write_esp(&mut packet, 0, (3, 10), Protocol::IPV4, numbers).unwrap();
        assert_eq!(text, Span { start: 16, len: 12 });
        assert_eq!(packet[16..28], [0xee, 0xee, 0xee, 0, 0, 0, 0, 0, 0, 0, 0, 4]);
    }

    #[test]
    fn printing_a_layout_shows_no_salt() {
        let text = format!("{:?}", layout("aes-128-gcm-16", false));
        assert!(!text.contains("salt") && !text.contains(&0xa1_u32.to_string()), "{text}");
    }
}
