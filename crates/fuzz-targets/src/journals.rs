//! Journals of what daemons negotiated: no bytes make their reader panic, take more memory than they are, or keep the next
//! life from finding what is put there.

use arbitrary::Arbitrary;
use convoy_control::fuzzing::journal;

/// The bytes of a file.
#[derive(Arbitrary, Debug)]
pub struct Input<'a> {
    /// They are given the sums that tell them from others, which no random bytes have.
    has_sums: bool,
    bytes: &'a [u8],
}

/// Panics where the reader breaks its promise.
pub fn check(input: &Input<'_>) {
    let records = journal(input.bytes, input.has_sums);
    assert!(records <= input.bytes.len(), "no record is empty");
}
