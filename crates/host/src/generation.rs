//! Hearing that this virtual machine is a copy: it was resumed from a snapshot, or cloned while it ran.
//!
//! A hypervisor gives such a machine a new generation id (`vmgenid`), which only its kernel can read. User
//! space hears of it in two ways, and this listens to both:
//!
//! * a uevent with `NEW_VMGENID=1`, from Linux 6.8 and from distributions that kept it: it was taken back
//!   in 6.9;
//! * the kernel's log, which since Linux 5.18 says that its random numbers begin anew for this reason.
//!
//! Both are believed only from the kernel itself: uevents come from port 0, and log records of processes
//! bear another facility. That holds against users without rights: root can have the kernel send such uevents.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_KOBJECT_UEVENT};
use nix::libc::{ENOBUFS, EPIPE, O_NONBLOCK};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// The kernel's own events; group 2 is udev's.
const KERNEL_EVENTS: u32 = 1;
/// Message in the kernel's log since Linux 5.18 (`add_vmfork_randomness`).
const FORKED: &[u8] = b"random: crng reseeded due to virtual machine fork";
/// The longest record that is read.
const RECORD: usize = 8192;

/// True if this machine has a generation id.
#[must_use]
pub fn has_generation_id(root: &Path) -> bool {
    ["acpi", "platform"].iter().any(|bus| {
        let driver = root.join("sys/bus").join(bus).join("drivers/vmgenid");
        let devices = std::fs::read_dir(driver).into_iter().flatten().flatten();
        devices
            .filter(|entry| entry.file_name() != "module")
            .any(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()))
    })
}

/// For so long after a copy was dealt with, a source that had not told of it yet tells of the same one.
const REPEATED: Duration = Duration::from_secs(2);
/// The kernel's log, as records.
const LOG: &str = "/dev/kmsg";
/// Names of both sources.
const SOURCES: [&str; 2] = ["uevents of the kernel", "the kernel's log /dev/kmsg"];

/// Checks that the kernel's log can be read here.
///
/// # Errors
/// Fails if the log cannot be opened, or not be read from its end on.
pub fn can_read_kernel_log(root: &Path) -> io::Result<()> {
    open_log(&root.join(LOG.trim_start_matches('/'))).map(drop)
}

/// The kernel's log from its end on.
///
/// # Errors
/// Fails if the log cannot be opened, or not be read from its end on.
pub fn open_kernel_log() -> io::Result<File> {
    open_log(Path::new(LOG))
}

/// Listens from where it was opened on; that must be before what a copy would have as well is used.
#[derive(Debug)]
pub struct GenerationWatch {
    events: Option<Socket>,
    log: Option<File>,
    /// Sources that are not heard, or not in full, each with the reason.
    deaf: Vec<String>,
    copies: Copies,
}

/// Event that a watch waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Heard {
    /// The machine is a copy.
    Copy,
    /// One source is heard no more, or lost something that no other has told: why.
    Deaf(String),
}

impl GenerationWatch {
    /// Begins to listen, in the calling thread's network namespace.
    #[must_use]
    pub fn open() -> Self {
        let mut deaf = Vec::new();
        let [of_events, of_log] = SOURCES;
        let mut heard = |what: &str, error: io::Error| deaf.push(format!("{what}: {error}"));
        let events = listen().map_err(|error| heard(of_events, error)).ok();
        let log = open_log(Path::new(LOG)).map_err(|error| heard(of_log, error)).ok();
        Self { events, log, deaf, copies: Copies::default() }
    }

    /// Hears the kernel's log, which somebody else could open, from where it stands on.
    pub fn hear_log(&mut self, log: File) {
        let [_, of_log] = SOURCES;
        self.deaf.retain(|why| !why.starts_with(of_log));
        self.log = Some(log);
    }

    /// Sources that are not heard, or not in full, each with the reason.
    #[must_use]
    pub fn deaf(&self) -> &[String] {
        &self.deaf
    }

    /// True if the kernel's log is heard, which tells of copies on all kernels since 5.18.
    #[must_use]
    pub fn hears_log(&self) -> bool {
        self.log.is_some()
    }

