//! Fixed structures in host byte order, read and written field by field.

use std::fmt;

use zeroize::{Zeroize, Zeroizing};

/// Walks through the fields of a structure. Its length was checked before; should a field lie
/// beyond the end all the same, it reads as zeros and nothing panics.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next `N` bytes as they are.
    pub(crate) fn array<const N: usize>(&mut self) -> [u8; N] {
        let Some((head, rest)) = self.0.split_first_chunk::<N>() else {
            debug_assert!(false, "the length was to be checked before");
            self.0 = &[];
            return [0; N];
        };
        self.0 = rest;
        *head
    }

    pub(crate) fn u8(&mut self) -> u8 {
        u8::from_ne_bytes(self.array())
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_ne_bytes(self.array())
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.array())
    }

    pub(crate) fn i32(&mut self) -> i32 {
        i32::from_ne_bytes(self.array())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_ne_bytes(self.array())
    }

    /// Ports and SPIs are in network byte order.
    pub(crate) fn be16(&mut self) -> u16 {
        u16::from_be_bytes(self.array())
    }

    pub(crate) fn be32(&mut self) -> u32 {
        u32::from_be_bytes(self.array())
    }

    /// Padding.
    pub(crate) fn skip<const N: usize>(&mut self) {
        let _: [u8; N] = self.array();
    }

    pub(crate) fn rest(self) -> &'a [u8] {
        self.0
    }
}

/// One netlink datagram, built and ready to send. It may hold keys: its memory is wiped when it is
/// dropped, and it prints as its length.
pub struct Datagram(Zeroizing<Vec<u8>>);

impl Datagram {
    /// The bytes to send.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Datagram {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Datagram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Datagram({} bytes)", self.0.len())
    }
}

/// Builds one message. Memory that is outgrown is wiped before it is given back.
pub(crate) struct Writer(Zeroizing<Vec<u8>>);

impl Writer {
    /// Room for what nearly all messages need.
    const USUAL: usize = 1024;

    pub(crate) fn new() -> Self {
        Self(Zeroizing::new(Vec::with_capacity(Self::USUAL)))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        let needed = self.0.len().saturating_add(bytes.len());
        if needed > self.0.capacity() {
            let mut larger = Zeroizing::new(Vec::with_capacity(needed.saturating_mul(2)));
            larger.extend_from_slice(&self.0);
            std::mem::swap(&mut self.0, &mut larger);
        }
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn u8(&mut self, value: u8) {
        self.bytes(&[value]);
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.bytes(&value.to_ne_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.bytes(&value.to_ne_bytes());
    }

    pub(crate) fn i32(&mut self, value: i32) {
        self.bytes(&value.to_ne_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.bytes(&value.to_ne_bytes());
    }

    pub(crate) fn be16(&mut self, value: u16) {
        self.bytes(&value.to_be_bytes());
    }

    pub(crate) fn be32(&mut self, value: u32) {
        self.bytes(&value.to_be_bytes());
    }

    /// Zeros up to the next multiple of four.
    pub(crate) fn align(&mut self) {
        while !self.0.len().is_multiple_of(4) {
            self.0.push(0);
        }
    }

    pub(crate) fn zeros<const N: usize>(&mut self) {
        self.bytes(&[0; N]);
    }

    /// Overwrites what was written before at `at`.
    pub(crate) fn patch(&mut self, at: usize, bytes: &[u8]) {
        let end = at.saturating_add(bytes.len());
        if let Some(old) = self.0.get_mut(at..end) {
            old.copy_from_slice(bytes);
        }
    }

    pub(crate) fn finish(self) -> Datagram {
        Datagram(self.0)
    }
}

/// A datagram as it was received. Its bytes, of which keys may be part, are wiped when this is
/// dropped, so that a receive buffer holds no key longer than its message is looked at.
pub struct Received<'a>(&'a mut [u8]);

impl<'a> Received<'a> {
    /// Takes charge of what lies in a receive buffer.
    pub fn new(bytes: &'a mut [u8]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0
    }
}

impl Drop for Received<'_> {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Received<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Received({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receive_buffer_is_wiped_when_its_message_was_looked_at() {
        let mut buffer = *b"a key within";
        let received = Received::new(&mut buffer);
        assert_eq!(received.as_bytes(), b"a key within");
        assert_eq!(format!("{received:?}"), "Received(12 bytes)");
        drop(received);
        assert_eq!(buffer, [0; 12]);
    }

    #[test]
    fn what_is_built_survives_growing_and_never_prints() {
        let mut writer = Writer::new();
        let bytes: Vec<u8> = (0..=255).cycle().take(5000).collect();
        for part in bytes.chunks(700) {
            writer.bytes(part);
        }
        let built = writer.finish();
        assert_eq!(built.as_bytes(), bytes);
        assert_eq!(format!("{built:?}"), "Datagram(5000 bytes)");
    }
}
