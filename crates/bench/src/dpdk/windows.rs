//! Convoy's side: bursts in short windows, under the conditions that the program has.

use std::hint::{black_box, spin_loop};
use std::slice;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use convoy_crypto::{Cpu, KeyError, Suite, Tier, time_stamp};
use convoy_runtime::pin_current_thread;

use super::{BURST, PACKETS, WINDOWS};
use crate::contender::{Contender, Disagreement, agree};
use crate::convoy::Convoy;
use crate::mix::Sizes;
use crate::workload::{Arena, Workload};

/// Convoy's side cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum OwnError {
    /// There is no such key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Wrong results are not measured.
    #[error(transparent)]
    Disagreement(#[from] Disagreement),
}

/// Bursts of one suite and size under one key.
pub(super) struct Bursts {
    work: Workload,
    arena: Arena,
    convoy: Box<dyn Contender>,
}

impl Bursts {
    /// Makes keys and packets, and checks that what is sealed opens, and that what was changed does not.
    pub(super) fn new(cpu: &Cpu, tier: Tier, suite: Suite, size: usize) -> Result<Self, OwnError> {
        let work = Workload::new(suite, Sizes::Fixed(size), 1, BURST);
        let mut convoy: Box<dyn Contender> = Box::new(Convoy::new(cpu, tier, &work)?);
        let arena = agree(&work, slice::from_mut(&mut convoy))?;
        Ok(Self { work, arena, convoy })
    }

    /// Bytes of a text: whole blocks.
    pub(super) fn text(&self) -> usize {
        self.work.packets.first().map_or(0, |packet| packet.text)
    }

    /// Cycles per packet of the middle one of some windows. The same packets are sealed over and over, as the program does.
    pub(super) fn measure(&mut self) -> f64 {
        let window = || {
            let start = time_stamp();
            for _ in 0..PACKETS / BURST {
                self.convoy.seal(&self.work, &mut self.arena);
            }
            let cycles = time_stamp() - start;
            black_box(self.arena.bytes());
            cycles as f64 / PACKETS as f64
        };
        let mut windows = [0.0; WINDOWS];
        windows.fill_with(window);
        middle(&mut windows)
    }
}

/// The value in the middle; the larger of two.
pub(super) fn middle(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Ends the thread that spins, whatever becomes of what it spins beside.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Does something while a thread spins on another processor, as DPDK's main thread does while a worker works.
pub(super) fn beside_a_spinning_thread<T>(processor: usize, does: impl FnOnce() -> T) -> T {
    let (stop, begun) = (AtomicBool::new(false), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            // Where it cannot be bound it spins all the same.
            let _ = pin_current_thread(processor);
            begun.wait();
            while !stop.load(Ordering::Acquire) {
                spin_loop();
            }
        });
        begun.wait();
        let _stop = Stop(&stop);
        does()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_measured_and_texts_are_whole_blocks() {
        let cpu = Cpu::detect().unwrap();
        let suite = "aes-128-cbc+hmac-sha1-96".parse().unwrap();
        let mut bursts = Bursts::new(&cpu, cpu.best(), suite, 65).unwrap();
        assert_eq!(bursts.text(), 80);
        let cycles = beside_a_spinning_thread(0, || bursts.measure());
        assert!(cycles > 1.0 && cycles.is_finite(), "{cycles}");
    }

    #[test]
    fn the_middle_is_no_mean() {
        assert_eq!(middle(&mut [9.0, 1.0, 2.0]), 2.0);
        assert!(middle(&mut []).is_nan());
    }
}
