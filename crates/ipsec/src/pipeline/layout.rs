//! Where the bytes of an AES-GCM ESP packet go, and what is authenticated with them.
//!
//! ```text
//!  outer IP | UDP | SPI  sequence | IV | inner packet | padding | pad len | next | ICV
//!  20 or 40 |  8  |  4      4     |  8 |              |  0 … 3  |    1    |   1  | 8/12/16
//!                 |<---- AAD ---->|    |<----------------- text ----------------->|
//! ```
//!
//! All lengths in bytes. The IV of AES-GCM is the 64-bit sequence number (RFC 4106 section 3.1
//! asks for uniqueness only), and the nonce is the salt followed by the IV.

use convoy_crypto::Nonce;
use convoy_engine::Span;
use convoy_wire::{EspLayout, Protocol, SeqNum, Spi, esp};

use crate::sequence::ReservedSeq;

/// Length of the IV that AES-GCM sends (RFC 4106 section 3.1).
pub(super) const IV: usize = 8;
/// Length of a UDP header.
pub(super) const UDP_HEADER: usize = 8;

/// The lengths of an AES-GCM SA with this ICV.
pub(super) fn gcm(icv: usize) -> EspLayout {
    EspLayout::new(IV as u8, icv as u8, 1).unwrap_or(EspLayout::AES_GCM_16)
}

/// Additional authenticated data (RFC 4106 section 5): SPI and 32-bit sequence number, or SPI and
/// 64-bit sequence number with ESN. Returns the bytes and how many count.
#[inline]
pub(super) fn aad(spi: Spi, seq: SeqNum, esn: bool) -> ([u8; 12], u8) {
    let [a, b, c, d] = spi.to_be_bytes();
    if esn {
        let [h0, h1, h2, h3, l0, l1, l2, l3] = seq.get().to_be_bytes();
        ([a, b, c, d, h0, h1, h2, h3, l0, l1, l2, l3], 12)
    } else {
        let [l0, l1, l2, l3] = seq.low().to_be_bytes();
        ([a, b, c, d, l0, l1, l2, l3, 0, 0, 0, 0], 8)
    }
}

/// The nonce: salt, then the IV of the packet (RFC 4106 section 4).
#[inline]
pub(super) fn nonce(salt: [u8; 4], iv: [u8; IV]) -> [u8; 12] {
    let [s0, s1, s2, s3] = salt;
    let [i0, i1, i2, i3, i4, i5, i6, i7] = iv;
    [s0, s1, s2, s3, i0, i1, i2, i3, i4, i5, i6, i7]
}

/// The nonce of a packet to be sealed. The reservation is used up, so no second packet can get it.
#[inline]
pub(super) fn seal_nonce(salt: [u8; 4], reserved: ReservedSeq) -> Nonce {
    Nonce::new(nonce(salt, reserved.into_number().get().to_be_bytes()))
}

/// Writes what ESP puts before and behind a payload of `payload` bytes, which already lies behind
/// the place for header and IV at `front`. Returns what is to be encrypted.
#[inline]
pub(super) fn write_esp(
    packet: &mut [u8],
    front: usize,
    payload: usize,
    layout: EspLayout,
    next_header: Protocol,
    (spi, seq): (Spi, SeqNum),
) -> Option<Span> {
    let header = packet.get_mut(front..)?.first_chunk_mut::<16>()?;
    let [a, b, c, d] = spi.to_be_bytes();
    let [e, f, g, h] = seq.low().to_be_bytes();
    let [i, j, k, l, m, n, o, p] = seq.get().to_be_bytes();
    *header = [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p];
    let start = front + layout.prefix_len();
    let behind = packet.get_mut(start + payload..)?;
    let trailer = esp::emit_trailer(behind, layout.pad_len(payload), next_header).ok()?;
    Some(Span { start: start as u32, len: (payload + trailer) as u32 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aad_has_the_high_half_in_the_middle_with_esn() {
        let seq = SeqNum::from_parts(0x0102_0304, 0x0506_0708);
        let spi = Spi::new(0x0909_0909).unwrap();
        assert_eq!(aad(spi, seq, true), ([9, 9, 9, 9, 1, 2, 3, 4, 5, 6, 7, 8], 12));
        assert_eq!(aad(spi, seq, false), ([9, 9, 9, 9, 5, 6, 7, 8, 0, 0, 0, 0], 8));
    }

    #[test]
    fn the_nonce_is_salt_and_iv() {
        let iv = [5, 6, 7, 8, 9, 10, 11, 12];
        assert_eq!(nonce([1, 2, 3, 4], iv), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    }

    #[test]
    fn esp_is_written_around_the_payload() {
        let mut packet = [0; 40];
        packet[20..26].copy_from_slice(b"abcdef");
        let number = (Spi::new(0x0102_0304).unwrap(), SeqNum::from_parts(5, 6));
        let text = write_esp(&mut packet, 4, 6, gcm(8), Protocol::IPV6, number).unwrap();
        assert_eq!(packet[4..20], [1, 2, 3, 4, 0, 0, 0, 6, 0, 0, 0, 5, 0, 0, 0, 6]);
        assert_eq!(&packet[20..28], b"abcdef\0\x29");
        assert_eq!(text, Span { start: 20, len: 8 });
    }
}
