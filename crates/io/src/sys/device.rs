//! Control calls on network devices.

use core::fmt;
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::check;
use crate::IoError;

/// The name of a network device: 1 to 15 bytes, as the kernel's `dev_valid_name` wants them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeviceName([u8; libc::IFNAMSIZ]);

impl DeviceName {
    pub(crate) fn new(name: &str) -> Result<Self, IoError> {
        let bytes = name.as_bytes();
        let bad = |b: &u8| b.is_ascii_whitespace() || matches!(b, b'/' | b':' | 0);
        let mut padded = [0; libc::IFNAMSIZ];
        let fits = !bytes.is_empty() && bytes.len() < padded.len();
        if !fits || matches!(name, "." | "..") || bytes.iter().any(bad) {
            return Err(IoError::DeviceName(bytes.len()));
        }
        for (to, from) in padded.iter_mut().zip(bytes) {
            *to = *from;
        }
        Ok(Self(padded))
    }

    pub(crate) fn as_str(&self) -> &str {
        let end = self.0.iter().position(|b| *b == 0).unwrap_or(self.0.len());
        core::str::from_utf8(self.0.get(..end).unwrap_or_default()).unwrap_or("?")
    }
}

impl fmt::Debug for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// `struct ifreq`: a name and a union, of which the first bytes are used here.
#[repr(C)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    value: [u8; 24],
}

const _: () = assert!(size_of::<Request>() == size_of::<libc::ifreq>());

impl Request {
    fn new<const N: usize>(name: &DeviceName, value: [u8; N]) -> Self {
        let mut padded = [0; 24];
        for (to, from) in padded.iter_mut().zip(value) {
            *to = from;
        }
        Self { name: name.0, value: padded }
    }
}

/// Makes `fd` (an open `/dev/net/tun`) a queue of the TUN device `name`, creating the device if
/// need be; `name` becomes what the kernel made of it.
pub(crate) fn tun_attach(fd: BorrowedFd<'_>, name: &mut DeviceName) -> io::Result<()> {
    let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR | libc::IFF_MULTI_QUEUE;
    let mut request = Request::new(name, (flags as u16).to_ne_bytes());
    // SAFETY: TUNSETIFF reads and writes one `struct ifreq`, which `Request` has the size and
    // layout of and which lives through the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
    name.0 = request.name;
    Ok(())
}

/// The name that the TUN device has now of which `fd` is a queue. `EBADFD` when that was removed.
pub(crate) fn tun_name(fd: BorrowedFd<'_>) -> io::Result<DeviceName> {
    tun_request(fd).map(|request| DeviceName(request.name))
}

fn tun_request(fd: BorrowedFd<'_>) -> io::Result<Request> {
    let none = DeviceName([0; libc::IFNAMSIZ]);
    let mut request = Request::new(&none, [0; 2]);
    // SAFETY: TUNGETIFF writes one `struct ifreq`, which `Request` has the size and layout of and which lives
    // through the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNGETIFF, &raw mut request) })?;
    Ok(request)
}

/// The name of the TUN device that `fd` is a queue of which takes no packets; none if it is anything else.
pub(crate) fn tun_parked(fd: BorrowedFd<'_>) -> Option<DeviceName> {
    let request = tun_request(fd).ok()?;
    let flags = u16::from_ne_bytes(*request.value.first_chunk::<2>()?);
    (flags & libc::IFF_DETACH_QUEUE as u16 != 0).then_some(DeviceName(request.name))
}

/// True if `fd` is a queue of a TUN device: not any more when that was removed.
pub(crate) fn is_tun_queue(fd: BorrowedFd<'_>) -> bool {
    !tun_name(fd).is_err_and(|error| error.raw_os_error() == Some(libc::EBADFD))
}

/// Has the kernel choose the index of a device that is made of `fd`, which is no queue: what was one has its number as a
/// queue in the same place.
pub(crate) fn tun_any_index(fd: BorrowedFd<'_>) -> io::Result<()> {
    let any: libc::c_uint = 0;
    // SAFETY: TUNSETIFINDEX reads one unsigned int, which lives through the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFINDEX, &raw const any) })?;
    Ok(())
}

/// Sets which offloads the kernel may leave to the reader of a TUN queue.
pub(crate) fn tun_set_offload(fd: BorrowedFd<'_>, bits: libc::c_uint) -> io::Result<()> {
    // SAFETY: TUNSETOFFLOAD takes its argument by value and touches no memory.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(bits)) })?;
    Ok(())
}

/// This process's user, with whose rights it opens things.
pub(crate) fn effective_user() -> u32 {
    // SAFETY: geteuid reads nothing of ours and cannot fail.
    unsafe { libc::geteuid() }
}

/// Lets only a user (and processes that may do anything to networks) open queues of a TUN device: without an owner
/// all may. A process that has a queue may call it.
pub(crate) fn tun_set_owner(fd: BorrowedFd<'_>, user: u32) -> io::Result<()> {
    // SAFETY: TUNSETOWNER takes its argument by value and touches no memory.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOWNER, libc::c_ulong::from(user)) })?;
    Ok(())
}

