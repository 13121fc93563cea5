//! Opening packet sockets.

use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

use socket2::{Domain, Socket, Type};

use super::PacketPort;
use crate::link::{
    Board, Ears, Interface, NextHops, Sight, Take, What, leave_all, spread_by_spi, to_classic,
};
use crate::socket::grow_buffers;
use crate::sys::{attach_program, bind_packet, get_int, set_int, set_program};
use crate::{IoError, Offloads};

/// Settings of the ports on one interface.
#[derive(Clone, Debug)]
pub struct Config {
    /// The interface; it must have Ethernet headers.
    pub interface: Interface,
    /// One port for each worker, 1…256. On the wire side packets are spread over them by SPI modulo
    /// this number, on the plain side by a hash of their flows.
    pub workers: u16,
    /// The frames that are taken.
    pub take: Take,
    /// Board that tells the next hops of packets.
    pub next_hops: Arc<Board>,
    /// Give coalesced packets to the kernel. (They are always taken from it.)
    pub coalesce: bool,
    /// Size asked for of the buffers of each socket in bytes; without `CAP_NET_ADMIN` the kernel
    /// grants at most `net.core.rmem_max` and `wmem_max`.
    pub buffer_bytes: usize,
}

impl Config {
    /// One port with buffers of 16 MiB; coalesces on the plain side, where whole TCP segments are.
    #[must_use]
    pub fn new(interface: Interface, take: Take, next_hops: Arc<Board>) -> Self {
        let coalesce = matches!(take.what, What::Forwarded { .. });
        Self { interface, workers: 1, take, next_hops, coalesce, buffer_bytes: 16 << 20 }
    }
}

/// Changes what the ports of an interface take, while they run.
#[derive(Debug)]
pub struct Steering {
    sockets: Vec<Socket>,
    take: Mutex<Take>,
}

impl Steering {
    /// Takes other frames from now on.
    ///
    /// # Errors
    /// [`IoError::Take`] or [`IoError::Setup`]; then nothing has changed, or not for all workers.
    pub fn update(&self, take: &Take) -> Result<(), IoError> {
        let mut now = self.take.lock().unwrap_or_else(PoisonError::into_inner);
        if *now == *take {
            return Ok(());
        }
        let filter = to_classic(&take.program(Sight::Copies)?);
        for socket in &self.sockets {
            attach_program(socket.as_fd(), libc::SO_ATTACH_FILTER, &filter)
                .map_err(IoError::setup("choose the frames of the packet socket"))?;
        }
        now.clone_from(take);
        Ok(())
    }
}

/// Opens the ports, one for each worker, in the network namespace of the calling thread.
///
/// # Errors
/// [`IoError::Queues`], [`IoError::Take`], or [`IoError::Setup`] when the kernel refuses (no
/// `CAP_NET_RAW`, no such interface).
pub fn open(config: &Config) -> Result<(Vec<PacketPort>, Steering), IoError> {
    if !(1..=256).contains(&config.workers) {
        return Err(IoError::Queues(usize::from(config.workers)));
    }
    let filter = to_classic(&config.take.program(Sight::Copies)?);
    let sockets: Vec<_> =
        (0..config.workers).map(|_| open_socket(config)).collect::<Result<_, _>>()?;
    if let [first, others @ ..] = sockets.as_slice()
        && !others.is_empty()
    {
        spread(first, others, &config.take.what)
            .map_err(IoError::setup("spread the packets over the workers"))?;
    }
    // Last of all: until now nothing was received, so that nothing came twice.
    for socket in &sockets {
        attach_program(socket.as_fd(), libc::SO_ATTACH_FILTER, &filter)
            .map_err(IoError::setup("choose the frames of the packet socket"))?;
    }
    let clones = sockets.iter().map(Socket::try_clone).collect::<io::Result<_>>();
    let clones = clones.map_err(IoError::setup("share the packet sockets"))?;
    let steering = Steering { sockets: clones, take: Mutex::new(config.take.clone()) };
    let mut ears = Some(Ears::open(&config.take.what, &config.interface)?);
    let offloads = Offloads {
        rx_tcp_segments: true,
        rx_udp_segments: true,
        tx_tcp_segments: config.coalesce,
        tx_udp_segments: config.coalesce,
        rx_checksum: true,
        batch: true,
        kernel_drops: true,
        error_queue: matches!(config.take.what, What::Protected { .. }),
        spread_by_spi: config.workers > 1 && matches!(config.take.what, What::Protected { .. }),
        ..Offloads::default()
    };
    let port = |socket| {
        let hops = NextHops::new(config.next_hops.clone());
        // One worker hears for all; it tells the others.
        let ears = ears.take().unwrap_or_default();
        PacketPort::new(socket, config.interface.index, hops, ears, offloads)
    };
    Ok((sockets.into_iter().map(port).collect(), steering))
}

/// A socket that is bound and keeps nothing yet.
fn open_socket(config: &Config) -> Result<Socket, IoError> {
    // Protocol 0 receives nothing before it is bound.
    let socket = Socket::new(Domain::PACKET, Type::RAW, None)
        .map_err(IoError::setup("open a packet socket"))?;
    let fd = socket.as_fd();
    attach_program(fd, libc::SO_ATTACH_FILTER, &leave_all())
        .map_err(IoError::setup("choose the frames of the packet socket"))?;
    socket.set_nonblocking(true).map_err(IoError::setup("make the socket non-blocking"))?;
    grow_buffers(fd, config.buffer_bytes).map_err(IoError::setup("set the socket's buffers"))?;
    let options = [
        (libc::SOL_PACKET, libc::PACKET_VNET_HDR),
        (libc::SOL_PACKET, libc::PACKET_AUXDATA),
        (libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING),
        (libc::SOL_SOCKET, libc::SO_RXQ_OVFL),
    ];
    for (level, name) in options {
        set_int(fd, level, name, 1).map_err(IoError::setup("set the packet socket's options"))?;
    }
    bind_packet(fd, config.interface.index)
        .map_err(IoError::setup("bind the packet socket to its interface"))?;
    Ok(socket)
}

/// Makes the sockets a group of which one gets each packet.
fn spread(first: &Socket, others: &[Socket], what: &What) -> io::Result<()> {
    let by_spi = matches!(what, What::Protected { .. });
    let kind = if by_spi { libc::PACKET_FANOUT_CBPF } else { libc::PACKET_FANOUT_HASH };
    // The kernel chooses a number that no other group has.
    let fresh = (kind | libc::PACKET_FANOUT_FLAG_UNIQUEID) << 16;
    set_int(first.as_fd(), libc::SOL_PACKET, libc::PACKET_FANOUT, fresh as i32)?;
    if by_spi {
        set_program(first.as_fd(), libc::SOL_PACKET, libc::PACKET_FANOUT_DATA, &spread_by_spi())?;
    }
    let number = get_int(first.as_fd(), libc::SOL_PACKET, libc::PACKET_FANOUT)? as u32 & 0xffff;
    for socket in others {
        let join = (kind << 16 | number) as i32;
        set_int(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_FANOUT, join)?;
    }
    Ok(())
}
