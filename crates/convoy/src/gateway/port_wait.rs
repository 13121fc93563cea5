//! Waiting for a port that the gateway can do without: what is said meanwhile.

use std::fmt::Display;
use std::io::ErrorKind;
use std::net::SocketAddr;

use super::holder::{Holder, Transport};

/// Of so many tries, one looks anew who has the port.
const LOOK_EVERY: u32 = 10;

/// A port that is tried again each second until the gateway has it.
#[derive(Debug)]
pub(crate) struct PortWait {
    /// Consequence of its lack, in words.
    missing: &'static str,
    transport: Transport,
    at: SocketAddr,
    tries: u32,
    holder: Option<Holder>,
    /// Error of the last try.
    reason: Option<String>,
}

impl PortWait {
    /// Nothing was tried yet. `missing` says what the gateway does without meanwhile, as in "metrics are not
    /// served".
    pub(crate) const fn new(missing: &'static str, transport: Transport, at: SocketAddr) -> Self {
        Self { missing, transport, at, tries: 0, holder: None, reason: None }
    }

    /// The port.
    pub(crate) const fn at(&self) -> SocketAddr {
        self.at
    }

    /// A try failed. The log hears of it when there is something new to say.
    pub(crate) fn failed(&mut self, kind: ErrorKind, error: &dyn Display) {
        if kind == ErrorKind::AddrInUse && self.tries.is_multiple_of(LOOK_EVERY) {
            let before = self.holder.take();
            self.holder = Holder::find(self.transport, self.at).map(|now| now.or_from(before));
        }
        self.tries = self.tries.wrapping_add(1);
        let reason = self.words(kind, error);
        if self.reason.as_ref() != Some(&reason) {
            tracing::warn!("{reason}");
            self.reason = Some(reason);
        }
    }

    fn words(&self, kind: ErrorKind, error: &dyn Display) -> String {
        let Self { missing, transport, at, holder, .. } = self;
        let why = match (kind, holder) {
            (ErrorKind::AddrInUse, Some(holder)) => {
                format!("{transport} port {at} is in use by {holder}")
            }
            (ErrorKind::AddrInUse, None) => {
                format!("{transport} port {at} is in use by an unknown process")
            }
            (ErrorKind::AddrNotAvailable, _) => {
                format!("{} is not an address of this host yet", at.ip())
            }
            _ => error.to_string(),
        };
        format!("{missing}: {why}; the gateway tries again each second")
    }

    /// A try succeeded. The log hears of it if one had failed.
    pub(crate) fn done(&mut self, now: &str) {
        if self.reason.take().is_some() {
            tracing::info!("{now}: {} port {} is open", self.transport, self.at);
        }
    }

    /// Reason for which it waits, in words.
    pub(crate) fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_and_why_is_said_until_the_port_is_there() {
        let at = "192.0.2.1:1".parse().unwrap();
        let mut wait = PortWait::new("metrics are not served", Transport::Tcp, at);
        assert_eq!(wait.reason(), None);
        wait.failed(ErrorKind::AddrNotAvailable, &"");
        let reason = wait.reason().unwrap();
        assert!(reason.starts_with("metrics are not served: 192.0.2.1 is not"), "{reason}");
        wait.failed(ErrorKind::AddrInUse, &"");
        assert!(wait.reason().unwrap().contains("TCP port 192.0.2.1:1 is in use by"));
        wait.failed(ErrorKind::PermissionDenied, &"not allowed");
        assert!(wait.reason().unwrap().contains("not allowed; the gateway tries again"));
        wait.done("metrics are served");
        assert_eq!(wait.reason(), None);
    }
}
