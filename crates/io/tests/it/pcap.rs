//! Capture files, read back by a library that knows the format, and files made by hand.

use std::fs;
use std::path::Path;
use std::process::Command;

use convoy_io::pcap::{Reader, Recorder, RecorderConfig, Tap, Writer};
use convoy_io::{IoError, Port, mem};
use convoy_packet::{Arena, Burst, FrameSize, Pool};
use pcap_parser::{Linktype, parse_pcap_frame_be, parse_pcap_header};
use proptest::prelude::*;

const ETHERNET: u32 = 1;
const NULL: u32 = 0;
const RAW: u32 = 101;

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

/// All records of a file that was written here, as pcap-parser sees them.
fn records(path: &Path) -> Vec<(u32, Vec<u8>)> {
    let file = fs::read(path).unwrap();
    let (mut rest, header) = parse_pcap_header(&file).unwrap();
    assert_eq!((header.network, header.is_nanosecond_precision()), (Linktype::RAW, false));
    assert_eq!((header.version_major, header.version_minor, header.snaplen), (2, 4, 65_535));
    let mut all = Vec::new();
    while !rest.is_empty() {
        let (behind, record) = parse_pcap_frame_be(rest).unwrap();
        all.push((record.origlen, record.data.to_vec()));
        rest = behind;
    }
    all
}

/// Numbers in one of the two byte orders.
#[derive(Clone, Copy, Debug)]
struct Order {
    big: bool,
}

const BOTH: [Order; 2] = [Order { big: true }, Order { big: false }];

impl Order {
    fn word(self, number: u32) -> [u8; 4] {
        if self.big { number.to_be_bytes() } else { number.to_le_bytes() }
    }

    fn words<const N: usize>(self, numbers: [u32; N]) -> Vec<u8> {
        numbers.iter().flat_map(|number| self.word(*number)).collect()
    }

    /// A pcap file.
    fn pcap(self, magic: u32, link: u32, frames: &[Vec<u8>]) -> Vec<u8> {
        let version = if self.big { [0, 2, 0, 4] } else { [2, 0, 4, 0] };
        let mut file =
            [&self.word(magic)[..], &version, &self.words([0, 0, 65_535, link])].concat();
        for frame in frames {
            let len = frame.len() as u32;
            file.extend(self.words([1, 2, len, len]));
            file.extend(frame);
        }
        file
    }

    /// A block of pcapng.
    fn block(self, kind: u32, inside: &[u8]) -> Vec<u8> {
        let padded = inside.len().next_multiple_of(4);
        let len = self.word(12 + padded as u32);
        let padding = vec![0; padded - inside.len()];
        [&self.word(kind)[..], &len, inside, &padding, &len].concat()
    }

    /// The beginning of a section, whose interfaces have these link types.
    fn section(self, links: &[u32]) -> Vec<u8> {
        let version = if self.big { [0, 1, 0, 0] } else { [1, 0, 0, 0] };
        let inside = [&self.word(0x1a2b_3c4d)[..], &version, &[0xff; 8]].concat();
        let mut section = self.block(0x0a0d_0d0a, &inside);
        for link in links {
            // Two bytes of link type, two that mean nothing.
            let kind = if self.big { link << 16 } else { *link };
            section.extend(self.block(1, &self.words([kind, 0])));
        }
        section
    }

    fn enhanced(self, interface: u32, frame: &[u8]) -> Vec<u8> {
        let len = frame.len() as u32;
        self.block(6, &[&self.words([interface, 0, 0, len, len]), frame].concat())
    }

    fn simple(self, frame: &[u8]) -> Vec<u8> {
        self.block(3, &[&self.word(frame.len() as u32)[..], frame].concat())
    }
}

/// Packets that a file with these bytes gives, and the number of its frames that were no packets.
fn replayed(bytes: &[u8]) -> Result<(Vec<Vec<u8>>, u64), IoError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("capture");
    fs::write(&path, bytes).unwrap();
    let mut reader = Reader::open(&path, 1)?;
    let packets = replay(&mut reader, &mut arena().pool());
    Ok((packets, reader.counters().rx_malformed))
}

fn refusal(bytes: &[u8]) -> String {
    replayed(bytes).unwrap_err().to_string()
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
    let frame = |kind: [u8; 2], inside: &[u8]| [&[1; 12][..], &kind, inside, &[0; 30]].concat();
    let frames =
        [frame([8, 0], &packet(1, 28)), frame([8, 6], &[0; 28]), frame([8, 0], &packet(2, 33))];
    // Microseconds and nanoseconds.
    for (order, magic) in BOTH.into_iter().flat_map(|o| [(o, 0xa1b2_c3d4), (o, 0xa1b2_3c4d)]) {
        let read = replayed(&order.pcap(magic, ETHERNET, &frames)).unwrap();
        assert_eq!(read, (vec![packet(1, 28), packet(2, 33)], 1), "{order:?}");
    }
}

