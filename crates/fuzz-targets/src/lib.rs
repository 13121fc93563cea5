//! Checks of the fuzz targets, as functions of an input: programs of `fuzz/` call them under a fuzzer,
//! and the tests of this crate with the committed seeds and mutations of these.
//!
//! A body panics if a claim does not hold. A target of `fuzz/fuzz_targets` has a module of its name here
//! and a row in [`TARGETS`].

#![forbid(unsafe_code)]
// A panic is how a body tells what it found.
#![allow(clippy::unwrap_used)]

pub mod captures;
mod common;
pub mod crypto_suites;
pub mod inbound_path;
pub mod job_manager;
pub mod journals;
pub mod kernel_answers;
pub mod lease_images;
pub mod oracle;
pub mod tls_records;
pub mod wire_parse;
pub mod xfrm_messages;

use arbitrary::{Arbitrary, Unstructured};

use oracle::Oracle;

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of its module, of its program and of the folder of its seeds.
    pub name: &'static str,
    /// Runs its body on the bytes of a file; false if they make no input.
    pub run: fn(&[u8], Option<&dyn Oracle>) -> bool,
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target { name: "captures", run: |bytes, _| with(bytes, |i| captures::check(&i)) },
    Target {
        name: "crypto_suites",
        run: |bytes, oracle| with(bytes, |input| crypto_suites::check(&input, oracle)),
    },
    Target { name: "inbound_path", run: |bytes, _| with(bytes, |i| inbound_path::check(&i)) },
    Target {
        name: "job_manager",
        run: |bytes, oracle| with(bytes, |input| job_manager::check(&input, oracle)),
    },
    Target { name: "journals", run: |bytes, _| with(bytes, |i| journals::check(&i)) },
    Target { name: "kernel_answers", run: |bytes, _| with(bytes, |i| kernel_answers::check(&i)) },
    Target { name: "lease_images", run: |bytes, _| with(bytes, |i| lease_images::check(&i)) },
    Target { name: "tls_records", run: |bytes, _| with(bytes, |i| tls_records::check(&i)) },
    Target { name: "wire_parse", run: |bytes, _| with(bytes, wire_parse::check) },
    Target { name: "xfrm_messages", run: |bytes, _| with(bytes, xfrm_messages::check) },
];

/// Makes an input of bytes and hands it to a body, as `libfuzzer_sys::fuzz_target` does, so that a file
/// means the same to both.
fn with<'a, I: Arbitrary<'a>>(bytes: &'a [u8], check: impl FnOnce(I)) -> bool {
    if bytes.len() < I::size_hint(0).0 {
        return false;
    }
    I::arbitrary_take_rest(Unstructured::new(bytes)).map(check).is_ok()
}
