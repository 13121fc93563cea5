//! Parsers of bytes that the previous run left, without files. Fuzz targets call it.

pub use crate::lease::fuzzing::lease_image;
pub use crate::xfrm::fuzzing::journal;
