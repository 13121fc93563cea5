//! TLS records on the wire: their headers tell how much went over a connection, without a key.

use serde::{Deserialize, Serialize};

/// Bytes of a record's header (RFC 8446 section 5.1).
pub const HEADER: usize = 5;
/// Most bytes behind a header (RFC 5246 section 6.2.3).
const MAX: usize = (1 << 14) + 2048;

/// Bytes that a cipher adds to the text of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Overhead {
    /// As many bytes for every record.
    Fixed(usize),
    /// IV, MAC and padding of AES-CBC with a MAC of so many bytes (RFC 5246 section 6.2.3.2). Padding is
    /// hidden, and taken as 8 bytes, its mean.
    Cbc(usize),
}

impl Overhead {
    /// Bytes of text in a record of `len` bytes behind its header, exact or within 8.
    #[must_use]
    pub fn text(self, len: usize) -> usize {
        match self {
            Self::Fixed(bytes) => len.saturating_sub(bytes),
            Self::Cbc(mac) => len.saturating_sub(16 + mac + 8),
        }
    }
}

/// Type of a record (RFC 5246 section 6.2.1).
pub const APPLICATION_DATA: u8 = 23;

/// A stream of bytes that is no TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a record of type {kind} with {len} bytes is no TLS")]
pub struct NotTls {
    kind: u8,
    len: usize,
}

/// Counts the records of one direction of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counter {
    header: [u8; HEADER],
    /// Bytes of the header that are there.
    have: usize,
    /// Bytes behind it that are still to come.
    rest: usize,
    /// Records of application data whose headers came.
    pub records: u64,
    /// Bytes behind headers of those.
    pub bytes: u64,
}

impl Counter {
    /// Takes bytes as they come, and tells `record` the length of each record of application data whose
    /// header is complete.
    ///
    /// # Errors
    /// [`NotTls`] at a header that cannot be.
    pub fn take(&mut self, mut bytes: &[u8], mut record: impl FnMut(usize)) -> Result<(), NotTls> {
        loop {
            let skipped = self.rest.min(bytes.len());
            self.rest -= skipped;
            bytes = &bytes[skipped..];
            if bytes.is_empty() {
                return Ok(());
            }
            let more = (HEADER - self.have).min(bytes.len());
            self.header[self.have..self.have + more].copy_from_slice(&bytes[..more]);
            self.have += more;
            bytes = &bytes[more..];
            if self.have < HEADER {
                return Ok(());
            }
            let [kind, major, _, high, low] = self.header;
            let len = usize::from(u16::from_be_bytes([high, low]));
            if !(20..=APPLICATION_DATA).contains(&kind) || major != 3 || len > MAX {
                return Err(NotTls { kind, len });
            }
            (self.have, self.rest) = (0, len);
            if kind == APPLICATION_DATA {
                self.records += 1;
                self.bytes += len as u64;
                record(len);
            }
        }
    }

    /// True if the last record is whole.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.have == 0 && self.rest == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, len: usize) -> Vec<u8> {
        let [high, low] = (len as u16).to_be_bytes();
        let mut record = vec![kind, 3, 3, high, low];
        record.resize(HEADER + len, 0xaa);
        record
    }

    #[test]
    fn records_are_counted_however_they_come() {
        let stream =
            [record(22, 50), record(23, 16_408), record(23, 24), record(21, 26), record(23, 100)];
        let stream = stream.concat();
        for step in [1, 2, 4, 5, 6, 7, 1000, stream.len()] {
            let (mut counter, mut lengths) = (Counter::default(), Vec::new());
            for part in stream.chunks(step) {
                counter.take(part, |len| lengths.push(len)).unwrap();
            }
            assert_eq!(lengths, [16_408, 24, 100], "{step}");
            assert_eq!((counter.records, counter.bytes), (3, 16_532));
            assert!(counter.is_whole());
        }
        let mut counter = Counter::default();
        counter.take(&stream[..stream.len() - 1], |_| ()).unwrap();
        assert!(!counter.is_whole());
    }

    #[test]
    fn what_is_no_tls_is_refused() {
        for wrong in [record(19, 1), record(24, 1), record(23, MAX + 1), b"HTTP/1.1 400".to_vec()] {
            assert!(Counter::default().take(&wrong, |_| ()).is_err(), "{:?}", &wrong[..5]);
        }
        let mut old = record(23, 3);
        old[1] = 2;
        assert!(Counter::default().take(&old, |_| ()).is_err());
    }

    #[test]
    fn texts_are_what_ciphers_leave() {
        // AES-GCM in TLS 1.2: 8 bytes of nonce and 16 of tag.
        assert_eq!(Overhead::Fixed(24).text(16_408), 16_384);
        assert_eq!(Overhead::Fixed(24).text(3), 0);
        // AES-CBC with HMAC-SHA1: 16 of IV, 20 of MAC, 12 of padding here.
        assert!(Overhead::Cbc(20).text(16_432).abs_diff(16_384) <= 8);
    }
}
