//! Recording what passes through another port.

use std::os::fd::BorrowedFd;

use convoy_packet::{Burst, Pool};

use super::Recorder;
use super::recorder::Lane;
use crate::{IoError, Offloads, Port, PortCounters, PortEvent};

/// A port whose packets are recorded, both ways, in the order this port sees them.
///
/// Recording never delays or fails the traffic: packets that the recorder cannot take are counted as
/// [`PortCounters::capture_misses`]. Sent packets are recorded as they were handed over, whether or
/// not the port could send them.
#[derive(Debug)]
pub struct Tap<P> {
    inner: P,
    lane: Lane,
}

impl<P: Port> Tap<P> {
    /// Records the traffic of `inner` with `recorder`.
    pub fn new(inner: P, recorder: &Recorder) -> Self {
        Self { inner, lane: recorder.lane() }
    }

    /// The port inside.
    pub fn inner(&self) -> &P {
        &self.inner
    }
}

impl<P: Port> Port for Tap<P> {
    fn rx(&mut self, pool: &mut Pool, into: &mut Burst) -> Result<usize, IoError> {
        let before = into.len();
        let received = self.inner.rx(pool, into)?;
        if received > 0 {
            let now = super::now();
            let fresh = into.as_slice().get(before..).unwrap_or_default();
            fresh.iter().for_each(|frame| self.lane.record(now, frame.data()));
        }
        Ok(received)
    }

    fn tx(&mut self, pool: &mut Pool, from: &mut Burst) -> Result<(), IoError> {
        if !from.is_empty() {
            let now = super::now();
            from.as_slice().iter().for_each(|frame| self.lane.record(now, frame.data()));
        }
        self.inner.tx(pool, from)
    }

    fn can_send(&mut self, packet: &[u8]) -> bool {
        self.inner.can_send(packet)
    }

    fn event(&mut self) -> Option<PortEvent> {
        self.inner.event()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.fd()
    }

    fn counters(&self) -> PortCounters {
        let mut counters = self.inner.counters();
        counters.capture_misses += self.lane.missed();
        counters
    }

    fn offloads(&self) -> Offloads {
        self.inner.offloads()
    }
}
