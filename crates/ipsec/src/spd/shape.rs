//! Position of a policy in the index: its shape and its key.
//!
//! A selector becomes the smallest prefix of each field that covers what it means. The lengths of
//! these prefixes are its *shape*, their bits its *key*. A packet's key under a shape is its own
//! fields cut to those lengths, so one probe of a hash table finds all policies of that shape that
//! can mean the packet. What a prefix does not say exactly, as with ranges, is checked on the policy
//! that was found.
//!
//! Ranges that do not overlap have different covers, as each contains the middle of its own. Where
//! covers are widened to fewer lengths, to have fewer shapes, a key can have sixteen such ranges.

use convoy_wire::{FlowKey, IpVersion, Ports};

use crate::selector::{AddressRange, AddressSelector, PortSelector, Selector, UpperSelector};
use crate::table::{Key, Seed};

/// An address as a number: `u32` for IPv4, `u128` for IPv6.
pub(super) trait Address: Copy + Eq + core::fmt::Debug {
    const VERSION: IpVersion;
    const BITS: u8;
    /// Lengths that covers of ranges have are multiples of this.
    const COVER_STEP: u8;

    /// From the layout of [`FlowKey`].
    fn of(bytes: &[u8; 16]) -> Self;
    /// A mask whose `len` top bits are set.
    fn mask(len: u8) -> Self;
    fn and(self, mask: Self) -> Self;
    /// Leading bits in which both agree.
    fn common(self, other: Self) -> u8;
    /// Both addresses of a key in two words.
    fn words(src: Self, dst: Self) -> (u64, u64);
}

impl Address for u32 {
    const VERSION: IpVersion = IpVersion::V4;
    const BITS: u8 = 32;
    const COVER_STEP: u8 = 4;

    #[inline]
    fn of(bytes: &[u8; 16]) -> Self {
        let [a, b, c, d, ..] = *bytes;
        Self::from_be_bytes([a, b, c, d])
    }

    fn mask(len: u8) -> Self {
        !Self::MAX.checked_shr(len.into()).unwrap_or(0)
    }

    #[inline]
    fn and(self, mask: Self) -> Self {
        self & mask
    }

    fn common(self, other: Self) -> u8 {
        (self ^ other).leading_zeros() as u8
    }

    #[inline]
    fn words(src: Self, dst: Self) -> (u64, u64) {
        (u64::from(src) << 32 | u64::from(dst), 0)
    }
}

impl Address for u128 {
    const VERSION: IpVersion = IpVersion::V6;
    const BITS: u8 = 128;
    const COVER_STEP: u8 = 4;

    #[inline]
    fn of(bytes: &[u8; 16]) -> Self {
        Self::from_be_bytes(*bytes)
    }

    fn mask(len: u8) -> Self {
        !Self::MAX.checked_shr(len.into()).unwrap_or(0)
    }

    #[inline]
    fn and(self, mask: Self) -> Self {
        self & mask
    }

    fn common(self, other: Self) -> u8 {
        (self ^ other).leading_zeros() as u8
    }

    #[inline]
    fn words(src: Self, dst: Self) -> (u64, u64) {
        let halves = |n: Self| (n >> 64) as u64 ^ (n as u64).rotate_left(29);
        (halves(src), halves(dst))
    }
}

/// Kind of the upper layer's two fields, of a packet or of a selector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Of a selector only: it asks nothing of them.
    Any,
    /// Ports.
    Known,
    /// ICMP type and code, each in the upper byte of its field.
    Icmp,
    /// Nothing is known.
    Opaque,
}

/// The lengths of a selector's prefixes: which bits of a packet its key is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) src: u8,
    pub(super) dst: u8,
    pub(super) protocol: bool,
    pub(super) class: Class,
    /// Source port, or ICMP type.
    pub(super) x: u8,
    /// Destination port, or ICMP code.
    pub(super) y: u8,
}

/// A packet's fields as the index wants them, or a selector's cut to its shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TupleKey<A> {
    pub(super) src: A,
    pub(super) dst: A,
    pub(super) x: u16,
    pub(super) y: u16,
    pub(super) protocol: u8,
}

impl<A: Address> Key for TupleKey<A> {
    #[inline]
    fn hash(&self, seed: Seed) -> u64 {
        let upper = u64::from(self.x) << 32 | u64::from(self.y) << 16 | u64::from(self.protocol);
        let (a, b) = A::words(self.src, self.dst);
        if A::BITS <= 32 { seed.of(a, upper) } else { seed.of(seed.of(a, b), upper) }
    }
}

impl<A: Address> TupleKey<A> {
    /// A packet's fields and their class.
    #[inline]
    pub(super) fn of(key: &FlowKey) -> (Self, Class) {
        let (class, x, y) = match key.ports {
            Ports::Known { src, dst } => (Class::Known, src, dst),
            Ports::Icmp { ty, code } => (Class::Icmp, u16::from(ty) << 8, u16::from(code) << 8),
            Ports::Opaque => (Class::Opaque, 0, 0),
        };
        let (src, dst) = (A::of(&key.src), A::of(&key.dst));
        (Self { src, dst, x, y, protocol: key.protocol.0 }, class)
    }

