//! Classes of packets of AES-GCM, by which the scheduler sorts them.

use crate::{
    KeyBits, Tier,
    isa::packet::{MOST_ROWS, SHORT_BLOCKS},
};

/// Packets of one class go through the same code with the same trip counts: tier and key size in the high
/// byte, length in the low one.
pub(crate) type Class = u16;

/// The class of keys that no kernel of AES-GCM takes.
pub(crate) const NO_CLASS: Class = Class::MAX;

/// Classes by payload: 0 to [`SHORT_BLOCKS`] blocks, up to [`MOST_ROWS`] rows, and longer.
pub(crate) const LENGTH_CLASSES: usize = SHORT_BLOCKS + 2 + MOST_ROWS - SHORT_BLOCKS / 4;

/// The class of a tier and key size with the longest packets; its other classes are below it.
pub(crate) fn last_class(tier: Tier, bits: KeyBits) -> Class {
    let lengths = if tier == Tier::Vaes512 { LENGTH_CLASSES } else { SHORT_BLOCKS + 2 };
    ((tier as Class) << 2 | bits as Class) << 8 | (lengths - 1) as Class
}

/// The class of packets of so many bytes whose tier and key size have `last` as their last class, `most` being the
/// highest by length.
#[inline(always)]
pub(crate) fn length_class(last: Class, most: usize, data_len: usize) -> Class {
    // No slice is so long that these overflow.
    let (blocks, rows) = ((data_len + 15) >> 4, (data_len + 63) >> 6);
    let class =
        if blocks <= SHORT_BLOCKS { blocks } else { rows + SHORT_BLOCKS - SHORT_BLOCKS / 4 };
    last & 0xff00 | class.min(most).min(usize::from(last & 0xff)) as Class
}
