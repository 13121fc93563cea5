//! Capture files, read back by the library that knows the format.
#![allow(missing_docs, clippy::unwrap_used)]

use std::borrow::Cow;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

use convoy_io::pcap::{Reader, Recorder, RecorderConfig, Tap, Writer};
use convoy_io::{IoError, Port, mem};
use convoy_packet::{Arena, Burst, FrameSize, Pool};
use pcap_file::DataLink;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapReader, PcapWriter};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionBlock;

fn arena() -> &'static Arena {
    Arena::map(1024, FrameSize::for_packet(1500)).unwrap()
}

/// An IPv4 packet of `len` bytes, numbered in its identification.
fn packet(number: u16, len: usize) -> Vec<u8> {
    let mut packet = vec![number as u8; len];
    packet[..8].copy_from_slice(&[0x45, 0, (len >> 8) as u8, len as u8, 0, 0, 0, 0]);
    packet[4..6].copy_from_slice(&number.to_be_bytes());
    packet
}

fn burst(pool: &mut Pool, packets: &[Vec<u8>]) -> Burst {
    let mut burst = Burst::new();
    for packet in packets {
        let mut frame = pool.alloc().unwrap();
        frame.fill_from(packet).unwrap();
        burst.push(frame).unwrap();
    }
    burst
}

fn replay(reader: &mut Reader, pool: &mut Pool) -> Vec<Vec<u8>> {
    let (mut burst, mut all) = (Burst::new(), Vec::new());
    while reader.rx(pool, &mut burst).unwrap() > 0 {
        all.extend(burst.as_slice().iter().map(|f| f.data().to_vec()));
        burst.release(pool);
    }
    all
}

/// All records of a file, as the pcap-file crate sees them.
fn records(path: &Path) -> Vec<(u32, Vec<u8>)> {
    let mut file = PcapReader::new(File::open(path).unwrap()).unwrap();
    assert_eq!(file.header().datalink, DataLink::RAW);
    let mut all = Vec::new();
    while let Some(record) = file.next_packet() {
        let record = record.unwrap();
        all.push((record.orig_len, record.data.to_vec()));
    }
    all
}

#[test]
fn what_the_writer_wrote_the_reader_replays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcap");
    let arena = arena();
    let mut pool = arena.pool();
    let packets: Vec<_> = (0..200).map(|n| packet(n, 20 + usize::from(n) * 7)).collect();
    let mut writer = Writer::create(&path).unwrap();
    writer.tx(&mut pool, &mut burst(&mut arena.pool(), &packets)).unwrap();
    assert_eq!(writer.counters().tx_packets, 200);
    drop(writer);
    assert!(records(&path).iter().map(|r| &r.1).eq(&packets));
    let mut reader = Reader::open(&path, 3).unwrap();
    assert_eq!(reader.packets(), 200);
    assert_eq!(
        replay(&mut reader, &mut pool),
        [packets.clone(), packets.clone(), packets].concat()
    );
    assert!(reader.is_finished());
    drop(pool);
    assert_eq!((arena.in_depot(), arena.leaked()), (1024, 0));
}

#[test]
fn ethernet_captures_lose_their_link_header_and_padding() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ethernet.pcap");
    let header = PcapHeader { datalink: DataLink::ETHERNET, ..Default::default() };
    let mut file = PcapWriter::with_header(File::create(&path).unwrap(), header).unwrap();
    let frame = |kind: [u8; 2], inside: &[u8]| [&[1; 12][..], &kind, inside, &[0; 30]].concat();
    for bytes in
        [frame([8, 0], &packet(1, 28)), frame([8, 6], &[0; 28]), frame([8, 0], &packet(2, 33))]
    {
        file.write_packet(&PcapPacket::new(Duration::ZERO, bytes.len() as u32, &bytes)).unwrap();
    }
    drop(file);
    let mut reader = Reader::open(&path, 1).unwrap();
    assert_eq!(replay(&mut reader, &mut arena().pool()), [packet(1, 28), packet(2, 33)]);
    assert_eq!(reader.counters().rx_malformed, 1);
}

