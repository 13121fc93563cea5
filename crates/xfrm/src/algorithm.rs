//! Algorithms of an SA with their keys.

use std::fmt;

use zeroize::Zeroizing;

use crate::attribute::{ALG_AEAD, ALG_AUTH, ALG_AUTH_TRUNC, ALG_COMP, ALG_CRYPT, Attributes};
use crate::bytes::{Fields, Writer};
use crate::names::{self, Known};
use crate::refusal::Refusal;

/// The longest key that is taken, in bits. The longest that any algorithm has are 512 bits.
pub const KEY_BITS_MAX: u32 = 8192;

/// A key as it came, with the salt of counter modes behind it. It is wiped when it is dropped, and
/// cannot be copied, compared or printed.
pub struct Key {
    bits: u32,
    bytes: Zeroizing<Box<[u8]>>,
}

impl Key {
    /// A key of whole bytes; `None` above [`KEY_BITS_MAX`].
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let bits = u32::try_from(bytes.len()).ok()?.checked_mul(8)?;
        Self::of_bits(bits, bytes)
    }

    fn of_bits(bits: u32, bytes: &[u8]) -> Option<Self> {
        if bits > KEY_BITS_MAX {
            return None;
        }
        let len = usize::try_from(bits.div_ceil(8)).ok()?;
        let bytes = Zeroizing::new(Box::from(bytes.get(..len)?));
        Some(Self { bits, bytes })
    }

    /// The length in bits, salt included.
    #[must_use]
    pub const fn bits(&self) -> u32 {
        self.bits
    }

    /// The bytes themselves. Every caller of this is a place to review.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({} bits)", self.bits)
    }
}

/// Linux's name of an algorithm: at most 63 bytes without a zero among them.
///
/// The known ones, and their aliases, are in [`crate::names`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct AlgorithmName([u8; 64]);

impl AlgorithmName {
    /// A name; `None` when it is longer than 63 bytes or has a zero byte.
    #[must_use]
    pub fn new(name: &str) -> Option<Self> {
        let bytes = name.as_bytes();
        if bytes.contains(&0) {
            return None;
        }
        let mut padded = [0; 64];
        padded.get_mut(..63)?.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Self(padded))
    }

    /// As a kernel reads it: up to the first zero, the last byte of 64 taken for one.
    fn read(fields: &mut Fields<'_>) -> Self {
        let mut bytes: [u8; 64] = fields.array();
        let mut ended = false;
        for (at, byte) in bytes.iter_mut().enumerate() {
            ended |= *byte == 0 || at == 63;
            if ended {
                *byte = 0;
            }
        }
        Self(bytes)
    }

    /// Becomes the name that kernels answer with, if a table has this one.
    fn canonical(&mut self, find: fn(&str) -> Option<&'static Known>) -> Option<&'static Known> {
        let known = self.as_str().and_then(find)?;
        *self = Self::new(known.name)?;
        Some(known)
    }

    /// The name; `None` when it is no UTF-8, and so certainly none that anybody knows.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        let len = self.0.iter().position(|byte| *byte == 0)?;
        std::str::from_utf8(self.0.get(..len)?).ok()
    }
}

impl fmt::Display for AlgorithmName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.as_str() {
            Some(name) => write!(f, "{}", name.escape_debug()),
            None => f.write_str("(not text)"),
        }
    }
}

impl fmt::Debug for AlgorithmName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// A cipher or a compression: `struct xfrm_algo`.
#[derive(Debug)]
pub struct Algorithm {
    /// Linux's name of the algorithm.
    pub name: AlgorithmName,
    /// Its key; of 0 bits for compression and NULL.
    pub key: Key,
}

/// An integrity algorithm.
#[derive(Debug)]
pub struct Integrity {
    /// Linux's name of the algorithm.
    pub name: AlgorithmName,
    /// Its key.
    pub key: Key,
    /// Bits of the ICV as `ALG_AUTH_TRUNC` gives them; `None` when the sender used `ALG_AUTH` and so
    /// leaves it to the algorithm. 0 leaves it to the algorithm as well. See
    /// [`Known::icv_bits`](crate::names::Known::icv_bits).
    pub icv_bits: Option<u32>,
}

