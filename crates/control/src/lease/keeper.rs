//! The thread that keeps leases ahead of their use.

use std::fs::Metadata;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use convoy_ipsec::counters::SaCounters;
use convoy_ipsec::sequence::Lease;

use super::binding::{Binding, Machine};
use super::error::LeaseError;
use super::hash::HashKey;
use super::image::{BootId, Image};
use super::ledger::{InboundRequest, Ledger, OutboundRequest, Wrote};
use super::storage::{Folder, Opened, Storage};
use super::store::Store;

/// Time between two looks at the counters.
const TICK: Duration = Duration::from_millis(5);

/// Longest time between two looks, when writing takes long.
const LONGEST_TICK: Duration = Duration::from_millis(100);

/// At most one part in this many of the thread's time goes into writes without sync.
const WRITE_SHARE: u32 = 20;

/// Message of the keeper.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaseEvent {
    /// Records cannot be written; nothing is granted until they can. Reported once until then.
    WriteFailed {
        /// Error of the system, in words.
        reason: String,
    },
    /// Records can be written again.
    WriteRecovered,
    /// One of the two copies of the records was damaged, or a crash came in the middle of writing it.
    /// It was written anew from the other.
    CopyMended {
        /// Its file.
        file: &'static str,
    },
    /// Records that were tied to no machine are tied to this one from now on.
    Bound {
        /// Names of the machine's identifiers.
        to: String,
    },
    /// Nothing tells this machine from others: a copy of the folder may not be refused.
    MachineUnknown,
}

/// Keeps leases ahead of their use and floors behind it, in a thread of its own.
///
/// Dropping it stops the thread and leaves the records as after a crash: safe, but numbers are
/// skipped. [`LeaseKeeper::finish`] is the orderly end.
#[derive(Debug)]
pub struct LeaseKeeper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    stop: Condvar,
}

#[derive(Debug)]
struct State {
    ledger: Ledger,
    stopping: bool,
    failure: Option<String>,
}

impl LeaseKeeper {
    /// Opens a state folder, which must exist, and starts the thread.
    ///
    /// # Errors
    /// Fails if the folder is in use, was written on another machine or is a copy, its records are
    /// lost or damaged, or it cannot be written.
    pub fn open(
        dir: &Path,
        on_event: impl Fn(LeaseEvent) + Send + 'static,
    ) -> Result<Self, LeaseError> {
        Self::open_on(dir, &Machine::current(), on_event)
    }

    /// The same on a machine that somebody names.
    ///
    /// # Errors
    /// As [`LeaseKeeper::open`].
    pub fn open_on(
        dir: &Path,
        machine: &Machine,
        on_event: impl Fn(LeaseEvent) + Send + 'static,
    ) -> Result<Self, LeaseError> {
        let empty = |key: &HashKey, generation, meta: &Metadata| {
            let binding = Binding::new(key, machine, Some(meta));
            Image { generation, boot: None, clean: true, binding, records: Vec::new() }
                .to_bytes(key)
        };
        let Opened { folder, key } = Folder::open(dir, empty)?;
        let here = Binding::new(&key, machine, folder.hash_key().as_ref());
        if !here.knows_machine() {
            on_event(LeaseEvent::MachineUnknown);
        }
        Self::with_storage(Box::new(folder), key, BootId::current(), here, on_event)
    }

