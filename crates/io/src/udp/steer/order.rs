//! The places of sockets in a group that shares a port, for programs that know nothing else.
//!
//! The kernel's rule: a socket that joins gets the last place; when one leaves, the last one moves to
//! the place that became free. Nothing tells when either happens, so this looks at the list of sockets
//! in `/proc` at each change and takes it that those which went went before the others came.

use core::net::SocketAddr;
use std::{fs, io};

/// Inodes of the sockets in the order of their places.
#[derive(Debug, Default)]
pub(super) struct Order(Vec<u64>);

impl Order {
    /// Follows what became of the group: `alive` are the inodes of its sockets now, new ones in the
    /// order in which they came.
    pub(super) fn follow(&mut self, alive: &[u64]) {
        while let Some(gone) = self.0.iter().position(|inode| !alive.contains(inode)) {
            self.0.swap_remove(gone);
        }
        for inode in alive {
            if !self.0.contains(inode) {
                self.0.push(*inode);
            }
        }
    }

    /// The place of a socket.
    pub(super) fn place(&self, inode: u64) -> Option<usize> {
        self.0.iter().position(|known| *known == inode)
    }
}

/// Inodes of the UDP sockets bound to exactly `local`, in the network namespace of the calling thread.
pub(super) fn sockets_at(local: SocketAddr) -> io::Result<Vec<u64>> {
    let path = if local.is_ipv4() { "udp" } else { "udp6" };
    let table = fs::read_to_string(format!("/proc/thread-self/net/{path}"))?;
    Ok(listed(&table, local))
}

fn listed(table: &str, local: SocketAddr) -> Vec<u64> {
    let wanted = written(local);
    let rows = table.lines().skip(1).map(|line| line.split_ascii_whitespace());
    // sl, local_address, rem_address, st, queues, tr:when, retrnsmt, uid, timeout, inode
    rows.filter_map(|mut row| {
        let here = row.nth(1)? == wanted;
        let inode = row.nth(7)?.parse().ok()?;
        here.then_some(inode)
    })
    .collect()
}

/// An address as the kernel's tables have it: words of memory as numbers.
fn written(local: SocketAddr) -> String {
    let word = |bytes: &[u8; 4]| format!("{:08X}", u32::from_ne_bytes(*bytes));
    let address = match local {
        SocketAddr::V4(v4) => word(&v4.ip().octets()),
        SocketAddr::V6(v6) => v6.ip().octets().as_chunks().0.iter().map(word).collect(),
    };
    format!("{address}:{:04X}", local.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_takes_the_place_of_one_that_left() {
        let mut order = Order::default();
        order.follow(&[10]);
        order.follow(&[10, 21, 22, 23]);
        order.follow(&[21, 22, 23]);
        assert_eq!(order.0, [23, 21, 22]);
        order.follow(&[21, 22, 23, 11]);
        assert_eq!((order.place(11), order.place(23), order.place(10)), (Some(3), Some(0), None));
        // One went and one came between two looks.
        order.follow(&[12, 21, 22, 11]);
        assert_eq!(order.0, [11, 21, 22, 12]);
    }

    #[test]
    fn sockets_of_this_address_only_are_found_in_the_kernels_list() {
        for at in ["127.0.0.1:0", "[::1]:0"] {
            let socket = std::net::UdpSocket::bind(at).unwrap();
            let local = socket.local_addr().unwrap();
            let inode = crate::udp::steer::fact_of(&socket).unwrap().inode;
            assert_eq!(sockets_at(local).unwrap(), [inode], "{local}");
            let other = SocketAddr::new(local.ip(), local.port() ^ 1);
            assert!(!sockets_at(other).unwrap().contains(&inode));
        }
    }
}
