//! ESP (RFC 4303): header, trailer, and the arithmetic of their lengths.
//!
//! ```text
//! +---------------------------------------------------------------+ -----
//! |                SPI (security parameters index)                |   ^
//! +---------------------------------------------------------------+ authenticated
//! |                  sequence number (low 32 bits)                |   |
//! +---------------------------------------------------------------+ --|--
//! |                       IV (0 to 16 bytes)                      |   |  ^
//! +---------------------------------------------------------------+   |  |
//! |            payload, then (tunnel mode) TFC padding            |   | body
//! +               +-----------------------------------------------+   |  |
//! |               |       padding 1, 2, 3 … (0 to 255 bytes)      |   |  |
//! +---------------+---------------+---------------+---------------+   |  |
//!                                 |  pad length   |  next header  |   v  v
//! +-------------------------------+---------------+---------------+ -----
//! |                       ICV (8 to 64 bytes)                     |
//! ```

use crate::{EmitError, ParseError, Protocol, SeqNum, Spi};

/// SPI and sequence number, bytes.
pub const HEADER_LEN: usize = 8;
/// Pad length and next header, bytes.
pub const TRAILER_LEN: usize = 2;
/// Most padding a trailer can announce, bytes.
pub const MAX_PAD_LEN: usize = 255;

/// 1, 2, 3 …: the padding every packet gets and must have (RFC 4303 2.4).
const PADDING: [u8; MAX_PAD_LEN] = {
    let mut padding = [0; MAX_PAD_LEN];
    let mut value = 0u8;
    while value < 255 {
        #[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)] // evaluated at build
        {
            padding[value as usize] = value + 1;
            value += 1;
        }
    }
    padding
};

/// Bytes that are written and checked in one piece.
const SHORT: usize = 8;
/// The first of the padding.
const SHORT_PADDING: u64 = u64::from_le_bytes([1, 2, 3, 4, 5, 6, 7, 8]);

/// Eight bytes of 1: `n` times it, added to [`SHORT_PADDING`], is the padding `n` bytes later.
const ONES: u64 = 0x0101_0101_0101_0101;

/// The lowest `n` bytes, which are at most [`SHORT`].
#[inline]
#[allow(clippy::cast_possible_truncation)] // at most 8
const fn low_bytes(n: usize) -> u64 {
    u64::MAX.unbounded_shr(u64::BITS.wrapping_sub((n as u32) << 3))
}

/// The SPI and the low half of the sequence number of an ESP packet: what finds its SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EspHeader {
    /// The security parameters index.
    pub spi: Spi,
    /// The half of the sequence number that is sent.
    pub seq_low: u32,
}

impl EspHeader {
    /// Reads SPI and sequence number from the start of an ESP packet.
    ///
    /// # Errors
    /// `Truncated` below 8 bytes, `ZeroSpi`.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let [s0, s1, s2, s3, n0, n1, n2, n3] =
            *bytes.first_chunk::<HEADER_LEN>().ok_or(ParseError::Truncated)?;
        let spi = Spi::new(u32::from_be_bytes([s0, s1, s2, s3])).ok_or(ParseError::ZeroSpi)?;
        Ok(Self { spi, seq_low: u32::from_be_bytes([n0, n1, n2, n3]) })
    }

    /// The header of a packet with this SPI and number.
    #[inline]
    pub const fn new(spi: Spi, seq: SeqNum) -> Self {
        Self { spi, seq_low: seq.low() }
    }

    /// The header's bytes.
    #[inline]
    pub const fn to_bytes(self) -> [u8; HEADER_LEN] {
        ((self.spi.get() as u64) << 32 | self.seq_low as u64).to_be_bytes()
    }

    /// Writes the header to the start of `into`; returns its length.
    ///
    /// # Errors
    /// [`EmitError::BufferTooSmall`] below 8 bytes.
    #[inline]
    pub fn emit(self, into: &mut [u8]) -> Result<usize, EmitError> {
        let room =
            into.first_chunk_mut().ok_or(EmitError::BufferTooSmall { needed: HEADER_LEN })?;
        *room = self.to_bytes();
        Ok(HEADER_LEN)
    }
}

