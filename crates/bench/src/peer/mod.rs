//! Peers that are loaded at run time or linked in, Convoy's own C library, and kernels that measure the processor itself: all of
//! the crate's `unsafe` code.

#[cfg(feature = "peer-aws-lc")]
mod aws_lc;
#[cfg(feature = "peer-boringssl")]
mod boringssl;
pub mod c;
pub mod ipsec_mb;
pub mod libssl;
pub mod linked;
pub mod openssl;
#[cfg(target_arch = "x86_64")]
pub mod ports;
mod tags;

/// A peer cannot take part.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// The library is not there.
    #[error("{who} is not here ({reason}); {mend}")]
    Missing {
        /// Name of the library.
        who: &'static str,
        /// The loader's error.
        reason: String,
        /// Advice on how to get it.
        mend: &'static str,
    },
    /// The program was built without it.
    #[error(
        "{who} was not built into this program; build one with it: cargo build --release -p convoy --features {feature}"
    )]
    NotBuilt {
        /// Name of the library.
        who: &'static str,
        /// The feature that builds it in.
        feature: &'static str,
    },
    /// It is there, but not as it must be.
    #[error("{who} cannot take part: {what}")]
    Unfit {
        /// Name of the library.
        who: &'static str,
        /// Reason.
        what: String,
    },
}
