//! Images of leases: no bytes make their reader panic, and what it reads is the same when it is written and read again.

use arbitrary::Arbitrary;
use convoy_control::fuzzing::lease_image;

/// The bytes of a file.
#[derive(Arbitrary, Debug)]
pub struct Input<'a> {
    /// They are given the sums that tell them from others, which no random bytes have.
    has_sums: bool,
    bytes: &'a [u8],
}

/// Panics where the reader breaks its promise.
pub fn check(input: &Input<'_>) {
    let records = lease_image(input.bytes, input.has_sums);
    assert!(records.unwrap_or_default() <= input.bytes.len(), "no record is empty");
}
