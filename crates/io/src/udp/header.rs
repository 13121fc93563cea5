//! Numbers of a UDP header.

/// The protocol number of UDP.
pub(super) const UDP: u8 = 17;
/// Bytes of a UDP header.
pub(super) const UDP_LEN: usize = 8;
