//! The body and its claims: `convoy_fuzz_targets::xfrm_messages`.
#![no_main]

use convoy_fuzz_targets::xfrm_messages::{Input, check};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: Input<'_>| check(input));
