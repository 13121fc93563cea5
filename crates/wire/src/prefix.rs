//! Address prefixes of selectors and interfaces.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;
use thiserror::Error;

use crate::IpVersion;
use crate::bytes::left_aligned;

/// A network such as `192.0.2.0/24` or `2001:db8::/32`. Bits past the prefix length are zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    addr: IpAddr,
    len: u8,
}

/// Error of a refused prefix.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum PrefixError {
    /// The part before the slash is no IPv4 or IPv6 address.
    #[error("not an ip address or prefix such as 192.0.2.0/24 or 2001:db8::/32")]
    BadAddress,
    /// The part after the slash is no number, or larger than the address has bits.
    #[error("prefix length must be a number from 0 to {max}")]
    BadLength {
        /// The largest length this address allows: 32 or 128.
        max: u8,
    },
    /// Bits past the prefix length are set, so the author may have meant something else.
    #[error("address has bits set beyond the prefix length; did you mean {suggested}?")]
    HostBits {
        /// The network the given address lies in.
        suggested: Prefix,
    },
}

impl Prefix {
    /// All of IPv4, `0.0.0.0/0`.
    pub const ANY_V4: Self = Self { addr: IpAddr::V4(Ipv4Addr::UNSPECIFIED), len: 0 };
    /// All of IPv6, `::/0`.
    pub const ANY_V6: Self = Self { addr: IpAddr::V6(Ipv6Addr::UNSPECIFIED), len: 0 };

    /// The prefix of `len` bits of `addr`.
    ///
    /// # Errors
    /// [`PrefixError::BadLength`] when `len` is above 32 (IPv4) or 128 (IPv6);
    /// [`PrefixError::HostBits`] when bits beyond `len` are set.
    pub fn new(addr: IpAddr, len: u8) -> Result<Self, PrefixError> {
        let prefix = Self::containing(addr, len)?;
        if prefix.addr == addr {
            Ok(prefix)
        } else {
            Err(PrefixError::HostBits { suggested: prefix })
        }
    }

    /// The prefix of `len` bits that `addr` lies in: host bits are cleared.
    ///
    /// # Errors
    /// [`PrefixError::BadLength`] when `len` is above 32 (IPv4) or 128 (IPv6).
    pub fn containing(addr: IpAddr, len: u8) -> Result<Self, PrefixError> {
        let max = IpVersion::of_addr(addr).address_bits();
        if len > max {
            return Err(PrefixError::BadLength { max });
        }
        Ok(Self { addr: with_bits(addr, bits(addr) & mask(len)), len })
    }

    /// The prefix of one address.
    pub const fn host(addr: IpAddr) -> Self {
        Self { addr, len: IpVersion::of_addr(addr).address_bits() }
    }

    /// The lowest address.
    pub const fn addr(&self) -> IpAddr {
        self.addr
    }

    /// The highest address.
    pub fn last(&self) -> IpAddr {
        with_bits(self.addr, bits(self.addr) | !mask(self.len))
    }

    /// Number of leading bits that count: 0 to 32 or 128.
    #[allow(clippy::len_without_is_empty)] // a length in bits; no prefix is empty
    pub const fn len(&self) -> u8 {
        self.len
    }

    /// IPv4 or IPv6.
    pub const fn version(&self) -> IpVersion {
        IpVersion::of_addr(self.addr)
    }

    /// True if `addr` lies in the prefix. Never true across IP versions.
    pub fn contains(&self, addr: IpAddr) -> bool {
        IpVersion::of_addr(addr) == self.version() && bits(addr) & mask(self.len) == bits(self.addr)
    }

    /// True if every address of `other` lies in this prefix.
    pub fn covers(&self, other: &Self) -> bool {
        self.len <= other.len && self.contains(other.addr)
    }

    /// True if some address lies in both.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.covers(other) || other.covers(self)
    }
}