/// A checked view of an ESP packet whose SA's lengths are known.
#[derive(Clone, Copy, Debug)]
pub struct EspView<'a> {
    header: EspHeader,
    iv: &'a [u8],
    ciphertext: &'a [u8],
    icv: &'a [u8],
}

impl<'a> EspView<'a> {
    /// Takes an ESP packet apart for an SA of this layout.
    ///
    /// # Errors
    /// `Truncated` when there is no room for header, IV, two bytes of trailer and ICV; `ZeroSpi`;
    /// `BadTotalLength` when the ciphertext is no multiple of the layout's alignment.
    #[inline]
    pub fn parse(bytes: &'a [u8], layout: EspLayout) -> Result<Self, ParseError> {
        let header = EspHeader::parse(bytes)?;
        let body = bytes.get(HEADER_LEN..).unwrap_or_default();
        let (iv, rest) = body.split_at_checked(layout.iv_len()).ok_or(ParseError::Truncated)?;
        let (ciphertext, icv) = rest
            .len()
            .checked_sub(layout.icv_len())
            .and_then(|len| rest.split_at_checked(len))
            .ok_or(ParseError::Truncated)?;
        if ciphertext.len() < TRAILER_LEN {
            return Err(ParseError::Truncated);
        }
        if ciphertext.len() & layout.align_mask() != 0 {
            return Err(ParseError::BadTotalLength);
        }
        Ok(Self { header, iv, ciphertext, icv })
    }

    /// The security parameters index.
    #[inline]
    pub const fn spi(&self) -> Spi {
        self.header.spi
    }

    /// The half of the sequence number that is sent.
    #[inline]
    pub const fn seq_low(&self) -> u32 {
        self.header.seq_low
    }

    /// The initialisation vector.
    #[inline]
    pub const fn iv(&self) -> &'a [u8] {
        self.iv
    }

    /// Payload, padding and trailer, still encrypted.
    #[inline]
    pub const fn ciphertext(&self) -> &'a [u8] {
        self.ciphertext
    }

    /// The integrity check value.
    #[inline]
    pub const fn icv(&self) -> &'a [u8] {
        self.icv
    }
}

/// The lengths that an SA's algorithms give to its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EspLayout {
    iv_len: u8,
    icv_len: u8,
    align: u8,
}

impl EspLayout {
    /// AES-GCM with its 8-byte IV and 16-byte ICV (RFC 4106).
    pub const AES_GCM_16: Self = Self { iv_len: 8, icv_len: 16, align: 4 };

    /// A layout from the IV's and ICV's length and the cipher's block size, bytes. `None` when the
    /// block size is no power of two up to 128. Ciphertext is always aligned to at least 4 bytes
    /// (RFC 4303 2.4).
    pub const fn new(iv_len: u8, icv_len: u8, block_len: u8) -> Option<Self> {
        if !block_len.is_power_of_two() {
            return None;
        }
        Some(Self { iv_len, icv_len, align: if block_len < 4 { 4 } else { block_len } })
    }

    /// Length of the IV, bytes.
    #[inline]
    pub const fn iv_len(self) -> usize {
        self.iv_len as usize
    }

    /// Length of the ICV, bytes.
    #[inline]
    pub const fn icv_len(self) -> usize {
        self.icv_len as usize
    }

    /// Alignment: the ciphertext's length is a multiple of it, in bytes.
    #[inline]
    pub const fn align(self) -> usize {
        self.align as usize
    }

    #[inline]
    const fn align_mask(self) -> usize {
        self.align().wrapping_sub(1) // align is at least 4
    }

    /// Header and IV, bytes: what stands before the ciphertext.
    #[inline]
    pub const fn prefix_len(self) -> usize {
        HEADER_LEN.wrapping_add(self.iv_len()) // at most 8 + 255
    }

