//! Holder of a port of this host, as far as the kernel tells.

use std::fmt;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// A protocol with ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Tcp,
    Udp,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        })
    }
}

impl Transport {
    /// Tables of its sockets in the calling thread's network namespace, with the length of their addresses.
    const fn tables(self) -> [&'static str; 2] {
        match self {
            Self::Tcp => ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"],
            Self::Udp => ["/proc/thread-self/net/udp", "/proc/thread-self/net/udp6"],
        }
    }
}

/// Whoever holds a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    /// Of the socket.
    inode: u64,
    uid: u32,
    /// The user's name, if the host knows one.
    user: Option<String>,
    /// Number and command, if we may look.
    process: Option<(u32, String)>,
}

impl Holder {
    /// Looks for a socket that keeps others from binding there; sockets of this process are none. Reads
    /// large tables on a busy host: not to be called for every packet.
    pub(crate) fn find(transport: Transport, at: SocketAddr) -> Option<Self> {
        let own = own_sockets();
        let tables = transport.tables().map(|table| fs::read_to_string(table).unwrap_or_default());
        let lines = tables.iter().flat_map(|table| table.lines().skip(1));
        let sockets = lines.filter_map(Socket::parse).filter(|socket| socket.keeps(transport, at));
        let mut others: Vec<_> = sockets.filter(|socket| !own.contains(&socket.inode)).collect();
        // A listener says more than one of its connections.
        others.sort_by_key(|socket| socket.state != LISTEN);
        let Socket { inode, uid, .. } = *others.first()?;
        let user = fs::read_to_string("/etc/passwd").ok().and_then(|list| user_name(&list, uid));
        Some(Self { inode, uid, user, process: process_with(inode) })
    }

    /// Takes over what an earlier look found out about the same socket.
    pub(crate) fn or_from(mut self, before: Option<Self>) -> Self {
        if let Some(before) = before.filter(|before| before.inode == self.inode) {
            self.process = self.process.or(before.process);
        }
        self
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.user {
            Some(name) => write!(f, "user {name} (uid {})", self.uid)?,
            None => write!(f, "uid {}", self.uid)?,
        }
        match &self.process {
            Some((pid, command)) => write!(f, ", process {pid} ({command})"),
            None => Ok(()),
        }
    }
}

/// A socket that accepts connections, in the kernel's tables.
const LISTEN: u8 = 0x0a;
/// The rest of a connection that is over; it holds nothing.
const TIME_WAIT: u8 = 0x06;

/// A line of a table of sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Socket {
    local: SocketAddr,
    state: u8,
    uid: u32,
    inode: u64,
}

impl Socket {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let local = address(words.nth(1)?)?;
        let state = u8::from_str_radix(words.nth(1)?, 16).ok()?;
        let uid = words.nth(3)?.parse().ok()?;
        let inode = words.nth(1)?.parse().ok()?;
        Some(Self { local, state, uid, inode })
    }

    /// True if it keeps another socket from this address and port.
    fn keeps(&self, transport: Transport, at: SocketAddr) -> bool {
        let (mine, theirs) = (at.ip().to_canonical(), self.local.ip().to_canonical());
        // A socket at any IPv6 address may be one at any IPv4 address as well.
        let overlaps = theirs == IpAddr::V6(Ipv6Addr::UNSPECIFIED)
            || mine == IpAddr::V6(Ipv6Addr::UNSPECIFIED)
            || mine.is_ipv4() == theirs.is_ipv4()
                && (mine == theirs || mine.is_unspecified() || theirs.is_unspecified());
        let is_over = transport == Transport::Tcp && self.state == TIME_WAIT;
        self.local.port() == at.port() && overlaps && !is_over
    }
}

/// An address as the tables write it: words of 32 bits in the processor's byte order, then the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |n: usize| {
        let digits = ip.get(8 * n..8 * (n + 1))?;
        u32::from_str_radix(digits, 16).ok().map(u32::to_ne_bytes)
    };
    let ip = match ip.len() {
        8 => IpAddr::from(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut octets = [0; 16];
            for (n, four) in octets.chunks_exact_mut(4).enumerate() {
                four.copy_from_slice(&word(n)?);
            }
            IpAddr::from(Ipv6Addr::from(octets))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// The name of a user in a list as `/etc/passwd`. The name service would load libraries, which a running
/// gateway may not.
fn user_name(list: &str, uid: u32) -> Option<String> {
    list.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let theirs: u32 = fields.nth(1)?.parse().ok()?;
        (theirs == uid).then(|| name.to_owned())
    })
}

