//! A port that replays a capture file.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use convoy_packet::{Burst, Pool};
use pcap_parser::traits::PcapNGPacketBlock;
use pcap_parser::{Block, Linktype, PcapBlockOwned};

use super::blocks::Blocks;
use super::link;
use crate::{IoError, Port, PortCounters};

/// Replays the IP packets of a capture file, as fast as it is asked. What it is told to send is
/// counted as sent and forgotten.
#[derive(Debug)]
pub struct Reader {
    packets: Vec<Box<[u8]>>,
    at: usize,
    rounds_left: u32,
    counters: PortCounters,
}

impl Reader {
    /// Reads the whole file (pcap or pcapng); it will be replayed `rounds` times.
    ///
    /// Frames without an IP packet are passed over and counted as
    /// [`PortCounters::rx_malformed`]; a file that breaks off yields what was complete.
    ///
    /// # Errors
    /// [`IoError::Capture`] when it cannot be opened or is no capture, [`IoError::LinkType`] when
    /// it holds no IP packets by its nature.
    pub fn open(path: &Path, rounds: u32) -> Result<Self, IoError> {
        Self::read(File::open(path).map_err(IoError::Capture)?, rounds)
    }

    /// The same of a file that is open, or of bytes.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn read(file: impl Read + Send, rounds: u32) -> Result<Self, IoError> {
        let mut reader = Self {
            packets: Vec::new(),
            at: 0,
            rounds_left: rounds,
            counters: PortCounters::default(),
        };
        let mut blocks = Blocks::open(file)?;
        let mut links = Vec::new();
        while blocks.next(|block| reader.take(block, &mut links))? {}
        Ok(reader)
    }

    /// Number of packets in the file.
    #[must_use]
    pub fn packets(&self) -> usize {
        self.packets.len()
    }

    /// True if everything has been replayed as often as asked.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.rounds_left == 0 || self.packets.is_empty()
    }

    /// Keeps what a block says: the link type of records to come, or a packet.
    fn take(
        &mut self,
        block: &PcapBlockOwned<'_>,
        links: &mut Vec<Linktype>,
    ) -> Result<(), IoError> {
        match block {
            PcapBlockOwned::LegacyHeader(header) => links.push(known(header.network)?),
            PcapBlockOwned::Legacy(record) => self.add(links.first(), record.data),
            PcapBlockOwned::NG(Block::SectionHeader(_)) => links.clear(),
            PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
                links.push(known(interface.linktype)?);
            }
            PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                self.add(links.get(packet.if_id as usize), packet.packet_data());
            }
            PcapBlockOwned::NG(Block::SimplePacket(packet)) => {
                self.add(links.first(), packet.packet_data());
            }
            PcapBlockOwned::NG(_) => {}
        }
        Ok(())
    }

    fn add(&mut self, link: Option<&Linktype>, frame: &[u8]) {
        match link.and_then(|link| link::ip_packet(*link, frame)) {
            Some(packet) => self.packets.push(packet.into()),
            None => self.counters.rx_malformed += 1,
        }
    }
}

fn known(link: Linktype) -> Result<Linktype, IoError> {
    if link::is_known(link) { Ok(link) } else { Err(IoError::LinkType(link.0.cast_unsigned())) }
}

impl Port for Reader {
    fn rx(&mut self, pool: &mut Pool, into: &mut Burst) -> Result<usize, IoError> {
        let before = into.len();
        while !into.is_full() && !self.is_finished() {
            let Some(mut frame) = pool.alloc() else {
                self.counters.rx_no_frame += 1;
                break;
            };
            let packet = self.packets.get(self.at).map_or(&[][..], |p| p);
            self.at += 1;
            if self.at >= self.packets.len() {
                self.at = 0;
                self.rounds_left -= 1;
            }
            if frame.fill_from(packet).is_err() {
                self.counters.rx_truncated += 1;
                pool.free(frame);
                continue;
            }
            self.counters.rx_bytes += packet.len() as u64;
            let _ = into.push(frame);
        }
        let received = into.len() - before;
        self.counters.rx_packets += received as u64;
        Ok(received)
    }

    fn tx(&mut self, pool: &mut Pool, from: &mut Burst) -> Result<(), IoError> {
        self.counters.tx_packets += from.len() as u64;
        self.counters.tx_bytes += from.as_slice().iter().map(|f| f.len() as u64).sum::<u64>();
        from.release(pool);
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}
