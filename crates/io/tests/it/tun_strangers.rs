//! Another local user who wants a queue of a TUN device: whoever has one reads packets that were to be
//! protected, and puts in what passes for having come through a tunnel.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use crate::common::{Namespace, until};
use convoy_io::{IoError, tun};

/// Results of a stranger's attempts.
#[derive(Default)]
struct Loot {
    stop: AtomicBool,
    joined: AtomicUsize,
}

/// Threads without any rights: one tries a name without end, one follows the kernel's news of interfaces.
/// A queue that they get they take out at once, so that the device does not show it among those in use.
struct Strangers {
    loot: Arc<Loot>,
    threads: Vec<JoinHandle<()>>,
}

impl Strangers {
    fn loose(namespace: &Namespace, name: &'static str) -> Self {
        let loot = Arc::new(Loot::default());
        let (there, here) = (Arc::clone(&loot), Arc::clone(&loot));
        let threads = namespace.run(move || {
            let news = news();
            vec![
                std::thread::spawn(move || {
                    become_nobody();
                    spin(name, &there);
                }),
                std::thread::spawn(move || {
                    become_nobody();
                    follow(&news, &here);
                }),
            ]
        });
        Self { loot, threads }
    }

    fn joined(&self) -> usize {
        self.loot.joined.load(Ordering::Relaxed)
    }
}

impl Drop for Strangers {
    fn drop(&mut self) {
        self.loot.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

/// Of the calling thread alone, which has none of root's capabilities then.
fn become_nobody() {
    // SAFETY: setresuid(2) takes three numbers.
    assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) }, 0);
}

fn spin(name: &str, loot: &Loot) {
    let mut held = Vec::new();
    while !loot.stop.load(Ordering::Relaxed) {
        join(name.as_bytes(), loot, &mut held);
    }
}

fn follow(news: &File, loot: &Loot) {
    let mut held = Vec::new();
    let mut message = [0u8; 8192];
    while !loot.stop.load(Ordering::Relaxed) {
        // SAFETY: recv(2) writes into the buffer, as far as it is long.
        let length = unsafe {
            libc::recv(
                news.as_raw_fd(),
                message.as_mut_ptr().cast(),
                message.len(),
                libc::MSG_DONTWAIT,
            )
        };
        let Ok(length) = usize::try_from(length) else { continue };
        if let Some(name) = name_in(&message[..length]) {
            join(name, loot, &mut held);
        }
    }
}

/// The `IFLA_IFNAME` of a message: attributes follow a header of 16 bytes and one of 16.
fn name_in(message: &[u8]) -> Option<&[u8]> {
    let mut rest = message.get(32..)?;
    loop {
        let length = usize::from(u16::from_ne_bytes(rest.get(..2)?.try_into().unwrap()));
        let kind = u16::from_ne_bytes(rest.get(2..4)?.try_into().unwrap());
        if kind == libc::IFLA_IFNAME {
            return rest.get(4..length)?.split(|byte| *byte == 0).next();
        }
        rest = rest.get(length.next_multiple_of(4)..)?;
    }
}

/// A socket that hears of interfaces.
fn news() -> File {
    use std::os::fd::FromRawFd;
    // SAFETY: socket(2) takes three numbers.
    let raw = unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE) };
    assert!(raw >= 0);
    // SAFETY: the descriptor is open and nobody else's.
    let socket = unsafe { File::from_raw_fd(raw) };
    // SAFETY: a `struct sockaddr_nl` may be all zero.
    let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    address.nl_family = libc::AF_NETLINK as u16;
    address.nl_groups = libc::RTMGRP_LINK as u32;
    // SAFETY: bind(2) reads the address, which has this length.
    let bound = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_nl>() as u32,
        )
    };
    assert_eq!(bound, 0);
    socket
}

/// Tries once, and takes the queue out if it is one.
fn join(name: &[u8], loot: &Loot, held: &mut Vec<File>) {
    let Some(queue) = attach(name) else { return };
    loot.joined.fetch_add(1, Ordering::Relaxed);
    ioctl(&queue, libc::TUNSETQUEUE, b"", libc::IFF_DETACH_QUEUE);
    held.push(queue);
}

fn attach(name: &[u8]) -> Option<File> {
    let queue = File::options().read(true).write(true).open("/dev/net/tun").unwrap();
    let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR | libc::IFF_MULTI_QUEUE;
    (ioctl(&queue, libc::TUNSETIFF, name, flags) == 0).then_some(queue)
}