fn own_sockets() -> Vec<u64> {
    sockets_of(Path::new("/proc/self")).collect()
}

/// The first process that has this socket open, with its command, among those that we may look at.
fn process_with(inode: u64) -> Option<(u32, String)> {
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let folder = entry.path();
        sockets_of(&folder).any(|socket| socket == inode).then(|| {
            let command = fs::read_to_string(folder.join("comm")).unwrap_or_default();
            (pid, command.trim().to_owned())
        })
    })
}

/// Inodes of the sockets that a process has open.
fn sockets_of(process: &Path) -> impl Iterator<Item = u64> + use<> {
    let entries = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let link: PathBuf = fs::read_link(entry.path()).ok()?;
        link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    #[test]
    fn lines_of_the_kernels_tables_are_understood() {
        // As a processor with the low byte first writes it.
        if cfg!(target_endian = "big") {
            return;
        }
        let of = |line| Socket::parse(line).unwrap();
        let v4 = of(
            "   3: 0100007F:24F8 00000000:0000 0A 00000000:00000000 00:00000000 00000000 65534        0 31337 1 \
             0000000000000000 100 0 0 10 0",
        );
        let local = "127.0.0.1:9464".parse().unwrap();
        assert_eq!(v4, Socket { local, state: LISTEN, uid: 65534, inode: 31337 });
        let v6 = of(
            " 12: 000080FE00000000FF005450B6DD9EFE:1194 00000000000000000000000000000000:0000 07 \
             00000000:00000000 00:00000000 00000000  1000        0 7 2 0000000000000000 0",
        );
        let local = "[fe80::5054:ff:fe9e:ddb6]:4500".parse().unwrap();
        assert_eq!(v6, Socket { local, state: 7, uid: 1000, inode: 7 });
        for line in
            ["", "  sl  local_address rem_address", "0: 01:02 03:04 0A", "0: x:y z:z 0A a b c d e"]
        {
            assert_eq!(Socket::parse(line), None, "{line}");
        }
    }

    #[test]
    fn addresses_that_overlap_keep_each_other_away() {
        let keeps = |theirs: &str, ours: &str, state| {
            let socket = Socket { local: theirs.parse().unwrap(), state, uid: 0, inode: 1 };
            socket.keeps(Transport::Tcp, ours.parse().unwrap())
        };
        for (theirs, ours, expected) in [
            ("127.0.0.1:9464", "127.0.0.1:9464", true),
            ("0.0.0.0:9464", "127.0.0.1:9464", true),
            ("[::]:9464", "127.0.0.1:9464", true),
            ("[::ffff:127.0.0.1]:9464", "127.0.0.1:9464", true),
            ("192.0.2.1:9464", "0.0.0.0:9464", true),
            ("192.0.2.1:9464", "[::]:9464", true),
            ("127.0.0.2:9464", "127.0.0.1:9464", false),
            ("127.0.0.1:9465", "127.0.0.1:9464", false),
            ("[::1]:9464", "127.0.0.1:9464", false),
        ] {
            assert_eq!(keeps(theirs, ours, LISTEN), expected, "{theirs} {ours}");
        }
        assert!(!keeps("127.0.0.1:9464", "127.0.0.1:9464", TIME_WAIT));
    }

    #[test]
    fn users_have_the_names_that_the_host_gives_them() {
        let list = "root:x:0:0:root:/root:/bin/sh\n# nobody\nnobody:x:65534:65534::/:\n";
        assert_eq!(user_name(list, 65534).as_deref(), Some("nobody"));
        assert_eq!(user_name(list, 7), None);
    }

    #[test]
    fn what_is_known_of_a_socket_is_not_forgotten() {
        let seen = |inode, process| Holder { inode, uid: 7, user: None, process };
        let full = seen(1, Some((12, "x".to_owned())));
        assert_eq!(full.to_string(), "uid 7, process 12 (x)");
        assert_eq!(seen(1, None).or_from(Some(full.clone())), full);
        assert_eq!(seen(2, None).or_from(Some(full)), seen(2, None));
    }

    /// A program that holds what its own sockets hold does not say so: it would be no help.
    #[test]
    fn own_sockets_are_nobody_elses() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(Holder::find(Transport::Tcp, tcp.local_addr().unwrap()), None);
        assert_eq!(Holder::find(Transport::Udp, udp.local_addr().unwrap()), None);
    }
}
