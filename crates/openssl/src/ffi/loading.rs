//! One loading of the provider, which its contexts belong to.

use arrayvec::ArrayVec;

use super::core::{Algorithm, Core};
use crate::offer::Cipher;

/// The ciphers that are offered, and an end.
pub(super) type Offered = ArrayVec<Algorithm, { Cipher::ALL.len() + 1 }>;

/// One loading of the provider: libcrypto's `provctx`.
pub(super) struct Provider {
    pub(super) core: Core,
    pub(super) offered: Offered,
}