/// A cipher that protects integrity as well: `struct xfrm_algo_aead`.
#[derive(Debug)]
pub struct Aead {
    /// Linux's name of the algorithm.
    pub name: AlgorithmName,
    /// Key and salt.
    pub key: Key,
    /// Bits of the ICV.
    pub icv_bits: u32,
}

/// Algorithms, with keys, that an SA applies to its packets.
#[derive(Debug, Default)]
pub enum Transform {
    /// Nothing is said: an SA that only has its SPI yet, or an event without keys.
    #[default]
    None,
    /// A combined algorithm.
    Aead(Aead),
    /// A cipher, an integrity algorithm, or both. ESP may have either or both, AH has only the
    /// second.
    Separate {
        /// `ALG_CRYPT`.
        cipher: Option<Algorithm>,
        /// `ALG_AUTH_TRUNC`, else `ALG_AUTH`.
        integrity: Option<Integrity>,
    },
    /// IPComp.
    Compression(Algorithm),
}

/// The name and key length at the front, `extra` numbers behind them, and the key.
fn read<const EXTRA: usize>(
    payload: &[u8],
    text: &'static str,
) -> Result<(AlgorithmName, Key, [u32; EXTRA]), Refusal> {
    let mut fields = Fields::new(payload);
    let name = AlgorithmName::read(&mut fields);
    let bits = fields.u32();
    let extra = std::array::from_fn(|_| fields.u32());
    let key = Key::of_bits(bits, fields.rest()).ok_or_else(|| Refusal::invalid(text))?;
    Ok((name, key, extra))
}

fn read_plain(payload: &[u8]) -> Result<Algorithm, Refusal> {
    let (name, key, []) = read(payload, "Invalid AUTH/CRYPT/COMP attribute length")?;
    Ok(Algorithm { name, key })
}

fn read_aead(payload: &[u8]) -> Result<Aead, Refusal> {
    let (name, key, [icv_bits]) = read(payload, "Invalid AEAD attribute length")?;
    Ok(Aead { name, key, icv_bits })
}

fn read_truncated(payload: &[u8]) -> Result<Integrity, Refusal> {
    let (name, key, [icv_bits]) = read(payload, "Invalid AUTH_TRUNC attribute length")?;
    Ok(Integrity { name, key, icv_bits: Some(icv_bits) })
}

impl Transform {
    /// Takes the algorithms of a message. Which go together was checked before; in an answer that
    /// nobody checks, a combined algorithm goes before separate ones.
    ///
    /// # Errors
    /// `EINVAL` when a key is longer than its attribute, or than [`KEY_BITS_MAX`].
    pub(crate) fn take(attributes: &mut Attributes<'_>) -> Result<Self, Refusal> {
        let aead = attributes.take(ALG_AEAD).map(read_aead).transpose()?;
        let truncated = attributes.take(ALG_AUTH_TRUNC).map(read_truncated).transpose()?;
        let plain = attributes.take(ALG_AUTH).map(read_plain).transpose()?;
        let cipher = attributes.take(ALG_CRYPT).map(read_plain).transpose()?;
        let compression = attributes.take(ALG_COMP).map(read_plain).transpose()?;
        if let Some(aead) = aead {
            return Ok(Self::Aead(aead));
        }
        let plain = plain.map(|Algorithm { name, key }| Integrity { name, key, icv_bits: None });
        let integrity = truncated.or(plain);
        Ok(match (cipher, integrity, compression) {
            (None, None, None) => Self::None,
            (None, None, Some(compression)) => Self::Compression(compression),
            (cipher, integrity, _) => Self::Separate { cipher, integrity },
        })
    }

    /// Gives algorithms the names that kernels answer with, whichever alias they came under, and an
    /// integrity algorithm the length of the ICV that it has when none was asked for. What nobody knows
    /// stays as it is.
    pub fn canonical(&mut self) {
        match self {
            Self::None | Self::Aead(_) => {}
            Self::Separate { cipher, integrity } => {
                if let Some(cipher) = cipher {
                    cipher.name.canonical(names::cipher);
                }
                if let Some(Integrity { name, icv_bits, .. }) = integrity
                    && let Some(known) = name.canonical(names::integrity)
                {
                    *icv_bits = known.icv_bits(*icv_bits).or(*icv_bits);
                }
            }
            Self::Compression(algorithm) => {
                algorithm.name.canonical(names::compression);
            }
        }
    }

