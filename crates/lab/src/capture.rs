//! Packets that pass an interface, written to a pcap file.

use std::{
    fs::{File, OpenOptions},
    io::{self, BufWriter, IoSliceMut, Write as _},
    os::{fd::AsRawFd as _, unix::fs::OpenOptionsExt as _},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, SystemTime},
};

use convoy_wire::pcap::{LINK_ETHERNET, PcapHeader};
use nix::fcntl::OFlag;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, MultiHeaders, SockFlag, SockProtocol, SockType,
    SockaddrStorage, recvmmsg, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeSpec;
use socket2::{SockFilter, Socket};

use crate::{LabError, Namespace, error::Doing as _};

/// Packets taken in one call.
const BATCH: usize = 32;
/// Room for what arrives while the file is written, in bytes: 64 MiB.
const BUFFER: usize = 64 << 20;
/// Longest time that a call may block before the flag is looked at.
const PATIENCE: Duration = Duration::from_millis(50);
/// Longest packet the kernel hands over: 64 KiB and a link header.
const LONGEST: usize = 65_536 + 64;

// Readers take the length as the limit of what a packet once was, not of what was kept.
const HEADER: PcapHeader =
    PcapHeader { link: LINK_ETHERNET, nanoseconds: true, snap: LONGEST as u32 };

/// Settings of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CaptureConfig {
    /// Bytes kept of each packet, at most 65,600.
    pub snaplen: usize,
    /// Packets after which the file is long enough; later ones are counted only.
    pub limit: u64,
    /// Leave out ESP, and everything at UDP port 4500 but IKE messages: what little else a wire
    /// between gateways carries can then be captured whole, whatever the load.
    pub except_esp: bool,
}

impl Default for CaptureConfig {
    /// Whole packets of every kind, without limit.
    fn default() -> Self {
        Self { snaplen: LONGEST, limit: u64::MAX, except_esp: false }
    }
}

/// Counts of captured packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CaptureReport {
    /// Packets written to the file.
    pub written: u64,
    /// Packets beyond the limit.
    pub beyond_limit: u64,
    /// Packets the kernel dropped because the capture was too slow, as far as it said so: drops
    /// after the last packet received are not known.
    pub dropped: u64,
}

/// A capture under way. Dropping it ends it and completes the file.
#[derive(Debug)]
pub struct Capture {
    stop: Arc<AtomicBool>,
    seen: Arc<AtomicU64>,
    thread: Option<JoinHandle<Result<CaptureReport, LabError>>>,
}

impl Capture {
    /// Starts to capture everything that enters or leaves an interface, with its link header, each
    /// packet once. When this returns, no later packet is missed.
    ///
    /// The kernel hands over packets as it carries them: with segmentation offload one may be many
    /// times the MTU. [`Namespace::set_segments`] makes it cut them first.
    ///
    /// # Errors
    /// [`LabError::System`].
    pub fn start(
        namespace: &Namespace,
        link: &str,
        file: &Path,
        config: CaptureConfig,
    ) -> Result<Self, LabError> {
        let index = namespace.link_index(link)?;
        let socket = namespace
            .run(|| open(index, config.except_esp))?
            .doing(|| format!("capture on {link}"))?;
        let output = private(file).doing(|| format!("create {}", file.display()))?;
        let snaplen = config.snaplen.min(LONGEST);
        let mut writer = BufWriter::with_capacity(1 << 20, output);
        writer.write_all(&HEADER.emit()).doing(|| format!("write {}", file.display()))?;
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::new(AtomicU64::new(0));
        let work = Work {
            socket,
            index,
            writer,
            config: CaptureConfig { snaplen, ..config },
            report: CaptureReport::default(),
        };
        let flags = (Arc::clone(&stop), Arc::clone(&seen));
        let thread = std::thread::Builder::new()
            .name("capture".into())
            .spawn(move || work.run(&flags.0, &flags.1))
            .map_err(LabError::Thread)?;
        Ok(Self { stop, seen, thread: Some(thread) })
    }

