//! Why there is no device.

use std::path::PathBuf;

/// What is wrong, and what would be right.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CryptodevError {
    /// The library in C is not there, or cannot be loaded.
    #[error(
        "{} cannot be loaded: {why}; build it where DPDK 22.11 or newer is installed (Debian and Ubuntu: apt \
         install libdpdk-dev): make cryptodev, make install", path.display()
    )]
    Library {
        /// Where it should be.
        path: PathBuf,
        /// What the loader says.
        why: String,
    },
    /// The library is of another version of Convoy.
    #[error(
        "{} is of another version of Convoy (its interface is {found}, this one's {wanted}): make cryptodev, \
         make install", path.display()
    )]
    Abi {
        /// Which.
        path: PathBuf,
        /// What it says.
        found: u32,
        /// What would be right.
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
        /// What it was started with.
        running: Vec<String>,
        /// What is asked for.
        wanted: Vec<String>,
    },
    /// The device cannot be used.
    #[error("the DPDK device {device} cannot be used: {}; {help}", errno(*.code))]
    Device {
        /// Its name.
        device: String,
        /// An errno.
        code: i32,
        /// What may be wrong.
        help: &'static str,
    },
}

fn errno(code: i32) -> std::io::Error {
    std::io::Error::from_raw_os_error(code)
}
