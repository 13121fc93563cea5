//! Ctrl-C and its relatives.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::Context as _;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

/// Request to end early what is under way. From here on a signal ends nothing by itself, so that
/// everything is cleaned up.
#[derive(Debug)]
pub(crate) struct Interrupt {
    cancel: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let interrupt = Self { cancel: Arc::default(), signal: Arc::default() };
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // First which, then that: who sees the flag finds the number.
            flag::register_usize(signal, interrupt.signal.clone(), signal.unsigned_abs() as usize)
                .and_then(|_| flag::register(signal, interrupt.cancel.clone()))
                .context("signals")?;
        }
        Ok(interrupt)
    }

    /// The flag that ends traffic early.
    pub(crate) fn flag(&self) -> &AtomicBool {
        &self.cancel
    }

    /// Ends it early for another reason than a signal.
    pub(crate) fn cancel(&self) {
        self.cancel.store(true, Ordering::Relaxed);
    }

    /// True if something shall end early.
    pub(crate) fn is_set(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }

    /// The signal that came, if one did.
    pub(crate) fn signal(&self) -> Option<i32> {
        match self.signal.load(Ordering::Relaxed) {
            0 => None,
            signal => i32::try_from(signal).ok(),
        }
    }

    /// Ends here when a signal came.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        match self.signal() {
            None => Ok(()),
            Some(signal) => anyhow::bail!("interrupted by signal {signal}"),
        }
    }
}
