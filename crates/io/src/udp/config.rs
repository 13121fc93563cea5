//! Opening UDP sockets for encapsulated ESP.

use core::net::SocketAddr;
use std::os::fd::AsFd;

use socket2::{Domain, Protocol, Socket, Type};

use super::UdpPort;
use crate::socket::{SocketOptions, bind, prepare};
use crate::sys::{attach_program, set_int};
use crate::{IoError, Offloads};

/// UDP port of IKE and ESP behind NAT (RFC 3948).
pub const NAT_TRAVERSAL_PORT: u16 = 4500;

/// Which sockets, and how they are used.
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
}

/// Opens the ports in the network namespace of the calling thread: the n-th receives what has an
/// SPI that is n modulo [`Config::workers`], the first one also what is too short to have one.
///
/// # Errors
/// [`IoError::Queues`], [`IoError::DeviceName`], or [`IoError::Setup`] when the kernel refuses (the
/// address is in use or not of this host).
pub fn open(config: &Config) -> Result<Vec<UdpPort>, IoError> {
    if !(1..=256).contains(&config.workers) {
        return Err(IoError::Queues(usize::from(config.workers)));
    }
    let mut ports = Vec::with_capacity(usize::from(config.workers));
    let mut local = config.local;
    for n in 0..config.workers {
        let (socket, offloads) = open_one(config, local)?;
        if n == 0 {
            // With port 0 the kernel chose one; the others must share it.
            let chosen = socket.local_addr().map_err(IoError::setup("name the udp socket"))?;
            local = chosen.as_socket().unwrap_or(local);
        }
        ports.push(UdpPort::new(socket, local, offloads));
    }
    if let [first, _, ..] = ports.as_slice() {
        let program = spread_by_spi(u32::from(config.workers));
        attach_program(first.socket.as_fd(), libc::SO_ATTACH_REUSEPORT_CBPF, &program)
            .map_err(IoError::setup("spread the udp packets over the workers"))?;
    }
    Ok(ports)
}

fn open_one(config: &Config, local: SocketAddr) -> Result<(Socket, Offloads), IoError> {
    let v6 = local.is_ipv6();
    let socket = Socket::new(Domain::for_address(local), Type::DGRAM, Some(Protocol::UDP))
        .map_err(IoError::setup("open a udp socket"))?;
    prepare(&socket, &config.options, v6)?;
    if v6 {
        socket.set_only_v6(true).map_err(IoError::setup("keep the udp socket to ipv6"))?;
    }
    let spread = config.workers > 1;
    if spread {
        socket.set_reuse_port(true).map_err(IoError::setup("share the udp port"))?;
    }
    bind(&socket, local).map_err(IoError::setup("bind the udp socket"))?;
    // Linux 4.18 and 5.0; without them there is one datagram per message.
    let gso =
        config.offload && set_int(socket.as_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, 0).is_ok();
    let gro = config.offload && set_int(socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 1).is_ok();
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
