//! Messages in batches: `recvmmsg`, `sendmmsg`, and the error queue.

use core::{fmt, mem, ptr};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::check;

/// Room for the ancillary data of one received message.
pub(crate) const CONTROL_IN: usize = 192;
/// Room for the ancillary data of one message to send.
pub(crate) const CONTROL_OUT: usize = 128;
/// The larger of `sockaddr_in` and `sockaddr_in6`.
pub(crate) const ADDRESS: usize = 28;

/// Headers, addresses and ancillary data for receiving several messages with one call, each into
/// `P` pieces of memory.
pub(crate) struct RecvBatch<const P: usize = 1> {
    headers: Box<[libc::mmsghdr]>,
    vectors: Box<[[libc::iovec; P]]>,
    addresses: Box<[[u8; ADDRESS]]>,
    controls: Box<[[u8; CONTROL_IN]]>,
}

// SAFETY: the pointers in `headers` and `vectors` are set anew for each system call and followed
// only by the kernel during that call.
unsafe impl<const P: usize> Send for RecvBatch<P> {}

/// Data of one received message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received<'a> {
    /// Bytes written to the buffer.
    pub(crate) len: usize,
    /// The message was longer than the buffer.
    pub(crate) truncated: bool,
    /// The sender's socket address.
    pub(crate) address: &'a [u8],
    /// Ancillary data.
    pub(crate) control: &'a [u8],
}

impl<const P: usize> RecvBatch<P> {
    pub(crate) fn new(messages: usize) -> Self {
        let empty = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        Self {
            headers: vec![empty_header(); messages].into(),
            vectors: vec![[empty; P]; messages].into(),
            addresses: vec![[0; ADDRESS]; messages].into(),
            controls: vec![[0; CONTROL_IN]; messages].into(),
        }
    }

    /// Receives at most one message into each of `buffers`, without blocking; tells how many.
    pub(crate) fn recv<'a>(
        &mut self,
        fd: BorrowedFd<'_>,
        buffers: impl Iterator<Item = [&'a mut [u8]; P]>,
    ) -> io::Result<usize> {
        let slots = self.headers.iter_mut().zip(&mut self.vectors);
        let slots = slots.zip(&mut self.addresses).zip(&mut self.controls);
        let mut count = 0;
        for (pieces, (((header, vectors), address), control)) in buffers.zip(slots) {
            for (vector, piece) in vectors.iter_mut().zip(pieces) {
                *vector = libc::iovec { iov_base: piece.as_mut_ptr().cast(), iov_len: piece.len() };
            }
            header.msg_len = 0;
            header.msg_hdr.msg_name = address.as_mut_ptr().cast();
            header.msg_hdr.msg_namelen = ADDRESS as libc::socklen_t;
            header.msg_hdr.msg_iov = vectors.as_mut_ptr();
            header.msg_hdr.msg_iovlen = P;
            header.msg_hdr.msg_control = control.as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = CONTROL_IN;
            header.msg_hdr.msg_flags = 0;
            count += 1;
        }
        // SAFETY: `count` headers were just filled in; each points to `P` vectors, an address and a
        // control buffer of this structure, and each vector to a buffer borrowed for `'a`, which
        // outlives this call. Nothing else refers to them meanwhile.
        check(unsafe {
            libc::recvmmsg(
                fd.as_raw_fd(),
                self.headers.as_mut_ptr(),
                count,
                libc::MSG_DONTWAIT as _,
                ptr::null_mut(),
            )
        })
    }

    /// Data that the last call received as message `at`; nothing for others.
    pub(crate) fn received(&self, at: usize) -> Option<Received<'_>> {
        let header = self.headers.get(at)?;
        let name_len = header.msg_hdr.msg_namelen as usize;
        Some(Received {
            len: header.msg_len as usize,
            truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            address: self.addresses.get(at)?.get(..name_len).unwrap_or_default(),
            control: self
                .controls
                .get(at)?
                .get(..header.msg_hdr.msg_controllen)
                .unwrap_or_default(),
        })
    }
}

impl<const P: usize> fmt::Debug for RecvBatch<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvBatch").field("messages", &self.headers.len()).finish_non_exhaustive()
    }
}

