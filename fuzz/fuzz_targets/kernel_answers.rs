//! The body and its claims: `convoy_fuzz_targets::kernel_answers`.
#![no_main]

use convoy_fuzz_targets::kernel_answers::{Input, check};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: Input<'_>| check(&input));
