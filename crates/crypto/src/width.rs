//! Width of vector registers.

/// Width of the registers that a kernel computes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Width {
    W128,
    W256,
    W512,
}