    /// Packets seen so far.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    /// Ends the capture after what the kernel holds has been written, and completes the file.
    ///
    /// # Errors
    /// [`LabError::System`] when something could not be written.
    pub fn stop(mut self) -> Result<CaptureReport, LabError> {
        self.finish().unwrap_or_else(|| Ok(CaptureReport::default()))
    }

    fn finish(&mut self) -> Option<Result<CaptureReport, LabError>> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take()?;
        Some(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A failure was the caller's to ask for.
            let _ = thread.join();
        }
    }
}

/// A new or emptied file, made for its owner alone; a link is not followed.
fn private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.custom_flags(OFlag::O_NOFOLLOW.bits()).open(path)
}

/// A packet socket that sees one interface only.
fn open(index: u32, except_esp: bool) -> io::Result<Socket> {
    let socket =
        socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::EthAll)?;
    if setsockopt(&socket, sockopt::RcvBufForce, &BUFFER).is_err() {
        setsockopt(&socket, sockopt::RcvBuf, &BUFFER)?;
    }
    setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
    setsockopt(&socket, sockopt::RxqOvfl, &1)?;
    let socket = Socket::from(socket);
    if except_esp {
        socket.attach_filter(&no_esp(index))?;
    } else {
        socket.attach_filter(&only_interface(index))?;
    }
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(socket)
}

/// A classic BPF program that accepts the packets of one interface: the packet socket's own way to
/// choose one, `bind(2)`, has no safe form here.
fn only_interface(index: u32) -> [SockFilter; 4] {
    /// Load a 32-bit word: `BPF_LD | BPF_W | BPF_ABS`.
    const LOAD: u16 = 0x20;
    /// `SKF_AD_OFF + SKF_AD_IFINDEX`: the interface, instead of bytes of the packet.
    const IFINDEX: u32 = (-0x1000_i32 + 8) as u32;
    /// Jump if equal to a constant: `BPF_JMP | BPF_JEQ | BPF_K`.
    const JUMP_EQUAL: u16 = 0x15;
    /// Return a constant, the number of bytes to keep: `BPF_RET | BPF_K`.
    const RETURN: u16 = 0x06;
    [
        SockFilter::new(LOAD, 0, 0, IFINDEX),
        SockFilter::new(JUMP_EQUAL, 0, 1, index),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
        SockFilter::new(RETURN, 0, 0, 0),
    ]
}

/// The same, less ESP and whatever is at UDP port 4500 without the mark of IKE (RFC 3948).
fn no_esp(index: u32) -> [SockFilter; 28] {
    // From linux/filter.h: loads of a word, half word and byte, at an offset and behind the IPv4
    // header, whose length the fourth puts into X; jumps; the end.
    const LOAD: [u16; 3] = [0x20, 0x28, 0x30];
    const LOAD_BEHIND: [u16; 2] = [0x40, 0x48];
    const HEADER_LENGTH: u16 = 0xb1;
    const JUMP_EQUAL: u16 = 0x15;
    const JUMP_SET: u16 = 0x45;
    const RETURN: u16 = 0x06;
    const IFINDEX: u32 = (-0x1000_i32 + 8) as u32;
    let (v6, drop, keep) = (16, 26, 27);
    let [word, half, byte] = LOAD.map(|code| move |at| SockFilter::new(code, 0, 0, at));
    let [word_behind, half_behind] =
        LOAD_BEHIND.map(|code| move |at| SockFilter::new(code, 0, 0, at));
    // Targets are counted from the instruction after the jump.
    let jump = |code, here: u8, value, yes: u8, no: u8| {
        SockFilter::new(code, yes - here - 1, no - here - 1, value)
    };
    let equal = |here, value, yes, no| jump(JUMP_EQUAL, here, value, yes, no);
    [
        word(IFINDEX),
        equal(1, index, 2, drop),
        half(12),
        equal(3, 0x0800, 4, v6),
        byte(23),
        equal(5, 50, drop, 6),
        equal(6, 17, 7, keep),
        half(20),
        jump(JUMP_SET, 8, 0x1fff, keep, 9),
        SockFilter::new(HEADER_LENGTH, 0, 0, 14),
        half_behind(14),
        equal(11, 4500, 14, 12),
        half_behind(16),
        equal(13, 4500, 14, keep),
        word_behind(22),
        equal(15, 0, keep, drop),
        equal(16, 0x86dd, 17, keep),
        byte(20),
        equal(18, 50, drop, 19),
        equal(19, 17, 20, keep),
        half(54),
        equal(21, 4500, 24, 22),
        half(56),
        equal(23, 4500, 24, keep),
        word(62),
        equal(25, 0, keep, drop),
        SockFilter::new(RETURN, 0, 0, 0),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
    ]
}

