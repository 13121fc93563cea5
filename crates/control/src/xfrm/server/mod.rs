//! The server of the XFRM socket: a kernel's netlink sockets, on a UNIX socket
//! (`docs/xfrm-socket.md`).
//!
//! One thread serves all connections, each of which stands for one netlink socket, and calls the
//! [`Service`] behind them. It waits for nobody: what a connection has no room for is kept, within
//! bounds, and its next requests are not read meanwhile; events are dropped, and told as lost. What
//! comes from a connection is a bounded part of a turn, so that nobody starves the others.

mod connection;
mod control;
mod multicast;
mod notice;
mod serving;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rustix::net::{SocketFlags, SocketType};

pub use self::multicast::Multicast;
use self::serving::Serving;
use super::Service;
use crate::place::Place;
pub use crate::place::SocketError;

/// An XFRM socket that is being served. Dropping it ends all connections and removes the socket.
#[derive(Debug)]
pub struct Server {
    place: Place,
    multicast: Multicast,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves `service` on a UNIX socket at `path`, to root and this process's user only. What is sent
    /// to `multicast` goes to the sockets in its group; no other server may have the same.
    ///
    /// A socket left behind by a server that died is replaced; missing folders are made.
    ///
    /// # Errors
    /// [`SocketError`].
    pub fn start(
        path: &Path,
        service: Arc<dyn Service>,
        multicast: Multicast,
    ) -> Result<Self, SocketError> {
        let place = Place::claim(path)?;
        let listener = place.listen(SocketType::SEQPACKET, SocketFlags::NONBLOCK)?;
        let stop = Arc::new(AtomicBool::new(false));
        let mut serving = Serving::new(listener, service, multicast.clone(), stop.clone())
            .map_err(|errno| place.failed("cannot serve", errno.into()))?;
        let thread = std::thread::Builder::new()
            .name("xfrm".into())
            .spawn(move || serving.run())
            .map_err(|error| place.failed("cannot serve", error))?;
        Ok(Self { place, multicast, stop, thread: Some(thread) })
    }

    /// Socket file on which it listens.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.place.path()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.multicast.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