/// The address as a left-aligned number, so that one mask serves both versions.
fn bits(addr: IpAddr) -> u128 {
    match addr {
        IpAddr::V4(v4) => u128::from_be_bytes(left_aligned(v4.octets())),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

fn with_bits(like: IpAddr, bits: u128) -> IpAddr {
    match like {
        IpAddr::V4(_) => {
            let [a, b, c, d, ..] = bits.to_be_bytes();
            IpAddr::V4(Ipv4Addr::new(a, b, c, d))
        }
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from_bits(bits)),
    }
}

/// A number whose `len` top bits are set.
fn mask(len: u8) -> u128 {
    !u128::MAX.checked_shr(u32::from(len)).unwrap_or(0)
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.len)
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Prefix({self})")
    }
}

/// Reads `address/length`, or an address alone as the prefix of that one address.
impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let (addr, len) = match text.split_once('/') {
            Some((addr, len)) => (addr, Some(len)),
            None => (text, None),
        };
        let addr: IpAddr = addr.parse().map_err(|_| PrefixError::BadAddress)?;
        let max = IpVersion::of_addr(addr).address_bits();
        match len {
            None => Ok(Self::host(addr)),
            Some(len) if len.bytes().all(|b| b.is_ascii_digit()) => {
                Self::new(addr, len.parse().map_err(|_| PrefixError::BadLength { max })?)
            }
            Some(_) => Err(PrefixError::BadLength { max }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    #[test]
    fn suggests_the_network_when_host_bits_are_set() {
        let err = "10.1.2.3/24".parse::<Prefix>().unwrap_err();
        assert_eq!(
            err.to_string(),
            "address has bits set beyond the prefix length; did you mean 10.1.2.0/24?"
        );
        let err = "2001:db8::1/64".parse::<Prefix>().unwrap_err();
        assert_eq!(err, PrefixError::HostBits { suggested: prefix("2001:db8::/64") });
    }

    #[test]
    fn refuses_bad_lengths_and_addresses() {
        let too_long = |t: &str| t.parse::<Prefix>().unwrap_err();
        assert_eq!(too_long("10.0.0.0/33"), PrefixError::BadLength { max: 32 });
        assert_eq!(too_long("::/129"), PrefixError::BadLength { max: 128 });
        assert_eq!(too_long("10.0.0.0/+8"), PrefixError::BadLength { max: 32 });
        assert_eq!(too_long("10.0.0.0/"), PrefixError::BadLength { max: 32 });
        assert_eq!(too_long("10.0.0/8"), PrefixError::BadAddress);
    }

    #[test]
    fn knows_its_first_and_last_address() {
        assert_eq!(prefix("10.1.0.0/16").last().to_string(), "10.1.255.255");
        assert_eq!(Prefix::ANY_V4.last().to_string(), "255.255.255.255");
        assert_eq!(prefix("2001:db8::/127").last().to_string(), "2001:db8::1");
        assert_eq!(prefix("192.0.2.7"), prefix("192.0.2.7/32"));
    }

    #[test]
    fn versions_never_contain_or_overlap_each_other() {
        assert!(!Prefix::ANY_V6.contains("10.0.0.1".parse().unwrap()));
        assert!(!Prefix::ANY_V4.overlaps(&Prefix::ANY_V6));
    }

    proptest! {
        #[test]
        fn overlap_is_what_the_address_ranges_say(
            a in any::<u32>(), b in any::<u32>(), la in 0u8..=32, lb in 0u8..=32,
        ) {
            let a = Prefix::containing(IpAddr::V4(a.into()), la).unwrap();
            let b = Prefix::containing(IpAddr::V4(b.into()), lb).unwrap();
            let by_range = a.addr() <= b.last() && b.addr() <= a.last();
            prop_assert_eq!(a.overlaps(&b), by_range);
        }

        #[test]
        fn reads_what_it_prints(addr in any::<u128>(), len in 0u8..=128) {
            let p = Prefix::containing(IpAddr::V6(addr.into()), len).unwrap();
            prop_assert_eq!(p.to_string().parse::<Prefix>(), Ok(p));
            prop_assert!(p.contains(p.addr()) && p.contains(p.last()));
        }
    }
}
