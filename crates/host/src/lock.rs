//! Files locked as long as they are held (`flock(2)`).

use std::fs::File;
use std::ops::Deref;

/// An open file or folder whose lock ends when this is dropped.
///
/// Closing alone does not end it: a process that was just started has copies of all descriptors until it
/// runs its program, and a lock lasts as long as any copy.
#[derive(Debug)]
pub struct Lockable(File);

impl Lockable {
    /// Takes a file that nobody has locked through the same descriptor.
    #[must_use]
    pub fn new(file: File) -> Self {
        Self(file)
    }
}

impl Deref for Lockable {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for Lockable {
    fn drop(&mut self) {
        // It ends with the last copy of the descriptor otherwise.
        let _ = self.0.unlock();
    }
}
