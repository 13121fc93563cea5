//! Messages to inner senders: packet too big, time exceeded.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use convoy_packet::{Burst, Frame, Pool};
use convoy_wire::IpVersion;
use convoy_wire::flow::addr_bytes;
use convoy_wire::icmp::{self, IcmpError};

use super::{PipelineConfig, WorkerCounters};
use crate::clock::Now;
use crate::table::Seed;

/// At most this many messages at once.
const BURST: u64 = 64;
/// One more message is allowed every so many nanoseconds (1,000 a second).
const REFILL_NS: u64 = 1_000_000;
/// The same for one sender: an eighth, so that one who asks for many leaves others theirs.
const BURST_EACH: u64 = BURST / 8;
const REFILL_EACH_NS: u64 = 8 * REFILL_NS;
/// Places for senders. Those who share one share its messages.
const SENDERS: usize = 256;

/// Writes ICMP messages, not more than the rate that RFC 4443 section 2.4 (f) asks to bound.
#[derive(Debug)]
pub(super) struct IcmpSender {
    all: Allowance,
    /// By a keyed hash of the sender's address.
    each: Box<[Allowance]>,
    seed: Seed,
    /// Messages that wait to be given to the plain side.
    pub(super) ready: Burst,
}

impl IcmpSender {
    pub(super) fn new() -> Self {
        let each = vec![Allowance::new(BURST_EACH); SENDERS].into_boxed_slice();
        let all = Allowance::new(BURST);
        Self { all, each, seed: Seed::of_process(), ready: Burst::new() }
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
        self.all.refill(now, REFILL_NS, BURST);
        let Some(place) = sender(original.data()).and_then(|address| self.place(address)) else {
            return false;
        };
        let Some(its) = self.each.get_mut(place) else { return false };
        its.refill(now, REFILL_EACH_NS, BURST_EACH);
        if its.tokens == 0 || self.all.tokens == 0 || self.ready.is_full() {
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
        self.all.tokens -= 1;
        if let Some(its) = self.each.get_mut(place) {
            its.tokens -= 1;
        }
        counters.icmp_sent.add(1);
        if let Err(frame) = self.ready.push(frame) {
            pool.free(frame);
        }
        true
    }

    /// Index of a sender's allowance.
    fn place(&self, address: IpAddr) -> Option<usize> {
        let bytes = addr_bytes(address);
        let (&[high, low], _) = bytes.as_chunks::<8>() else { return None };
        let hash = self.seed.of(u64::from_be_bytes(high), u64::from_be_bytes(low));
        Some(hash as usize % SENDERS)
    }
}

/// Messages that are allowed now.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    tokens: u64,
    refilled: Now,
}

impl Allowance {
    const fn new(tokens: u64) -> Self {
        Self { tokens, refilled: Now(0) }
    }

    /// One more every `each` nanoseconds, up to `most`.
    fn refill(&mut self, now: Now, each: u64, most: u64) {
        let earned = now.0.saturating_sub(self.refilled.0) / each;
        if earned > 0 {
            self.tokens = self.tokens.saturating_add(earned).min(most);
            self.refilled = now;
        }
    }
}

/// Source address of a packet.
fn sender(original: &[u8]) -> Option<IpAddr> {
    match IpVersion::of(*original.first()?)? {
        IpVersion::V4 => Some(IpAddr::from(*original.get(12..)?.first_chunk::<4>()?)),
        IpVersion::V6 => Some(IpAddr::from(*original.get(8..)?.first_chunk::<16>()?)),
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
