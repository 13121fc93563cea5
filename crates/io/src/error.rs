//! Errors of ports.

use std::io;

/// A port could not be set up, or is of no more use.
///
/// Loss of single packets is never an error: it is counted in [`PortCounters`](crate::PortCounters).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IoError {
    /// A step of the set-up was refused by the kernel.
    #[error("cannot {step}: {source}")]
    Setup {
        /// The attempt, as in "bind the udp socket".
        step: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
    /// A device name is empty, longer than 15 bytes, or has a character that Linux forbids.
    #[error("{0} bytes are no name of a network device: 1 to 15 bytes without '/', ':' or blanks")]
    DeviceName(usize),
    /// A number of queues or workers is outside 1…256.
    #[error("{0} queues asked for, 1 to 256 are possible")]
    Queues(usize),
    /// The interface has more addresses than can be told apart from others' in the kernel.
    #[error(transparent)]
    Take(#[from] crate::link::TakeError),
    /// A socket cannot share a UDP port.
    #[error(transparent)]
    Steer(#[from] crate::udp::SteerError),
    /// An interface has fewer receive queues than there are workers.
    #[error(
        "the interface has {queues} receive queue(s) for {workers} workers: give it more (ethtool -L \
         NAME combined {workers}) or use fewer workers"
    )]
    TooFewQueues {
        /// Receive queues of the interface.
        queues: u32,
        /// Ports asked for.
        workers: u16,
    },
    /// AF_XDP cannot receive packets of the interface's size into frames of the arena's.
    #[error(
        "af_xdp cannot receive packets of {mtu} bytes into frames of {size}: set the MTUs of all \
         interfaces and paths to at most {largest}"
    )]
    FrameSize {
        /// Largest packet of the interface in bytes.
        mtu: u32,
        /// Size of the frames in bytes.
        size: usize,
        /// Largest MTU that is possible in bytes.
        largest: usize,
    },
    /// The device or socket is gone; the port will never carry a packet again.
    #[error("the port does not work any more: {0}")]
    Dead(io::Error),
    /// A capture file cannot be opened, created or read.
    #[error("cannot use the capture file: {0}")]
    Capture(#[source] io::Error),
    /// A capture file has a link type from which no IP packet can be taken.
    #[error("capture file has link type {0}, which carries no plain IP packets")]
    LinkType(u32),
}

impl IoError {
    /// The error number that a system call would say this with, for those that answer as the kernel does.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::Setup { source, .. } | Self::Dead(source) => source.raw_os_error(),
            Self::Steer(error) => Some(error.errno()),
            _ => None,
        }
        .unwrap_or(libc::EINVAL)
    }

    pub(crate) fn setup(step: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Setup { step, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_number_of_their_cause() {
        let refused = || io::Error::from_raw_os_error(libc::EPERM);
        assert_eq!(IoError::setup("try")(refused()).errno(), libc::EPERM);
        assert_eq!(IoError::Dead(refused()).errno(), libc::EPERM);
        let taken = crate::udp::SteerError::Taken("127.0.0.1:4500".parse().unwrap());
        assert_eq!(IoError::from(taken).errno(), libc::EBUSY);
        assert_eq!(IoError::Queues(0).errno(), libc::EINVAL);
    }

    #[test]
    fn texts_say_what_and_why() {
        let refused = io::Error::from_raw_os_error(libc::EPERM);
        let error = IoError::setup("open a queue of the tun device")(refused);
        assert_eq!(
            error.to_string(),
            "cannot open a queue of the tun device: Operation not permitted (os error 1)"
        );
        assert_eq!(
            IoError::LinkType(127).to_string(),
            "capture file has link type 127, which carries no plain IP packets"
        );
    }
}