fn ioctl(queue: &File, request: libc::Ioctl, name: &[u8], flags: i32) -> i32 {
    // SAFETY: a `struct ifreq` may be all zero.
    let mut ifreq: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in ifreq.ifr_name.iter_mut().zip(name) {
        *to = *from as libc::c_char;
    }
    ifreq.ifr_ifru.ifru_flags = flags as i16;
    // SAFETY: these requests read and write one `struct ifreq`.
    unsafe { libc::ioctl(queue.as_raw_fd(), request, &raw mut ifreq) }
}

/// Output of `ip` about a device.
fn shown(namespace: &Namespace, name: &'static str) -> String {
    namespace.run(move || {
        let output = Command::new("ip").args(["-d", "link", "show", name]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    })
}

/// Shows first that the strangers get what is open to them.
fn strangers(namespace: &Namespace, name: &'static str) -> Strangers {
    let strangers = Strangers::loose(namespace, name);
    namespace.ip("tuntap add dev open0 mode tun multi_queue");
    until(|| strangers.joined() > 0);
    namespace.ip("link delete open0");
    strangers
}

#[test]
fn strangers_get_no_queue_of_a_device_that_is_made_out_of_sight() {
    let namespace = or_skip!(Namespace::new());
    let strangers = strangers(&namespace, "plain0");
    let before = strangers.joined();
    for _ in 0..40 {
        let config = tun::Config { queues: 2, ..tun::Config::new("plain0") };
        let ports = namespace.run(move || tun::open(&config)).unwrap();
        let shown = shown(&namespace, "plain0");
        assert!(shown.contains("numqueues 2 numdisabled 0"), "{shown}");
        drop(ports);
        // Children of other tests may hold copies of the queues for a moment.
        until(|| shown_is_gone(&namespace));
    }
    assert_eq!(strangers.joined(), before);
}

/// As under a service manager, which leaves a gateway no right to make namespaces.
#[test]
fn strangers_get_no_queue_of_a_device_that_is_made_in_their_sight() {
    let namespace = or_skip!(Namespace::new());
    let strangers = strangers(&namespace, "plain0");
    for _ in 0..40 {
        let config = tun::Config { queues: 2, ..tun::Config::new("plain0") };
        let work = move || {
            without_sys_admin();
            tun::open(&config)
        };
        let ports = namespace.run(move || std::thread::spawn(work).join().unwrap()).unwrap();
        let shown = shown(&namespace, "plain0");
        assert!(shown.contains("numqueues 2 numdisabled 0"), "{shown}");
        drop(ports);
        until(|| shown_is_gone(&namespace));
    }
    // How often they came in between is up to chance: such devices were thrown away.
    println!("strangers joined {} devices that were thrown away", strangers.joined() - 1);
}

fn shown_is_gone(namespace: &Namespace) -> bool {
    shown(namespace, "plain0").is_empty()
}

/// Takes the capability to make namespaces from the calling thread.
fn without_sys_admin() {
    const SYS_ADMIN: u32 = 21;
    // `struct __user_cap_header_struct` of version 3, and two `struct __user_cap_data_struct`.
    let header = [0x2008_0522u32, 0];
    let mut data = [0u32; 6];
    // SAFETY: capget(2) reads the header and writes the data, which have its layouts.
    assert_eq!(unsafe { libc::syscall(libc::SYS_capget, &raw const header, &raw mut data) }, 0);
    data[0] &= !(1 << SYS_ADMIN);
    data[1] &= !(1 << SYS_ADMIN);
    // SAFETY: capset(2) reads both.
    assert_eq!(unsafe { libc::syscall(libc::SYS_capset, &raw const header, &raw const data) }, 0);
}

#[test]
fn a_device_with_a_queue_that_a_stranger_took_out_is_refused() {
    let namespace = or_skip!(Namespace::new());
    namespace.ip("tuntap add dev old0 mode tun multi_queue");
    let stranger = namespace.run(|| {
        let work = || {
            become_nobody();
            let queue = attach(b"old0").unwrap();
            assert_eq!(ioctl(&queue, libc::TUNSETQUEUE, b"", libc::IFF_DETACH_QUEUE), 0);
            queue
        };
        std::thread::spawn(work).join().unwrap()
    });
    let open = || namespace.run(|| tun::open(&tun::Config::new("old0")));
    let refused = open().map(drop);
    let Err(IoError::Setup { source, .. }) = &refused else { panic!("{refused:?}") };
    assert_eq!(source.kind(), std::io::ErrorKind::ResourceBusy);
    drop(stranger);
    until(|| open().is_ok());
}
