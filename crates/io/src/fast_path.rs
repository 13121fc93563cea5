//! A port on an interface beside sockets: it carries native ESP and AH past the host's network stack as far as it can,
//! and leaves everything else to the sockets.

use core::fmt;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use convoy_packet::{Burst, Pool};

use crate::bytes::byte;
use crate::link::{Board, Found, NextHops};
use crate::{IoError, Offloads, Port, PortCounters, PortEvent, sys};

/// Protocol numbers of ESP and AH.
const NATIVE: [u8; 2] = [50, 51];

/// One worker's port. A dead one carries nothing, and is no error of the worker.
pub struct FastPath {
    port: Box<dyn Port>,
    hops: NextHops,
    is_dead: Arc<AtomicBool>,
    /// Readable when the port is, as long as it lives: a dead socket would wake its worker all the time.
    ready: Option<OwnedFd>,
    /// The descriptor of the port is not in `ready` any more.
    is_let_go: bool,
}

impl fmt::Debug for FastPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FastPath").field("is_dead", &self.is_dead).finish_non_exhaustive()
    }
}

impl FastPath {
    /// Takes a port on an interface, and the board that tells its next hops. `is_dead` is set when the port can never
    /// carry a packet again, and may be set by whoever knows that otherwise.
    ///
    /// # Errors
    /// [`IoError::Setup`] if the port cannot be waited for.
    pub fn new(
        port: Box<dyn Port>,
        next_hops: Arc<Board>,
        is_dead: Arc<AtomicBool>,
    ) -> Result<Self, IoError> {
        let ready = port.fd().map(|fd| sys::gather(core::iter::once(fd))).transpose();
        let ready = ready.map_err(IoError::setup("wait for a port beside sockets"))?;
        Ok(Self { port, hops: NextHops::new(next_hops), is_dead, ready, is_let_go: false })
    }

    fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::Relaxed)
    }

    fn note_death(&mut self) {
        self.is_dead.store(true, Ordering::Relaxed);
        self.let_go();
    }

    fn let_go(&mut self) {
        if let (false, Some(ready), Some(fd)) = (self.is_let_go, &self.ready, self.port.fd()) {
            // One that is not there any more wakes nobody.
            let _ = sys::forget(ready.as_fd(), fd);
        }
        self.is_let_go = true;
    }
}

impl Port for FastPath {
    fn rx(&mut self, pool: &mut Pool, into: &mut Burst) -> Result<usize, IoError> {
        if self.is_dead() {
            self.let_go();
            return Ok(0);
        }
        match self.port.rx(pool, into) {
            Err(IoError::Dead(_)) => {
                self.note_death();
                Ok(0)
            }
            outcome => outcome,
        }
    }

