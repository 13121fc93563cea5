//! Multi-buffer packet cryptography with run-time choice of instruction set.
//!
//! The crate seals and opens packets with every suite of IPsec, a whole burst at a time. Every
//! operation of a burst brings its own key, nonce, additional data, length and ICV; the scheduler
//! sorts them once and keeps the lanes of the processor's vector units and its AES and multiplier
//! pipes full across packets. It knows no packet formats, holds no state between bursts, never
//! allocates after keys are set up, and is free of C.
//!
//! ```
//! use convoy_crypto::{
//!     Cpu, GcmParams, IcvLen, KeyBits, Nonce, OpenKey, OpenOp, SealKey, SealOp, SecretBytes, Verdict,
//!     open_burst, seal_burst,
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let cpu = Cpu::detect()?;
//! let params = GcmParams::new(KeyBits::Aes128, IcvLen::Icv16);
//! let seal_key = SealKey::new(&cpu, params, SecretBytes::copy_from(b"an example key!!"))?;
//! let open_key = OpenKey::new(&cpu, params, SecretBytes::copy_from(b"an example key!!"))?;
//!
//! let mut payload = *b"attack at dawn";
//! let mut icv = [0; 16];
//! let nonce = Nonce::new(*b"never twice!");
//! seal_burst(&mut [SealOp::new(&seal_key, nonce, b"header", &mut payload, &mut icv)?]);
//! assert_ne!(&payload, b"attack at dawn");
//!
//! let mut burst = [OpenOp::new(&open_key, *b"never twice!", b"header", &mut payload, &icv)?];
//! open_burst(&mut burst);
//! assert_eq!(burst[0].verdict(), Verdict::Authentic);
//! assert_eq!(&payload, b"attack at dawn");
//! # Ok(())
//! # }
//! ```
//!
//! # Suites
//!
//! A [`Suite`] is an AEAD (AES-GCM, AES-GMAC, AES-CCM, ChaCha20-Poly1305) or a pair of a cipher
//! (AES-CBC, AES-CTR, NULL; 3DES-CBC and Camellia-CBC for old peers) and a MAC (HMAC with MD5, SHA-1 or SHA-2, AES-XCBC, AES-CMAC), combined
//! as encrypt-then-MAC. An AEAD's operation has its additional data apart ([`SealOp::new`]); a
//! pair's has a header in front of the text, in one piece with it, and a trailer for the high bits
//! of extended sequence numbers ([`SealOp::framed`]):
//!
//! ```
//! use convoy_crypto::{Cpu, KeyMaterial, Nonce, SealKey, SealOp, SecretBytes, Suite, seal_burst};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let suite: Suite = "aes-128-cbc+hmac-sha1-96".parse()?;
//! let cipher = SecretBytes::copy_from(&[1; 16]);
//! let integrity = SecretBytes::copy_from(&[2; 20]);
//! let key = SealKey::new(&Cpu::detect()?, suite, KeyMaterial { cipher, integrity })?;
//!
//! // SPI and sequence number, the IV, then two blocks of text.
//! let iv = [3; 16];
//! let mut frame = [&[0; 8][..], &iv, &[0; 32]].concat();
//! let mut icv = [0; 12];
//! seal_burst(&mut [SealOp::framed(&key, Nonce::new(iv), &mut frame, 24, &[], &mut icv)?]);
//! assert_ne!(frame[24..], [0; 32]);
//! # Ok(())
//! # }
//! ```
//!
//! # Tiers
//!
//! A tier is a set of CPU features with kernels written for it. [`Cpu::detect`] finds the tiers of
//! the machine once; a key takes the best of them when it is set up and keeps it. The environment
//! variable `CONVOY_DENY_CPU` holds a list of tiers, with commas between them, that must not be
//! used; denying a tier denies those that build on it. A program with rights that its caller lacks
//! (`AT_SECURE`: setuid, or capabilities of its file) ignores the variable.
//!
//! | tier | builds on | CPU features, as Rust names them |
//! |---|---|---|
//! | `portable` | – | – |
//! | `aesni` | – | `sse4.1` `ssse3` `aes` `pclmulqdq` |
//! | `avx` | `aesni` | `avx` |
//! | `avx2` | `avx` | `avx2` `bmi2` |
//! | `avx512` | `avx2` | `avx512f` `avx512bw` `avx512vl` `avx512dq` |
//! | `vaes256` | `avx2` | `vaes` `vpclmulqdq` |
//! | `vaes512` | `avx512` `vaes256` | `avx512ifma` |
//!
//! The SHA extensions are no tier, for they serve the hashes of any tier: `CONVOY_DENY_CPU` knows
//! them as `sha-ni`.
//!
//! 3DES and Camellia need the feature `legacy`. They have no kernels: every tier works on RustCrypto's `des` and `camellia`, one packet after
//! another.
//!
//! The portable tier stands on RustCrypto's `aes`, `chacha20`, `ghash`, `md-5`, `poly1305`, `sha1`
//! and `sha2`. Those crates look for special instructions themselves, which keeps the tier right and constant in
//! time, but does not make it portable: [`PORTABLE_IS_SOFT`] tells. A build that sets `--cfg
//! aes_backend="soft"`, and the same of `chacha20_backend`, `md5_backend`, `poly1305_backend`,
//! `polyval_backend`, `sha1_backend` and `sha2_backend`, keeps them from it, and every other user of those
//! crates in the program as well. Convoy's own workspace does, in `.cargo/config.toml`, for tests that take
//! instructions away.
//!
//! A compiler that is told of a processor (`-C target-cpu`, `-C target-feature`) uses its instructions
//! everywhere, in the portable tier as well; [`assumed_features`] tells.
//!
//! The example `gcm_cycles` prints what every tier costs on the machine at hand. With the feature
//! `kernel-trace`, meant for tests, `sealed_by` and `opened_by` tell how many packets each tier's
//! kernels have handled on the calling thread, and `computed_in` in registers of which width. The feature `secret-marks` tells Valgrind what depends
//! on secrets and is public all the same; it is for the example `secret_marks` alone.
//!
//! # Secrets
//!
//! * No branch and no address depends on a secret; whether a packet is authentic is none. ICVs are
//!   compared in constant time. The exception are [legacy](Cipher::is_legacy) ciphers, whose code looks
//!   tables up at secret places: leave them out where nothing forces them on you.
//! * [`SecretBytes`], [`SealKey`] and [`OpenKey`] wipe their memory on drop; key tables live in one
//!   heap block that is never copied.
//! * At the end of a burst, and when a key has been set up, vector registers are wiped. So is the
//!   stack when a key has been set up, when the portable tier took part, or when a packet was forged,
//!   for the tag that it should have had makes a forgery. Stack words to which the compiler spilled
//!   keystream in other bursts are not.
//! * The payload of a forged packet is wiped before its verdict is given, and that of an authentic one
//!   decrypted.

