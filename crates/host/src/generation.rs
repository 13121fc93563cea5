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
//! bear another facility.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_KOBJECT_UEVENT};
use nix::libc::{ENOBUFS, EPIPE, O_NONBLOCK};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// The kernel's own events; group 2 is udev's.
const KERNEL_EVENTS: u32 = 1;
/// What the kernel's log says since Linux 5.18 (`add_vmfork_randomness`).
const FORKED: &[u8] = b"random: crng reseeded due to virtual machine fork";
/// The longest record that is read.
const RECORD: usize = 8192;

/// Whether this machine has a generation id.
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

/// Listens from where it was opened on; that must be before what a copy would have as well is used.
#[derive(Debug)]
pub struct GenerationWatch {
    events: Option<Socket>,
    log: Option<File>,
    /// Why one of both cannot be heard.
    deaf: Vec<String>,
}

impl GenerationWatch {
    /// Begins to listen, in the calling thread's network namespace.
    #[must_use]
    pub fn open() -> Self {
        let mut deaf = Vec::new();
        let mut heard = |what: &str, error: io::Error| deaf.push(format!("{what}: {error}"));
        let events = listen().map_err(|error| heard("uevents of the kernel", error)).ok();
        let log = open_log(Path::new("/dev/kmsg"));
        let log = log.map_err(|error| heard("the kernel's log /dev/kmsg", error)).ok();
        Self { events, log, deaf }
    }

    /// What cannot be heard, and why.
    #[must_use]
    pub fn deaf(&self) -> &[String] {
        &self.deaf
    }

    /// Waits until the machine is a copy.
    ///
    /// # Errors
    /// When nothing can be heard any more.
    pub fn wait(&mut self) -> io::Result<()> {
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
            if self.look()? {
                return Ok(());
            }
        }
    }

    /// Reads what there is; whether it says so.
    fn look(&mut self) -> io::Result<bool> {
        let mut is_copy = false;
        if let Some(socket) = &self.events {
            is_copy |= read_events(socket)?;
        }
        if let Some(log) = &mut self.log {
            is_copy |= read_log(log)?;
        }
        Ok(is_copy)
    }
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

fn read_events(socket: &Socket) -> io::Result<bool> {
    let mut is_copy = false;
    loop {
        match socket.recv_from_full() {
            Ok((event, from)) => is_copy |= from.port_number() == 0 && is_new_generation(&event),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => return Ok(is_copy),
                io::ErrorKind::Interrupted => {}
                // More had happened than the socket could hold; the log says it as well.
                _ if error.raw_os_error() == Some(ENOBUFS) => {}
                _ => return Err(error),
            },
        }
    }
}

fn read_log(log: &mut File) -> io::Result<bool> {
    let mut record = [0; RECORD];
    let mut is_copy = false;
    loop {
        match log.read(&mut record) {
            Ok(0) => return Ok(is_copy),
            Ok(len) => is_copy |= is_fork(record.get(..len).unwrap_or_default()),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => return Ok(is_copy),
                io::ErrorKind::Interrupted => {}
                // The oldest were overwritten.
                _ if error.raw_os_error() == Some(EPIPE) => {}
                _ => return Err(error),
            },
        }
    }
}

/// Whether a uevent says that the generation id changed. One that somebody asked for by writing to
/// `uevent` in `/sys` has other names for what was written.
fn is_new_generation(event: &[u8]) -> bool {
    let mut lines = event.split(|byte| *byte == 0);
    let is_change = lines.next().is_some_and(|head| head.starts_with(b"change@"));
    is_change && lines.any(|line| line == b"NEW_VMGENID=1")
}

/// Whether a record of `/dev/kmsg` is the kernel's own, and says that the machine is a copy.
fn is_fork(record: &[u8]) -> bool {
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
        let mut watch =
            GenerationWatch { events: None, log: Some(open_log(&path).unwrap()), deaf: Vec::new() };
        assert!(!watch.look().unwrap());
        std::fs::write(&path, [line, line].concat()).unwrap();
        assert!(watch.look().unwrap());
        assert!(!watch.look().unwrap());
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