    /// The padding that a payload of `payload_len` bytes needs, 0 to `align` − 1 bytes.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // the mask is below 128
    pub const fn pad_len(self, payload_len: usize) -> u8 {
        let end = payload_len.wrapping_add(TRAILER_LEN);
        (end.wrapping_neg() & self.align_mask()) as u8
    }

    /// Length of the whole ESP packet around a payload, header to ICV, bytes.
    #[inline]
    pub const fn sealed_len(self, payload_len: usize) -> usize {
        let padded = payload_len.saturating_add(self.pad_len(payload_len) as usize);
        padded
            .saturating_add(TRAILER_LEN)
            .saturating_add(self.prefix_len())
            .saturating_add(self.icv_len())
    }

    /// The longest payload whose ESP packet is at most `room` bytes; `None` when not even an empty
    /// one fits.
    pub const fn max_payload_len(self, room: usize) -> Option<usize> {
        let fixed = self.prefix_len().wrapping_add(self.icv_len()); // both below 300
        match room.checked_sub(fixed) {
            Some(left) => (left & !self.align_mask()).checked_sub(TRAILER_LEN),
            None => None,
        }
    }
}

/// Writes padding, pad length and next header behind a payload: the last bytes before encryption.
///
/// `into` begins where the payload ended; the bytes written, `pad_len + 2`, are returned.
///
/// # Errors
/// [`EmitError::BufferTooSmall`].
#[inline]
pub fn emit_trailer(
    into: &mut [u8],
    pad_len: u8,
    next_header: Protocol,
) -> Result<usize, EmitError> {
    let pad = usize::from(pad_len);
    let needed = pad.saturating_add(TRAILER_LEN);
    // Without a call and a loop: what lies behind is read and written back.
    if needed <= SHORT
        && let Some(room) = into.first_chunk_mut::<SHORT>()
    {
        let bits = u32::from(pad_len) << 3;
        let trailer = u64::from(u16::from_le_bytes([pad_len, next_header.0]));
        let ours = (SHORT_PADDING & low_bytes(pad)) | trailer.unbounded_shl(bits);
        let behind = u64::from_le_bytes(*room) & !low_bytes(needed);
        *room = (ours | behind).to_le_bytes();
        return Ok(needed);
    }
    let too_small = EmitError::BufferTooSmall { needed };
    let (padding, rest) = into.split_at_mut_checked(pad).ok_or(too_small)?;
    let trailer = rest.first_chunk_mut::<TRAILER_LEN>().ok_or(too_small)?;
    padding.copy_from_slice(PADDING.get(..pad).ok_or(too_small)?);
    *trailer = [pad_len, next_header.0];
    Ok(needed)
}

/// The trailers of short paddings, each without next header and with zeros behind.
const TRAILERS: [[u8; LONG]; LONG - 1] = trailers();
/// Bytes of each of [`TRAILERS`].
const LONG: usize = 16;

#[allow(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::indexing_slicing
)] // worked out by the compiler, which would stop
const fn trailers() -> [[u8; LONG]; LONG - 1] {
    let mut trailers = [[0; LONG]; LONG - 1];
    let mut pad = 0;
    while pad < trailers.len() {
        let mut at = 0;
        while at < pad {
            trailers[pad][at] = at as u8 + 1;
            at += 1;
        }
        trailers[pad][pad] = pad as u8;
        pad += 1;
    }
    trailers
}

/// As [`emit_trailer`], for callers that write what follows later: up to 14 bytes behind the trailer
/// are set to zero. Quicker, because nothing is read.
///
/// # Errors
/// [`EmitError::BufferTooSmall`].
#[inline(always)]
pub fn emit_trailer_over(
    into: &mut [u8],
    pad_len: u8,
    next_header: Protocol,
) -> Result<usize, EmitError> {
    let pad = usize::from(pad_len);
    let needed = pad.saturating_add(TRAILER_LEN);
    if let Some(trailer) = TRAILERS.get(pad) {
        if needed <= SHORT
            && let (Some(room), Some(short)) = (into.first_chunk_mut(), trailer.first_chunk())
        {
            let room: &mut [u8; SHORT] = room;
            *room = *short;
            return set_next(room, pad, next_header, needed);
        }
        if let Some(room) = into.first_chunk_mut::<LONG>() {
            *room = *trailer;
            return set_next(room, pad, next_header, needed);
        }
    }
    emit_trailer(into, pad_len, next_header)
}

