//! Parsers of bytes that an earlier life left, without files. Fuzz targets call it.

pub use crate::lease::fuzzing::lease_image;
pub use crate::xfrm::fuzzing::journal;
