//! Handover of snapshots from control to workers.

use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use convoy_wire::Spi;

use super::Snapshot;

/// A generation that was never published, so the first look reports a change.
const NEVER: u64 = 0;

/// The current [`Snapshot`], where workers and others read it. A [`Writer`] changes it.
#[derive(Debug, Default)]
pub struct Published {
    generation: AtomicU64,
    current: Mutex<Arc<Snapshot>>,
}

impl Published {
    /// Publishes a snapshot that never changes. [`Writer::new`] begins one that does.
    #[must_use]
    pub fn new(snapshot: Snapshot) -> Arc<Self> {
        Writer::new(snapshot).published
    }

    /// Replaces the snapshot; workers see it at their next burst. Returns its generation.
    fn replace(&self, snapshot: Snapshot) -> u64 {
        let snapshot = Arc::new(snapshot);
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let old = core::mem::replace(&mut *current, snapshot);
        // Inside the lock, so that generations and snapshots come in the same order. Release pairs
        // with the reader's Acquire, though the lock alone would do: the reader takes it as well.
        let generation = self.generation.fetch_add(1, Ordering::Release) + 1;
        drop(current);
        // Not inside: what no reader holds is freed here, and workers do not wait for that.
        drop(old);
        generation
    }

    /// The number of the snapshot of now.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The snapshot of now.
    #[must_use]
    pub fn current(&self) -> Arc<Snapshot> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A reader for one worker.
    #[must_use]
    pub fn reader(self: &Arc<Self>) -> Reader {
        Reader { published: self.clone(), seen: NEVER, waits: true, snapshot: Arc::default() }
    }
}

/// Receiver of the SPIs that SAs may receive with.
pub trait SpiListener: core::fmt::Debug + Send + Sync {
    /// Hears of an SPI before workers see an inbound SA with it. It may be one that was heard before.
    fn add(&self, spi: Spi);

    /// Hears that those which are added from now on are all that there are.
    fn clear(&self);
}

/// The right to change what is published, of which there is one for each [`Published`].
///
/// It cannot be cloned, and a [`Draft`] borrows it: of two who changed the same snapshot at a time,
/// the later one's would undo the other's.
#[derive(Debug)]
pub struct Writer {
    published: Arc<Published>,
    listener: Option<Arc<dyn SpiListener>>,
}

impl Writer {
    /// Publishes a first snapshot.
    #[must_use]
    pub fn new(snapshot: Snapshot) -> Self {
        let (generation, current) = (AtomicU64::new(1), Mutex::new(Arc::new(snapshot)));
        Self { published: Arc::new(Published { generation, current }), listener: None }
    }

    /// Place in which workers and others read what this writes.
    #[must_use]
    pub fn published(&self) -> &Arc<Published> {
        &self.published
    }

    /// The snapshot of now.
    #[must_use]
    pub fn current(&self) -> Arc<Snapshot> {
        self.published.current()
    }

    /// Begins the next snapshot as a copy of the one of now. The cost is that of what is changed in
    /// it, whatever the number of SAs and policies.
    pub fn draft(&mut self) -> Draft<'_> {
        let next = Snapshot::clone(&self.current());
        Draft { writer: self, next }
    }

    /// Publishes the snapshot of now with a change, and returns what the change does.
    ///
    /// # Errors
    /// That of `change`; then nothing is published.
    pub fn change<T, E>(
        &mut self,
        change: impl FnOnce(&mut Snapshot) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut draft = self.draft();
        let done = change(&mut draft)?;
        draft.commit();
        Ok(done)
    }

    /// Publishes a snapshot that owes nothing to the one of now, and returns its generation.
    pub fn publish(&mut self, snapshot: Snapshot) -> u64 {
        if let Some(listener) = &self.listener {
            snapshot.new_inbound(&self.current(), |sa| listener.add(sa.spi));
        }
        self.published.replace(snapshot)
    }

    /// Has a listener hear of the SPIs of all inbound SAs, those there are and those to come.
    pub fn tell_spis(&mut self, listener: Arc<dyn SpiListener>) {
        self.listener = Some(listener);
        self.tell_spis_again();
    }

    /// Has the listener forget the SPIs of SAs that are gone.
    pub fn tell_spis_again(&mut self) {
        let Some(listener) = &self.listener else { return };
        listener.clear();
        for (_, sa) in self.current().inbound_sas() {
            listener.add(sa.spi);
        }
    }
}

