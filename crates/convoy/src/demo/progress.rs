//! The live progress line.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use convoy_lab::traffic;

use crate::output::si;

/// Tells on standard error how far things are: one line that changes on a terminal, one line per
/// phase elsewhere.
#[derive(Debug)]
pub(super) struct Progress {
    begun: Instant,
    live: bool,
    phase: &'static str,
    last: (Duration, u64),
}

impl Progress {
    pub(super) fn new(begun: Instant) -> Self {
        let live = std::io::stderr().is_terminal();
        Self { begun, live, phase: "", last: (Duration::ZERO, 0) }
    }

    /// A phase begins.
    pub(super) fn phase(&mut self, phase: &'static str) {
        self.phase = phase;
        self.last = (Duration::ZERO, 0);
        self.line(phase, !self.live);
    }

    /// Something to be read afterwards too.
    pub(super) fn note(&mut self, text: &str) {
        self.line(text, true);
    }

    /// The phase goes on: bytes received since its start.
    pub(super) fn bytes(&mut self, elapsed: Duration, bytes: u64) {
        if !self.live {
            return;
        }
        let (then, before) = self.last;
        let step = elapsed.saturating_sub(then).as_secs_f64();
        if step < 0.05 {
            return;
        }
        self.last = (elapsed, bytes);
        let rate = bytes.saturating_sub(before) as f64 * 8.0 / step;
        let line = format!("{:<28} {:>5.1} s  {}b/s", self.phase, elapsed.as_secs_f64(), si(rate));
        self.line(&line, false);
    }

    /// As [`Progress::bytes`], as the traffic generators tell it.
    pub(super) fn tell(&mut self, now: traffic::Progress) {
        self.bytes(now.elapsed, now.bytes);
    }

    /// Makes room for other output.
    pub(super) fn clear(&self) {
        if self.live {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }

    fn line(&self, text: &str, keep: bool) {
        let end = if keep { "\n" } else { "" };
        let clear = if self.live { "\r\x1b[K" } else { "" };
        let seconds = self.begun.elapsed().as_secs_f64();
        // Nobody reads it any more when this fails.
        let _ = write!(std::io::stderr(), "{clear}[{seconds:5.1} s] {text}{end}");
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
