//! The body and its claims: `convoy_fuzz_targets::wire_parse`.
#![no_main]

use convoy_fuzz_targets::wire_parse::{Input, check};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: Input<'_>| check(input));
