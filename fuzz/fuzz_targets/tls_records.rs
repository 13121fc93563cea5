//! The body and its claims: `convoy_fuzz_targets::tls_records`.
#![no_main]

use convoy_fuzz_targets::tls_records::{Input, check};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: Input| check(&input));
