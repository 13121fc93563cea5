//! Connections to the server, and questions that it answers.

use std::ffi::c_int;

use super::{path, system, trust};
use crate::wire::{self, Control};

/// Time to wait for the server's word, in milliseconds.
const PATIENCE: c_int = 2_000;

/// A new connection, which does not wait, to a server that may hear what is said there.
pub(super) fn connection(close_on_exec: bool) -> Result<c_int, c_int> {
    let path = path::of_server();
    if path[0] == 0 {
        return Err(libc::ENAMETOOLONG);
    }
    let fd = system::seqpacket(close_on_exec)?;
    for attempt in 0.. {
        match system::connect(fd, path) {
            // Many connect at once.
            Err(libc::EAGAIN) if attempt < 20 => system::pause(5),
            Err(errno) => {
                system::close(fd);
                return Err(errno);
            }
            Ok(()) => break,
        }
    }
    if trust::may_hear(fd) {
        return Ok(fd);
    }
    system::close(fd);
    // As from a socket that nobody listens on.
    Err(libc::ECONNREFUSED)
}

/// The mark and its mask that exempt sockets from policies; none from a server that answers and tells none.
pub(super) fn mark() -> Result<Option<[u32; 2]>, c_int> {
    let server = connection(true)?;
    let mut bytes = [0; wire::ERROR_LEN];
    let told = word(server, &Control::question(wire::MARK), None, &mut bytes);
    let told = match told {
        // It went.
        Ok([]) => Err(libc::ECONNRESET),
        told => told.map(wire::mark_of),
    };
    system::close(server);
    told
}

/// The server's word on a message.
pub(super) fn word<'a>(
    server: c_int,
    message: &Control,
    socket: Option<c_int>,
    room: &'a mut [u8],
) -> Result<&'a [u8], c_int> {
    system::send(server, message.as_bytes(), socket)?;
    if system::readable(server, PATIENCE) != Ok(true) {
        return Err(libc::ETIMEDOUT);
    }
    let len = system::receive(server, room)?;
    room.get(..len).ok_or(libc::EPROTO)
}
