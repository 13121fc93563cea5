//! From site file to published snapshot; leases, status, reload.
