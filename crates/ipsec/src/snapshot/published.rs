//! Handover of pictures from control to workers.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use super::Snapshot;

/// A generation that was never published, so the first look reports a change.
const NEVER: u64 = 0;

/// The current [`Snapshot`], where control puts it and workers find it.
#[derive(Debug, Default)]
pub struct Published {
    generation: AtomicU64,
    current: Mutex<Arc<Snapshot>>,
}

impl Published {
    /// Starts with a first picture.
    #[must_use]
    pub fn new(snapshot: Snapshot) -> Arc<Self> {
        Arc::new(Self { generation: AtomicU64::new(1), current: Mutex::new(Arc::new(snapshot)) })
    }

    /// Replaces the picture; workers see it at their next burst. Returns its generation.
    pub fn publish(&self, snapshot: Snapshot) -> u64 {
        let snapshot = Arc::new(snapshot);
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let old = core::mem::replace(&mut *current, snapshot);
        // Inside the lock, so that generations and pictures come in the same order. Release pairs
        // with the reader's Acquire, though the lock alone would do: the reader takes it as well.
        let generation = self.generation.fetch_add(1, Ordering::Release) + 1;
        drop(current);
        // Not inside: what nobody else holds is freed here, and workers do not wait for that.
        drop(old);
        generation
    }

    /// Publishes the picture of now with a change, and returns the new generation. One caller at a
    /// time: of two who change the same picture, the later one's would undo the other's.
    ///
    /// The cost is that of the change, whatever the number of SAs and policies.
    ///
    /// # Errors
    /// That of `change`; then nothing is published.
    pub fn change<E>(&self, change: impl FnOnce(&mut Snapshot) -> Result<(), E>) -> Result<u64, E> {
        let mut next = Snapshot::clone(&self.current());
        change(&mut next)?;
        Ok(self.publish(next))
    }

    /// The number of the picture of now.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The picture of now.
    #[must_use]
    pub fn current(&self) -> Arc<Snapshot> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A reader for one worker.
    #[must_use]
    pub fn reader(self: &Arc<Self>) -> Reader {
        Reader { published: self.clone(), seen: NEVER, snapshot: Arc::default() }
    }
}

/// One worker's view of [`Published`].
#[derive(Debug)]
pub struct Reader {
    published: Arc<Published>,
    seen: u64,
    snapshot: Arc<Snapshot>,
}

impl Reader {
    /// Takes a newer picture if there is one; returns the one it replaced.
    ///
    /// Waits for the first picture only, without which every packet would be dropped. Later ones
    /// never make it wait: while somebody else holds the lock, the old picture stays until the next
    /// look.
    #[inline]
    pub fn refresh(&mut self) -> Option<Arc<Snapshot>> {
        if !self.is_behind() {
            return None;
        }
        let current = &self.published.current;
        let current = match current.try_lock() {
            Ok(current) => current,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) if self.seen == NEVER => {
                current.lock().unwrap_or_else(PoisonError::into_inner)
            }
            Err(TryLockError::WouldBlock) => return None,
        };
        // Read again inside the lock, so that it is the number of this very picture.
        self.seen = self.published.generation.load(Ordering::Acquire);
        Some(core::mem::replace(&mut self.snapshot, current.clone()))
    }

    /// True if there is a newer picture than the one taken last.
    #[inline]
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.published.generation.load(Ordering::Acquire) != self.seen
    }

    /// The picture taken last.
    #[inline]
    #[must_use]
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// Generation of the picture taken last.
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

    #[test]
    fn the_first_picture_is_waited_for_and_later_ones_are_not() {
        let published = Published::new(Snapshot::default());
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
        published.publish(Snapshot::default());
        let held = published.current.lock().unwrap();
        assert!(reader.refresh().is_none() && reader.is_behind());
        drop(held);
        assert!(reader.refresh().is_some() && !reader.is_behind());
    }
}
