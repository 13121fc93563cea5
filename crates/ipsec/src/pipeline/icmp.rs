//! Messages to inner senders: packet too big, time exceeded.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use convoy_packet::{Burst, Frame, Pool};
use convoy_wire::IpVersion;
use convoy_wire::icmp::{self, IcmpError};

use super::{Now, PipelineConfig, WorkerCounters};

/// At most this many messages at once.
const BURST: u64 = 64;
/// One more message is allowed every so many nanoseconds (1,000 a second).
const REFILL_NS: u64 = 1_000_000;

/// Writes ICMP messages, not more than the rate that RFC 4443 section 2.4 (f) asks to bound.
#[derive(Debug)]
pub(super) struct IcmpSender {
    tokens: u64,
    refilled: Now,
    /// Messages that wait to be given to the plain side.
    pub(super) ready: Burst,
}

impl IcmpSender {
    pub(super) fn new() -> Self {
        Self { tokens: BURST, refilled: Now(0), ready: Burst::new() }
    }

    /// Answers `original` with "packet too big" for packets above `mtu` bytes. Returns whether a
    /// message was written.
    pub(super) fn too_big(
        &mut self,
        now: Now,
        config: &PipelineConfig,
        counters: &WorkerCounters,
        pool: &mut Pool,
        original: &Frame,
        mtu: usize,
    ) -> bool {
        self.answer(now, config, counters, pool, original, |into, source| {
            icmp::emit_too_big(into, original.data(), mtu as u32, source).ok()
        })
    }

    /// Answers `original` with "time exceeded". Returns whether a message was written.
    pub(super) fn time_exceeded(
        &mut self,
        now: Now,
        config: &PipelineConfig,
        counters: &WorkerCounters,
        pool: &mut Pool,
        original: &Frame,
    ) -> bool {
        self.answer(now, config, counters, pool, original, |into, source| {
            icmp::emit_error(into, original.data(), IcmpError::TimeExceeded, source).ok()
        })
    }

    fn answer(
        &mut self,
        now: Now,
        config: &PipelineConfig,
        counters: &WorkerCounters,
        pool: &mut Pool,
        original: &Frame,
        emit: impl FnOnce(&mut [u8], IpAddr) -> Option<usize>,
    ) -> bool {
        self.refill(now);
        if self.tokens == 0 || self.ready.is_full() {
            return false;
        }
        let Some(source) = source(config, original.data()) else { return false };
        let Some(mut frame) = pool.alloc() else { return false };
        let written = emit(frame.spare_mut(), source).filter(|&n| frame.set_len(n).is_ok());
        if written.is_none() {
            pool.free(frame);
            return false;
        }
        // Back to where the packet came from.
        frame.set_interface(original.interface());
        self.tokens -= 1;
        counters.icmp_sent.add(1);
        if let Err(frame) = self.ready.push(frame) {
            pool.free(frame);
        }
        true
    }

    fn refill(&mut self, now: Now) {
        let earned = now.0.saturating_sub(self.refilled.0) / REFILL_NS;
        if earned > 0 {
            self.tokens = self.tokens.saturating_add(earned).min(BURST);
            self.refilled = now;
        }
    }
}

/// Whom the message is from: the gateway's plain address, or else the address the sender wrote
/// to, which is routed back to the sender the way his answers would be.
fn source(config: &PipelineConfig, original: &[u8]) -> Option<IpAddr> {
    match IpVersion::of(*original.first()?)? {
        IpVersion::V4 => {
            let destination: [u8; 4] = original.get(16..20)?.try_into().ok()?;
            Some(config.icmp_source_v4.unwrap_or_else(|| Ipv4Addr::from(destination)).into())
        }
        IpVersion::V6 => {
            let destination: [u8; 16] = original.get(24..40)?.try_into().ok()?;
            Some(config.icmp_source_v6.unwrap_or_else(|| Ipv6Addr::from(destination)).into())
        }
    }
}
