//! The key of a state folder: finds records without telling keys, and vouches for images.

use std::fmt;

use convoy_ipsec::key::SaKeyMaterial;
use convoy_ipsec::selector::Direction;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

/// Bytes of the key file: magic, key, check.
const FILE_BYTES: usize = 8 + 32 + 8;

const MAGIC: &[u8; 8] = b"CONVOYHK";

/// A random secret that lives in the state folder.
///
/// Records are named by HMAC-SHA-256 (RFC 2104) under it, so that the folder alone says nothing
/// about keys, and images carry a MAC under it, so that neither torn nor foreign ones are believed.
pub struct HashKey(Zeroizing<[u8; 32]>);

impl HashKey {
    /// A fresh one.
    ///
    /// # Errors
    /// Fails if the system gives no random numbers.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = Zeroizing::new([0; 32]);
        getrandom::fill(bytes.as_mut())?;
        Ok(Self(bytes))
    }

    /// The secret, to be kept where keys may be.
    pub(crate) fn expose(&self) -> &[u8; 32] {
        &self.0
    }

    /// One that was kept.
    pub(crate) fn from_bytes(bytes: Zeroizing<[u8; 32]>) -> Self {
        Self(bytes)
    }

    #[cfg(test)]
    pub(super) fn for_tests(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Reads the content of a key file.
    pub(super) fn from_file(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(MAGIC)?;
        let (key, check) = rest.split_first_chunk::<32>()?;
        let key = Self(Zeroizing::new(*key));
        (key.check() == check).then_some(key)
    }

    /// The content of a key file.
    pub(super) fn to_file(&self) -> Zeroizing<Vec<u8>> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(FILE_BYTES));
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(self.0.as_ref());
        bytes.extend_from_slice(&self.check());
        bytes
    }

    fn check(&self) -> [u8; 8] {
        self.mac(b"convoy hash key check", &[]).first_chunk().copied().unwrap_or_default()
    }

    /// HMAC over a label and parts.
    pub(super) fn mac(&self, label: &[u8], parts: &[&[u8]]) -> [u8; 32] {
        // The key has 32 bytes; HMAC takes keys of every length, so this never fails.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(self.0.as_ref()) else { return [0; 32] };
        mac.update(label);
        mac.update(&[0]);
        parts.iter().for_each(|part| mac.update(part));
        mac.finalize().into_bytes().into()
    }

    /// Name of the record of a key.
    #[must_use]
    pub fn record_id(&self, direction: Direction, key: &SaKeyMaterial) -> RecordId {
        // The ICV's length is left out: nonces do not depend on it, so one key with two ICV lengths
        // is one key. The key's own length separates AES-128, -192 and -256.
        let [cipher, integrity] = key.expose_identity();
        RecordId(self.mac(b"convoy lease record", &[&[number_of(direction)], cipher, integrity]))
    }
}

impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKey")
    }
}

/// The number of a direction in records and in their names.
pub(crate) const fn number_of(direction: Direction) -> u8 {
    match direction {
        Direction::Outbound => 1,
        Direction::Inbound => 2,
    }
}

/// The direction with this number in a record.
pub(crate) const fn direction_of(number: u64) -> Option<Direction> {
    match number {
        1 => Some(Direction::Outbound),
        2 => Some(Direction::Inbound),
        _ => None,
    }
}

/// Name of a record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordId(pub(super) [u8; 32]);

impl RecordId {
    pub(crate) const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    pub(crate) const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, ..] = self.0;
        write!(f, "RecordId({a:02x}{b:02x}{c:02x}{d:02x}…)")
    }
}

#[cfg(test)]
mod tests {
    use convoy_crypto::{GcmParams, IcvLen, KeyBits, SecretBytes};

    use super::*;

    fn material(icv: IcvLen, first: u8) -> SaKeyMaterial {
        let mut bytes = [7; 20];
        bytes[0] = first;
        SaKeyMaterial::new(GcmParams::new(KeyBits::Aes128, icv), SecretBytes::copy_from(&bytes))
            .unwrap()
    }

    #[test]
    fn a_key_file_is_read_back_and_a_damaged_one_is_refused() {
        let key = HashKey::random().unwrap();
        let mut file = key.to_file();
        assert_eq!(HashKey::from_file(&file).unwrap().0, key.0);
        for at in 0..file.len() {
            file[at] ^= 1;
            assert!(HashKey::from_file(&file).is_none(), "byte {at}");
            file[at] ^= 1;
        }
        assert!(HashKey::from_file(&file[..47]).is_none());
    }

    #[test]
    fn directions_keep_the_numbers_of_earlier_versions() {
        for (number, direction) in [(1, Direction::Outbound), (2, Direction::Inbound)] {
            assert_eq!(u64::from(number_of(direction)), number);
            assert_eq!(direction_of(number), Some(direction));
        }
        assert_eq!((direction_of(0), direction_of(3)), (None, None));
    }

    #[test]
    fn records_are_told_apart_by_key_and_direction_but_not_by_icv_length() {
        let key = HashKey::random().unwrap();
        let id = |direction, icv, first| key.record_id(direction, &material(icv, first));
        let base = id(Direction::Outbound, IcvLen::Icv16, 1);
        assert_eq!(base, id(Direction::Outbound, IcvLen::Icv8, 1));
        assert_ne!(base, id(Direction::Inbound, IcvLen::Icv16, 1));
        assert_ne!(base, id(Direction::Outbound, IcvLen::Icv16, 2));
        assert_ne!(
            base,
            HashKey::random().unwrap().record_id(Direction::Outbound, &material(IcvLen::Icv16, 1))
        );
    }
}