    /// The fields that a mask lets through.
    #[inline]
    pub(super) fn masked(&self, mask: &Self) -> Self {
        Self {
            src: self.src.and(mask.src),
            dst: self.dst.and(mask.dst),
            x: self.x & mask.x,
            y: self.y & mask.y,
            protocol: self.protocol & mask.protocol,
        }
    }

    /// The mask of a shape.
    pub(super) fn mask(shape: Shape) -> Self {
        Self {
            src: A::mask(shape.src),
            dst: A::mask(shape.dst),
            x: mask16(shape.x),
            y: mask16(shape.y),
            protocol: if shape.protocol { u8::MAX } else { 0 },
        }
    }
}

/// Position of a selector among those of one IP version.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<A> {
    pub(super) shape: Shape,
    pub(super) key: TupleKey<A>,
    /// True if shape and key say all that the selector says.
    pub(super) exact: bool,
}

impl<A: Address> Place<A> {
    /// The place of a selector whose local side is the source; `None` when it means no packet of
    /// this IP version.
    pub(super) fn of(selector: &Selector) -> Option<Self> {
        let src = address::<A>(&selector.local)?;
        let dst = address::<A>(&selector.remote)?;
        let (class, x, y) = upper(&selector.upper)?;
        let shape = Shape {
            src: src.len,
            dst: dst.len,
            protocol: selector.protocol.is_some(),
            class,
            x: x.len,
            y: y.len,
        };
        let protocol = selector.protocol.map_or(0, |protocol| protocol.0);
        let key = TupleKey { src: src.bits, dst: dst.bits, x: x.bits, y: y.bits, protocol };
        let exact = src.exact && dst.exact && x.exact && y.exact;
        Some(Self { shape, key: key.masked(&TupleKey::mask(shape)), exact })
    }
}

/// A prefix that covers what is asked of one field.
struct Cover<T> {
    len: u8,
    bits: T,
    exact: bool,
}

fn address<A: Address>(selector: &AddressSelector) -> Option<Cover<A>> {
    match selector {
        AddressSelector::Any => Some(Cover { len: 0, bits: A::mask(0), exact: true }),
        AddressSelector::Range(range) => address_range(range),
    }
}

fn address_range<A: Address>(range: &AddressRange) -> Option<Cover<A>> {
    let (version, first, last) = range.bounds();
    if version != A::VERSION {
        return None;
    }
    let (first, last) = (A::of(first), A::of(last));
    let len = first.common(last);
    // A prefix has only zeros behind it in its first address, and differs from its last in all.
    let exact = first.and(A::mask(len)) == first && all_ones_behind(last, len);
    let len = if exact { len } else { len / A::COVER_STEP * A::COVER_STEP };
    Some(Cover { len, bits: first, exact })
}

/// True if every bit behind the first `len` is set.
fn all_ones_behind<A: Address>(address: A, len: u8) -> bool {
    // Cut off ever fewer bits: a zero at place n leaves the address as it is when cut before it.
    (len..A::BITS).all(|n| address.and(A::mask(n)) != address.and(A::mask(n + 1)))
}

const fn mask16(len: u8) -> u16 {
    match u16::MAX.checked_shr(len as u32) {
        Some(rest) => !rest,
        None => u16::MAX,
    }
}

const NOTHING: Cover<u16> = Cover { len: 0, bits: 0, exact: true };

/// The two fields; `None` when no packet has what is asked.
fn upper(selector: &UpperSelector) -> Option<(Class, Cover<u16>, Cover<u16>)> {
    use PortSelector::{Any, Opaque, Range};
    Some(match *selector {
        UpperSelector::Any | UpperSelector::Ports { local: Any, remote: Any } => {
            (Class::Any, NOTHING, NOTHING)
        }
        UpperSelector::Ports { local, remote } => match (local, remote) {
            // The ports of a packet are known both or neither.
            (Opaque, Range(_)) | (Range(_), Opaque) => return None,
            (Opaque, _) | (_, Opaque) => (Class::Opaque, NOTHING, NOTHING),
            (local, remote) => (Class::Known, port(local), port(remote)),
        },
        UpperSelector::Icmp { types: (0, u8::MAX), codes: (0, u8::MAX) } => {
            (Class::Any, NOTHING, NOTHING)
        }
        UpperSelector::Icmp { types, codes } => {
            if types.0 > types.1 || codes.0 > codes.1 {
                return None;
            }
            let wide = |(first, last): (u8, u8)| {
                cover(u16::from(first) << 8, u16::from(last) << 8 | u16::from(u8::MAX))
            };
            (Class::Icmp, wide(types), wide(codes))
        }
    })
}

fn port(selector: PortSelector) -> Cover<u16> {
    match selector {
        PortSelector::Range(range) => cover(range.start(), range.end()),
        PortSelector::Any | PortSelector::Opaque => NOTHING,
    }
}

/// The prefix of 0, 4, 8, 12 or 16 bits that covers a range.
const fn cover(first: u16, last: u16) -> Cover<u16> {
    let len = ((first ^ last).leading_zeros() / 4 * 4) as u8;
    let mask = mask16(len);
    let exact = first & !mask == 0 && last & !mask == !mask;
    Cover { len, bits: first, exact }
}