    /// Writes the attributes. `both` writes an integrity algorithm with and without the length of its
    /// ICV, as kernels do for programs that only know the latter.
    pub(crate) fn write(&self, to: &mut Writer, both: bool) {
        match self {
            Self::None => {}
            Self::Aead(Aead { name, key, icv_bits }) => {
                write(to, ALG_AEAD, name, key, Some(*icv_bits));
            }
            Self::Separate { cipher, integrity } => {
                if let Some(Integrity { name, key, icv_bits }) = integrity {
                    if both || icv_bits.is_none() {
                        write(to, ALG_AUTH, name, key, None);
                    }
                    if icv_bits.is_some() {
                        write(to, ALG_AUTH_TRUNC, name, key, *icv_bits);
                    }
                }
                if let Some(Algorithm { name, key }) = cipher {
                    write(to, ALG_CRYPT, name, key, None);
                }
            }
            Self::Compression(Algorithm { name, key }) => write(to, ALG_COMP, name, key, None),
        }
    }
}

fn write(to: &mut Writer, number: u16, name: &AlgorithmName, key: &Key, extra: Option<u32>) {
    to.attribute(number, |to| {
        to.bytes(&name.0);
        to.u32(key.bits);
        if let Some(extra) = extra {
            to.u32(extra);
        }
        to.bytes(&key.bytes);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_what_holds_them_print_no_byte_of_the_key() {
        let aead = Aead {
            name: AlgorithmName::new("rfc4106(gcm(aes))").unwrap(),
            key: Key::new(&[0xa7; 20]).unwrap(),
            icv_bits: 128,
        };
        let text = format!("{:?}", Transform::Aead(aead));
        assert!(text.contains("Key(160 bits)") && text.contains("\"rfc4106(gcm(aes))\""), "{text}");
        assert!(!text.contains("a7") && !text.contains("167"), "{text}");
    }

    #[test]
    fn algorithms_are_called_as_kernels_answer() {
        let key = || Key::new(&[0; 16]).unwrap();
        let mut transform = Transform::Separate {
            cipher: Some(Algorithm { name: AlgorithmName::new("aes").unwrap(), key: key() }),
            integrity: Some(Integrity {
                name: AlgorithmName::new("sha1").unwrap(),
                key: key(),
                icv_bits: None,
            }),
        };
        transform.canonical();
        let text = format!("{transform:?}");
        assert!(text.contains("\"cbc(aes)\"") && text.contains("\"hmac(sha1)\""), "{text}");
        assert!(text.contains("icv_bits: Some(96)"), "{text}");
        let mut unknown = Transform::Compression(Algorithm {
            name: AlgorithmName::new("none of ours").unwrap(),
            key: key(),
        });
        unknown.canonical();
        assert!(format!("{unknown:?}").contains("\"none of ours\""));
    }

    #[test]
    fn names_end_at_the_first_zero_or_before_the_last_byte() {
        let mut bytes = [b'x'; 64];
        let read = |bytes: &[u8; 64]| AlgorithmName::read(&mut Fields::new(bytes));
        assert_eq!(read(&bytes), AlgorithmName::new(&"x".repeat(63)).unwrap());
        bytes[3] = 0;
        assert_eq!(read(&bytes), AlgorithmName::new("xxx").unwrap());
        assert_eq!(AlgorithmName::new(&"x".repeat(64)), None);
        assert_eq!(AlgorithmName::new("a\0b"), None);
        bytes[0] = 0xff;
        assert_eq!(
            (read(&bytes).as_str(), read(&bytes).to_string().as_str()),
            (None, "(not text)")
        );
    }

    #[test]
    fn lengths_in_bits_are_rounded_up_and_cannot_overflow() {
        assert_eq!(Key::of_bits(9, &[1, 2, 3]).unwrap().expose(), [1, 2]);
        assert!(Key::of_bits(17, &[1, 2]).is_none());
        assert!(Key::of_bits(u32::MAX, &[]).is_none());
        assert!(Key::of_bits(KEY_BITS_MAX + 1, &[0; 2000]).is_none());
    }
}
