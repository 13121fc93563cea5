//! First stage outbound: from bytes to what later stages ask about.

use convoy_packet::Burst;
use convoy_wire::parse_packet_into;

use super::bin::Bin;
use super::packet::{Packet, prefetch_ahead};
use crate::drop_reason::DropReason;

/// Parses the first `n` packets of `input` into `output`; what does not parse is dropped.
///
/// Bytes behind the length that the IP header gives (link padding) are cut off.
pub(super) fn run(input: &mut Burst, n: usize, output: &mut Vec<Packet>, bin: &mut Bin<'_>) {
    let mut frames = input.drain_front(n);
    while let Some(frame) = frames.next() {
        prefetch_ahead(frames.as_slice());
        let Packet { frame, info, .. } = match Packet::add(output, frame) {
            Ok(packet) => packet,
            // Unreachable: the caller asks for as many as fit.
            Err(frame) => {
                bin.drop(frame, DropReason::NoFrame);
                continue;
            }
        };
        match parse_packet_into(frame.data(), info) {
            Ok(()) => frame.truncate(info.total_len as usize),
            Err(error) => {
                if let Some(Packet { frame, .. }) = output.pop() {
                    bin.drop(frame, DropReason::from(error));
                }
            }
        }
    }
}