/// Says whether a TUN device stays when its queues are closed.
pub(crate) fn tun_set_persist(fd: BorrowedFd<'_>, stays: bool) -> io::Result<()> {
    // SAFETY: TUNSETPERSIST takes its argument by value and touches no memory.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETPERSIST, libc::c_ulong::from(stays)) })?;
    Ok(())
}

/// Sets the length of the header in front of each packet of a TUN queue.
pub(crate) fn tun_set_header_len(fd: BorrowedFd<'_>, len: usize) -> io::Result<()> {
    let len = len as libc::c_int;
    // SAFETY: TUNSETVNETHDRSZ reads one int, which lives through the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const len) })?;
    Ok(())
}

/// Closes a TUN device's queue to packets; it stays a queue of the device.
pub(crate) fn tun_detach(fd: BorrowedFd<'_>) -> io::Result<()> {
    let none = DeviceName([0; libc::IFNAMSIZ]);
    let mut request = Request::new(&none, (libc::IFF_DETACH_QUEUE as u16).to_ne_bytes());
    // SAFETY: TUNSETQUEUE reads one `struct ifreq`, as above.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETQUEUE, &raw mut request) })?;
    Ok(())
}

/// Sets the transmit queue length of a device of this thread's network namespace.
pub(crate) fn set_queue_len(name: &DeviceName, packets: u32) -> io::Result<()> {
    // Any socket of the namespace will do as the handle.
    let handle = UdpSocket::bind("0.0.0.0:0")?;
    let mut request = Request::new(name, packets.to_ne_bytes());
    // SAFETY: SIOCSIFTXQLEN reads one `struct ifreq`, as above; the value is an int in its union.
    check(unsafe { libc::ioctl(handle.as_raw_fd(), libc::SIOCSIFTXQLEN, &raw mut request) })?;
    Ok(())
}

/// `ETHTOOL_GCHANNELS`.
const GET_CHANNELS: u32 = 0x3c;

/// `struct ethtool_channels`.
#[repr(C)]
struct Channels {
    command: u32,
    /// The most there may be, of each kind.
    most: [u32; 4],
    /// Numbers of queues that receive, send, do something else, or both receive and send.
    counts: [u32; 4],
}

/// Number of queues that a device of this thread's network namespace receives with. One whose driver does
/// not say has one.
pub(crate) fn rx_queues(name: &DeviceName) -> io::Result<u32> {
    let handle = UdpSocket::bind("0.0.0.0:0")?;
    let mut channels = Channels { command: GET_CHANNELS, most: [0; 4], counts: [0; 4] };
    let at = (&raw mut channels) as u64;
    let mut request = Request::new(name, at.to_ne_bytes());
    let fd = handle.as_raw_fd();
    // SAFETY: SIOCETHTOOL reads one `struct ifreq`, as above. The address in its union is that of
    // a `struct ethtool_channels`, which the kernel fills in and which lives through the call.
    let asked = check(unsafe { libc::ioctl(fd, libc::SIOCETHTOOL, &raw mut request) });
    match asked {
        Ok(_) => {
            let [rx, _, _, combined] = channels.counts;
            Ok((rx + combined).max(1))
        }
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(1),
        Err(error) => Err(error),
    }
}

/// `ETHTOOL_GDRVINFO`.
const GET_DRIVER: u32 = 3;
/// `ETHTOOL_BUSINFO_LEN`.
const DRIVER_NAME: usize = 32;

/// `struct ethtool_drvinfo`.
#[repr(C)]
struct DriverInfo {
    command: u32,
    name: [u8; DRIVER_NAME],
    others: [u32; 40],
}

/// Name of a device's driver; empty if it has none.
pub(crate) fn driver(name: &DeviceName) -> io::Result<String> {
    let handle = UdpSocket::bind("0.0.0.0:0")?;
    let mut info = DriverInfo { command: GET_DRIVER, name: [0; DRIVER_NAME], others: [0; 40] };
    let at = (&raw mut info) as u64;
    let mut request = Request::new(name, at.to_ne_bytes());
    let fd = handle.as_raw_fd();
    // SAFETY: SIOCETHTOOL reads one `struct ifreq`, as above. The address in its union is that of
    // a `struct ethtool_drvinfo`, which the kernel fills in and which lives through the call.
    match check(unsafe { libc::ioctl(fd, libc::SIOCETHTOOL, &raw mut request) }) {
        Ok(_) => {}
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => return Ok(String::new()),
        Err(error) => return Err(error),
    }
    let bytes = info.name.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

const _: () = assert!(size_of::<DriverInfo>() == 196);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_the_kernel_would_refuse_are_refused() {
        for bad in ["", "sixteen-bytes-xx", "a/b", "a:b", "a b", ".", "..", "a\0"] {
            assert!(DeviceName::new(bad).is_err(), "{bad:?}");
        }
        for good in ["x", "fifteen-bytes-x", "convoy%d"] {
            assert_eq!(DeviceName::new(good).unwrap().as_str(), good);
        }
    }
}
