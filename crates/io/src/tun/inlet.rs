//! Packets that go into a TUN interface although the host's stack did not route them there.

use std::io;
use std::os::fd::AsFd as _;

use convoy_host::{LinkName, Network};
use socket2::{Domain, Socket, Type};

use crate::IoError;
use crate::ancillary::Control;
use crate::bytes::byte;
use crate::sys::{ADDRESS, Outgoing, SendBatch};

/// A way into a TUN interface, past routing and the packet filter: who reads its queues gets what is put in.
#[derive(Debug)]
pub struct Inlet {
    socket: Socket,
    batch: SendBatch,
    /// `sockaddr_ll` of the interface, for either IP version.
    addresses: [[u8; ADDRESS]; 2],
}

impl Inlet {
    /// Opens one into the interface of this name, in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`IoError::Setup`]: there is no such interface, or `CAP_NET_RAW` is missing.
    pub fn open(name: &str) -> Result<Self, IoError> {
        let find = || {
            let name = LinkName::new(name)?;
            Network::open()?.link(&name)
        };
        let link = find().map_err(io::Error::other);
        let index = link.map_err(IoError::setup("find the tun device"))?.index;
        // Without a protocol it receives nothing.
        let socket = Socket::new(Domain::PACKET, Type::DGRAM, None)
            .map_err(IoError::setup("open a packet socket"))?;
        let kinds = [libc::ETH_P_IP, libc::ETH_P_IPV6];
        let addresses = kinds.map(|kind| crate::packet::address(index, kind as u16));
        Ok(Self { socket, batch: SendBatch::new(1, 1), addresses })
    }

    /// Puts a whole IP packet in, without waiting.
    ///
    /// # Errors
    /// Errors of the socket: the interface is gone or down, its queue is full, or the packet is longer than its MTU.
    pub fn put(&mut self, packet: &[u8]) -> io::Result<()> {
        let [v4, v6] = self.addresses;
        let message = Outgoing {
            pieces: 1,
            address: if byte(packet, 0) >> 4 == 6 { v6 } else { v4 },
            address_len: size_of::<libc::sockaddr_ll>() as u8,
            control: Control::EMPTY.bytes,
            control_len: Control::EMPTY.len,
        };
        self.batch.send(self.socket.as_fd(), &[message], core::iter::once(packet)).map(drop)
    }
}