    /// Waits until the machine is a copy, or less is heard than before.
    ///
    /// # Errors
    /// Fails if nothing can be heard any more.
    pub fn wait(&mut self) -> io::Result<Heard> {
        loop {
            let events = self.events.as_ref().map(|socket| socket.as_fd());
            let fds = events.into_iter().chain(self.log.as_ref().map(|log| log.as_fd()));
            let mut fds: Vec<_> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
            if fds.is_empty() {
                return Err(io::ErrorKind::Unsupported.into());
            }
            match poll(&mut fds, PollTimeout::NONE) {
                Err(nix::errno::Errno::EINTR) | Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
            if let Some(heard) = self.look(Instant::now()) {
                return Ok(heard);
            }
        }
    }

    /// The copy that was heard of was dealt with: what is told of it a second time is no news.
    pub fn done(&mut self) {
        self.copies.last = Some(Instant::now());
    }

    /// Reads what there is.
    fn look(&mut self, now: Instant) -> Option<Heard> {
        let events = self.events.as_ref().map(read_events);
        let log = self.log.as_mut().map(read_log);
        let mut told = [false; 2];
        let mut deaf = None;
        for ((read, what), told) in [events, log].into_iter().zip(SOURCES).zip(&mut told) {
            let why = match read {
                Some(Ok(said)) => {
                    *told = said.is_copy;
                    (said.is_lossy && self.log.is_none()).then(|| format!("{what}: some were lost"))
                }
                Some(Err(error)) => {
                    // The other one is still heard.
                    match what == SOURCES[0] {
                        true => self.events = None,
                        false => self.log = None,
                    }
                    Some(format!("{what}: {error}"))
                }
                None => None,
            };
            if let Some(why) = why.filter(|why| !self.deaf.contains(why)) {
                self.deaf.push(why.clone());
                deaf = Some(why);
            }
        }
        if self.copies.is_news(told, now) { Some(Heard::Copy) } else { deaf.map(Heard::Deaf) }
    }
}

/// Tells one copy of which both sources tell, one after the other, from two.
#[derive(Debug, Default)]
struct Copies {
    /// Time at which the last one was noticed, or dealt with.
    last: Option<Instant>,
    /// True for each source that told of it.
    told: [bool; 2],
}

impl Copies {
    /// True if the sources told of another copy than the last one. A source tells once of each.
    fn is_news(&mut self, told: [bool; 2], now: Instant) -> bool {
        if !told.contains(&true) {
            return false;
        }
        let is_late = self.last.is_none_or(|last| now.duration_since(last) > REPEATED);
        let is_second = self.told.iter().zip(told).any(|(before, now)| *before && now);
        if is_late || is_second {
            *self = Self { last: Some(now), told };
            return true;
        }
        self.told.iter_mut().zip(told).for_each(|(before, now)| *before |= now);
        false
    }
}

/// Summary of what was read from one source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Said {
    is_copy: bool,
    /// True if something is missing.
    is_lossy: bool,
}

fn listen() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_KOBJECT_UEVENT)?;
    socket.bind(&SocketAddr::new(0, KERNEL_EVENTS))?;
    socket.set_non_blocking(true)?;
    Ok(socket)
}

/// A log from its end on: what was said before concerns whoever ran then.
fn open_log(path: &Path) -> io::Result<File> {
    let mut log = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(path)?;
    log.seek(SeekFrom::End(0))?;
    Ok(log)
}

fn read_events(socket: &Socket) -> io::Result<Said> {
    let mut said = Said::default();
    loop {
        match socket.recv_from_full() {
            Ok((event, from)) => {
                said.is_copy |= from.port_number() == 0 && is_new_generation(&event);
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => return Ok(said),
                io::ErrorKind::Interrupted => {}
                // More had happened than the socket could hold; the log says it as well, if it is heard.
                _ if error.raw_os_error() == Some(ENOBUFS) => said.is_lossy = true,
                _ => return Err(error),
            },
        }
    }
}

fn read_log(log: &mut File) -> io::Result<Said> {
    let mut record = [0; RECORD];
    let mut said = Said::default();
    loop {
        match log.read(&mut record) {
            Ok(0) => return Ok(said),
            Ok(len) => said.is_copy |= is_fork(record.get(..len).unwrap_or_default()),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => return Ok(said),
                io::ErrorKind::Interrupted => {}
                // The oldest were overwritten.
                _ if error.raw_os_error() == Some(EPIPE) => {}
                _ => return Err(error),
            },
        }
    }
}

/// True if a uevent says that the generation id changed. One that somebody asked for by writing to
/// `uevent` in `/sys` has other names for what was written.
pub(crate) fn is_new_generation(event: &[u8]) -> bool {
    let mut lines = event.split(|byte| *byte == 0);
    let is_change = lines.next().is_some_and(|head| head.starts_with(b"change@"));
    is_change && lines.any(|line| line == b"NEW_VMGENID=1")
}

