//! First stage outbound: from bytes to what later stages ask about.

use convoy_packet::{Burst, Frame};
use convoy_wire::{PacketInfo, parse_packet_into};

use super::bin::Bin;
use super::fragments::Part;
use crate::drop_reason::DropReason;

/// A packet that parsed.
#[derive(Debug)]
pub(super) struct Parsed {
    pub(super) frame: Frame,
    pub(super) info: PacketInfo,
}

impl Part for Parsed {
    fn packet(&self) -> &[u8] {
        self.frame.data()
    }
    fn info(&self) -> &PacketInfo {
        &self.info
    }
    fn info_mut(&mut self) -> &mut PacketInfo {
        &mut self.info
    }
    fn scope(&self) -> u32 {
        0
    }
    fn into_frame(self) -> Frame {
        self.frame
    }
}

/// Parses the first `n` packets of `input` into `output`; what does not parse is dropped.
///
/// Bytes behind the length that the IP header gives (link padding) are cut off.
pub(super) fn run(input: &mut Burst, n: usize, output: &mut Vec<Parsed>, bin: &mut Bin<'_>) {
    for frame in input.drain_front(n) {
        output.push(Parsed { frame, info: PacketInfo::NONE });
        let Some(Parsed { frame, info }) = output.last_mut() else { return };
        match parse_packet_into(frame.data(), info) {
            Ok(()) => frame.truncate(info.total_len as usize),
            Err(error) => {
                if let Some(Parsed { frame, .. }) = output.pop() {
                    bin.drop(frame, DropReason::from(error));
                }
            }
        }
    }
}
