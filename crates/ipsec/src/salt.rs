//! First bytes of nonces.

use std::fmt;

use zeroize::Zeroizing;

/// The part of an SA's keying material that its nonces begin with (RFC 4106 section 8.1; RFC 3686
/// calls it nonce): 4 bytes, zeros behind a shorter one. Wiped when dropped, and never printed.
#[derive(Clone, Default)]
pub struct Salt(Zeroizing<[u8; 4]>);

impl Salt {
    /// The first four bytes of these, as far as there are so many.
    #[must_use]
    pub fn front(bytes: &[u8]) -> Self {
        let mut salt = Self::default();
        salt.0.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        salt
    }

    /// The bytes. Every caller of this is a place to review.
    #[inline]
    #[must_use]
    pub fn expose(&self) -> &[u8; 4] {
        &self.0
    }
}

/// Takes the same time wherever they differ.
impl PartialEq for Salt {
    fn eq(&self, other: &Self) -> bool {
        self.0.iter().zip(other.0.iter()).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
    }
}

impl From<[u8; 4]> for Salt {
    fn from(bytes: [u8; 4]) -> Self {
        Self(Zeroizing::new(bytes))
    }
}

impl fmt::Debug for Salt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Salt")
    }
}
