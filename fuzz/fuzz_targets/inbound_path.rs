//! The body and its claims: `convoy_fuzz_targets::inbound_path`.
#![no_main]

use convoy_fuzz_targets::inbound_path::{Input, check};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: Input<'_>| check(&input));
