//! Opening UDP sockets for encapsulated ESP.

use core::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::UdpPort;
use super::ear::Ear;
use super::steer::{Form, Steering, Unopened, bound_to};
use crate::socket::{SocketOptions, bind, prepare};
use crate::sys::{attach_program, set_int};
use crate::{IoError, Offloads};

/// UDP port of IKE and ESP behind NAT (RFC 3948).
pub const NAT_TRAVERSAL_PORT: u16 = 4500;

/// Settings of the sockets of one address and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Local address, which may be unspecified, and port, usually [`NAT_TRAVERSAL_PORT`].
    pub local: SocketAddr,
    /// Number of ports that share the address, one per worker, 1…256. Packets are spread by
    /// SPI modulo this number.
    pub workers: u16,
    /// Let the kernel cut and join datagrams (`UDP_SEGMENT`, `UDP_GRO`). Off: one each.
    pub offload: bool,
    /// Device, mark and buffers.
    pub options: SocketOptions,
}

impl Config {
    /// One port at `local`, with offloads.
    #[must_use]
    pub fn new(local: SocketAddr) -> Self {
        Self { local, workers: 1, offload: true, options: SocketOptions::default() }
    }

    /// One port at the address and device of this bound socket, as sockets must be to share a port.
    ///
    /// # Errors
    /// [`SteerError::NotUdp`](super::SteerError::NotUdp), or [`IoError::Setup`] when the kernel does not
    /// tell.
    pub fn beside(fd: BorrowedFd<'_>) -> Result<Self, IoError> {
        let mut config = Self::new(bound_to(fd)?);
        let device = SockRef::from(&fd).device();
        let device = device.map_err(IoError::setup("look at the socket to share with"))?;
        config.options.device = device.map(|name| String::from_utf8_lossy(&name).into_owned());
        Ok(config)
    }
}

/// Opens the ports in the network namespace of the calling thread: the n-th receives what has an
/// SPI that is n modulo [`Config::workers`], the first one also what is too short to have one.
///
/// # Errors
/// [`IoError::Queues`], [`IoError::DeviceName`], or [`IoError::Setup`] when the kernel refuses (the
/// address is in use or not of this host).
pub fn open(config: &Config) -> Result<Vec<UdpPort>, IoError> {
    let ports = open_all(config, None)?;
    if let [first, _, ..] = ports.as_slice() {
        let program = spread_by_spi(u32::from(config.workers));
        attach_program(first.socket.as_fd(), libc::SO_ATTACH_REUSEPORT_CBPF, &program)
            .map_err(IoError::setup("spread the udp packets over the workers"))?;
    }
    Ok(ports)
}

/// Opens the ports as [`open`] does, shared with an IKE daemon, whether its socket is there already or
/// comes later: IKE goes to what [`Steering::give`] is given, and is dropped until then; ESP to these
/// ports. Sockets that are there already must be shareable
/// ([`make_shareable`](super::make_shareable)).
///
/// Nothing is received several at a time (`UDP_GRO`): the kernel joins what a peer sends from one port,
/// so IKE with ESP, and would give both to whom the first datagram is for.
///
/// What ICMP says about paths is told by the first port; without `CAP_NET_RAW` the kernel tells it to
/// whichever socket it picks, the daemon's as well.
///
/// [`Form::Extended`] falls back to [`Form::Classic`]; [`Steering::form`] tells.
///
/// # Errors
/// As [`open`].
pub fn share(config: &Config, form: Form) -> Result<(Vec<UdpPort>, Steering), IoError> {
    let mut steering = Steering::prepare(config.workers, form);
    let mut ports = open_all(config, Some(&mut steering))?;
    let first = ports.first_mut().ok_or(IoError::Queues(0))?;
    let steering = steering.finish(&first.socket, first.local)?;
    first.ear = Ear::open(first.local, &config.options).ok();
    let has_ear = first.ear.is_some();
    ports.iter_mut().for_each(|port| port.has_ear = has_ear);
    Ok((ports, steering))
}

fn open_all(config: &Config, mut steering: Option<&mut Unopened>) -> Result<Vec<UdpPort>, IoError> {
    if !(1..=256).contains(&config.workers) {
        return Err(IoError::Queues(usize::from(config.workers)));
    }
    let mut ports = Vec::with_capacity(usize::from(config.workers));
    let mut local = config.local;
    if let Some(steering) = &mut steering {
        steering.before(local)?;
    }
    for n in 0..config.workers {
        let (socket, offloads) = open_one(config, local, steering.is_some())?;
        if n == 0 {
            // With port 0 the kernel chose one; the others must share it.
            let chosen = socket.local_addr().map_err(IoError::setup("name the udp socket"))?;
            local = chosen.as_socket().unwrap_or(local);
        }
        if let Some(steering) = &mut steering {
            steering.add(&socket, local)?;
        }
        ports.push(UdpPort::new(socket, local, offloads));
    }
    Ok(ports)
}

fn open_one(
    config: &Config,
    local: SocketAddr,
    shared: bool,
) -> Result<(Socket, Offloads), IoError> {
    let v6 = local.is_ipv6();
    let socket = Socket::new(Domain::for_address(local), Type::DGRAM, Some(Protocol::UDP))
        .map_err(IoError::setup("open a udp socket"))?;
    prepare(&socket, &config.options, v6)?;
    if v6 {
        socket.set_only_v6(true).map_err(IoError::setup("keep the udp socket to ipv6"))?;
    }
    let spread = config.workers > 1;
    if spread || shared {
        socket.set_reuse_port(true).map_err(IoError::setup("share the udp port"))?;
    }
    bind(&socket, local).map_err(IoError::setup("bind the udp socket"))?;
    // Linux 4.18 and 5.0; without them there is one datagram per message.
    let gso =
        config.offload && set_int(socket.as_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, 0).is_ok();
    let gro = config.offload
        && !shared
        && set_int(socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 1).is_ok();
    let offloads = Offloads {
        rx_udp_segments: gro,
        tx_udp_segments: gso,
        batch: true,
        kernel_drops: true,
        error_queue: true,
        spread_by_spi: spread,
        ..Offloads::default()
    };
    Ok((socket, offloads))
}

/// Classic BPF on the UDP payload: the first word, which is the SPI, modulo `n`. A load beyond the
/// end (a keepalive has one byte) ends the program with 0.
fn spread_by_spi(n: u32) -> [libc::sock_filter; 3] {
    let op = |code: u32, k| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    [
        op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        op(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, n),
        op(libc::BPF_RET | libc::BPF_A, 0),
    ]
}