#![deny(unsafe_code)]

mod block;
mod burst;
mod class;
mod cpu;
mod error;
mod family;
mod ghash_alone;
mod icv;
#[allow(unsafe_code)]
mod isa;
mod key;
pub mod known_answers;
#[allow(unsafe_code)]
#[cfg(target_arch = "x86_64")]
mod lent;
pub mod manager;
#[allow(unsafe_code)]
mod memory;
mod names;
mod nonce;
mod op;
mod pairs;
mod params;
mod pass;
mod poly;
mod portable;
mod secret;
mod self_test;
mod stream;
mod suite;
mod tier;
pub mod tls;
#[cfg_attr(feature = "kernel-trace", allow(unreachable_pub))]
mod trace;
mod wide_units;
mod widest;
mod width;

pub use burst::{open_burst, seal_burst};
pub use cpu::Cpu;
pub use error::{CpuError, KeyError, OpError};
pub use ghash_alone::GhashKey;
#[cfg(all(feature = "secret-marks", target_arch = "x86_64"))]
pub use isa::marks;
pub use isa::{prefetch_front, prefetch_read, time_stamp};
pub use key::{AeadKey, KeyMaterial, OpenKey, SealKey};
#[cfg(target_arch = "x86_64")]
pub use lent::{ChaChaSecret, GcmTables, KeyLender, LentKey};
pub use memory::{OutOfMemory, Shared, try_box};
pub use names::Names;
pub use nonce::{Nonce, OpenNonce};
pub use op::{Lengths, OpenOp, SealOp, Verdict};
pub use params::{GcmParams, IcvLen, KeyBits};
pub use secret::SecretBytes;
pub use self_test::{SelfTestError, self_test};
pub use suite::{Cipher, HashAlg, Integrity, MacAlg, Suite, UnknownSuite};
pub use tier::{Tier, TierInfo, UnknownTier};
#[cfg(feature = "kernel-trace")]
pub use trace::{computed_in, opened_by, sealed_by};
pub use wide_units::WideUnits;

/// True if the portable tier uses no special instructions: [as built](crate#tiers), RustCrypto's crates are kept
/// from them.
pub const PORTABLE_IS_SOFT: bool = cfg!(all(
    aes_backend = "soft",
    chacha20_backend = "soft",
    md5_backend = "soft",
    poly1305_backend = "soft",
    polyval_backend = "soft",
    sha1_backend = "soft",
    sha2_backend = "soft"
));

#[cfg(convoy_portable_must_be_soft)]
const _: () = assert!(
    PORTABLE_IS_SOFT,
    "the portable tier would use special instructions: RUSTFLAGS replaces the flags of \
     .cargo/config.toml, which keep RustCrypto's crates from it. Build with make, which adds them, \
     or add to RUSTFLAGS yourself what `make rustflags` prints"
);

/// Features that not every x86-64 processor has, but that the compiler was told to assume; none usually.
pub fn assumed_features() -> impl Iterator<Item = &'static str> {
    macro_rules! assumed {
        ($($name:tt)*) => { [$(($name, cfg!(target_feature = $name))),*] };
    }
    let features = assumed!(
        "sse3" "ssse3" "sse4.1" "sse4.2" "popcnt" "aes" "pclmulqdq" "sha" "gfni" "avx" "avx2" "bmi1" "bmi2"
        "fma" "vaes" "vpclmulqdq" "avx512f" "avx512bw" "avx512dq" "avx512vl" "avx512ifma" "avx512vbmi"
    );
    features.into_iter().filter_map(|(name, is_assumed)| is_assumed.then_some(name))
}
