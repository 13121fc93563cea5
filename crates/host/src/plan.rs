//! A list of changes, made and taken back as a whole.

use serde::{Deserialize, Serialize};

use crate::{Change, HostError, Leftover, Network, undo, undo::Undo};

/// Changes in the order they are to be made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Plan {
    changes: Vec<Change>,
}

impl Plan {
    /// Adds a change at the end.
    pub fn push(&mut self, change: Change) {
        self.changes.push(change);
    }

    /// The changes.
    #[must_use]
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// One line for each change, in plain words.
    #[must_use]
    pub fn describe(&self) -> Vec<String> {
        self.changes.iter().map(ToString::to_string).collect()
    }

    /// Makes all changes, in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`HostError::Change`] names the first change that failed and why; those before it have been
    /// undone then, or are listed. [`HostError::Netlink`] when nothing was begun.
    pub fn apply(&self) -> Result<Applied, HostError> {
        let mut applied = Applied { network: Network::open()?, undo: Vec::new() };
        for change in &self.changes {
            match undo::make(&mut applied.network, change) {
                Ok(undo) => applied.undo.extend(undo.map(|undo| (change.clone(), undo))),
                Err(cause) => {
                    let left = applied.undo_all();
                    return Err(HostError::Change {
                        change: Box::new(change.clone()),
                        cause,
                        left,
                    });
                }
            }
        }
        Ok(applied)
    }
}

impl FromIterator<Change> for Plan {
    fn from_iter<I: IntoIterator<Item = Change>>(changes: I) -> Self {
        Self { changes: changes.into_iter().collect() }
    }
}

impl Extend<Change> for Plan {
    fn extend<I: IntoIterator<Item = Change>>(&mut self, changes: I) {
        self.changes.extend(changes);
    }
}

/// Record of a plan's changes. Dropping it takes everything back, last change first; it works on the
/// namespace the plan was applied in, whichever thread drops it.
#[derive(Debug)]
#[must_use = "dropping it takes the changes back"]
pub struct Applied {
    network: Network,
    undo: Vec<(Change, Undo)>,
}

impl Applied {
    /// The changes that were really made, that is, were not already so before.
    pub fn made(&self) -> impl Iterator<Item = &Change> {
        self.undo.iter().map(|(change, _)| change)
    }

    /// Takes everything back. Interfaces, addresses and routes that are gone already count as
    /// taken back.
    ///
    /// # Errors
    /// [`HostError::Left`] lists what could not be taken back; the rest has been.
    pub fn take_back(mut self) -> Result<(), HostError> {
        let left = self.undo_all();
        if left.is_empty() { Ok(()) } else { Err(HostError::Left { left }) }
    }

    /// Leaves everything as it is now.
    pub fn leave(mut self) {
        self.undo.clear();
    }

    fn undo_all(&mut self) -> Vec<Leftover> {
        let mut left = Vec::new();
        while let Some((change, undo)) = self.undo.pop() {
            if let Err(cause) = undo.take_back(&mut self.network) {
                left.push(Leftover { change, cause });
            }
        }
        left
    }
}

impl Drop for Applied {
    fn drop(&mut self) {
        self.undo_all();
    }
}
