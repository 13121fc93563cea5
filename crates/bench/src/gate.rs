//! The figures to reach: what Convoy must gain over intel-ipsec-mb.

use convoy_crypto::{Cipher, GcmParams, IcvLen, Integrity, KeyBits, Suite};

use crate::mix::{Mix, Sizes};
use crate::workload::Direction;

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// The suite.
    pub suite: Suite,
    /// Seal or open.
    pub direction: Direction,
    /// Least ratio of the peer's time to Convoy's at 64 bytes (68 as well for GCM), 256 bytes, the
    /// mix, 1420 bytes and 16 KB.
    targets: [f64; 5],
}

const GCM: Suite = Suite::Gcm(GcmParams::new(KeyBits::Aes128, IcvLen::Icv16));
const CCM: Suite = Suite::Ccm { key_bits: KeyBits::Aes128, icv_len: IcvLen::Icv16 };

const fn cbc(integrity: Integrity) -> Suite {
    Suite::Pair { cipher: Cipher::AesCbc(KeyBits::Aes128), integrity }
}

const SEAL: Direction = Direction::Seal;
const OPEN: Direction = Direction::Open;

/// The table.
pub const ROWS: [Row; 8] = [
    Row { suite: GCM, direction: SEAL, targets: [1.7, 1.3, 1.3, 1.0, 1.0] },
    Row { suite: GCM, direction: OPEN, targets: [1.5, 1.2, 1.2, 1.0, 1.0] },
    Row {
        suite: cbc(Integrity::HMAC_SHA1_96),
        direction: SEAL,
        targets: [2.0, 1.5, 1.5, 1.15, 1.0],
    },
    Row {
        suite: cbc(Integrity::HMAC_SHA1_96),
        direction: OPEN,
        targets: [1.7, 1.4, 1.4, 1.1, 1.0],
    },
    Row {
        suite: cbc(Integrity::HMAC_SHA256_128),
        direction: SEAL,
        targets: [2.0, 1.5, 1.5, 1.15, 1.0],
    },
    Row { suite: cbc(Integrity::AES_XCBC_96), direction: SEAL, targets: [1.5, 1.3, 1.3, 1.0, 1.0] },
    Row { suite: Suite::ChaCha20Poly1305, direction: SEAL, targets: [4.0, 3.0, 2.5, 2.0, 1.3] },
    Row { suite: CCM, direction: SEAL, targets: [1.5, 1.3, 1.3, 1.0, 1.0] },
];

/// The mix of the table's column.
pub const MIX: Mix = Mix::ImixPaper;

/// Numbers of keys that are measured for the table.
pub const KEYS: [usize; 2] = [1, 64];

/// The table's columns.
pub const COLUMNS: [Sizes; 6] = [
    Sizes::Fixed(64),
    Sizes::Fixed(68),
    Sizes::Fixed(256),
    Sizes::Mix(MIX),
    Sizes::Fixed(1420),
    Sizes::Fixed(16384),
];

/// The least ratio that the table asks for, if it does.
#[must_use]
pub fn target(suite: Suite, direction: Direction, sizes: Sizes) -> Option<f64> {
    let row = ROWS.iter().find(|row| (row.suite, row.direction) == (suite, direction))?;
    let column = match sizes {
        Sizes::Fixed(64) => 0,
        Sizes::Fixed(68) if suite == GCM => 0,
        Sizes::Fixed(256) => 1,
        Sizes::Mix(_) => 2,
        Sizes::Fixed(1420) => 3,
        Sizes::Fixed(16384) => 4,
        Sizes::Fixed(_) => return None,
    };
    row.targets.get(column).copied()
}

/// What OpenSSL must take, measured in Convoy's time.
#[must_use]
pub fn openssl_target(sizes: Sizes) -> f64 {
    if sizes == Sizes::Fixed(64) { 2.0 } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_found_by_suite_direction_and_size() {
        assert_eq!(target(GCM, SEAL, Sizes::Fixed(68)), Some(1.7));
        assert_eq!(target(GCM, OPEN, Sizes::Mix(Mix::Imix)), Some(1.2));
        assert_eq!(target(CCM, OPEN, Sizes::Fixed(64)), None);
        assert_eq!(target(CCM, SEAL, Sizes::Fixed(68)), None);
        assert_eq!(target(Suite::ChaCha20Poly1305, SEAL, Sizes::Fixed(16384)), Some(1.3));
    }
}
