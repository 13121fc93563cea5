//! Multi-buffer packet cryptography with run-time choice of instruction set.