#[test]
fn pcapng_files_are_read_with_the_link_type_of_each_interface() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcapng");
    let mut file = PcapNgWriter::new(File::create(&path).unwrap()).unwrap();
    for linktype in [DataLink::RAW, DataLink::NULL] {
        let interface = InterfaceDescriptionBlock { linktype, snaplen: 0, options: vec![] };
        file.write_pcapng_block(interface).unwrap();
    }
    let mut write = |interface_id, data: Vec<u8>| {
        file.write_pcapng_block(EnhancedPacketBlock {
            interface_id,
            timestamp: Duration::ZERO,
            original_len: data.len() as u32,
            data: Cow::Owned(data),
            options: vec![],
        })
        .unwrap();
    };
    write(0, packet(5, 41));
    write(1, [vec![2, 0, 0, 0], packet(6, 42)].concat());
    let mut reader = Reader::open(&path, 1).unwrap();
    assert_eq!(replay(&mut reader, &mut arena().pool()), [packet(5, 41), packet(6, 42)]);
}

#[test]
fn files_without_ip_packets_and_files_that_are_none_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    let header = PcapHeader { datalink: DataLink::IEEE802_11, ..Default::default() };
    drop(PcapWriter::with_header(File::create(&path).unwrap(), header).unwrap());
    assert!(matches!(Reader::open(&path, 1), Err(IoError::LinkType(105))));
    std::fs::write(&path, b"certainly no capture file, but long enough").unwrap();
    assert!(matches!(Reader::open(&path, 1), Err(IoError::Capture(_))));
    std::fs::write(&path, b"no").unwrap();
    assert!(matches!(Reader::open(&path, 1), Err(IoError::Capture(_))));
}

#[test]
fn a_file_that_breaks_off_yields_what_was_complete() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.pcap");
    let arena = arena();
    let mut writer = Writer::create(&path).unwrap();
    let packets = [packet(1, 100), packet(2, 100)];
    writer.tx(&mut arena.pool(), &mut burst(&mut arena.pool(), &packets)).unwrap();
    drop(writer);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 30]).unwrap();
    let mut reader = Reader::open(&path, 1).unwrap();
    assert_eq!(replay(&mut reader, &mut arena.pool()), [packet(1, 100)]);
}

#[test]
fn a_tap_records_both_directions_of_several_ports_into_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tap.pcap");
    let arena = arena();
    let mut pool = arena.pool();
    let config = RecorderConfig { snap: 50, ..Default::default() };
    let recorder = Recorder::create(&path, config).unwrap();
    let (a, b) = mem::pair(&mem::Config::default());
    let (mut a, mut b) = (Tap::new(a, &recorder), Tap::new(b, &recorder));
    let packets: Vec<_> = (0..100).map(|n| packet(n, 40 + usize::from(n))).collect();
    a.tx(&mut pool, &mut burst(&mut arena.pool(), &packets)).unwrap();
    let mut got = Burst::new();
    assert_eq!(b.rx(&mut pool, &mut got).unwrap(), 100);
    got.release(&mut pool);
    assert_eq!(a.counters().capture_misses + b.counters().capture_misses, 0);
    drop((a, b, recorder));
    let mut seen = records(&path);
    seen.sort();
    let mut expected: Vec<_> = packets
        .iter()
        .flat_map(|p| [p, p])
        .map(|p| (p.len() as u32, p[..p.len().min(50)].to_vec()))
        .collect();
    expected.sort();
    assert_eq!(seen, expected);
}

#[test]
fn a_full_capture_is_counted_and_the_traffic_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("full.pcap");
    let arena = arena();
    let mut pool = arena.pool();
    let config = RecorderConfig { file_bytes: 24 + 3 * 116 + 50, snap: 1500, depth: 10 };
    let recorder = Recorder::create(&path, config).unwrap();
    let (a, mut b) = mem::pair(&mem::Config::default());
    let mut a = Tap::new(a, &recorder);
    let packets: Vec<_> = (0..50).map(|n| packet(n, 100)).collect();
    for _ in 0..4 {
        a.tx(&mut pool, &mut burst(&mut arena.pool(), &packets)).unwrap();
    }
    let mut got = Burst::new();
    assert_eq!(b.rx(&mut pool, &mut got).unwrap(), 200);
    got.release(&mut pool);
    // Ten records fit into the ring at any time, so of 200 packets at once most were missed, and
    // the file holds exactly as many as its size allows.
    assert!(a.counters().capture_misses >= 1);
    drop((a, recorder));
    assert_eq!(records(&path).len(), 3);
    assert!(std::fs::metadata(&path).unwrap().len() <= config.file_bytes);
}
