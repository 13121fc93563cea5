//! Peers that are loaded at run time, and kernels that measure the processor itself: all of the
//! crate's `unsafe` code.

pub mod ipsec_mb;
pub mod libssl;
pub mod openssl;
#[cfg(target_arch = "x86_64")]
pub mod ports;

/// A peer cannot take part.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// The library is not there.
    #[error("{who} is not here ({reason}); {mend}")]
    Missing {
        /// Which library.
        who: &'static str,
        /// What the loader says.
        reason: String,
        /// How to get it.
        mend: &'static str,
    },
    /// It is there, but not as it must be.
    #[error("{who} cannot take part: {what}")]
    Unfit {
        /// Which library.
        who: &'static str,
        /// Why not.
        what: String,
    },
}