/// Pieces, address and control data of one message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing {
    /// Number of pieces given to [`SendBatch::send`] that make up this message.
    pub(crate) pieces: u16,
    pub(crate) address: [u8; ADDRESS],
    pub(crate) address_len: u8,
    pub(crate) control: [u8; CONTROL_OUT],
    pub(crate) control_len: u8,
}

/// Headers for sending several messages with one call.
pub(crate) struct SendBatch {
    headers: Box<[libc::mmsghdr]>,
    vectors: Box<[libc::iovec]>,
}

// SAFETY: as for `RecvBatch`.
unsafe impl Send for SendBatch {}

impl SendBatch {
    /// For at most `messages` of at most `pieces` pieces together.
    pub(crate) fn new(messages: usize, pieces: usize) -> Self {
        Self {
            headers: vec![empty_header(); messages].into(),
            vectors: vec![libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; pieces].into(),
        }
    }

    /// Sends `messages`, which take their content from `pieces` one after the other, without
    /// blocking; tells how many were sent. An error concerns the first message.
    pub(crate) fn send<'a>(
        &mut self,
        fd: BorrowedFd<'_>,
        messages: &[Outgoing],
        pieces: impl Iterator<Item = &'a [u8]>,
    ) -> io::Result<usize> {
        let mut filled = 0;
        for (vector, piece) in self.vectors.iter_mut().zip(pieces) {
            let at = piece.as_ptr().cast_mut().cast();
            *vector = libc::iovec { iov_base: at, iov_len: piece.len() };
            filled += 1;
        }
        let mut rest = self.vectors.get_mut(..filled).unwrap_or_default();
        let mut count = 0;
        for (header, message) in self.headers.iter_mut().zip(messages) {
            let wanted = usize::from(message.pieces).min(rest.len());
            let (mine, others) = mem::take(&mut rest).split_at_mut(wanted);
            rest = others;
            let address_len = usize::from(message.address_len).min(ADDRESS);
            let control_len = usize::from(message.control_len).min(CONTROL_OUT);
            header.msg_len = 0;
            header.msg_hdr.msg_name = message.address.as_ptr().cast_mut().cast();
            header.msg_hdr.msg_namelen = address_len as libc::socklen_t;
            header.msg_hdr.msg_iov = mine.as_mut_ptr();
            header.msg_hdr.msg_iovlen = mine.len();
            header.msg_hdr.msg_control = message.control.as_ptr().cast_mut().cast();
            header.msg_hdr.msg_controllen = control_len;
            header.msg_hdr.msg_flags = 0;
            count += 1;
        }
        // SAFETY: `count` headers were just filled in. Addresses and ancillary data are borrowed
        // from `messages` and the content from pieces that live for `'a`, all beyond this call, and
        // the kernel only reads them; the vectors belong to this structure, a disjoint part to each
        // message.
        check(unsafe {
            libc::sendmmsg(
                fd.as_raw_fd(),
                self.headers.as_mut_ptr(),
                count,
                libc::MSG_DONTWAIT as _,
            )
        })
    }
}

impl fmt::Debug for SendBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendBatch").field("messages", &self.headers.len()).finish_non_exhaustive()
    }
}

/// Takes one message from the error queue: lengths of `data` and of `control`, and `address`, the
/// destination of the packet that caused it.
pub(crate) fn recv_error(
    fd: BorrowedFd<'_>,
    data: &mut [u8],
    address: &mut [u8; ADDRESS],
    control: &mut [u8; CONTROL_IN],
) -> io::Result<(usize, usize)> {
    let mut vector = libc::iovec { iov_base: data.as_mut_ptr().cast(), iov_len: data.len() };
    let mut header = empty_header().msg_hdr;
    header.msg_name = address.as_mut_ptr().cast();
    header.msg_namelen = ADDRESS as libc::socklen_t;
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = CONTROL_IN;
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: the header points to one vector, an address and a control buffer of the lengths
    // given, all of which are exclusively borrowed through the call.
    let len = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut header, flags) };
    let len = usize::try_from(len).map_err(|_| io::Error::last_os_error())?;
    Ok((len, header.msg_controllen))
}

fn empty_header() -> libc::mmsghdr {
    // SAFETY: a structure of integers and raw pointers, for which zero is a valid value.
    unsafe { mem::zeroed() }
}
