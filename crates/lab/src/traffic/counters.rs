//! The kernel's own counts, read from `/proc/thread-self/net`: those of the thread's namespace.

use std::{fs, io};

/// TCP segments this namespace has sent again (`Tcp: RetransSegs`, RFC 4022).
pub(super) fn tcp_retransmits() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/thread-self/net/snmp")?;
    column(&text, "Tcp:", "RetransSegs").ok_or_else(unexpected)
}

/// Datagrams the kernel dropped because the socket bound to `port` was full.
pub(super) fn udp_drops(v6: bool, port: u16) -> io::Result<u64> {
    let file = if v6 { "/proc/thread-self/net/udp6" } else { "/proc/thread-self/net/udp" };
    let text = fs::read_to_string(file)?;
    let ending = format!(":{port:04X}");
    let drops = text.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_whitespace();
        let local = fields.nth(1)?;
        local.ends_with(&ending).then(|| fields.last()?.parse::<u64>().ok()).flatten()
    });
    Ok(drops.sum())
}

/// Packets this machine has dropped because a processor's input queue was full: the second column
/// of `/proc/net/softnet_stat`, one line for each processor, in hexadecimal.
pub(super) fn backlog_drops() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/thread-self/net/softnet_stat")?;
    let drops = |line: &str| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok();
    Ok(text.lines().filter_map(drops).sum())
}

/// A value of the two-line tables of `/proc/net/snmp`: names above, values below.
fn column(text: &str, table: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.starts_with(table));
    let names = lines.next()?.split(' ');
    let values = lines.next()?.split(' ');
    names.zip(values).find(|(its, _)| *its == name)?.1.parse().ok()
}

fn unexpected() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "/proc/net/snmp has no Tcp: RetransSegs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_found_by_its_name() {
        let text = "Ip: A B\nIp: 1 2\nTcp: X RetransSegs Y\nTcp: -1 42 7\n";
        assert_eq!(column(text, "Tcp:", "RetransSegs"), Some(42));
        assert_eq!(column(text, "Tcp:", "Z"), None);
        assert_eq!(column(text, "Udp:", "X"), None);
    }

    #[test]
    fn the_kernel_has_these_counters() {
        tcp_retransmits().unwrap();
        backlog_drops().unwrap();
        assert_eq!(udp_drops(false, 1).unwrap(), 0);
    }

    #[test]
    fn datagrams_a_full_socket_could_not_take_are_counted_exactly() {
        let receiver = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket2::SockRef::from(&receiver).set_recv_buffer_size(4096).unwrap();
        receiver.set_nonblocking(true).unwrap();
        let address = receiver.local_addr().unwrap();
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let sent = 200;
        for _ in 0..sent {
            sender.send_to(&[0; 500], address).unwrap();
        }
        let mut received = 0;
        while receiver.recv(&mut [0; 500]).is_ok() {
            received += 1;
        }
        assert!(received < sent);
        assert_eq!(udp_drops(false, address.port()).unwrap(), sent - received);
    }
}
