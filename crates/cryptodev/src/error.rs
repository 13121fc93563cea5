//! Errors of opening a device.

use std::path::PathBuf;

/// Error of a device, with its remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CryptodevError {
    /// The library in C is not there, or cannot be loaded.
    #[error(
        "{} cannot be loaded: {why}; build it where DPDK 22.11 or newer is installed (Debian and Ubuntu: apt \
         install libdpdk-dev): make cryptodev, make install", path.display()
    )]
    Library {
        /// Path where it should be.
        path: PathBuf,
        /// Message of the loader.
        why: String,
    },
    /// The library is of another version of Convoy.
    #[error(
        "{} is of another version of Convoy (its interface is {found}, this one's {wanted}): make cryptodev, \
         make install", path.display()
    )]
    Abi {
        /// Path of the library.
        path: PathBuf,
        /// Version of its interface.
        found: u32,
        /// Version that is needed.
        wanted: u32,
    },
    /// DPDK does not start.
    #[error("DPDK does not start with the arguments {arguments:?}: {}; DPDK's own message stands above", errno(*.code))]
    Start {
        /// Its arguments.
        arguments: Vec<String>,
        /// An errno.
        code: i32,
    },
    /// DPDK runs already, with other arguments.
    #[error(
        "DPDK runs in this process with the arguments {running:?}, and starts only once: restart it for {wanted:?}"
    )]
    Started {
        /// Arguments that it was started with.
        running: Vec<String>,
        /// Arguments asked for.
        wanted: Vec<String>,
    },
    /// The device cannot be used.
    #[error("the DPDK device {device} cannot be used: {}; {help}", errno(*.code))]
    Device {
        /// Its name.
        device: String,
        /// An errno.
        code: i32,
        /// Advice on what may be wrong.
        help: &'static str,
    },
}

fn errno(code: i32) -> std::io::Error {
    std::io::Error::from_raw_os_error(code)
}
