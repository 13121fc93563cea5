//! Where bursts come from and go to.