/// The next snapshot, which nobody sees before it is [committed](Self::commit). Dropped, it is
/// forgotten.
#[derive(Debug)]
#[must_use = "a draft that is dropped changes nothing"]
pub struct Draft<'w> {
    writer: &'w mut Writer,
    next: Snapshot,
}

impl Draft<'_> {
    /// Publishes it: workers see it at their next burst. Returns its generation.
    pub fn commit(self) -> u64 {
        let Self { writer, next } = self;
        writer.publish(next)
    }
}

impl Deref for Draft<'_> {
    type Target = Snapshot;

    fn deref(&self) -> &Snapshot {
        &self.next
    }
}

impl DerefMut for Draft<'_> {
    fn deref_mut(&mut self) -> &mut Snapshot {
        &mut self.next
    }
}

/// One worker's view of [`Published`].
#[derive(Debug)]
pub struct Reader {
    published: Arc<Published>,
    seen: u64,
    /// True if the next snapshot is waited for.
    waits: bool,
    snapshot: Arc<Snapshot>,
}

impl Reader {
    /// Takes a newer snapshot if there is one; returns the one it replaced.
    ///
    /// Waits for the first snapshot, without which every packet would be dropped, and for that after [a
    /// rest](Self::wait_for_next). Other ones never make it wait: while another thread holds the lock, the
    /// old snapshot stays until the next look.
    #[inline]
    pub fn refresh(&mut self) -> Option<Arc<Snapshot>> {
        if !self.is_behind() {
            return None;
        }
        let current = &self.published.current;
        let current = match current.try_lock() {
            Ok(current) => current,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) if self.waits => {
                current.lock().unwrap_or_else(PoisonError::into_inner)
            }
            Err(TryLockError::WouldBlock) => return None,
        };
        // Read again inside the lock, so that it is the number of this very snapshot.
        self.seen = self.published.generation.load(Ordering::Acquire);
        self.waits = false;
        Some(core::mem::replace(&mut self.snapshot, current.clone()))
    }

    /// Has the next look wait for a newer snapshot, if there is one: who published it counts on that.
    pub fn wait_for_next(&mut self) {
        self.waits = true;
    }

    /// True if there is a newer snapshot than the one taken last.
    #[inline]
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.published.generation.load(Ordering::Acquire) != self.seen
    }

    /// The snapshot taken last.
    #[inline]
    #[must_use]
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// Generation of the snapshot taken last.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.seen
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::sa::ReqId;

    #[test]
    fn the_first_picture_is_waited_for_and_later_ones_are_not() {
        let mut writer = Writer::new(Snapshot::default());
        let published = writer.published().clone();
        let mut reader = published.reader();
        let (began, has_begun) = mpsc::channel();
        let held = published.current.lock().unwrap();
        let mut reader = thread::scope(|scope| {
            let looking = scope.spawn(move || {
                began.send(()).unwrap();
                assert!(reader.refresh().is_some(), "another worker looks at the same time");
                reader
            });
            has_begun.recv().unwrap();
            thread::sleep(Duration::from_millis(20));
            drop(held);
            looking.join().unwrap()
        });
        assert!(reader.refresh().is_none());
        writer.publish(Snapshot::default());
        let held = published.current.lock().unwrap();
        assert!(reader.refresh().is_none() && reader.is_behind());
        drop(held);
        assert!(reader.refresh().is_some() && !reader.is_behind());
    }

    #[test]
    fn a_draft_is_seen_when_it_is_committed_and_forgotten_when_it_is_dropped() {
        let mut writer = Writer::new(Snapshot::default());
        let mut reader = writer.published().reader();
        reader.refresh();
        let mut draft = writer.draft();
        draft.make_on_demand(ReqId(7));
        drop(draft);
        assert!(!reader.is_behind() && !writer.current().is_on_demand(ReqId(7)));
        let refused: Result<(), &str> = writer.change(|draft| {
            draft.make_on_demand(ReqId(7));
            Err("no")
        });
        assert_eq!(refused, Err("no"));
        assert!(!reader.is_behind() && !writer.current().is_on_demand(ReqId(7)));
        let mut draft = writer.draft();
        draft.make_on_demand(ReqId(7));
        let generation = draft.commit();
        assert!(reader.refresh().is_some());
        assert_eq!(
            (reader.generation(), writer.published().generation()),
            (generation, generation)
        );
        let made = writer.change(|draft| {
            draft.make_on_demand(ReqId(8));
            Ok::<_, ()>(draft.is_on_demand(ReqId(7)))
        });
        assert_eq!(made, Ok(true), "a draft begins with what is published");
        assert!(writer.current().is_on_demand(ReqId(8)));
    }
}
