//! Big-endian loads that answer `None` instead of panicking.

#[inline]
pub(crate) fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Option<&[u8; N]> {
    bytes.get(at..)?.first_chunk()
}

#[inline]
pub(crate) fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    chunk(bytes, at).copied().map(u16::from_be_bytes)
}

/// The 16 bytes of an IPv4 address as a left-aligned, zero-padded array.
#[inline]
pub(crate) fn left_aligned(v4: [u8; 4]) -> [u8; 16] {
    // In words: bytes one by one are stored one by one.
    u128::from(u32::from_le_bytes(v4)).to_le_bytes()
}