    /// Starts on any storage that holds images made under `key`.
    fn with_storage(
        storage: Box<dyn Storage>,
        key: HashKey,
        boot: Option<BootId>,
        here: Binding,
        on_event: impl Fn(LeaseEvent) + Send + 'static,
    ) -> Result<Self, LeaseError> {
        let store = Store::open(storage, key, boot, here)?;
        if let Some(slot) = store.mended() {
            on_event(LeaseEvent::CopyMended { file: slot.file_name() });
        }
        if let Some(to) = store.newly_bound() {
            on_event(LeaseEvent::Bound { to });
        }
        let ledger = Ledger::new(store, Instant::now());
        let state = Mutex::new(State { ledger, stopping: false, failure: None });
        let shared = Arc::new(Shared { state, stop: Condvar::new() });
        let theirs = shared.clone();
        let thread = std::thread::Builder::new()
            .name("leases".into())
            .spawn(move || theirs.run(&on_event))
            .map_err(LeaseError::Write)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Leases sequence numbers of keys, a lease for each in the same order, and raises the floors in the
    /// counters of inbound SAs; all at once, because each call costs two syncs. Returns when the first
    /// blocks are on the disk.
    ///
    /// # Errors
    /// [`LeaseError::KeyInUse`] when a key is asked for twice, or was acquired and not released;
    /// [`LeaseError::KeyTurned`] when it was ever acquired for the other direction;
    /// [`LeaseError::Write`] when nothing could be leased.
    pub fn acquire(
        &self,
        outbound: &[OutboundRequest<'_>],
        inbound: &[InboundRequest<'_>],
    ) -> Result<Vec<Arc<Lease>>, LeaseError> {
        self.shared.lock().ledger.acquire(outbound, inbound)
    }

    /// Forgets leases, and floors by the counters they are in, of removed SAs. A worker may use them a
    /// little longer: should their keys be acquired again, they go on beyond all that was granted.
    pub fn release(&self, leases: &[Arc<Lease>], floors: &[Arc<SaCounters>]) {
        self.shared.lock().ledger.release(leases, floors);
    }

    /// This machine is a copy: grants nothing more for the keys that are known, now and in later lives.
    /// To be called when no worker has an SA with them any more.
    ///
    /// # Errors
    /// [`LeaseError::Write`] when later lives cannot be told; it is tried again all the time.
    pub fn spend(&self) -> Result<(), LeaseError> {
        self.shared.lock().ledger.spend().map_err(LeaseError::Write)
    }

    /// Sets the count of numbers leased at a time for each lease from now on, at least 1.
    pub fn set_blocks<'a>(&self, blocks: impl Iterator<Item = (&'a Arc<Lease>, u64)>) {
        self.shared.lock().ledger.set_blocks(blocks);
    }

    /// Reason that records cannot be written at present, if so.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.shared.lock().failure.clone()
    }

    /// The orderly end: writes the exact numbers, so that a restart skips none. To be called when
    /// all workers have ended; a number used afterwards would be used again.
    ///
    /// # Errors
    /// [`LeaseError::Write`]; the records then are as after a crash, which is safe.
    pub fn finish(mut self) -> Result<(), LeaseError> {
        self.join();
        self.shared.lock().ledger.finish()
    }

    fn join(&mut self) {
        self.shared.lock().stopping = true;
        self.shared.stop.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported by itself; the records are safe without it.
            let _ = thread.join();
        }
    }
}

impl Drop for LeaseKeeper {
    fn drop(&mut self) {
        self.join();
        // A folder that is lost gets its sign at the end at the latest; what it says was told.
        let _ = self.shared.lock().ledger.look();
    }
}

impl Shared {
    /// A poisoned lock is taken over: what the ledger holds in memory is granted to nobody before
    /// it is on the disk.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, on_event: &dyn Fn(LeaseEvent)) {
        let mut pause = TICK;
        let mut state = self.lock();
        loop {
            state = self.stop.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0;
            if state.stopping {
                return;
            }
            let began = Instant::now();
            let result = state.ledger.tick(began);
            pause = match result {
                Ok(Wrote::Written) => (began.elapsed() * WRITE_SHARE).clamp(TICK, LONGEST_TICK),
                Ok(Wrote::Nothing | Wrote::Synced) => TICK,
                Err(_) => LONGEST_TICK,
            };
            let failure = result.err().map(|error| convoy_host::describe_io(&error));
            let event = match (&state.failure, &failure) {
                (None, Some(reason)) => Some(LeaseEvent::WriteFailed { reason: reason.clone() }),
                // A tick that had nothing to write proves nothing, but then nothing is missing.
                (Some(_), None) => Some(LeaseEvent::WriteRecovered),
                _ => None,
            };
            state.failure = failure;
            if let Some(event) = event {
                // Outside the lock: a listener may well ask for the failure.
                drop(state);
                on_event(event);
                state = self.lock();
            }
        }
    }
}