/// Puts the next header behind the pad length; returns `needed`, for which there is room.
#[inline(always)]
fn set_next(
    room: &mut [u8],
    pad: usize,
    next: Protocol,
    needed: usize,
) -> Result<usize, EmitError> {
    let place = room.get_mut(pad.saturating_add(1)).ok_or(EmitError::BufferTooSmall { needed })?;
    *place = next.0;
    Ok(needed)
}

/// Lengths and next header read from the end of a decrypted ESP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EspTrailer {
    /// Length of the payload before padding, bytes (TFC padding included).
    pub payload_len: usize,
    /// Length of the padding, bytes.
    pub pad_len: u8,
    /// Protocol of the payload.
    pub next_header: Protocol,
}

/// Reads the trailer from the end of decrypted bytes and checks that the padding counts 1, 2, 3 …
/// (RFC 4303 2.4).
///
/// # Errors
/// `Truncated` below two bytes; `BadPadding` when the padding is longer than the bytes before it
/// or has other contents.
#[inline]
pub fn parse_trailer(plaintext: &[u8]) -> Result<EspTrailer, ParseError> {
    let (before, &[pad_len, next_header]) =
        plaintext.split_last_chunk::<TRAILER_LEN>().ok_or(ParseError::Truncated)?;
    let pad = usize::from(pad_len);
    let payload_len = before.len().checked_sub(pad).ok_or(ParseError::BadPadding)?;
    let right = match before.last_chunk::<SHORT>() {
        Some(end) if pad <= 2 * SHORT => {
            // Without a call: two words that overlap, or one with what lies in front shifted away.
            let end = u64::from_le_bytes(*end);
            match before.get(payload_len..).and_then(<[u8]>::first_chunk) {
                Some(start) => {
                    let later = ONES.wrapping_mul(u64::from(pad_len.wrapping_sub(8)));
                    u64::from_le_bytes(*start) == SHORT_PADDING
                        && end == SHORT_PADDING.wrapping_add(later)
                }
                None => {
                    // Below 8 bytes; in two steps, as no shift goes over the whole word.
                    let rest = (u32::from(pad_len) << 3) ^ 63;
                    (end ^ SHORT_PADDING << 1 << rest) >> 1 >> rest == 0
                }
            }
        }
        _ => before.get(payload_len..) == PADDING.get(..pad),
    };
    if !right {
        return Err(ParseError::BadPadding);
    }
    Ok(EspTrailer { payload_len, pad_len, next_header: Protocol(next_header) })
}

/// Content of a datagram on the UDP port of ESP in UDP (RFC 3948 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UdpPayload<'a> {
    /// An ESP packet: its SPI is not zero.
    Esp(&'a [u8]),
    /// An IKE message; the four zero bytes before it are taken off.
    Ike(&'a [u8]),
    /// The one byte `0xff` that keeps a NAT mapping alive.
    Keepalive,
    /// None of these: empty, or too short to tell.
    Malformed,
}

impl<'a> UdpPayload<'a> {
    /// Tells apart the payloads of a UDP datagram.
    #[inline]
    pub fn parse(payload: &'a [u8]) -> Self {
        match payload.split_first_chunk::<4>() {
            Some(([0, 0, 0, 0], ike)) => Self::Ike(ike),
            Some(_) => Self::Esp(payload),
            None if payload == KEEPALIVE => Self::Keepalive,
            None => Self::Malformed,
        }
    }
}

/// The payload of a NAT keepalive (RFC 3948 2.3).
pub const KEEPALIVE: [u8; 1] = [0xff];

#[cfg(test)]
mod tests;
