//! One image of all records, as bytes.
//!
//! ```text
//! 0        8     12    16           24              40      48
//! | magic  | ver |count| generation |  boot id      | flags | records (64 bytes each) … | MAC (32) |
//!
//! record:   0                  32     40       48          56
//!           | record id        | kind | number | allowance | allowance after a reboot |
//! ```
//! In place of the first record stands what the image is tied to, four hashes of 16 bytes (zeros: not
//! known). It counts as a record, so that the first version of this format, which had none, finds the MAC
//! where it looks for it and says that it does not know this one. The kind is 1 outbound and 2 inbound, and
//! 256 more of a key that may not be used any more. All numbers are little-endian. The MAC is HMAC-SHA-256 under the folder's key over everything
//! before it: an image is believed as a whole or not at all.

use convoy_ipsec::selector::Direction;

use super::binding::{BINDING, Binding};
use super::hash::{HashKey, RecordId, direction_of, number_of};

const MAGIC: &[u8; 8] = b"CONVOYLS";
/// Version of the format.
pub(super) const VERSION: u32 = 2;
/// The version before, whose images are tied to nothing.
const UNBOUND: u32 = 1;
/// In the kind of a record.
const SPENT: u64 = 256;
const HEADER: usize = 48;
const RECORD: usize = 64;
const MAC: usize = 32;
const LABEL: &[u8] = b"convoy lease image";

/// Identity of a boot of the kernel: page caches live as long as it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BootId(pub [u8; 16]);

impl BootId {
    /// The present boot; `None` where the kernel does not tell.
    #[must_use]
    pub fn current() -> Option<Self> {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
        u128::from_str_radix(&digits, 16).ok().map(|bits| Self(bits.to_be_bytes()))
    }
}

/// State of one key that is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) id: RecordId,
    pub(super) direction: Direction,
    /// True if its key may not be used any more: a copy of this machine has it, too.
    pub(super) is_spent: bool,
    /// Outbound: the first number not leased. Inbound: the right edge of the window.
    pub(super) number: u64,
    /// Outbound: the next image's `number` is no higher. Inbound: how far the edge may have moved
    /// before the next write.
    pub(super) allowance: u64,
    /// Inbound: how far the edge may have moved before the next sync. Outbound: 0.
    pub(super) allowance_synced: u64,
}

/// All records at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Image {
    pub(super) generation: u64,
    pub(super) boot: Option<BootId>,
    /// True if it was written by an orderly end, when all numbers were exact.
    pub(super) clean: bool,
    /// Identifiers that it is tied to; none in one that the version before wrote.
    pub(super) binding: Binding,
    pub(super) records: Vec<Record>,
}

/// Error of bytes that are no image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BadImage {
    /// Torn, damaged, or of another folder.
    Damaged,
    /// Whole, but of another version.
    Version(u32),
}

impl Image {
    pub(super) fn to_bytes(&self, key: &HashKey) -> Vec<u8> {
        let rows = self.records.len() + 1;
        let mut bytes = Vec::with_capacity(HEADER + rows * RECORD + MAC);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&u32::try_from(rows).unwrap_or(u32::MAX).to_le_bytes());
        bytes.extend_from_slice(&self.generation.to_le_bytes());
        bytes.extend_from_slice(&self.boot.map_or([0; 16], |boot| boot.0));
        bytes.extend_from_slice(&u64::from(self.clean).to_le_bytes());
        bytes.extend_from_slice(&self.binding.to_bytes());
        for record in &self.records {
            bytes.extend_from_slice(&record.id.0);
            let kind =
                u64::from(number_of(record.direction)) | if record.is_spent { SPENT } else { 0 };
            bytes.extend_from_slice(&kind.to_le_bytes());
            bytes.extend_from_slice(&record.number.to_le_bytes());
            bytes.extend_from_slice(&record.allowance.to_le_bytes());
            bytes.extend_from_slice(&record.allowance_synced.to_le_bytes());
        }
        let mac = key.mac(LABEL, &[&bytes]);
        bytes.extend_from_slice(&mac);
        bytes
    }

    /// The bytes up to where their header says that they end, with the MAC that they should have; none if they are too few.
    pub(super) fn signed(bytes: &[u8], key: &HashKey) -> Option<Vec<u8>> {
        let count = u32::from_le_bytes(*bytes.get(12..)?.first_chunk()?);
        let body = HEADER.checked_add(usize::try_from(count).ok()?.checked_mul(RECORD)?)?;
        let body = bytes.get(..body)?;
        Some([body, &key.mac(LABEL, &[body])].concat())
    }

    /// Reads an image; bytes behind its end do not count.
    pub(super) fn from_bytes(bytes: &[u8], key: &HashKey) -> Result<Self, BadImage> {
        Self::parse(bytes, key).unwrap_or(Err(BadImage::Damaged))
    }

    fn parse(bytes: &[u8], key: &HashKey) -> Option<Result<Self, BadImage>> {
        let mut at = Cursor(bytes);
        if at.take::<8>()? != *MAGIC {
            return None;
        }
        let version = u32::from_le_bytes(at.take()?);
        let count = usize::try_from(u32::from_le_bytes(at.take()?)).ok()?;
        let body = HEADER.checked_add(count.checked_mul(RECORD)?)?;
        let (signed, rest) = bytes.split_at_checked(body)?;
        // No secret is compared: whoever can write here can also read the key beside it.
        if key.mac(LABEL, &[signed]) != *rest.first_chunk::<MAC>()? {
            return None;
        }
        if version != VERSION && version != UNBOUND {
            return Some(Err(BadImage::Version(version)));
        }
        let generation = u64::from_le_bytes(at.take()?);
        let boot = Some(at.take::<16>()?).filter(|boot| *boot != [0; 16]).map(BootId);
        let clean = u64::from_le_bytes(at.take()?) == 1;
        let (binding, count) = match version {
            UNBOUND => (Binding::default(), count),
            _ => (Binding::from_bytes(&at.take::<BINDING>()?), count.checked_sub(1)?),
        };
        let mut records = Vec::with_capacity(count);
        for _ in 0..count {
            let id = RecordId(at.take()?);
            let kind = u64::from_le_bytes(at.take()?);
            records.push(Record {
                id,
                direction: direction_of(kind & !SPENT)?,
                is_spent: kind & SPENT != 0,
                number: u64::from_le_bytes(at.take()?),
                allowance: u64::from_le_bytes(at.take()?),
                allowance_synced: u64::from_le_bytes(at.take()?),
            });
        }
        Some(Ok(Self { generation, boot, clean, binding, records }))
    }
}

struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk::<N>()?;
        self.0 = tail;
        Some(*head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image() -> Image {
        let record = |n: u8, direction| Record {
            id: RecordId([n; 32]),
            direction,
            is_spent: n == 2,
            number: 1000,
            allowance: 3000,
            allowance_synced: 5,
        };
        Image {
            generation: 9,
            boot: Some(BootId([3; 16])),
            clean: true,
            binding: Binding::from_bytes(&[5; BINDING]),
            records: vec![record(1, Direction::Outbound), record(2, Direction::Inbound)],
        }
    }

    #[test]
    fn an_image_is_read_back_also_with_old_bytes_behind_it() {
        let key = HashKey::random().unwrap();
        let mut bytes = image().to_bytes(&key);
        assert_eq!(Image::from_bytes(&bytes, &key), Ok(image()));
        bytes.extend_from_slice(&[0xee; 100]);
        assert_eq!(Image::from_bytes(&bytes, &key), Ok(image()));
    }

    #[test]
    fn every_changed_byte_and_every_cut_is_noticed() {
        let key = HashKey::random().unwrap();
        let bytes = image().to_bytes(&key);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            assert_eq!(Image::from_bytes(&damaged, &key), Err(BadImage::Damaged), "byte {at}");
            assert_eq!(
                Image::from_bytes(&bytes[..at], &key),
                Err(BadImage::Damaged),
                "cut at {at}"
            );
        }
        assert_eq!(Image::from_bytes(&bytes, &HashKey::random().unwrap()), Err(BadImage::Damaged));
    }

    /// As the version before wrote them.
    fn unbound(image: &Image, key: &HashKey) -> Vec<u8> {
        let mut bytes = image.to_bytes(key);
        bytes.truncate(bytes.len() - MAC);
        bytes.drain(HEADER..HEADER + BINDING);
        bytes[8..12].copy_from_slice(&UNBOUND.to_le_bytes());
        let count = u32::try_from(image.records.len()).unwrap();
        bytes[12..16].copy_from_slice(&count.to_le_bytes());
        let mac = key.mac(LABEL, &[&bytes]);
        bytes.extend_from_slice(&mac);
        bytes
    }

    #[test]
    fn images_of_the_version_before_are_read_and_tied_to_nothing() {
        let key = HashKey::random().unwrap();
        let expected = Image { binding: Binding::default(), ..image() };
        assert_eq!(Image::from_bytes(&unbound(&image(), &key), &key), Ok(expected));
    }

    #[test]
    fn an_image_of_a_later_version_is_told_from_a_damaged_one() {
        let key = HashKey::random().unwrap();
        let mut bytes = image().to_bytes(&key);
        bytes.truncate(bytes.len() - MAC);
        bytes[8] = 77;
        let mac = key.mac(LABEL, &[&bytes]);
        bytes.extend_from_slice(&mac);
        assert_eq!(Image::from_bytes(&bytes, &key), Err(BadImage::Version(77)));
    }

    #[test]
    fn the_boot_is_known_where_proc_is() {
        assert_eq!(BootId::current(), BootId::current());
        assert_eq!(
            BootId::current().is_some(),
            std::path::Path::new("/proc/sys/kernel/random/boot_id").exists()
        );
    }
}
