//! Holds UDP sockets open on port 4500 that take ESP in UDP (RFC 3948) for the kernel it runs on, as an IKE
//! daemon would: without one, Linux hands such packets to nobody. Compiled by rustc alone.

use std::ffi::{c_int, c_void};
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

const IPPROTO_UDP: c_int = 17;
/// linux/udp.h
const UDP_ENCAP: c_int = 100;
const UDP_ENCAP_ESPINUDP: c_int = 2;

unsafe extern "C" {
    fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, length: u32) -> c_int;
}

fn main() {
    let sockets: Vec<UdpSocket> = ["0.0.0.0:4500", "[::]:4500"].map(open).into_iter().collect();
    println!("{} sockets are open", sockets.len());
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

fn open(address: &str) -> UdpSocket {
    let socket = UdpSocket::bind(address).expect("the port is free");
    let value: c_int = UDP_ENCAP_ESPINUDP;
    // SAFETY: the pointer and the length are those of `value`, which outlives the call.
    let result = unsafe {
        setsockopt(socket.as_raw_fd(), IPPROTO_UDP, UDP_ENCAP, (&raw const value).cast(), size_of::<c_int>() as u32)
    };
    assert_eq!(result, 0, "{address}: {}", std::io::Error::last_os_error());
    socket
}
