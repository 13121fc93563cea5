//! Opening AF_XDP sockets and steering frames to them.

use core::fmt;
use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use convoy_packet::Arena;

use super::XdpPort;
use super::program::{PASS, to_extended};
use super::queue::Queue;
use crate::IoError;
use crate::link::{Board, IcmpListeners, Interface, NextHops, Program, Sight, Take, ethernet};
use crate::sys::{self, DeviceName, KERNEL_HEADROOM, XdpLink, XdpSocket};

/// `XDP_FLAGS_SKB_MODE` and `XDP_FLAGS_DRV_MODE` of linux/if_link.h.
const GENERIC: u32 = 1 << 1;
const NATIVE: u32 = 1 << 2;
/// Bytes that the pipeline may add behind a packet: ESP's trailer and ICV.
const BEHIND: usize = 320;
/// Without huge pages the kernel takes frames of at most a page.
const PAGE: usize = 4096;
/// Largest IP packet in bytes that such sockets receive.
pub const LARGEST_PACKET: usize = PAGE - KERNEL_HEADROOM - ethernet::HEADER - BEHIND;

/// Ways in which the kernel hands over packets, from the slowest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Behind the driver, with a copy: works on every interface.
    Generic,
    /// In the driver, with a copy.
    Native,
    /// In the driver, which writes into frames itself.
    ZeroCopy,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Generic => "generic, copied",
            Self::Native => "native, copied",
            Self::ZeroCopy => "native, zero-copy",
        })
    }
}

/// Settings of the ports on one interface.
#[derive(Clone, Debug)]
pub struct Config {
    /// The interface; it must have Ethernet headers.
    pub interface: Interface,
    /// One port for each worker, 1…256. Each gets its share of the interface's receive queues, of
    /// which there must be at least as many.
    pub workers: u16,
    /// The frames that are taken.
    pub take: Take,
    /// Board that tells the next hops of packets.
    pub next_hops: Arc<Board>,
    /// Memory of the frames. All ports between which packets move must use the same.
    pub arena: &'static Arena,
    /// Receive what the network says about packets that were sent. Not where sockets for the same packets are open,
    /// which hear it.
    pub hears_icmp: bool,
    /// Use nothing faster than this.
    pub at_most: Mode,
    /// Longest wait for each queue that the kernel has not freed yet: it does so some time after the socket that had
    /// it was closed.
    pub patience: Duration,
}

impl Config {
    /// One port, as fast as the driver allows. Waits up to 10 s for a queue: on a busy machine it takes long.
    #[must_use]
    pub fn new(
        interface: Interface,
        take: Take,
        next_hops: Arc<Board>,
        arena: &'static Arena,
    ) -> Self {
        Self {
            interface,
            workers: 1,
            take,
            next_hops,
            arena,
            hears_icmp: true,
            at_most: Mode::ZeroCopy,
            patience: Duration::from_secs(10),
        }
    }
}

/// Program that gives frames to the ports of an interface, and can give them others while they run. When it
/// is dropped, or the process ends in whatever way, the kernel gets all frames again.
#[derive(Debug)]
pub struct Steering {
    map: OwnedFd,
    link: XdpLink,
    take: Mutex<Take>,
    mode: Mode,
}

impl Steering {
    /// Takes other frames from now on.
    ///
    /// # Errors
    /// [`IoError::Take`] or [`IoError::Setup`]; then nothing has changed.
    pub fn update(&self, take: &Take) -> Result<(), IoError> {
        let mut now = self.take.lock().unwrap_or_else(PoisonError::into_inner);
        if *now == *take {
            return Ok(());
        }
        let program = load(&take.program(Sight::Alone)?, &self.map)?;
        self.link
            .replace(program.as_fd())
            .map_err(IoError::setup("replace the xdp program of the interface"))?;
        now.clone_from(take);
        Ok(())
    }

    /// Way in which the kernel hands over packets.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }
}

