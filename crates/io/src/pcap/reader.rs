//! A port that replays a capture file.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::path::Path;

use convoy_packet::{Burst, Pool};
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{DataLink, PcapError};

use super::link;
use crate::{IoError, Port, PortCounters};

/// The four bytes that every pcapng file starts with, in either byte order.
const PCAPNG_MAGIC: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

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
        let mut reader = Self {
            packets: Vec::new(),
            at: 0,
            rounds_left: rounds,
            counters: PortCounters::default(),
        };
        let mut file = BufReader::new(File::open(path).map_err(PcapError::IoError)?);
        let mut magic = [0; 4];
        file.read_exact(&mut magic).map_err(PcapError::IoError)?;
        file.rewind().map_err(PcapError::IoError)?;
        if magic == PCAPNG_MAGIC {
            reader.load_ng(file)?
        } else {
            reader.load(file)?
        }
        Ok(reader)
    }

    /// Number of packets in the file.
    #[must_use]
    pub fn packets(&self) -> usize {
        self.packets.len()
    }

    /// Whether everything has been replayed as often as asked.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.rounds_left == 0 || self.packets.is_empty()
    }

    fn load(&mut self, file: impl Read) -> Result<(), IoError> {
        let mut file = PcapReader::new(file)?;
        let link = known(file.header().datalink)?;
        while let Some(record) = file.next_packet() {
            match record {
                Ok(record) => self.add(link, &record.data),
                Err(error) => return at_end(error),
            }
        }
        Ok(())
    }

    fn load_ng(&mut self, file: impl Read) -> Result<(), IoError> {
        let mut file = PcapNgReader::new(file)?;
        let mut links: Vec<DataLink> = Vec::new();
        while let Some(block) = file.next_block() {
            match block {
                Ok(Block::SectionHeader(_)) => links.clear(),
                Ok(Block::InterfaceDescription(interface)) => {
                    links.push(known(interface.linktype)?)
                }
                Ok(Block::EnhancedPacket(packet)) => {
                    match links.get(packet.interface_id as usize) {
                        Some(&link) => self.add(link, &packet.data),
                        None => self.counters.rx_malformed += 1,
                    }
                }
                Ok(Block::SimplePacket(packet)) => match links.first() {
                    Some(&link) => self.add(link, &packet.data),
                    None => self.counters.rx_malformed += 1,
                },
                Ok(_) => {}
                Err(error) => return at_end(error),
            }
        }
        Ok(())
    }

    fn add(&mut self, link: DataLink, frame: &[u8]) {
        match link::ip_packet(link, frame) {
            Some(packet) => self.packets.push(packet.into()),
            None => self.counters.rx_malformed += 1,
        }
    }
}

fn known(link: DataLink) -> Result<DataLink, IoError> {
    if link::is_known(link) { Ok(link) } else { Err(IoError::LinkType(link.into())) }
}

/// A capture whose writer was killed ends in the middle of a record.
fn at_end(error: PcapError) -> Result<(), IoError> {
    match error {
        PcapError::IncompleteBuffer => Ok(()),
        PcapError::IoError(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
        error => Err(error.into()),
    }
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
