//! The body and its claims: `convoy_fuzz_targets::job_manager`.
#![no_main]

#[path = "../../crates/fuzz-targets/tests/it/openssl.rs"]
mod openssl;

use convoy_fuzz_targets::job_manager::{Input, check};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: Input| check(&input, openssl::oracle()));
