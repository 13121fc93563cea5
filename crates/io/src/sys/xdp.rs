//! AF_XDP sockets over the arena.
//!
//! The arena is the socket's UMEM, so the kernel writes received packets into frames and sends from
//! frames. What keeps that sound: a socket is given whole [`Frame`]s, which are the only handles to
//! their chunks, and holds them until the kernel has given the chunk back. So nobody else can touch
//! what the kernel reads or writes.

use core::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use convoy_packet::{Arena, Frame};

use super::check;
use super::option::{get, set};
use super::ring::{Consumer, Producer};

/// Entries of each of the four rings: a power of two.
pub(crate) const ENTRIES: u32 = 2048;
/// Bytes that the kernel leaves free in front of each packet (`XDP_PACKET_HEADROOM`).
pub(crate) const KERNEL_HEADROOM: usize = 256;

/// A socket for one queue of an interface.
pub(crate) struct XdpSocket {
    // In this order: what the kernel held is free when the socket is closed.
    rings: Rings,
    fd: OwnedFd,
    held: Held,
}

struct Rings {
    fill: Producer<u64>,
    completion: Consumer<u64>,
    rx: Consumer<libc::xdp_desc>,
    tx: Producer<libc::xdp_desc>,
}

/// The frames that the kernel has, by their number.
struct Held {
    arena: &'static Arena,
    frames: Box<[Option<Frame>]>,
    count: usize,
    /// The device itself writes into frames. When that ends is not known here.
    zero_copy: bool,
}

impl Held {
    fn put(&mut self, frame: Frame) {
        let index = frame.index() as usize;
        // It is of this arena, as was seen before, so there is a place for it.
        if let Some(place) = self.frames.get_mut(index) {
            *place = Some(frame);
            self.count += 1;
        }
    }

    fn take(&mut self, address: u64) -> Option<Frame> {
        let index = address as usize / self.arena.frame_size().bytes();
        let frame = self.frames.get_mut(index)?.take()?;
        self.count -= 1;
        Some(frame)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut pool = self.arena.pool();
        for frame in self.frames.iter_mut().filter_map(Option::take) {
            if self.zero_copy {
                // A driver may let go of its buffers after the socket is closed. Such a frame is
                // given up for good: a chunk less is better than one that changes by itself.
                core::mem::forget(frame);
            } else {
                pool.free(frame);
            }
        }
    }
}

impl fmt::Debug for XdpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XdpSocket")
            .field("fd", &self.fd)
            .field("held", &self.held.count)
            .finish_non_exhaustive()
    }
}

impl XdpSocket {
    /// A socket with the whole arena as its UMEM, not bound yet.
    pub(crate) fn new(arena: &'static Arena) -> io::Result<Self> {
        // SAFETY: makes a descriptor or fails, and touches no memory.
        let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        check(fd)?;
        // SAFETY: the descriptor is fresh and owned by nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let (at, len) = arena.mapping();
        let umem = libc::xdp_umem_reg {
            addr: at.as_ptr() as u64,
            len: len as u64,
            chunk_size: arena.frame_size().bytes() as u32,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        set(fd.as_fd(), libc::SOL_XDP, libc::XDP_UMEM_REG, &umem)?;
        for ring in [
            libc::XDP_UMEM_FILL_RING,
            libc::XDP_UMEM_COMPLETION_RING,
            libc::XDP_RX_RING,
            libc::XDP_TX_RING,
        ] {
            set(fd.as_fd(), libc::SOL_XDP, ring, &ENTRIES)?;
        }
        let rings = Rings::map(fd.as_fd())?;
        let frames = (0..arena.frames()).map(|_| None).collect();
        let held = Held { arena, frames, count: 0, zero_copy: false };
        Ok(Self { rings, fd, held })
    }

    /// Binds the socket to a queue. The driver's zero-copy mode is used if it has one, unless
    /// `copy` is asked for.
    pub(crate) fn bind(&mut self, index: u32, queue: u32, copy: bool) -> io::Result<()> {
        let copy = if copy { libc::XDP_COPY } else { 0 };
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: libc::XDP_USE_NEED_WAKEUP | copy,
            sxdp_ifindex: index,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: 0,
        };
        let at = &raw const address;
        let len = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
        // SAFETY: the kernel reads `len` bytes at `at`, a live `sockaddr_xdp` of that size.
        check(unsafe { libc::bind(self.fd.as_raw_fd(), at.cast(), len) })?;
        let options = libc::xdp_options { flags: 0 };
        let options = get(self.fd.as_fd(), libc::SOL_XDP, libc::XDP_OPTIONS, options)?;
        self.held.zero_copy = options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0;
        Ok(())
    }

    /// True if the device writes into frames itself.
    pub(crate) fn is_zero_copy(&self) -> bool {
        self.held.zero_copy
    }

    /// Gives the kernel a free frame of the arena to receive into, or gives it back when there is no
    /// room; [`Self::publish`] tells the kernel.
    #[inline]
    pub(crate) fn give(&mut self, frame: Frame) -> Result<(), Frame> {
        let address = self.address(&frame, 0);
        if !self.is_ours(&frame) || !self.rings.fill.push(address) {
            return Err(frame);
        }
        self.held.put(frame);
        Ok(())
    }

