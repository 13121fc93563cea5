//! Answers that flows remember are cleared beside everything else: a kernel may track so many that it takes seconds.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use convoy_netlink::{Refusal, conntrack::Conntrack};

use crate::error::LeakProtectionError;

/// Longest wait for the clearing; few flows take less.
const SOON: Duration = Duration::from_millis(50);

/// The marks of flows in one network namespace.
#[derive(Debug)]
pub(crate) struct Flows {
    flows: Arc<Mutex<Conntrack>>,
    /// Tells how a thread got on that clears some; none where none does.
    clearing: Option<mpsc::Receiver<Result<usize, Refusal>>>,
    /// Bits that are to be cleared, or are being.
    bits: u32,
}

impl Flows {
    /// Opens the flows of the calling thread's network namespace.
    pub(crate) fn open() -> Result<Self, LeakProtectionError> {
        let flows = Conntrack::open().map_err(LeakProtectionError::Netlink)?;
        Ok(Self { flows: Arc::new(Mutex::new(flows)), clearing: None, bits: 0 })
    }

    /// Bits of the marks of all flows are to be cleared. Until [`Flows::are_cleared`] nothing in them may be believed.
    pub(crate) fn are_due(&mut self, bits: u32) {
        self.bits |= bits;
        // One that runs may be past the first of them.
        self.clearing = None;
    }

    fn begin(&mut self) -> Result<(), LeakProtectionError> {
        let (flows, bits) = (Arc::clone(&self.flows), self.bits);
        // One that runs has shown that it can.
        if let Ok(mut flows) = flows.try_lock() {
            flows.probe().map_err(LeakProtectionError::Flows)?;
        }
        let (tell, told) = mpsc::channel();
        let thread = thread::Builder::new().name("convoy-forget".into());
        let clear = move || {
            let mut flows = flows.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = tell.send(flows.clear_marks(bits));
        };
        thread.spawn(clear).map_err(|error| LeakProtectionError::Flows(error.into()))?;
        self.clearing = Some(told);
        Ok(())
    }

    /// True if all that is due is cleared. Begins the clearing, and waits a moment. What failed is begun again by the next
    /// call.
    pub(crate) fn are_cleared(&mut self) -> Result<bool, LeakProtectionError> {
        if self.bits != 0 && self.clearing.is_none() {
            self.begin()?;
        }
        let Some(told) = &self.clearing else { return Ok(true) };
        let outcome = match told.recv_timeout(SOON) {
            Err(RecvTimeoutError::Timeout) => return Ok(false),
            Err(RecvTimeoutError::Disconnected) => {
                Err(Refusal { errno: nix::libc::EIO, said: None })
            }
            Ok(outcome) => outcome,
        };
        self.clearing = None;
        outcome.map_err(LeakProtectionError::Flows)?;
        self.bits = 0;
        Ok(true)
    }
}
