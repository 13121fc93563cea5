//! Check of a capture of what DPDK's gateway sent: each packet is ESP, and as long as it must be.

use std::collections::BTreeSet;
use std::path::Path;

use convoy_crypto::Suite;
use convoy_io::Port as _;
use convoy_io::pcap::Reader;
use convoy_packet::{Burst, Pool};
use convoy_wire::Protocol;
use convoy_wire::esp::EspHeader;
use convoy_wire::ipv4::{self, Ipv4View};

use super::secgw::{PEER, SPI};
use crate::suite::Layout as _;

/// Bytes of the outer packet around an inner one of `size` bytes, in tunnel mode over IPv4.
pub(super) fn outer_bytes(suite: Suite, size: usize) -> usize {
    ipv4::HEADER_LEN + suite.header_bytes() + suite.esp_text_bytes(size) + suite.icv_bytes()
}

/// Checks that all packets are ESP of the outbound SA, numbered one by one, and that each of `sizes` bytes is among them and no
/// other.
pub(super) fn check(
    capture: &Path,
    suite: Suite,
    sizes: &[usize],
    pool: &mut Pool,
) -> Result<(), String> {
    let lengths: BTreeSet<usize> = sizes.iter().map(|size| outer_bytes(suite, *size)).collect();
    let mut missing = lengths.clone();
    let mut number = 0;
    let mut look = |packet: &[u8]| {
        number += 1;
        let (bytes, header) = (packet.len(), esp_header(packet)?);
        if header != (EspHeader { spi: header.spi, seq_low: number }) || header.spi.get() != SPI {
            return Err(format!("packet {number} that it sent has the ESP header {header:?}"));
        }
        if !lengths.contains(&bytes) {
            return Err(format!("a packet that it sent has {bytes} bytes, and not {lengths:?}"));
        }
        missing.remove(&bytes);
        Ok(())
    };
    let mut reader = Reader::open(capture, 1).map_err(|error| format!("its capture: {error}"))?;
    let mut burst = Burst::new();
    loop {
        let received = reader.rx(pool, &mut burst).map_err(|error| error.to_string())?;
        let outcome = burst.as_slice().iter().try_for_each(|frame| look(frame.data()));
        burst.release(pool);
        outcome?;
        if received == 0 {
            break;
        }
    }
    match missing.first() {
        None => Ok(()),
        Some(bytes) => Err(format!("it sent no packet of {bytes} bytes")),
    }
}

/// The ESP header of a packet to the tunnel's other end.
fn esp_header(packet: &[u8]) -> Result<EspHeader, String> {
    let wrong =
        |fault: &dyn std::fmt::Display| format!("a packet that it sent is not ESP: {fault}");
    let outer = Ipv4View::parse(packet).map_err(|error| wrong(&error))?;
    if outer.protocol() != Protocol::ESP || outer.dst() != PEER {
        return Err(wrong(&format_args!("protocol {}, to {}", outer.protocol(), outer.dst())));
    }
    EspHeader::parse(outer.payload()).map_err(|error| wrong(&error))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use convoy_packet::{Arena, FrameSize};
    use convoy_wire::ipv4::Ipv4Repr;
    use convoy_wire::{Spi, Tos};

    use super::*;
    use crate::dpdk::secgw::capture;

    /// An ESP packet of `bytes` bytes in IPv4.
    fn sealed(bytes: usize, number: u32) -> Vec<u8> {
        let mut packet = vec![0xa5; bytes];
        let outer = Ipv4Repr {
            tos: Tos::default(),
            ident: 0,
            dont_fragment: false,
            ttl: 64,
            protocol: Protocol::ESP,
            src: [172, 16, 1, 5].into(),
            dst: PEER,
            payload_len: bytes - ipv4::HEADER_LEN,
        };
        outer.emit(&mut packet).unwrap();
        let esp = EspHeader { spi: Spi::new(SPI).unwrap(), seq_low: number };
        esp.emit(&mut packet[ipv4::HEADER_LEN..]).unwrap();
        packet
    }

    fn outcome(packets: &[Vec<u8>]) -> Result<(), String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sealed.pcap");
        fs::write(&path, capture(packets)).unwrap();
        let mut pool = Arena::map(1024, FrameSize::for_packet(1500)).unwrap().pool();
        check(&path, "aes-128-gcm-16".parse().unwrap(), &[64, 1420], &mut pool)
    }

    #[test]
    fn packets_of_the_outbound_sa_are_told_from_others() {
        let good = [sealed(120, 1), sealed(1476, 2), sealed(120, 3)];
        assert_eq!(outcome(&good), Ok(()));
        let with = |at: usize, packet: Vec<u8>| {
            let mut packets = good.to_vec();
            packets[at] = packet;
            outcome(&packets).unwrap_err()
        };
        // A byte of the protocol, of the destination and of the SPI.
        for (byte, said) in [(9, "not ESP: protocol udp"), (19, "to 172.16.2."), (23, "ESP header")]
        {
            let mut packet = sealed(120, 1);
            packet[byte] = 17;
            assert!(with(0, packet.clone()).contains(said), "{}", with(0, packet));
        }
        assert!(with(1, sealed(1476, 3)).contains("packet 2 that it sent"));
        assert!(with(1, sealed(1460, 2)).contains("has 1460 bytes"));
        assert!(with(1, sealed(120, 2)).contains("sent no packet of 1476 bytes"));
        assert!(outcome(&[]).unwrap_err().contains("sent no packet of 120 bytes"));
    }
}