    /// A received frame with the packet in it, Ethernet header first; `None` when no more is there.
    /// A frame that the kernel describes wrongly comes empty.
    #[inline]
    pub(crate) fn receive(&mut self) -> Option<Frame> {
        loop {
            let packet = self.rings.rx.pop()?;
            // Something that was never given to the kernel cannot come back.
            let Some(mut frame) = self.held.take(packet.addr) else { continue };
            let offset = packet.addr as usize % self.held.arena.frame_size().bytes();
            if frame.place(offset, packet.len as usize).is_err() {
                frame.reset();
            }
            return Some(frame);
        }
    }

    /// Gives the kernel a frame of the arena to send, or gives it back when there is no room;
    /// [`Self::publish`] tells the kernel.
    #[inline]
    pub(crate) fn send(&mut self, frame: Frame) -> Result<(), Frame> {
        let addr = self.address(&frame, frame.headroom());
        let packet = libc::xdp_desc { addr, len: frame.len() as u32, options: 0 };
        if !self.is_ours(&frame) || !self.rings.tx.push(packet) {
            return Err(frame);
        }
        self.held.put(frame);
        Ok(())
    }

    /// A frame that was sent.
    #[inline]
    pub(crate) fn sent(&mut self) -> Option<Frame> {
        loop {
            let address = self.rings.completion.pop()?;
            if let Some(frame) = self.held.take(address) {
                return Some(frame);
            }
        }
    }

    /// Tells the kernel what was put into rings and taken from them.
    #[inline]
    pub(crate) fn publish(&mut self) {
        self.rings.fill.publish();
        self.rings.tx.publish();
        self.rings.rx.release();
        self.rings.completion.release();
    }

    /// Frames given to be sent that the kernel has not looked at yet.
    #[inline]
    pub(crate) fn unsent(&mut self) -> u32 {
        self.rings.tx.unread()
    }

    /// True if at most `n` of those are left; looks at the kernel's index only if need be.
    #[inline]
    pub(crate) fn unsent_at_most(&mut self, n: u32) -> bool {
        self.rings.tx.unread_at_most(n)
    }

    /// Makes the kernel send, if it wants to be told.
    #[inline]
    pub(crate) fn kick_tx(&self) -> io::Result<bool> {
        if !self.rings.tx.wants_wakeup() {
            return Ok(false);
        }
        let (fd, nothing) = (self.fd.as_raw_fd(), core::ptr::null());
        // SAFETY: nothing is read at no address: length and address length are 0.
        let sent =
            unsafe { libc::sendto(fd, nothing, 0, libc::MSG_DONTWAIT, core::ptr::null(), 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(true) }
    }

    /// Makes the kernel receive, if it wants to be told.
    #[inline]
    pub(crate) fn kick_rx(&self) {
        if !self.rings.fill.wants_wakeup() {
            return;
        }
        let fd = self.fd.as_raw_fd();
        let nothing = core::ptr::null_mut();
        // SAFETY: nothing is written at no address: the length is 0. What it says is of no
        // interest: packets are in the ring or not.
        unsafe { libc::recv(fd, nothing, 0, libc::MSG_DONTWAIT) };
    }

    /// Packets that the kernel could not put into the receive ring or into a frame.
    pub(crate) fn drops(&self) -> u64 {
        let none = libc::xdp_statistics {
            rx_dropped: 0,
            rx_invalid_descs: 0,
            tx_invalid_descs: 0,
            rx_ring_full: 0,
            rx_fill_ring_empty_descs: 0,
            tx_ring_empty_descs: 0,
        };
        let counts = get(self.fd.as_fd(), libc::SOL_XDP, libc::XDP_STATISTICS, none);
        counts.map_or(0, |counts| counts.rx_dropped + counts.rx_ring_full)
    }

    /// True if a frame lies in the memory that was registered.
    #[inline]
    fn is_ours(&self, frame: &Frame) -> bool {
        core::ptr::eq(frame.arena(), self.held.arena)
    }

    #[inline]
    fn address(&self, frame: &Frame, offset: usize) -> u64 {
        (frame.index() as usize * self.held.arena.frame_size().bytes() + offset) as u64
    }
}

impl AsFd for XdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Rings {
    fn map(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let none = libc::xdp_ring_offset { producer: 0, consumer: 0, desc: 0, flags: 0 };
        let none = libc::xdp_mmap_offsets { rx: none, tx: none, fr: none, cr: none };
        let at = get(fd, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, none)?;
        let fill = libc::XDP_UMEM_PGOFF_FILL_RING as i64;
        let completion = libc::XDP_UMEM_PGOFF_COMPLETION_RING as i64;
        Ok(Self {
            fill: Producer::new(fd, fill, at.fr, ENTRIES)?,
            completion: Consumer::new(fd, completion, at.cr, ENTRIES)?,
            rx: Consumer::new(fd, libc::XDP_PGOFF_RX_RING, at.rx, ENTRIES)?,
            tx: Producer::new(fd, libc::XDP_PGOFF_TX_RING, at.tx, ENTRIES)?,
        })
    }
}
