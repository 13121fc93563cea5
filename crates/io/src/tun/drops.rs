//! Packets that the kernel could not queue for a TUN device.

use std::fs::File;
use std::io::{self, Read, Seek};

use crate::IoError;
use crate::sys::DeviceName;

/// One line per device of the namespace in which it is opened, whoever reads it later.
const TABLE: &str = "/proc/thread-self/net/dev";
/// Position in the line of the number of packets dropped on transmission: behind eight numbers about
/// reception, and bytes, packets and errors.
const TX_DROPPED: usize = 8 + 3;

/// Reads how many packets this host's stack sent into a TUN device whose queue was full (or down).
///
/// This is for whoever reports statistics, not for the worker: reading makes the kernel write a
/// table.
#[derive(Debug)]
pub struct QueueDrops {
    table: File,
    name: DeviceName,
    text: String,
}

impl QueueDrops {
    /// For the device `name` in the network namespace of the calling thread.
    ///
    /// # Errors
    /// [`IoError::DeviceName`], or [`IoError::Setup`] when there is no `/proc`.
    pub fn new(name: &str) -> Result<Self, IoError> {
        let name = DeviceName::new(name)?;
        let table = File::open(TABLE).map_err(IoError::setup("open the table of devices"))?;
        Ok(Self { table, name, text: String::new() })
    }

    /// Packets dropped since the device exists, over all its queues.
    ///
    /// # Errors
    /// The kernel's error, or "not found" when the device is gone.
    pub fn read(&mut self) -> io::Result<u64> {
        self.table.rewind()?;
        self.text.clear();
        self.table.read_to_string(&mut self.text)?;
        let lines = self.text.lines().filter_map(|line| line.trim_start().split_once(':'));
        let mine =
            lines.filter(|(name, _)| *name == self.name.as_str()).map(|(_, numbers)| numbers);
        let dropped = mine
            .filter_map(|numbers| numbers.split_whitespace().nth(TX_DROPPED))
            .find_map(|number| number.parse().ok());
        dropped.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }
}
