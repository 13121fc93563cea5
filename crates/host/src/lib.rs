//! What Convoy changes on the host, and takes back.
