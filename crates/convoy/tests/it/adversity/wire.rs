//! The watcher on the wire: which packets in clear no policy passes.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use convoy_lab::{Capture, CaptureConfig, IpNet, WIRE_LINK};

use super::world::{FAMILIES, FREE, World};
use crate::common::read_pcap;

const CONFIG: CaptureConfig = CaptureConfig { snaplen: 300, limit: u64::MAX, except_esp: true };

/// Captures without a gap, a file at a time.
pub(crate) struct Watcher {
    /// The networks of both sites.
    inner: [Vec<IpNet>; 2],
    capture: Option<Capture>,
    files: [PathBuf; 2],
    /// Packets in clear that a policy passes.
    passed: u64,
    frames: u64,
}

impl Watcher {
    pub(crate) fn start(world: &World) -> Self {
        let inner = [&world.lab.a, &world.lab.b]
            .map(|site| FAMILIES.map(|family| site.network(family)).to_vec());
        let files = ["one.pcap", "two.pcap"].map(|name| world.folder.path().join(name));
        let mut watcher = Self { inner, capture: None, files, passed: 0, frames: 0 };
        watcher.turn(world);
        watcher
    }

    /// Begins another file before the one of before ends.
    fn turn(&mut self, world: &World) -> Option<PathBuf> {
        self.files.swap(0, 1);
        let gateway = &world.lab.b.gateway;
        let next = Capture::start(gateway, WIRE_LINK, &self.files[0], CONFIG).unwrap();
        let before = self.capture.replace(next)?;
        assert_eq!(before.stop().unwrap().dropped, 0, "the watcher was too slow");
        Some(self.files[1].clone())
    }

    /// Nothing that was on the wire since the last look was protected by a policy.
    pub(crate) fn look(&mut self, world: &World, what: &str) {
        let Some(file) = self.turn(world) else { return };
        for frame in read_pcap(&file) {
            self.frames += 1;
            let is_ip = matches!(frame.get(12..14), Some([8, 0] | [0x86, 0xdd]));
            if !is_ip {
                continue;
            }
            let fate = Packet::parse(&frame[14..]).map(|packet| packet.fate(&self.inner));
            match fate {
                Some(Fate::Other) => {}
                Some(Fate::Passed) => self.passed += 1,
                _ => {
                    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("in-clear.pcap");
                    let _ = fs::copy(&file, &kept);
                    panic!("in clear: {frame:02x?} ({}), {what}\n{}", kept.display(), world.log());
                }
            }
        }
        fs::remove_file(file).unwrap();
    }

    pub(crate) fn seen(&self) -> String {
        format!("{} packets in clear that a policy passes, 0 others", self.passed)
    }

    /// The watcher hears what is in clear.
    pub(crate) fn has_seen_enough(&self) {
        assert!(self.passed > 1000, "{} of {}", self.passed, self.frames);
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// Not between the inner networks.
    Other,
    /// A policy passes it.
    Passed,
    Leaked,
}

struct Packet<'a> {
    ends: [IpAddr; 2],
    protocol: u8,
    is_fragment: bool,
    carried: &'a [u8],
}

impl<'a> Packet<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        if bytes.first()? >> 4 == 4 {
            let address = |at: usize| Some(IpAddr::from(*bytes.get(at..)?.first_chunk::<4>()?));
            return Some(Self {
                ends: [address(12)?, address(16)?],
                protocol: *bytes.get(9)?,
                is_fragment: bytes.get(6)? & 0x3f != 0 || *bytes.get(7)? != 0,
                carried: bytes.get(usize::from(bytes[0] & 15) * 4..)?,
            });
        }
        let address = |at: usize| Some(IpAddr::from(*bytes.get(at..)?.first_chunk::<16>()?));
        let protocol = *bytes.get(6)?;
        Some(Self {
            ends: [address(8)?, address(24)?],
            protocol,
            is_fragment: protocol == 44,
            carried: bytes.get(40..)?,
        })
    }

    fn port(&self, at: usize) -> Option<u16> {
        Some(u16::from_be_bytes(*self.carried.get(at..)?.first_chunk()?))
    }

    fn fate(&self, inner: &[Vec<IpNet>; 2]) -> Fate {
        let has = |site: &Vec<IpNet>| {
            self.ends.iter().any(|end| site.iter().any(|net| net.contains(end)))
        };
        let is_inner = inner.iter().all(has);
        let is_error = match self.protocol {
            1 => matches!(self.carried.first(), Some(3..=5 | 11 | 12)),
            58 => matches!(self.carried.first(), Some(..=127 | 137)),
            _ => false,
        };
        if is_error && !self.is_fragment {
            // It tells what it quotes.
            let quoted = self.carried.get(8..).and_then(Packet::parse);
            return quoted.map_or(Fate::Leaked, |quoted| quoted.fate(inner));
        }
        if !is_inner {
            return Fate::Other;
        }
        let is_free = !self.is_fragment
            && self.protocol == 17
            && [self.port(0), self.port(2)].contains(&Some(FREE));
        if is_free { Fate::Passed } else { Fate::Leaked }
    }
}
