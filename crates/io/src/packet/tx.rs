//! Sending through a packet socket.

use std::io;
use std::os::fd::BorrowedFd;

use convoy_packet::BURST_MAX;

use super::PREFIX;
use crate::ancillary::Control;
use crate::bytes::byte;
use crate::link::{Outlet, ethernet};
use crate::offload::{Coalescer, Gso, VNET_LEN, Vnet, Write};
use crate::socket::{Failure, SendWait};
use crate::sys::{ADDRESS, Outgoing, SendBatch};
use crate::{Offloads, PortCounters};

/// Plans and sends a burst.
#[derive(Debug)]
pub(super) struct Sender {
    /// `sockaddr_ll` of the interface, for either IP version.
    addresses: [[u8; ADDRESS]; 2],
    coalescer: Coalescer,
    prefixes: Vec<[u8; PREFIX]>,
    outgoing: Vec<Outgoing>,
    batch: SendBatch,
}

impl Sender {
    pub(super) fn new(index: u32, offloads: &Offloads) -> Self {
        Self {
            addresses: [libc::ETH_P_IP, libc::ETH_P_IPV6].map(|kind| address(index, kind as u16)),
            coalescer: Coalescer::new(offloads),
            prefixes: Vec::with_capacity(BURST_MAX),
            outgoing: Vec::with_capacity(BURST_MAX),
            batch: SendBatch::new(BURST_MAX, 2 * BURST_MAX),
        }
    }

    /// Sends all that is ready; the frames stay there. An error means that the socket is dead.
    pub(super) fn run(
        &mut self,
        fd: BorrowedFd<'_>,
        outlet: &mut Outlet,
        counters: &mut PortCounters,
    ) -> io::Result<()> {
        self.coalescer.plan(outlet.ready.as_mut_slice());
        self.arrange(outlet);
        let mut wait = SendWait::default();
        let mut at = 0;
        while at < self.outgoing.len() {
            let failure = match self.send_from(fd, at, outlet, counters) {
                Ok(sent) => {
                    for write in self.coalescer.writes().iter().skip(at).take(sent) {
                        let packets = u64::from(write.count);
                        counters.tx_packets += packets;
                        counters.tx_supers += u64::from(packets > 1);
                        let frames = outlet.ready.as_slice();
                        let members = self.coalescer.chain(write).filter_map(|n| frames.get(n));
                        counters.tx_bytes += members.map(|f| f.len() as u64).sum::<u64>();
                    }
                    at += sent;
                    continue;
                }
                Err(error) => wait.judge(fd, &error).or_dead(error)?,
            };
            let packets = self.coalescer.writes().get(at).map_or(1, |write| u64::from(write.count));
            match failure {
                Failure::Again => {
                    counters.tx_waits += 1;
                    continue;
                }
                Failure::Full => counters.tx_would_block += packets,
                Failure::TooBig => counters.tx_too_big += packets,
                Failure::Invalid => counters.tx_malformed += packets,
                Failure::Denied => counters.tx_denied += packets,
                _ => counters.tx_error += packets,
            }
            at += 1;
        }
        Ok(())
    }

    /// A message for each write, with what stands in front of it.
    fn arrange(&mut self, outlet: &Outlet) {
        self.prefixes.clear();
        self.outgoing.clear();
        let own = outlet.own();
        let Control { bytes: control, len: control_len } = Control::EMPTY;
        for write in self.coalescer.writes() {
            let head = self.coalescer.chain(write).next().unwrap_or(0);
            let first = outlet.ready.as_slice().get(head).map_or(0, |f| byte(f.data(), 0));
            // Packets of one flow have one destination.
            let mac = outlet.macs.get(head).copied().unwrap_or_default();
            self.prefixes.push(prefix(write, &ethernet::header(mac, own, first)));
            let [v4, v6] = &self.addresses;
            self.outgoing.push(Outgoing {
                pieces: write.count + 1,
                address: if first >> 4 == 6 { *v6 } else { *v4 },
                address_len: size_of::<libc::sockaddr_ll>() as u8,
                control,
                control_len,
            });
        }
    }

    fn send_from(
        &mut self,
        fd: BorrowedFd<'_>,
        at: usize,
        outlet: &Outlet,
        counters: &mut PortCounters,
    ) -> io::Result<usize> {
        let frames = outlet.ready.as_slice();
        let writes = self.coalescer.writes().iter().zip(&self.prefixes).skip(at);
        let pieces = writes.flat_map(|(write, prefix)| {
            let bodies = self.coalescer.chain(write).enumerate().map(|(n, frame)| {
                let skip = if n == 0 { 0 } else { usize::from(write.headers) };
                let data = frames.get(frame).map_or(&[][..], |f| f.data());
                data.get(skip..).unwrap_or_default()
            });
            core::iter::once(&prefix[..]).chain(bodies)
        });
        counters.tx_calls += 1;
        self.batch.send(fd, self.outgoing.get(at..).unwrap_or_default(), pieces)
    }
}

/// The kernel's header, which counts from Ethernet's, and that one.
fn prefix(write: &Write, ethernet: &[u8; ethernet::HEADER]) -> [u8; PREFIX] {
    let more = ethernet::HEADER as u16;
    let mut vnet = write.vnet;
    if vnet.needs_csum {
        vnet.csum_start += more;
    }
    if vnet.gso != Gso::None {
        vnet.hdr_len += more;
    }
    let mut prefix = [0; PREFIX];
    let parts: [&[u8]; 2] = [&Vnet::emit(&vnet), ethernet];
    for (to, from) in prefix.iter_mut().zip(parts.into_iter().flatten()) {
        *to = *from;
    }
    prefix
}

/// `struct sockaddr_ll`: family, protocol (big-endian), index, and fields of no use in sending.
pub(crate) fn address(index: u32, kind: u16) -> [u8; ADDRESS] {
    let mut address = [0; ADDRESS];
    let family = (libc::AF_PACKET as u16).to_ne_bytes();
    let parts: [&[u8]; 3] = [&family, &kind.to_be_bytes(), &index.to_ne_bytes()];
    for (to, from) in address.iter_mut().zip(parts.into_iter().flatten()) {
        *to = *from;
    }
    address
}

const _: () =
    assert!(VNET_LEN + ethernet::HEADER == PREFIX && size_of::<libc::sockaddr_ll>() <= ADDRESS);
