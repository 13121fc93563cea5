//! Runs VAES, VPCLMULQDQ and SHA instructions on a processor that lacks them.
//!
//! A missing instruction raises `#UD`, which Linux delivers as SIGILL. The handler here decodes the
//! instruction, computes its result by the plain definition, writes it into the registers that the
//! signal frame holds, and goes on behind it. Everything else runs at full speed. CPUID is trapped
//! too where processor and kernel can do that, so that a program's own detection finds the level.
//!
//! ```text
//! cargo build --release --locked --manifest-path interop/isatrap/Cargo.toml
//! ISATRAP=avx512-vaes LD_PRELOAD=…/libisatrap.so cargo test -p convoy-crypto
//! ```
//!
//! `ISATRAP` names the level: `avx`, `avx2`, `avx2-sha`, `avx2-vaes`, `avx512`, `avx512-vaes`, or
//! `none`. `ISATRAP_STATS=1` has each process tell at its end how much was emulated.
//!
//! # Limits
//!
//! * It adds instructions and takes none away: at a level below the processor's own a program that
//!   uses more than it detected is not caught. The emulator beside this package catches that.
//! * AVX-512 and AVX2 must be there, and IFMA for `avx512-vaes`: without it a program finds no tier
//!   `vaes512`. Of what a level adds, only the three sets above are emulated.
//! * Without CPUID faulting (`cpuid_fault` in `/proc/cpuinfo`) programs do not see the level, and
//!   tests of the added instructions do not run. The library says `SKIPPED` then.
//! * A program that handles SIGILL or SIGSEGV itself, or that is linked statically, is not served.
//! * A trap costs some microseconds. Timings mean nothing, neither does constancy in time.

pub mod compute;
pub mod decode;
pub mod execute;
#[cfg(target_os = "linux")]
mod trap;

#[cfg(test)]
mod tests;
