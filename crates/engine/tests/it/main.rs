//! What goes through the crate's public face.
#![allow(clippy::unwrap_used)]

mod aws_lc;