/// Opens the ports, one for each worker, in the network namespace of the calling thread.
///
/// # Errors
/// [`IoError::Queues`], [`IoError::Take`], [`IoError::TooFewQueues`], [`IoError::FrameSize`], or
/// [`IoError::Setup`] when the kernel refuses (no `CAP_NET_ADMIN`, `CAP_NET_RAW` and `CAP_BPF`;
/// another program on the interface).
pub fn open(config: &Config) -> Result<(Vec<XdpPort>, Steering), IoError> {
    let workers = usize::from(config.workers);
    if !(1..=256).contains(&workers) {
        return Err(IoError::Queues(workers));
    }
    check_frames(config)?;
    let queues = sys::rx_queues(&DeviceName::new(&config.interface.name)?)
        .map_err(IoError::setup("count the receive queues of the interface"))?;
    if (queues as usize) < workers {
        return Err(IoError::TooFewQueues { queues, workers: config.workers });
    }
    let program = config.take.program(Sight::Alone)?;
    let map = sys::socket_map(queues).map_err(IoError::setup("make a bpf map of sockets"))?;
    let loaded = load(&program, &map)?;
    let (link, native) = attach(config, &loaded)?;
    let mut sockets = Vec::with_capacity(queues as usize);
    for queue in 0..queues {
        sockets.push(open_queue(config, queue, native)?);
    }
    let zero_copy = sockets.iter().all(XdpSocket::is_zero_copy);
    let mode = match (native, zero_copy) {
        (true, true) => Mode::ZeroCopy,
        (true, false) => Mode::Native,
        (false, _) => Mode::Generic,
    };
    let mut listeners = match config.hears_icmp {
        true => Some(IcmpListeners::open(&config.take.what, &config.interface)?),
        false => None,
    };
    // Frames that come before a worker has the port find room.
    let mut pool = config.arena.pool();
    let queues: Vec<_> =
        sockets.into_iter().map(|socket| Queue::filled(socket, &mut pool)).collect();
    // From here on frames come; the sockets are bound.
    for (number, queue) in (0..).zip(&queues) {
        sys::set_socket(map.as_fd(), number, queue.fd())
            .map_err(IoError::setup("steer frames to an xdp socket"))?;
    }
    let mut shares: Vec<Vec<Queue>> = (0..workers).map(|_| Vec::new()).collect();
    for (n, queue) in queues.into_iter().enumerate() {
        if let Some(share) = shares.get_mut(n % workers) {
            share.push(queue);
        }
    }
    let ports = shares.into_iter().map(|queues| {
        let gathered = gather(&queues)?;
        let hops = NextHops::new(config.next_hops.clone());
        Ok(XdpPort::new(queues, gathered, mode, hops, listeners.take().unwrap_or_default()))
    });
    let ports = ports.collect::<Result<_, IoError>>()?;
    Ok((ports, Steering { map, link, take: Mutex::new(config.take.clone()), mode }))
}

/// Name of an interface's driver, in the network namespace of the calling thread; empty if it has none.
///
/// # Errors
/// [`IoError::Setup`] if there is no such interface.
pub fn driver(interface: &str) -> Result<String, IoError> {
    sys::driver(&DeviceName::new(interface)?)
        .map_err(IoError::setup("ask for the driver of the interface"))
}

/// Refuses frames that the kernel does not take, or that some packet of the interface does not fit.
fn check_frames(config: &Config) -> Result<(), IoError> {
    let size = config.arena.frame_size().bytes();
    let need = KERNEL_HEADROOM + ethernet::HEADER + config.interface.mtu as usize + BEHIND;
    if size > PAGE || need > size {
        let largest = LARGEST_PACKET;
        return Err(IoError::FrameSize { mtu: config.interface.mtu, size, largest });
    }
    Ok(())
}

fn load(program: &Program, map: &OwnedFd) -> Result<OwnedFd, IoError> {
    sys::load_xdp(&to_extended(program, map.as_fd(), PASS))
        .map_err(IoError::setup("load the xdp program"))
}

/// In the driver if it can, else behind it.
fn attach(config: &Config, program: &OwnedFd) -> Result<(XdpLink, bool), IoError> {
    let refused = IoError::setup("attach the xdp program to the interface");
    let index = config.interface.index;
    if config.at_most > Mode::Generic {
        match XdpLink::new(program.as_fd(), index, NATIVE) {
            Ok(link) => return Ok((link, true)),
            // Another process's program is there, or we may not.
            Err(error) if is_final(&error) => return Err(refused(error)),
            Err(_) => {}
        }
    }
    XdpLink::new(program.as_fd(), index, GENERIC).map(|link| (link, false)).map_err(refused)
}

fn is_final(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EBUSY | libc::EEXIST | libc::EPERM | libc::ENODEV | libc::EACCES)
    )
}

/// A gateway that is started again at once finds its queues busy.
fn open_queue(config: &Config, queue: u32, native: bool) -> Result<XdpSocket, IoError> {
    const PAUSE: Duration = Duration::from_millis(50);
    let copy = !native || config.at_most < Mode::ZeroCopy;
    let begun = Instant::now();
    loop {
        let socket = XdpSocket::new(config.arena);
        let mut socket = socket.map_err(IoError::setup("open an xdp socket"))?;
        match socket.bind(config.interface.index, queue, copy) {
            Ok(()) => return Ok(socket),
            Err(error)
                if error.raw_os_error() == Some(libc::EBUSY)
                    && begun.elapsed() < config.patience =>
            {
                std::thread::sleep(PAUSE);
            }
            Err(error) => {
                return Err(IoError::setup("bind an xdp socket to a queue of the interface")(
                    error,
                ));
            }
        }
    }
}

fn gather(queues: &[Queue]) -> Result<Option<OwnedFd>, IoError> {
    if queues.len() < 2 {
        return Ok(None);
    }
    sys::gather(queues.iter().map(Queue::fd))
        .map(Some)
        .map_err(IoError::setup("wait for several queues"))
}
