//! Capture files: replayed by a port, written by a port, recorded beside another port.
//!
//! Files written have microsecond time stamps and link type `RAW` (101): each record is one IP
//! packet, which every analyser reads without a link header. Their owner alone can read them.

mod blocks;
mod link;
mod reader;
mod recorder;
mod tap;
mod writer;

pub use reader::Reader;
pub use recorder::{Recorder, RecorderConfig};
pub use tap::Tap;
pub use writer::Writer;

use core::time::Duration;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use convoy_wire::pcap::{FILE_HEADER_LEN, LINK_RAW, PcapHeader, RECORD_HEADER_LEN};

use crate::IoError;

/// Bytes a record takes in the file besides the packet.
const RECORD_OVERHEAD: u64 = RECORD_HEADER_LEN as u64;
/// Bytes of the file header.
const FILE_OVERHEAD: u64 = FILE_HEADER_LEN as u64;

const HEADER: PcapHeader = PcapHeader { link: LINK_RAW, nanoseconds: false, snap: 65_535 };

/// A capture file that is being written. What is in its buffer is written when it is dropped.
#[derive(Debug)]
struct CaptureFile(BufWriter<File>);

impl CaptureFile {
    /// Makes the file, which only this user can read, or empties it if it exists.
    fn create(path: &Path) -> Result<Self, IoError> {
        let mut file =
            BufWriter::new(convoy_host::create_private_file(path).map_err(IoError::Capture)?);
        file.write_all(&HEADER.emit()).map_err(IoError::Capture)?;
        Ok(Self(file))
    }

    /// Adds a record of `bytes`, the beginning of a packet that had `original`.
    fn add(&mut self, at: Duration, original: u32, bytes: &[u8]) -> io::Result<()> {
        let captured = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.0.write_all(&HEADER.emit_record(at, captured, original))?;
        self.0.write_all(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Time since 1970; a clock before that counts as 0.
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
