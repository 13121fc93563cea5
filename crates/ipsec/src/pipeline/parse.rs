//! First stage outbound: from bytes to what later stages ask about.

use convoy_packet::{Burst, Frame};
use convoy_wire::{parse_packet, parse_plain};

use super::bin::Bin;
use super::packet::{Packet, prefetch_ahead};
use crate::drop_reason::DropReason;

/// Parses the first `n` packets of `input` into `output`; what does not parse is dropped.
///
/// Bytes behind the length that the IP header gives (link padding) are cut off.
pub(super) fn run(input: &mut Burst, n: usize, output: &mut Vec<Packet>, bin: &mut Bin<'_>) {
    let mut frames = input.drain_front(n);
    while let Some(mut frame) = frames.next() {
        prefetch_ahead(frames.as_slice());
        let Some(info) = parse_plain(frame.data()) else {
            parse_any(frame, output, bin);
            continue;
        };
        frame.truncate(info.total_len as usize);
        if let Err(frame) = Packet::add(output, frame, info) {
            // Unreachable: the caller asks for as many as fit.
            bin.drop(frame, DropReason::NoFrame);
        }
    }
}

#[inline(never)]
fn parse_any(mut frame: Frame, output: &mut Vec<Packet>, bin: &mut Bin<'_>) {
    match parse_packet(frame.data()) {
        Ok(info) => {
            frame.truncate(info.total_len as usize);
            if let Err(frame) = Packet::add(output, frame, info) {
                bin.drop(frame, DropReason::NoFrame);
            }
        }
        Err(error) => bin.drop(frame, DropReason::from(error)),
    }
}
