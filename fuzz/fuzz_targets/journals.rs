//! The body and its claims: `convoy_fuzz_targets::journals`.
#![no_main]

use convoy_fuzz_targets::journals::{Input, check};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: Input<'_>| check(&input));