#[test]
fn pcapng_files_are_read_with_the_link_type_of_each_interface() {
    for order in BOTH {
        let framed = |n| [vec![2, 0, 0, 0], packet(n, 42)].concat();
        // A second section begins anew, in its own byte order; an interface that it lacks is an error of
        // the writer.
        let other = Order { big: !order.big };
        let file = [
            order.section(&[RAW, NULL]),
            order.enhanced(0, &packet(5, 41)),
            order.block(0x0bad, &[1, 2, 3]),
            order.enhanced(1, &framed(6)),
            order.simple(&packet(7, 43)),
            other.section(&[NULL]),
            other.enhanced(0, &framed(8)),
            other.enhanced(1, &framed(9)),
        ];
        let expected = [packet(5, 41), packet(6, 42), packet(7, 43), packet(8, 42)];
        assert_eq!(replayed(&file.concat()).unwrap(), (expected.to_vec(), 1), "{order:?}");
    }
}

#[test]
fn files_without_ip_packets_and_files_that_are_none_are_refused() {
    for order in BOTH {
        let wireless = order.pcap(0xa1b2_c3d4, 105, &[]);
        assert!(matches!(replayed(&wireless), Err(IoError::LinkType(105))));
        assert!(matches!(replayed(&order.section(&[105])), Err(IoError::LinkType(105))));
    }
    let none = "cannot use the capture file: it is neither pcap nor pcapng";
    for bytes in [&b"certainly no capture file, but long enough"[..], b"no", b""] {
        assert_eq!(refusal(bytes), none);
    }
    let folder = tempfile::tempdir().unwrap();
    let open = |path: &Path| Reader::open(path, 1).unwrap_err().to_string();
    assert!(open(&folder.path().join("x")).contains("No such file"));
    assert!(open(folder.path()).contains("Is a directory"), "{}", open(folder.path()));
}

#[test]
fn lengths_that_cannot_be_are_refused_and_take_no_memory() {
    for order in BOTH {
        let mut file = order.pcap(0xa1b2_c3d4, RAW, &[packet(1, 40)]);
        file.extend(order.words([0, 0, u32::MAX, u32::MAX]));
        file.extend([0; 100]);
        let long = "cannot use the capture file: a part of it is longer than 1048576 bytes";
        assert_eq!(refusal(&file), long);
        let begin = [order.section(&[RAW]), order.enhanced(0, &packet(1, 40))].concat();
        let huge = [order.words([6, u32::MAX - 3]), vec![0; 100]].concat();
        assert_eq!(refusal(&[&begin[..], &huge].concat()), long);
        // A packet that is longer than its block.
        let mut lying = order.enhanced(0, &packet(2, 40));
        lying[20..24].copy_from_slice(&order.word(400));
        let malformed = "cannot use the capture file: a part of it is malformed";
        assert_eq!(refusal(&[&begin[..], &lying].concat()), malformed);
        // Blocks that are shorter than what frames one; the second kind is about processes.
        for (kind, len) in [(6, 8), (0x8000_0001, 4), (0x8000_0001, 11), (0x8000_0001, 0)] {
            let short = [order.words([kind, len, len]), vec![0; 8]].concat();
            assert_eq!(refusal(&[&begin[..], &short].concat()), malformed, "{kind:#x} {len}");
        }
    }
}

proptest! {
    /// Whatever the bytes, packets come out or an error does.
    #[test]
    fn damaged_files_are_no_reason_to_panic(
        ng in any::<bool>(),
        big in any::<bool>(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        len in any::<prop::sample::Index>(),
    ) {
        let order = Order { big };
        let packets = [packet(1, 40), packet(2, 41)];
        let mut file = if ng {
            let blocks = [order.enhanced(0, &packets[0]), order.simple(&packets[1])].concat();
            [order.section(&[RAW, ETHERNET]), blocks].concat()
        } else {
            order.pcap(0xa1b2_c3d4, RAW, &packets)
        };
        for (at, value) in damage {
            let at = at.index(file.len());
            file[at] = value;
        }
        file.truncate(len.index(file.len()) + 1);
        let _ = replayed(&file);
    }
}

#[test]
fn a_file_that_wireshark_converted_to_pcapng_gives_the_same_packets() {
    let folder = tempfile::tempdir().unwrap();
    let [classic, ng] = ["a.pcap", "a.pcapng"].map(|name| folder.path().join(name));
    let packets: Vec<_> = (0..50).map(|n| packet(n, 40 + usize::from(n))).collect();
    let arena = arena();
    let mut writer = Writer::create(&classic).unwrap();
    writer.tx(&mut arena.pool(), &mut burst(&mut arena.pool(), &packets)).unwrap();
    drop(writer);
    let converted = Command::new("editcap").args(["-F", "pcapng"]).args([&classic, &ng]).status();
    if !converted.is_ok_and(|status| status.success()) {
        println!("SKIPPED: no editcap of Wireshark");
        return;
    }
    let mut reader = Reader::open(&ng, 1).unwrap();
    assert_eq!(replay(&mut reader, &mut arena.pool()), packets);
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
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 30]).unwrap();
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
    assert!(fs::metadata(&path).unwrap().len() <= config.file_bytes);
}
