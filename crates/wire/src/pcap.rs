//! Headers of capture files in the classic format (draft-ietf-opsawg-pcap), for writing. Its numbers are
//! in the byte order of the first of them, here big-endian.
//!
//! ```text
//! +-------------------------------+-------------------------------+
//! |                             magic                             |
//! |         major version         |         minor version         |
//! |                           reserved                            |
//! |                           reserved                            |
//! |                       longest record                          |
//! |                          link type                            |
//! +---------------------------------------------------------------+  then for each packet
//! |                            seconds                            |
//! |                  microseconds or nanoseconds                  |
//! |                    bytes of it in the file                    |
//! |                      bytes that it had                        |
//! +---------------------------------------------------------------+
//! ```

use core::time::Duration;

/// Bytes of [`PcapHeader`] in the file.
pub const FILE_HEADER_LEN: usize = 24;
/// Bytes before each packet in the file.
pub const RECORD_HEADER_LEN: usize = 16;

/// Link type of records that begin with an Ethernet header.
pub const LINK_ETHERNET: u32 = 1;
/// Link type of records that begin with an IPv4 or IPv6 header.
pub const LINK_RAW: u32 = 101;

const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;
const VERSION: [u16; 2] = [2, 4];

/// Header of a capture file, which holds for all its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PcapHeader {
    /// Link type of the records, [`LINK_RAW`] for instance.
    pub link: u32,
    /// True if time stamps have nanoseconds, false if microseconds.
    pub nanoseconds: bool,
    /// Bytes that a record has at most.
    pub snap: u32,
}

impl PcapHeader {
    /// The header as it begins the file.
    #[must_use]
    pub fn emit(&self) -> [u8; FILE_HEADER_LEN] {
        let magic = if self.nanoseconds { NANOSECONDS } else { MICROSECONDS };
        let [major, minor] = VERSION.map(u16::to_be_bytes);
        let mut bytes = [0; FILE_HEADER_LEN];
        bytes[..4].copy_from_slice(&magic.to_be_bytes());
        bytes[4..6].copy_from_slice(&major);
        bytes[6..8].copy_from_slice(&minor);
        bytes[16..20].copy_from_slice(&self.snap.to_be_bytes());
        bytes[20..].copy_from_slice(&self.link.to_be_bytes());
        bytes
    }

    /// Header of a record: a packet of `original` bytes, seen `at` this time since 1970, of which the file
    /// has `captured`. Times beyond 2106 are written as the last that there is.
    #[must_use]
    pub fn emit_record(
        &self,
        at: Duration,
        captured: u32,
        original: u32,
    ) -> [u8; RECORD_HEADER_LEN] {
        let seconds = u32::try_from(at.as_secs()).unwrap_or(u32::MAX);
        let part = if self.nanoseconds { at.subsec_nanos() } else { at.subsec_micros() };
        let mut bytes = [0; RECORD_HEADER_LEN];
        bytes[..4].copy_from_slice(&seconds.to_be_bytes());
        bytes[4..8].copy_from_slice(&part.to_be_bytes());
        bytes[8..12].copy_from_slice(&captured.to_be_bytes());
        bytes[12..].copy_from_slice(&original.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_have_their_fields_where_the_format_says() {
        let header = PcapHeader { link: LINK_RAW, nanoseconds: false, snap: 65_535 };
        let bytes = [
            0xa1, 0xb2, 0xc3, 0xd4, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0,
            101,
        ];
        assert_eq!(header.emit(), bytes);
        let finer = PcapHeader { nanoseconds: true, ..header };
        assert_eq!(finer.emit()[..4], [0xa1, 0xb2, 0x3c, 0x4d]);
        let at = Duration::new(0x0102_0304, 0x0506_0708);
        let record = |header: &PcapHeader| header.emit_record(at, 2048, 65_550);
        let tail = [0, 0, 8, 0, 0, 1, 0, 14];
        assert_eq!(record(&finer)[..8], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(record(&header)[4..8], (0x0506_0708_u32 / 1000).to_be_bytes());
        assert_eq!((record(&finer)[8..] == tail, record(&header)[8..] == tail), (true, true));
        let far = header.emit_record(Duration::from_secs(1 << 40), 0, 0);
        assert_eq!(far[..4], [0xff; 4]);
    }
}
