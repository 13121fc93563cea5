//! A file in memory, as far as what is kept needs one.

use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, io};

use zeroize::Zeroizing;

use crate::held::{Difference, Held, Trouble};

/// Bytes that a process leaves behind when it is killed: all that was written, and of the last write
/// a part that begins where it did.
pub(in crate::xfrm) trait Medium: Send + fmt::Debug {
    /// Compares what is open with what its name leads to. To be called before what must be found by the
    /// next life is written.
    fn look(&self) -> io::Result<()>;

    /// All of it.
    fn read(&mut self) -> io::Result<Zeroizing<Vec<u8>>>;

    /// Fills `into` from `at` on.
    fn read_at(&mut self, at: u64, into: &mut [u8]) -> io::Result<()>;

    /// Writes over what is there, or behind it.
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Leaves nothing behind `len`.
    fn cut(&mut self, len: u64) -> io::Result<()>;

    /// Puts `bytes` in the place of all there is, wholly or not at all; what was there is wiped.
    fn replace(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Wipes it and takes it away.
    fn remove(&mut self) -> io::Result<()>;
}

/// For so long a look holds: as long as the thread that keeps numbers ahead of use rests between two. Whoever takes the
/// folder away behind a look is noticed by the next one, however soon it comes.
const HOLDS: Duration = Duration::from_millis(5);

/// A file of a folder.
#[derive(Debug)]
pub(super) struct Leaf {
    held: Arc<Held>,
    name: &'static str,
    /// The name of a file that is to take its place.
    fresh: &'static str,
    file: File,
    /// Time of the last look that found it there.
    looked: Cell<Option<Instant>>,
}

impl Leaf {
    pub(super) fn open(
        held: &Arc<Held>,
        name: &'static str,
        fresh: &'static str,
    ) -> io::Result<Self> {
        let file = held.open_or_make(name)?;
        // Left by a process that was killed before it had its name.
        held.remove(fresh)?;
        Ok(Self { held: held.clone(), name, fresh, file, looked: Cell::new(None) })
    }

    /// As [`Medium::look`], at this moment.
    fn look_now(&self) -> io::Result<()> {
        let named = self.held.is_there().and_then(|()| self.held.is_named(self.name, &self.file));
        named.map_err(|trouble| match trouble {
            Trouble::Lost(difference) => io::Error::other(Lost(difference)),
            Trouble::Failed { .. } => io::Error::other(trouble),
        })
    }
}

/// Writes zeros over all of a file.
fn wipe(file: &File) -> io::Result<()> {
    const ZEROS: [u8; 4096] = [0; 4096];
    let len = file.metadata()?.len();
    let mut at = 0;
    while at < len {
        let part = usize::try_from(len - at).unwrap_or(usize::MAX).min(ZEROS.len());
        file.write_all_at(ZEROS.get(..part).unwrap_or_default(), at)?;
        at += part as u64;
    }
    Ok(())
}

impl Medium for Leaf {
    fn look(&self) -> io::Result<()> {
        let now = Instant::now();
        if self.looked.get().is_some_and(|looked| now.duration_since(looked) < HOLDS) {
            return Ok(());
        }
        self.looked.set(None);
        self.look_now()?;
        self.looked.set(Some(now));
        Ok(())
    }

    fn read(&mut self) -> io::Result<Zeroizing<Vec<u8>>> {
        let len = usize::try_from(self.file.metadata()?.len()).map_err(io::Error::other)?;
        let mut bytes = Zeroizing::new(vec![0; len]);
        self.file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    fn read_at(&mut self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, at)
    }

    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, at)
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.held.remove(self.fresh)?;
        let file = self.held.make(self.fresh)?;
        file.write_all_at(bytes, 0)?;
        self.held.rename(self.fresh, self.name)?;
        let old = std::mem::replace(&mut self.file, file);
        wipe(&old)
    }

    fn remove(&mut self) -> io::Result<()> {
        wipe(&self.file)?;
        self.look_now()?;
        self.held.remove(self.name)
    }
}

/// Folder or file is not the one it was: nothing is kept any more. The text says what to do.
#[derive(Debug, thiserror::Error)]
#[error("{0}: restart the gateway, and make IKE daemons negotiate new SAs")]
struct Lost(Difference);
