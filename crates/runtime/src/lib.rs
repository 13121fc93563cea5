//! Workers: receive, pipeline, transmit.
