//! A port that writes what it sends to a capture file.

use std::path::Path;

use convoy_packet::{Burst, Pool};

use super::CaptureFile;
use crate::{IoError, Port, PortCounters};

/// Writes every packet sent to a file, waiting for the disk where needed; receives nothing.
///
/// For recording beside live traffic use [`Tap`](super::Tap), which never waits.
#[derive(Debug)]
pub struct Writer {
    file: CaptureFile,
    counters: PortCounters,
}

impl Writer {
    /// Makes the file, which only this user can read, or empties it if it exists.
    ///
    /// # Errors
    /// [`IoError::Capture`] when it cannot be created.
    pub fn create(path: &Path) -> Result<Self, IoError> {
        Ok(Self { file: CaptureFile::create(path)?, counters: PortCounters::default() })
    }
}

impl Port for Writer {
    fn rx(&mut self, _pool: &mut Pool, _into: &mut Burst) -> Result<usize, IoError> {
        Ok(0)
    }

    fn tx(&mut self, pool: &mut Pool, from: &mut Burst) -> Result<(), IoError> {
        let now = super::now();
        for frame in from.drain() {
            match self.file.add(now, frame.len() as u32, frame.data()) {
                Ok(()) => {
                    self.counters.tx_packets += 1;
                    self.counters.tx_bytes += frame.len() as u64;
                }
                Err(_) => self.counters.tx_error += 1,
            }
            pool.free(frame);
        }
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}
