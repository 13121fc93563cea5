//! RFC 4301 and 4303 as stages over bursts.
