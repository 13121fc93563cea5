//! Capture files: replayed by a port, written by a port, recorded beside another port.
//!
//! Files written have microsecond time stamps and link type `RAW` (101): each record is one IP
//! packet, which every analyser reads without a link header.

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
use std::time::{SystemTime, UNIX_EPOCH};

use pcap_file::pcap::PcapHeader;
use pcap_file::{DataLink, TsResolution};

/// Bytes a record takes in the file besides the packet.
const RECORD_OVERHEAD: u64 = 16;
/// Bytes of the file header.
const FILE_OVERHEAD: u64 = 24;

fn header() -> PcapHeader {
    PcapHeader {
        datalink: DataLink::RAW,
        ts_resolution: TsResolution::MicroSecond,
        snaplen: 65_535,
        ..PcapHeader::default()
    }
}

/// Time since 1970; a clock before that counts as 0.
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
