//! Descriptors that the server serves: what becomes of them when it goes and comes back.

use std::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::connection::{connection, word};
use super::remembered::Remembered;
use super::{exempt, next, system};
use crate::table::{self, Identity, Slot};
use crate::wire::{self, Control};

/// First wait for a server, in milliseconds; it doubles.
const BACKOFF_MIN: u32 = 100;
/// Longest wait for a server, in milliseconds.
const BACKOFF_MAX: u32 = 5_000;

/// A new connection for an application.
pub(super) fn dial(close_on_exec: bool, nonblocking: bool) -> Result<c_int, c_int> {
    let fd = connection(close_on_exec)?;
    system::set_nonblocking(fd, nonblocking);
    Ok(fd)
}

/// Sends a message of the library. If there is no server, the next one is told by [`redial`].
pub(super) fn tell(fd: c_int, slot: &Slot, kind: u16, numbers: &[u32]) {
    if !slot.identity().is_parked() {
        let control = Control::new(kind, slot.port.load(Relaxed), numbers);
        let _ = system::send(fd, control.as_bytes(), None);
    }
}

/// Tells the server the address of a socket.
pub(super) fn tell_address(fd: c_int, slot: &Slot) {
    let (port, groups) = (slot.port.load(Relaxed), slot.groups.load(Relaxed));
    tell(fd, slot, wire::BIND, &[wire::VERSION, port, groups, 0]);
}

/// Chooses a netlink port, as kernels do: the process's number for its first socket, then large ones.
pub(super) fn choose_port(slot: &Slot) -> u32 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let process = system::process().cast_unsigned();
    let mut port = process;
    while is_taken(port) {
        let count = COUNT.fetch_add(1, Relaxed);
        // Between 2^31 and 2^31 + 2^30, where no process has its number.
        let mixed = (u64::from(process) << 12 ^ count) & 0x3fff_ffff;
        port = u32::try_from(mixed).unwrap_or_default() | 1 << 31;
    }
    slot.port.store(port, Relaxed);
    port
}

/// True if a socket of this process has that port.
pub(super) fn is_taken(port: u32) -> bool {
    table::all().any(|(fd, slot)| slot.port.load(Relaxed) == port && super::ours(fd).is_some())
}

/// Tries to reach a server and puts the connection in the place of a descriptor's file; failing
/// that, puts a timer there. Tells whether there is a server. `false` as well if another thread is
/// at it.
pub(super) fn redial(fd: c_int, slot: &Slot) -> bool {
    system::uncancelled(|| reconnect(fd, slot))
}

fn reconnect(fd: c_int, slot: &Slot) -> bool {
    if !slot.claim(system::process()) {
        return false;
    }
    let reached = match connection(true) {
        Ok(new) => {
            greet(new, slot);
            let identity = system::socket_inode(new).map(Identity::socket);
            identity.is_some_and(|identity| put(fd, slot, new, identity))
        }
        Err(_) => {
            park(fd, slot);
            false
        }
    };
    slot.release();
    if reached {
        slot.backoff.store(0, Relaxed);
        steer_again();
        exempt::exempt_again();
    }
    reached
}

/// Tells a new server all that the one before was told.
fn greet(new: c_int, slot: &Slot) {
    for (at, option) in [libc::SO_RCVBUF, libc::SO_SNDBUF].into_iter().enumerate() {
        let size = slot.buffers[at].load(Relaxed);
        if size != 0 {
            let _ = system::set_option(new, libc::SOL_SOCKET, option, size);
        }
    }
    let (port, groups) = (slot.port.load(Relaxed), slot.groups.load(Relaxed));
    let say = |kind, numbers: &[u32]| {
        let _ = system::send(new, Control::new(kind, port, numbers).as_bytes(), None);
    };
    let options = slot.options.load(Relaxed);
    for number in (0..32).filter(|number| options & 1 << number != 0) {
        say(wire::OPTION, &[number, 1]);
    }
    if port != 0 {
        say(wire::BIND, &[wire::VERSION, port, groups, wire::RESUMED]);
    }
}

