//! The figures to reach: what Convoy must gain over the fastest of its peers, for each class of processors.

use convoy_crypto::{Cipher, GcmParams, IcvLen, Integrity, KeyBits, Suite};

use crate::class::Class;
use crate::mix::{Mix, Sizes};
use crate::workload::Direction;

/// Least ratios of a peer's time to Convoy's at 64 bytes, at 256 to 300, at the mix, at 1420 bytes and at 16 KB.
type Goals = [f64; 5];

/// Nobody is faster, at any size.
const EVEN: Goals = [1.0; 5];

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// The suite.
    pub suite: Suite,
    /// Seal or open.
    pub direction: Direction,
}

const fn gcm(bits: KeyBits) -> Suite {
    Suite::Gcm(GcmParams::new(bits, IcvLen::Icv16))
}

const GCM: Suite = gcm(KeyBits::Aes128);
const CCM: Suite = Suite::Ccm { key_bits: KeyBits::Aes128, icv_len: IcvLen::Icv16 };
const CHACHA: Suite = Suite::ChaCha20Poly1305;

const fn cbc(integrity: Integrity) -> Suite {
    Suite::Pair { cipher: Cipher::AesCbc(KeyBits::Aes128), integrity }
}

const SEAL: Direction = Direction::Seal;
const OPEN: Direction = Direction::Open;

/// Suites and directions that are measured when nothing is asked for.
pub const ROWS: [Row; 13] = [
    Row { suite: GCM, direction: SEAL },
    Row { suite: GCM, direction: OPEN },
    Row { suite: gcm(KeyBits::Aes256), direction: SEAL },
    Row { suite: gcm(KeyBits::Aes256), direction: OPEN },
    Row { suite: cbc(Integrity::HMAC_SHA1_96), direction: SEAL },
    Row { suite: cbc(Integrity::HMAC_SHA1_96), direction: OPEN },
    Row { suite: cbc(Integrity::HMAC_SHA256_128), direction: SEAL },
    Row { suite: cbc(Integrity::HMAC_SHA256_128), direction: OPEN },
    Row { suite: cbc(Integrity::AES_XCBC_96), direction: SEAL },
    Row { suite: CHACHA, direction: SEAL },
    Row { suite: CHACHA, direction: OPEN },
    Row { suite: CCM, direction: SEAL },
    Row { suite: CCM, direction: OPEN },
];

/// The mix of the table's column.
pub const MIX: Mix = Mix::ImixPaper;

/// Numbers of keys that are measured for the table.
pub const KEYS: [usize; 2] = [1, 64];

/// The table's columns.
pub const COLUMNS: [Sizes; 7] = [
    Sizes::Fixed(64),
    Sizes::Fixed(68),
    Sizes::Fixed(256),
    Sizes::Fixed(300),
    Sizes::Mix(MIX),
    Sizes::Fixed(1420),
    Sizes::Fixed(16384),
];

/// The least ratio that is asked for on a class of processors. Where the table has no figure, it is 1.
#[must_use]
pub fn target(class: Class, row: Row, keys: usize, sizes: Sizes) -> f64 {
    let column = match sizes {
        Sizes::Fixed(64) => 0,
        Sizes::Fixed(68) if row.suite.is_aead() => 0,
        Sizes::Fixed(256 | 300) => 1,
        Sizes::Mix(_) => 2,
        Sizes::Fixed(1420) => 3,
        Sizes::Fixed(16384) => 4,
        Sizes::Fixed(_) => return 1.0,
    };
    goals(class, row, keys).get(column).copied().unwrap_or(1.0)
}

/// The row of the table.
fn goals(class: Class, row: Row, keys: usize) -> Goals {
    match row.suite {
        Suite::Gcm(_) if keys == 1 => gcm_goals(class),
        Suite::Gcm(_) => gcm_goals_of_many_keys(class),
        Suite::ChaCha20Poly1305 => chacha_goals(class),
        Suite::Ccm { .. } => ccm_goals(class),
        Suite::Pair { cipher: Cipher::AesCbc(_), integrity }
            if [Integrity::HMAC_SHA1_96, Integrity::HMAC_SHA256_128].contains(&integrity) =>
        {
            if row.direction == SEAL { cbc_seal_goals(class) } else { cbc_open_goals(class) }
        }
        _ => EVEN,
    }
}

