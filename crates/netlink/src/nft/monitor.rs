//! Changes of the packet filter, as the kernel tells them to those who listen.

use std::{
    collections::BTreeSet,
    io,
    os::fd::{AsFd, BorrowedFd},
};

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};
use nix::sys::socket::{setsockopt, sockopt::RcvBufForce};

use super::elements::within;
use crate::{Refusal, filter::leave_out_of_port};

/// `NFNLGRP_NFTABLES`.
const GROUP: u32 = 7;
/// `NFNL_SUBSYS_NFTABLES`, in the type of messages, and `NFT_MSG_NEWGEN`, which ends what one transaction changed.
const SUBSYSTEM: u16 = 10;
const NEW_GENERATION: u8 = 15;
/// `NFTA_TABLE_NAME`, `NFTA_CHAIN_TABLE` and so on: all have the name of the table there.
const TABLE: u16 = 1;
/// Length of `struct nlmsghdr`, and of `struct nfgenmsg` behind it.
const HEADER_LEN: usize = 16;
const FAMILY_LEN: usize = 4;
/// Room for a datagram: the kernel puts no more than this together.
const ROOM: usize = 64 << 10;
/// Bytes that the kernel keeps until they are read.
const BUFFER: usize = 1 << 20;
/// Names that are remembered of one transaction; of more, all tables may have been changed.
const NAMES_MAX: usize = 1000;

/// Changes of one transaction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changed {
    /// The port of the socket by which it was asked for.
    pub by: u32,
    /// Names of the tables, of all families.
    tables: BTreeSet<String>,
    /// Something was not received.
    is_lost: bool,
}

impl Changed {
    /// True if a table may have been changed.
    #[must_use]
    pub fn concerns(&self, table: &str) -> bool {
        self.is_lost || self.tables.contains(table)
    }

    /// True if another table than this may have been changed.
    #[must_use]
    pub fn concerns_others(&self, table: &str) -> bool {
        self.is_lost || self.tables.iter().any(|it| it != table)
    }
}

/// Listens to changes.
#[derive(Debug)]
pub struct Monitor {
    socket: Socket,
    datagram: Vec<u8>,
    open: Changed,
}

impl Monitor {
    /// Listens in the calling thread's network namespace. Changes that were asked for by the socket with this port may be
    /// left out: each would wake the listener.
    ///
    /// # Errors
    /// The kernel has no packet filter, or refuses: it takes `CAP_NET_ADMIN`.
    pub fn open(but_by: u32) -> Result<Self, Refusal> {
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        // Without the filter they come along.
        let _ = leave_out_of_port(&socket, but_by);
        socket.bind(&SocketAddr::new(0, 0))?;
        socket.add_membership(GROUP)?;
        socket.set_non_blocking(true)?;
        // Without the right to go beyond the system's limit more is lost, and all is looked at anew.
        let _ = setsockopt(&socket, RcvBufForce, &BUFFER);
        Ok(Self { socket, datagram: Vec::new(), open: Changed::default() })
    }

    /// Changes since the last call.
    ///
    /// # Errors
    /// Errors of the socket.
    pub fn changes(&mut self) -> io::Result<Vec<Changed>> {
        let mut changes = Vec::new();
        loop {
            self.datagram.clear();
            self.datagram.reserve(ROOM);
            match self.socket.recv(&mut self.datagram, 0) {
                Ok(_) => note(&self.datagram, &mut self.open, &mut changes),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(changes),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() == Some(nix::libc::ENOBUFS) => {
                    changes.push(Changed { is_lost: true, ..Changed::default() });
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl AsFd for Monitor {
    /// Readable when something was changed.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Takes over what a datagram tells: transactions that it ends, and what was changed by the one that it leaves open.
pub(crate) fn note(datagram: &[u8], open: &mut Changed, changes: &mut Vec<Changed>) {
    let mut rest = datagram;
    while let Some((head, _)) = rest.split_at_checked(HEADER_LEN) {
        let word = |at: usize| head.get(at..).and_then(|it| it.first_chunk::<4>());
        let (Some(len), Some(by)) = (word(0), word(12)) else { return };
        let len = u32::from_ne_bytes(*len) as usize;
        let Some(body) = rest.get(HEADER_LEN..len) else { return };
        let kind = head.get(4..).and_then(|it| it.first_chunk()).copied().map(u16::from_ne_bytes);
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        let [of, what] = kind.unwrap_or_default().to_be_bytes();
        if u16::from(of) != SUBSYSTEM {
            continue;
        }
        open.by = u32::from_ne_bytes(*by);
        if what == NEW_GENERATION {
            changes.push(core::mem::take(open));
            continue;
        }
        let name = within(body.get(FAMILY_LEN..).unwrap_or_default(), TABLE).next();
        let name = name.and_then(|name| core::str::from_utf8(name.strip_suffix(&[0])?).ok());
        match name {
            Some(name) if open.tables.contains(name) => {}
            Some(name) if open.tables.len() < NAMES_MAX => {
                open.tables.insert(name.to_owned());
            }
            _ => open.is_lost = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(what: u8, by: u32, attributes: &[u8]) -> Vec<u8> {
        let len = u32::try_from(HEADER_LEN + FAMILY_LEN + attributes.len()).unwrap();
        let kind = SUBSYSTEM << 8 | u16::from(what);
        let head = [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 6], &by.to_ne_bytes()];
        [head.concat(), vec![1, 0, 0, 0], attributes.to_vec()].concat()
    }

    fn of_table(name: &str) -> Vec<u8> {
        let len = u16::try_from(5 + name.len()).unwrap();
        let mut bytes = [&len.to_ne_bytes()[..], &[1, 0], name.as_bytes(), &[0]].concat();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn a_transaction_concerns_the_tables_that_it_names() {
        let (mut open, mut changes) = (Changed::default(), Vec::new());
        note(&message(6, 7, &of_table("mine")), &mut open, &mut changes);
        assert!(changes.is_empty(), "it has not ended");
        let end = [message(2, 7, &of_table("others")), message(NEW_GENERATION, 7, &[])].concat();
        note(&end, &mut open, &mut changes);
        let [changed] = &changes[..] else { panic!("{changes:?}") };
        assert!(changed.concerns("mine") && changed.concerns("others"));
        assert!(!changed.concerns("a third") && changed.concerns_others("mine"));
        assert_eq!((changed.by, open), (7, Changed::default()));
    }

    #[test]
    fn what_has_no_name_may_concern_all_and_what_is_torn_ends_the_datagram() {
        let (mut open, mut changes) = (Changed::default(), Vec::new());
        let nameless = message(6, 1, &[]);
        note(&[nameless, message(NEW_GENERATION, 1, &[])].concat(), &mut open, &mut changes);
        assert!(changes[0].concerns("mine"));
        let whole = message(NEW_GENERATION, 1, &[]);
        for len in 0..whole.len() {
            note(&whole[..len], &mut open, &mut changes);
        }
        assert_eq!(changes.len(), 1);
    }
}