/// Puts a timer in the place of a descriptor's file, with the next longer interval.
fn park(fd: c_int, slot: &Slot) {
    let before = slot.backoff.load(Relaxed);
    let now = (before * 2).clamp(BACKOFF_MIN, BACKOFF_MAX);
    if slot.identity().is_parked() && before == BACKOFF_MAX {
        return;
    }
    slot.backoff.store(now, Relaxed);
    // The odd nanoseconds tell this timer from others.
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let cookie =
        (u64::from(system::process().cast_unsigned()) << 7 ^ COUNT.fetch_add(1, Relaxed)) % 999_983;
    let interval = u64::from(now) * 1_000_000 + cookie + 1;
    match system::timer(interval) {
        Ok(new) => {
            put(fd, slot, new, Identity::timer(interval));
        }
        // No descriptor is free. Better a slow loop than a busy one.
        Err(_) => system::pause(100),
    }
}

/// Replaces the file of a descriptor and of its duplicates by that of `new`, which is closed.
fn put(fd: c_int, slot: &Slot, new: c_int, identity: Identity) -> bool {
    let old = slot.identity();
    system::set_nonblocking(new, system::is_nonblocking(fd));
    let mut done = false;
    for (other_fd, other) in table::all() {
        if other_fd != fd && (other.identity() != old || super::ours(other_fd).is_none()) {
            continue;
        }
        let flags = system::control(other_fd, libc::F_GETFD, 0);
        let close_on_exec = flags.is_ok_and(|flags| flags & libc::FD_CLOEXEC != 0);
        // Only what is registered can be modified, so registrations that ended meanwhile are told.
        let live = other.watches().map(|watch| {
            watch.filter(|(epoll, events, data)| {
                register(*epoll, libc::EPOLL_CTL_MOD, other_fd, *events, *data)
            })
        });
        other.announce(identity);
        if system::replace(new, other_fd, close_on_exec).is_ok() {
            other.replaced(identity);
            done |= other_fd == fd;
            for (epoll, events, data) in live.into_iter().flatten() {
                register(epoll, libc::EPOLL_CTL_ADD, other_fd, events, data);
            }
        } else {
            other.announce(Identity::NONE);
        }
    }
    system::close(new);
    done
}

fn register(epoll: c_int, command: c_int, fd: c_int, events: u32, data: u64) -> bool {
    let mut event = libc::epoll_event { events, u64: data };
    // SAFETY: the event is valid for the call.
    let result = unsafe { next::EPOLL_CTL.get()(epoll, command, fd, &raw mut event) };
    // Exclusive registrations cannot be modified, which is told apart from there being none.
    result == 0 || (command == libc::EPOLL_CTL_MOD && system::errno() == libc::EINVAL)
}

/// UDP sockets whose ESP is Convoy's, and the values of `UDP_ENCAP`.
static STEERED: Remembered = Remembered::new();

/// Hands a UDP socket to the server, and waits for its word. It is remembered for the next server.
pub(super) fn steer(fd: c_int, value: c_int) -> Result<(), c_int> {
    hand_over(fd, value.cast_unsigned())?;
    STEERED.add(fd, value.cast_unsigned().into());
    Ok(())
}

/// Hands the UDP sockets to a server that came back.
fn steer_again() {
    for (fd, value) in STEERED.all() {
        let _ = hand_over(fd, c_uint::try_from(value).unwrap_or_default());
    }
}

fn hand_over(fd: c_int, value: c_uint) -> Result<(), c_int> {
    let server = connection(true).map_err(|_| libc::ENOPROTOOPT)?;
    let word = word_on(server, fd, value);
    system::close(server);
    word
}

fn word_on(server: c_int, fd: c_int, value: c_uint) -> Result<(), c_int> {
    let mut bytes = [0; wire::ERROR_LEN];
    let answer = word(server, &Control::new(wire::STEER, 0, &[value]), Some(fd), &mut bytes)?;
    let answer = wire::errno_of(answer).ok_or(libc::EPROTO)?;
    if answer == 0 { Ok(()) } else { Err(answer) }
}