const fn gcm_goals(class: Class) -> Goals {
    match class {
        Class::A => [1.4, 1.2, 1.15, 1.1, 1.0],
        Class::BIntel => [1.5, 1.4, 1.25, 1.25, 1.0],
        Class::BAmd => [1.3, 1.15, 1.2, 1.1, 1.0],
        Class::C => [1.4, 1.5, 1.3, 1.3, 1.0],
        Class::D => EVEN,
    }
}

const fn gcm_goals_of_many_keys(class: Class) -> Goals {
    match class {
        Class::A => [1.2, 1.1, 1.1, 1.1, 1.0],
        Class::BIntel => [1.15, 1.15, 1.1, 1.05, 1.0],
        Class::BAmd => [1.15, 1.1, 1.1, 1.05, 1.0],
        Class::C => [1.2, 1.3, 1.2, 1.2, 1.0],
        Class::D => EVEN,
    }
}

const fn cbc_seal_goals(class: Class) -> Goals {
    match class {
        Class::A => [1.4, 1.0, 1.3, 1.1, 1.0],
        Class::BIntel => [1.4, 1.0, 1.35, 1.15, 1.1],
        Class::BAmd => [1.5, 1.0, 1.4, 1.15, 1.0],
        Class::C => [1.3, 1.0, 1.3, 1.25, 1.2],
        Class::D => EVEN,
    }
}

const fn cbc_open_goals(class: Class) -> Goals {
    match class {
        Class::A => [1.2, 1.0, 1.2, 1.1, 1.0],
        Class::BIntel => [1.25, 1.0, 1.2, 1.1, 1.05],
        Class::BAmd => [1.3, 1.0, 1.3, 1.1, 1.0],
        Class::C => [1.2, 1.0, 1.2, 1.2, 1.15],
        Class::D => EVEN,
    }
}

const fn chacha_goals(class: Class) -> Goals {
    match class {
        Class::A => [2.0, 1.0, 1.3, 1.2, 1.1],
        Class::BIntel => [2.0, 1.0, 1.4, 1.3, 1.05],
        Class::BAmd => [2.5, 1.0, 1.8, 1.3, 1.1],
        Class::C => [2.7, 1.0, 1.8, 1.5, 1.05],
        Class::D => EVEN,
    }
}

const fn ccm_goals(class: Class) -> Goals {
    match class {
        Class::A => [1.2, 1.0, 1.15, 1.05, 1.0],
        Class::BIntel => [1.5, 1.0, 1.3, 1.15, 1.0],
        Class::BAmd => [1.5, 1.0, 1.4, 1.2, 1.0],
        Class::C => [1.15, 1.0, 1.3, 1.7, 1.0],
        Class::D => EVEN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_found_by_class_suite_keys_and_size() {
        let find = |class, suite, direction, keys, sizes| {
            target(class, Row { suite, direction }, keys, sizes)
        };
        assert_eq!(find(Class::BAmd, GCM, SEAL, 1, Sizes::Fixed(68)), 1.3);
        assert_eq!(find(Class::BAmd, gcm(KeyBits::Aes256), OPEN, 64, Sizes::Fixed(300)), 1.1);
        assert_eq!(find(Class::C, GCM, OPEN, 1, Sizes::Mix(Mix::Imix)), 1.3);
        assert_eq!(find(Class::A, CHACHA, SEAL, 1, Sizes::Fixed(16384)), 1.1);
        let sha256 = cbc(Integrity::HMAC_SHA256_128);
        assert_eq!(find(Class::BIntel, sha256, OPEN, 1, Sizes::Fixed(64)), 1.25);
        assert_eq!(find(Class::BIntel, sha256, SEAL, 1, Sizes::Fixed(64)), 1.4);
        // Nobody is faster, where the table is silent.
        assert_eq!(find(Class::D, GCM, SEAL, 1, Sizes::Fixed(64)), 1.0);
        assert_eq!(find(Class::BAmd, GCM, SEAL, 1, Sizes::Fixed(777)), 1.0);
        assert_eq!(find(Class::BAmd, cbc(Integrity::AES_XCBC_96), SEAL, 1, Sizes::Fixed(64)), 1.0);
    }
}
