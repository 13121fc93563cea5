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
pub(crate) fn backlog_drops() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/thread-self/net/softnet_stat")?;
    let drops = |line: &str| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok();
    Ok(text.lines().filter_map(drops).sum())
}

/// Packets this namespace has dropped because a queue or a socket had no room.
pub(crate) fn without_room() -> io::Result<u64> {
    let read = |file: &str| match fs::read_to_string(format!("/proc/thread-self/net/{file}")) {
        // A kernel without IPv6 has no files of it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        other => other,
    };
    let (v4, v6) = (read("snmp")?, read("snmp6")?);
    let of_v4 = [
        ("Ip:", "InDiscards"),
        ("Ip:", "OutDiscards"),
        ("Udp:", "RcvbufErrors"),
        ("Udp:", "MemErrors"),
    ];
    let of_v6 = ["Ip6InDiscards", "Ip6OutDiscards", "Udp6RcvbufErrors", "Udp6MemErrors"];
    let v4: u64 = of_v4.iter().filter_map(|(table, name)| column(&v4, table, name)).sum();
    let v6: u64 = of_v6.iter().filter_map(|name| row(&v6, name)).sum();
    Ok(v4 + v6 + of_devices(&read("dev")?) + of_sockets(&read("raw")?) + of_sockets(&read("raw6")?))
}

/// Drops of all interfaces, both ways, in `/proc/net/dev`: the fourth and the twelfth number.
fn of_devices(text: &str) -> u64 {
    let numbers = text.lines().filter_map(|line| line.split_once(':')).flat_map(|(_, numbers)| {
        let drops = numbers.split_whitespace().enumerate().filter(|(at, _)| matches!(at, 3 | 11));
        drops.filter_map(|(_, number)| number.parse::<u64>().ok())
    });
    numbers.sum()
}

/// Drops of all sockets in a table such as `/proc/net/raw`: the last column.
fn of_sockets(text: &str) -> u64 {
    let last = |line: &str| line.split_whitespace().last()?.parse::<u64>().ok();
    text.lines().skip(1).filter_map(last).sum()
}

/// A value of `/proc/net/snmp6`: one name and its value a line.
fn row(text: &str, name: &str) -> Option<u64> {
    let mut rows = text.lines().filter_map(|line| line.split_once(char::is_whitespace));
    rows.find(|(its, _)| *its == name)?.1.trim().parse().ok()
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
    fn drops_are_found_in_their_tables() {
        let dev = "Inter-|   Receive  |  Transmit\n face |bytes packets errs drop fifo\n\
                   lo: 1 2 3 40 5 6 7 8 9 10 11 2 13 14 15 16\n  tun0:0 0 0 0 0 0 0 0 0 0 0 500 0 0 0 0\n";
        assert_eq!(of_devices(dev), 542);
        let raw = "  sl  local_address rem_address drops\n  50: 0:0032 0:0 7 \n 51: 0:0033 0:0 1\n";
        assert_eq!(of_sockets(raw), 8);
        let snmp6 = "Ip6InReceives\t5\nUdp6RcvbufErrors                \t17\n";
        assert_eq!(row(snmp6, "Udp6RcvbufErrors"), Some(17));
        assert_eq!(row(snmp6, "Udp6"), None);
    }

    #[test]
    fn the_kernel_has_these_counters() {
        tcp_retransmits().unwrap();
        backlog_drops().unwrap();
        without_room().unwrap();
        let snmp = fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
        assert!(column(&snmp, "Udp:", "RcvbufErrors").is_some(), "{snmp}");
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