    fn tx(&mut self, pool: &mut Pool, from: &mut Burst) -> Result<(), IoError> {
        if self.is_dead() {
            from.release(pool);
            return Ok(());
        }
        match self.port.tx(pool, from) {
            Err(IoError::Dead(_)) => {
                self.note_death();
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// Packets of ESP and AH whose next hop is known and that its interface need not cut. The kernel asks for
    /// neighbours when sockets send, and cuts packets there.
    #[inline]
    fn can_send(&mut self, packet: &[u8]) -> bool {
        let protocol = match byte(packet, 0) >> 4 {
            4 => byte(packet, 9),
            _ => byte(packet, 6),
        };
        if !NATIVE.contains(&protocol) || self.is_dead() {
            return false;
        }
        self.hops.refresh();
        packet.len() <= self.hops.mtu() as usize
            && matches!(self.hops.resolve(packet), Some(Found::Mac(_)))
    }

    fn event(&mut self) -> Option<PortEvent> {
        self.port.event()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.ready.as_ref().map(|ready| ready.as_fd())
    }

    fn counters(&self) -> PortCounters {
        self.port.counters()
    }

    fn offloads(&self) -> Offloads {
        self.port.offloads()
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::IpAddr;

    use super::*;
    use crate::link::{Hop, Route, Table};

    /// Sends until it dies.
    struct Mortal {
        left: usize,
    }

    impl Port for Mortal {
        fn rx(&mut self, _: &mut Pool, _: &mut Burst) -> Result<usize, IoError> {
            Ok(0)
        }
        fn tx(&mut self, pool: &mut Pool, from: &mut Burst) -> Result<(), IoError> {
            from.release(pool);
            self.left = self
                .left
                .checked_sub(1)
                .ok_or_else(|| IoError::Dead(io::Error::from_raw_os_error(libc::ENETDOWN)))?;
            Ok(())
        }
        fn counters(&self) -> PortCounters {
            PortCounters::default()
        }
    }

    fn packet(to: [u8; 4], protocol: u8, len: usize) -> Vec<u8> {
        let mut packet = vec![0; len];
        packet[0] = 0x45;
        packet[9] = protocol;
        packet[12..16].copy_from_slice(&[192, 0, 2, 1]);
        packet[16..20].copy_from_slice(&to);
        packet
    }

    fn table(neighbours: &[(IpAddr, [u8; 6])]) -> Table {
        let route = |network: [u8; 4], hop| Route { network: network.into(), prefix_len: 24, hop };
        let routes = [
            route([192, 0, 2, 0], Hop::Direct),
            route([198, 51, 100, 0], Hop::Via([192, 0, 2, 254].into())),
            route([203, 0, 113, 0], Hop::Elsewhere),
        ];
        Table::new([1; 6], 1500, &routes, neighbours)
    }

    #[test]
    fn it_carries_what_its_interface_can_and_leaves_the_rest() {
        let known: [(IpAddr, [u8; 6]); 1] = [([192, 0, 2, 254].into(), [9; 6])];
        let (board, _asks) = Board::new(table(&known)).unwrap();
        let is_dead = Arc::<AtomicBool>::default();
        let port = Box::new(Mortal { left: 1 });
        let mut path = FastPath::new(port, board.clone(), is_dead.clone()).unwrap();
        let (by_router, direct, other) = ([198, 51, 100, 7], [192, 0, 2, 2], [203, 0, 113, 7]);
        assert!(path.can_send(&packet(by_router, 50, 1500)));
        assert!(path.can_send(&packet(by_router, 51, 100)));
        assert!(!path.can_send(&packet(by_router, 17, 100)), "UDP");
        assert!(!path.can_send(&packet(by_router, 50, 1501)), "too long");
        assert!(!path.can_send(&packet(direct, 50, 100)), "a neighbour that is not known");
        assert!(!path.can_send(&packet(other, 50, 100)), "by another interface");
        assert!(!path.can_send(&[]));
        board.publish(table(&[([192, 0, 2, 2].into(), [8; 6])]));
        assert!(path.can_send(&packet(direct, 50, 100)));
        assert!(!path.can_send(&packet(by_router, 50, 100)));
    }

    #[test]
    fn a_dead_one_leaves_everything_and_is_no_error() {
        let (board, _asks) = Board::new(table(&[([192, 0, 2, 2].into(), [8; 6])])).unwrap();
        let is_dead = Arc::<AtomicBool>::default();
        let mut path = FastPath::new(Box::new(Mortal { left: 1 }), board, is_dead.clone()).unwrap();
        let arena =
            convoy_packet::Arena::map(4, convoy_packet::FrameSize::for_packet(1500)).unwrap();
        let (mut pool, mut burst) = (arena.pool(), Burst::new());
        let esp = packet([192, 0, 2, 2], 50, 100);
        for is_last in [false, true] {
            assert!(path.can_send(&esp));
            let mut frame = pool.alloc().unwrap();
            frame.fill_from(&esp).unwrap();
            burst.push(frame).unwrap();
            path.tx(&mut pool, &mut burst).unwrap();
            assert_eq!(is_dead.load(Ordering::Relaxed), is_last);
        }
        assert!(!path.can_send(&esp));
        assert_eq!(path.rx(&mut pool, &mut burst).unwrap(), 0);
    }
}