struct Work {
    socket: Socket,
    index: u32,
    writer: BufWriter<File>,
    config: CaptureConfig,
    report: CaptureReport,
}

/// Facts that the kernel gives about a packet beside its bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Note {
    length: usize,
    time: Duration,
    wanted: bool,
}

impl Work {
    fn run(mut self, stop: &AtomicBool, seen: &AtomicU64) -> Result<CaptureReport, LabError> {
        let mut buffers = vec![vec![0; LONGEST]; BATCH];
        let mut headers = MultiHeaders::preallocate(BATCH, Some(nix::cmsg_space!(TimeSpec, u32)));
        let mut stopped = None;
        loop {
            if stopped.is_none() && stop.load(Ordering::Relaxed) {
                stopped = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok();
            }
            let notes = self.receive(&mut headers, &mut buffers)?;
            for (note, buffer) in notes.iter().zip(&buffers).filter(|(note, _)| note.wanted) {
                self.write(*note, buffer)?;
                seen.fetch_add(1, Ordering::Relaxed);
            }
            // What the kernel held at the moment of stopping is still written.
            let later = |stopped| notes.last().is_none_or(|note| note.time > stopped);
            if stopped.is_some_and(later) {
                break;
            }
        }
        self.writer.flush().doing(|| "complete the capture".into())?;
        Ok(self.report)
    }

    fn receive(
        &mut self,
        headers: &mut MultiHeaders<SockaddrStorage>,
        buffers: &mut [Vec<u8>],
    ) -> Result<Vec<Note>, LabError> {
        let mut slices: Vec<_> = buffers.iter_mut().map(|b| [IoSliceMut::new(b)]).collect();
        let flags = MsgFlags::MSG_WAITFORONE;
        let fd = self.socket.as_raw_fd();
        let received = match recvmmsg(fd, headers, slices.iter_mut(), flags, None) {
            Ok(received) => received,
            Err(nix::Error::EAGAIN | nix::Error::EINTR) => return Ok(Vec::new()),
            // The interface was set down; it may come back.
            Err(nix::Error::ENETDOWN) => return Ok(Vec::new()),
            Err(errno) => return Err(errno).doing(|| "read captured packets".into()),
        };
        let mut notes = Vec::with_capacity(BATCH);
        for message in received {
            let mut note = Note { length: message.bytes, ..Note::default() };
            for control in message.cmsgs().into_iter().flatten() {
                match control {
                    ControlMessageOwned::ScmTimestampns(time) => note.time = time.into(),
                    ControlMessageOwned::RxqOvfl(dropped) => {
                        self.report.dropped = self.report.dropped.max(dropped.into());
                    }
                    _ => {}
                }
            }
            // Other interfaces were heard for the moment before the filter stood.
            let address = message.address.as_ref().and_then(|a| a.as_link_addr());
            note.wanted = address.is_some_and(|a| a.ifindex() == self.index as usize);
            notes.push(note);
        }
        Ok(notes)
    }

    fn write(&mut self, note: Note, buffer: &[u8]) -> Result<(), LabError> {
        if self.report.written >= self.config.limit {
            self.report.beyond_limit += 1;
            return Ok(());
        }
        let kept = note.length.min(self.config.snaplen);
        let data = buffer.get(..kept).unwrap_or_default();
        let header = HEADER.emit_record(note.time, data.len() as u32, note.length as u32);
        self.writer
            .write_all(&header)
            .and_then(|()| self.writer.write_all(data))
            .doing(|| "write the capture".into())?;
        self.report.written += 1;
        Ok(())
    }
}
