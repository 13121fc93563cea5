//! Opening raw sockets for native ESP or AH.

use core::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;

use socket2::{Domain, Protocol, Socket, Type};

use super::{ESP, RawPort, Sockets};
use crate::socket::{SocketOptions, bind, prepare};
use crate::spi_filter::{SpiPlace, SpiShare};
use crate::sys::{attach_program, set_int};
use crate::{IoError, Offloads, SpiFilter};

/// Settings of the ports of one address and protocol.
#[derive(Clone, Debug)]
pub struct Config {
    /// Local address. An unspecified one receives what is sent to any address of this host.
    pub local: IpAddr,
    /// [`ESP`] or [`AH`](super::AH).
    pub protocol: u8,
    /// Number of ports for this address, one per worker, 1…256. Packets are spread by SPI modulo
    /// this number.
    pub workers: u16,
    /// Device, mark and buffers.
    pub options: SocketOptions,
    /// Drops in the kernel what no SA takes, during floods. Where the kernel refuses it, workers drop it as ever.
    pub filter: Option<Arc<SpiFilter>>,
}

impl Config {
    /// One port for ESP at `local`.
    #[must_use]
    pub fn new(local: IpAddr) -> Self {
        Self { local, protocol: ESP, workers: 1, options: SocketOptions::default(), filter: None }
    }
}

/// Opens the ports in the network namespace of the calling thread: the n-th receives the packets
/// whose SPI is n modulo [`Config::workers`].
///
/// # Errors
/// [`IoError::Queues`], [`IoError::DeviceName`], or [`IoError::Setup`] when the kernel refuses (no
/// `CAP_NET_RAW`, or the address is not of this host).
pub fn open(config: &Config) -> Result<Vec<RawPort>, IoError> {
    if !(1..=256).contains(&config.workers) {
        return Err(IoError::Queues(usize::from(config.workers)));
    }
    (0..config.workers).map(|n| open_one(config, n)).collect()
}

fn open_one(config: &Config, worker: u16) -> Result<RawPort, IoError> {
    let v6 = config.local.is_ipv6();
    let domain = if v6 { Domain::IPV6 } else { Domain::IPV4 };
    let new = |protocol: i32| Socket::new(domain, Type::RAW, Some(Protocol::from(protocol)));
    let input = new(i32::from(config.protocol)).map_err(IoError::setup("open a raw socket"))?;
    let filter = config.filter.clone().filter(|filter| {
        let place = SpiPlace { behind_v4: !v6, offset: super::spi_offset(config.protocol) as u8 };
        let share = SpiShare { number: worker, of: config.workers };
        filter.attach(input.as_fd(), place, share).is_ok()
    });
    if filter.is_none() && config.workers > 1 {
        // Before binding, so that nothing of the others' arrives in between.
        let program = only_spi(config, worker);
        attach_program(input.as_fd(), libc::SO_ATTACH_FILTER, &program)
            .map_err(IoError::setup("spread the packets over the workers"))?;
    }
    prepare(&input, &config.options, v6)?;
    // IPPROTO_RAW means that whole packets are sent, and that nothing is received. With one socket
    // for both directions IPv6 would check a checksum that ESP does not have.
    let output = new(libc::IPPROTO_RAW).map_err(IoError::setup("open a raw socket to send"))?;
    prepare(&output, &config.options, v6)?;
    if v6 {
        // Each packet names its source, which may still be looking for duplicates.
        set_int(output.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_FREEBIND, 1)
            .map_err(IoError::setup("let the socket send from any address"))?;
    }
    let fragmenting = if v6 { None } else { Some(open_fragmenting(config)?) };
    bind(&input, SocketAddr::new(config.local, 0))
        .map_err(IoError::setup("bind the raw socket"))?;
    let offloads = Offloads {
        batch: true,
        kernel_drops: true,
        error_queue: true,
        spread_by_spi: config.workers > 1,
        ..Offloads::default()
    };
    let sockets = Sockets { input, output, fragmenting };
    Ok(RawPort::new(sockets, config.local, config.protocol, offloads, filter))
}

/// A socket whose headers the kernel writes, and which it may therefore fragment. It is of the
/// protocol, so that it sends as such, and receives nothing.
fn open_fragmenting(config: &Config) -> Result<Socket, IoError> {
    let socket =
        Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(i32::from(config.protocol))))
            .map_err(IoError::setup("open a raw socket to send fragments"))?;
    let nothing =
        libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 };
    attach_program(socket.as_fd(), libc::SO_ATTACH_FILTER, &[nothing])
        .map_err(IoError::setup("keep the sending socket from receiving"))?;
    prepare(&socket, &config.options, false)?;
    let fd = socket.as_fd();
    set_int(fd, libc::IPPROTO_IP, libc::IP_RECVERR, 0)
        .map_err(IoError::setup("turn off error messages of the sending socket"))?;
    Ok(socket)
}

/// Classic BPF that keeps what has SPI `worker` modulo `n`. IPv4 sockets see the packet from its IP
/// header on, IPv6 sockets from what follows it. A load beyond the end drops the packet.
fn only_spi(config: &Config, worker: u16) -> [libc::sock_filter; 6] {
    let (n, worker) = (u32::from(config.workers), u32::from(worker));
    let offset = super::spi_offset(config.protocol) as u32;
    let op = |code: u32, k| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let start = if config.local.is_ipv6() {
        op(libc::BPF_LDX | libc::BPF_IMM, 0)
    } else {
        // X = 4 × the low half of byte 0, the length of the IP header.
        op(libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH, 0)
    };
    let is_mine = libc::sock_filter {
        code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
        jt: 0,
        jf: 1,
        k: worker,
    };
    [
        start,
        op(libc::BPF_LD | libc::BPF_W | libc::BPF_IND, offset),
        op(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, n),
        is_mine,
        op(libc::BPF_RET | libc::BPF_K, u32::MAX),
        op(libc::BPF_RET | libc::BPF_K, 0),
    ]
}
