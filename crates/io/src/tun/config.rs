//! Opening a TUN device and agreeing on its offloads.

use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

use super::own::OwnErrors;
use super::{TunPort, make};
use crate::offload::VNET_LEN;
use crate::{IoError, Offloads, sys};

const DEVICE: &str = "/dev/net/tun";
/// More queues a device cannot have (`MAX_TAP_QUEUES`).
const MOST_QUEUES: usize = 256;

/// Settings of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Name of the device, which is created if it does not exist; a `%d` in it is replaced by the
    /// first free number.
    pub name: String,
    /// One port per queue, 1…256.
    pub queues: u16,
    /// Super-packets that the kernel keeps for each queue while its worker is busy; `None` leaves
    /// the kernel's 500, and so does a kernel that permits this only to the system's own root.
    pub queue_len: Option<u32>,
    /// Take TCP (and where possible UDP) super-segments and unfinished checksums from the kernel,
    /// and give it coalesced packets. Off: one packet per system call.
    pub offload: bool,
    /// Has the host itself send ICMP errors about packets that it sent into the device, with this firewall mark, to
    /// senders on its own networks (IPv4); otherwise, and where it may not, they come out of the device as all else.
    pub error_mark: Option<u32>,
    /// A port whose device was removed waits for [`Device::make_again`](super::Device::make_again), and loses what it
    /// is to send meanwhile. Otherwise it is dead.
    pub returns: bool,
    /// Number of [parked](super::Parked) queues that the device has already.
    pub parked: u16,
}

impl Config {
    /// One queue of 4,000 packets, with offloads.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            queues: 1,
            queue_len: Some(4000),
            offload: true,
            error_mark: None,
            returns: false,
            parked: 0,
        }
    }
}

/// Opens all queues of the device in the network namespace of the calling thread.
///
/// The device is down at first and has no address; it disappears when the last port is dropped,
/// unless it is to [stay]. Only this user, and who may do anything to
/// networks, can open it as well.
///
/// # Errors
/// [`IoError::DeviceName`], [`IoError::Queues`], or [`IoError::Setup`] when the kernel refuses
/// (no `CAP_NET_ADMIN`, no `/dev/net/tun`, or a device of that name with other flags), or another process
/// has queues of the device.
pub fn open(config: &Config) -> Result<Vec<TunPort>, IoError> {
    if !(1..=MOST_QUEUES).contains(&usize::from(config.queues)) {
        return Err(IoError::Queues(usize::from(config.queues)));
    }
    let mut name = sys::DeviceName::new(&config.name)?;
    let made = match make::exists(&config.name)? {
        true => None,
        false => Some(make::make(&mut name)?),
    };
    // A queue that is used again makes a device where its descriptor was opened, and the first one may come from another
    // network namespace. It is held only as long as there is no other.
    let count = usize::from(config.queues);
    let mut queues = Vec::with_capacity(count);
    while queues.len() < count.min(MOST_QUEUES - 1) {
        queues.push(open_queue(&name)?.queue);
    }
    drop(made);
    while queues.len() < count {
        queues.push(open_queue(&name)?.queue);
    }
    // A process that came before the device had an owner, or has it as its own, would take packets away.
    make::have_alone(&name, config.queues, config.parked)?;
    let own = config.error_mark.and_then(|mark| OwnErrors::open(mark).ok()).map(Arc::new);
    let port = |queue: File| {
        let offloads = negotiate(&queue, config.offload)?;
        Ok(TunPort::new(queue, name, offloads, own.clone(), config.returns))
    };
    let ports = queues.into_iter().map(port).collect::<Result<Vec<_>, IoError>>()?;
    lengthen(&name, config)?;
    Ok(ports)
}

/// Gives the queues of a device the length that they are to have.
pub(super) fn lengthen(name: &sys::DeviceName, config: &Config) -> Result<(), IoError> {
    let Some(packets) = config.queue_len else { return Ok(()) };
    match sys::set_queue_len(name, packets) {
        // In a user namespace the device is ours, yet this request is refused. A shorter queue
        // only drops sooner, and what it drops is counted.
        Err(refused) if refused.raw_os_error() == Some(libc::EPERM) => Ok(()),
        other => other.map_err(IoError::setup("set the queue length of the tun device")),
    }
}

/// Has a device stay when all its queues are closed: what is routed into it is dropped until they are opened
/// again.
///
/// # Errors
/// [`IoError::Setup`] when the kernel refuses.
pub fn stay(port: &TunPort) -> Result<(), IoError> {
    keep(&port.queue, true)
}

/// Removes a device that stayed.
///
/// # Errors
/// As of [`open`]; also when a process has it open.
pub fn remove(name: &str) -> Result<(), IoError> {
    let config = Config { queue_len: None, offload: false, ..Config::new(name) };
    // Gone with its last queue.
    open(&config)?.iter().try_for_each(|port| keep(&port.queue, false))
}

fn keep(queue: &File, stays: bool) -> Result<(), IoError> {
    sys::tun_set_persist(queue.as_fd(), stays)
        .map_err(IoError::setup("set whether the tun device outlives its descriptors"))
}

/// A queue, and what its device is called.
pub(super) struct Named {
    pub(super) queue: File,
    pub(super) name: sys::DeviceName,
}

/// Opens one more queue of a device, which is made if there is none, and lets no other user open more.
pub(super) fn open_queue(name: &sys::DeviceName) -> Result<Named, IoError> {
    let queue = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(DEVICE)
        .map_err(IoError::setup("open /dev/net/tun"))?;
    attach(queue, name)
}

/// The same with a descriptor that is no queue yet, or not any more.
pub(super) fn attach(queue: File, name: &sys::DeviceName) -> Result<Named, IoError> {
    let mut name = *name;
    sys::tun_attach(queue.as_fd(), &mut name)
        .map_err(IoError::setup("open a queue of the tun device"))?;
    sys::tun_set_owner(queue.as_fd(), sys::effective_user())
        .map_err(IoError::setup("set the owner of the tun device"))?;
    sys::tun_set_header_len(queue.as_fd(), VNET_LEN)
        .map_err(IoError::setup("set the header length of the tun device"))?;
    Ok(Named { queue, name })
}

/// Asks for everything first, then for less: UDP segmentation needs Linux 6.2.
pub(super) fn negotiate(queue: &File, wanted: bool) -> Result<Offloads, IoError> {
    let none = Offloads::default();
    let tcp = Offloads { rx_tcp_segments: true, tx_tcp_segments: true, rx_checksum: true, ..none };
    let all = Offloads { rx_udp_segments: true, tx_udp_segments: true, ..tcp };
    let tcp_bits = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
    let all_bits = tcp_bits | libc::TUN_F_USO4 | libc::TUN_F_USO6;
    let attempts: &[_] =
        if wanted { &[(all_bits, all), (tcp_bits, tcp), (0, none)] } else { &[(0, none)] };
    let mut refused = std::io::Error::from_raw_os_error(libc::EINVAL);
    for (bits, offloads) in attempts {
        match sys::tun_set_offload(queue.as_fd(), *bits) {
            Ok(()) => return Ok(*offloads),
            Err(error) => refused = error,
        }
    }
    Err(IoError::Setup { step: "set the offloads of the tun device", source: refused })
}