/// True if a record of `/dev/kmsg` is the kernel's own, and says that the machine is a copy.
pub(crate) fn is_fork(record: &[u8]) -> bool {
    let Some(end) = record.iter().position(|byte| *byte == b';') else { return false };
    let (prefix, text) = record.split_at(end);
    let text = text.get(1..).unwrap_or_default();
    let priority = prefix.split(|byte| *byte == b',').next().unwrap_or_default();
    let priority = std::str::from_utf8(priority).ok().and_then(|text| text.parse::<u32>().ok());
    // The facility stands above the level, and 0 is the kernel's.
    priority.is_some_and(|priority| priority >> 3 == 0)
        && text.split(|byte| *byte == b'\n').next() == Some(FORKED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uevent_of_the_driver_is_told_from_others() {
        let driver = b"change@/devices/platform/VMGENCTR:00\0ACTION=change\0\
            DEVPATH=/devices/platform/VMGENCTR:00\0SUBSYSTEM=platform\0NEW_VMGENID=1\0SEQNUM=7\0";
        assert!(is_new_generation(driver));
        let asked_for = b"change@/devices/platform/VMGENCTR:00\0ACTION=change\0\
            SYNTH_UUID=0\0SYNTH_ARG_NEW_VMGENID=1\0SEQNUM=8\0";
        let others: [&[u8]; 4] = [asked_for, b"", b"add@/x\0NEW_VMGENID=1\0", b"change@/x\0A=1\0"];
        assert!(others.iter().all(|event| !is_new_generation(event)));
    }

    #[test]
    fn a_record_of_the_kernels_log_is_told_from_those_of_processes() {
        let text = "random: crng reseeded due to virtual machine fork\n";
        let record = |priority: u32, text: &str| format!("{priority},339,5140900,-;{text}");
        assert!(is_fork(record(5, text).as_bytes()));
        assert!(is_fork(format!("{} SUBSYSTEM=x\n", record(5, text)).as_bytes()));
        // What a process writes has facility 1 at least.
        assert!(!is_fork(record(13, text).as_bytes()));
        assert!(!is_fork(record(5, "random: crng init done\n").as_bytes()));
        let quoted = format!("audit: {text}");
        assert!(!is_fork(record(5, &quoted).as_bytes()));
        assert!(!is_fork(text.as_bytes()) && !is_fork(b"5;") && !is_fork(b""));
    }

    #[test]
    fn a_log_is_read_from_its_end_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kmsg");
        let line = "5,1,1,-;random: crng reseeded due to virtual machine fork\n";
        std::fs::write(&path, line).unwrap();
        let mut watch = deaf_watch();
        watch.log = Some(open_log(&path).unwrap());
        let now = Instant::now();
        assert_eq!(watch.look(now), None);
        std::fs::write(&path, [line, line].concat()).unwrap();
        assert_eq!(watch.look(now), Some(Heard::Copy));
        assert_eq!(watch.look(now), None);
    }

    /// Not listening to anything.
    fn deaf_watch() -> GenerationWatch {
        GenerationWatch { events: None, log: None, deaf: Vec::new(), copies: Copies::default() }
    }

    #[test]
    fn what_both_sources_tell_within_a_short_time_is_one_copy() {
        let (events, log, both) = ([true, false], [false, true], [true, true]);
        let now = Instant::now();
        let mut copies = Copies::default();
        assert!(!copies.is_news([false; 2], now));
        assert!(copies.is_news(events, now));
        assert!(!copies.is_news(log, now + REPEATED));
        // Of a copy that was made in this moment, time goes on as if there was none in between.
        assert!(copies.is_news(events, now + REPEATED));
        let now = now + REPEATED;
        assert!(copies.is_news(log, now + REPEATED + Duration::from_nanos(1)));
        let mut copies = Copies::default();
        assert!(
            copies.is_news(both, now) && copies.is_news(log, now) && !copies.is_news(events, now)
        );
    }

    #[test]
    fn one_source_that_fails_leaves_the_other() {
        let folder = tempfile::tempdir().unwrap();
        let mut watch = deaf_watch();
        watch.events = Some(listen().unwrap());
        // A folder is opened, but not read.
        watch.log = Some(File::open(folder.path()).unwrap());
        let Some(Heard::Deaf(why)) = watch.look(Instant::now()) else { panic!("{watch:?}") };
        assert!(why.starts_with("the kernel's log /dev/kmsg: "), "{why}");
        assert!(watch.events.is_some() && !watch.hears_log());
        assert_eq!(watch.look(Instant::now()), None);
        watch.events = None;
        assert!(watch.wait().is_err());
    }

    #[test]
    fn a_generation_id_is_seen_where_its_driver_has_a_device() {
        let root = tempfile::tempdir().unwrap();
        assert!(!has_generation_id(root.path()));
        let driver = root.path().join("sys/bus/platform/drivers/vmgenid");
        std::fs::create_dir_all(&driver).unwrap();
        std::fs::write(driver.join("bind"), "").unwrap();
        assert!(!has_generation_id(root.path()));
        std::os::unix::fs::symlink("../../../devices/x", driver.join("VMGENCTR:00")).unwrap();
        assert!(has_generation_id(root.path()));
    }
}
