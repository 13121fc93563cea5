//! The bpf system call, as far as AF_XDP and the sharing of UDP ports need it: maps of sockets,
//! programs, a link.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::check;

// `enum bpf_cmd`, `bpf_map_type`, `bpf_prog_type` and `bpf_attach_type` of linux/bpf.h.
const MAP_CREATE: libc::c_int = 0;
const MAP_LOOKUP_ELEM: libc::c_int = 1;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const MAP_DELETE_ELEM: libc::c_int = 3;
const PROG_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;
const LINK_UPDATE: libc::c_int = 29;
const LINK_DETACH: libc::c_int = 34;
const MAP_TYPE_ARRAY: u32 = 2;
const MAP_TYPE_XSKMAP: u32 = 17;
const MAP_TYPE_REUSEPORT_SOCKARRAY: u32 = 20;
const PROG_TYPE_SOCKET_FILTER: u32 = 1;
const PROG_TYPE_XDP: u32 = 6;
const PROG_TYPE_SK_REUSEPORT: u32 = 21;
/// Map: its values can be mapped into memory (`BPF_F_MMAPABLE`).
const MAPPABLE: u32 = 1 << 10;
/// Update: only if there is nothing under the key.
const NO_EXIST: u64 = 1;
const ATTACH_XDP: u32 = 37;

/// One instruction (`struct bpf_insn`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instruction {
    pub(crate) code: u8,
    /// Destination in the low half, source in the high half.
    pub(crate) registers: u8,
    pub(crate) offset: i16,
    pub(crate) value: i32,
}

#[repr(C)]
struct MapCreate {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
}

#[repr(C)]
struct MapUpdate {
    map: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct ProgLoad {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach: u32,
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    interface: u32,
    attach: u32,
    flags: u32,
}

#[repr(C)]
struct LinkUpdate {
    link: u32,
    program: u32,
    flags: u32,
    old_program: u32,
}

#[repr(C)]
struct LinkDetach {
    link: u32,
}

#[repr(C)]
struct MapDelete {
    map: u32,
    pad: u32,
    key: u64,
}

#[repr(C)]
struct MapLookup {
    map: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// Marks the structures that the system call takes.
trait Attributes {}
impl Attributes for MapCreate {}
impl Attributes for MapUpdate {}
impl Attributes for MapDelete {}
impl Attributes for ProgLoad {}
impl Attributes for LinkCreate {}
impl Attributes for LinkUpdate {}
impl Attributes for LinkDetach {}

/// Makes the call; what addresses in `attributes` point to is borrowed by the caller.
fn bpf<A: Attributes>(command: libc::c_int, attributes: &A) -> io::Result<libc::c_int> {
    let at: *const A = attributes;
    // SAFETY: the kernel reads one `A` at `at`, and through its addresses what the caller borrows
    // for as long as the call takes. None of these commands writes to any of it.
    let returned = unsafe { libc::syscall(libc::SYS_bpf, command, at, size_of::<A>()) };
    let returned = returned as libc::c_int;
    check(returned)?;
    Ok(returned)
}

fn owned(fd: libc::c_int) -> OwnedFd {
    // SAFETY: the kernel has just made the descriptor, and it has no other owner.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// A map from queue numbers below `entries` to AF_XDP sockets.
pub(crate) fn socket_map(entries: u32) -> io::Result<OwnedFd> {
    let attributes =
        MapCreate { kind: MAP_TYPE_XSKMAP, key_bytes: 4, value_bytes: 4, entries, flags: 0 };
    bpf(MAP_CREATE, &attributes).map(owned)
}

/// A map of one value of so many bytes, all zeros, which processes can map into their memory.
pub(super) fn value_map(bytes: u32) -> io::Result<OwnedFd> {
    let attributes = MapCreate {
        kind: MAP_TYPE_ARRAY,
        key_bytes: 4,
        value_bytes: bytes,
        entries: 1,
        flags: MAPPABLE,
    };
    bpf(MAP_CREATE, &attributes).map(owned)
}

/// Puts the socket of a queue into a map.
pub(crate) fn set_socket(
    map: BorrowedFd<'_>,
    queue: u32,
    socket: BorrowedFd<'_>,
) -> io::Result<()> {
    let value = socket.as_raw_fd();
    let attributes = MapUpdate {
        map: map.as_raw_fd() as u32,
        pad: 0,
        key: (&raw const queue) as u64,
        value: (&raw const value) as u64,
        flags: 0,
    };
    bpf(MAP_UPDATE_ELEM, &attributes)?;
    Ok(())
}

/// A map from numbers below `entries` to sockets that share a port.
pub(crate) fn shared_sockets(entries: u32) -> io::Result<OwnedFd> {
    let kind = MAP_TYPE_REUSEPORT_SOCKARRAY;
    // With values of eight bytes, what is under a key can be read: the socket's cookie.
    let attributes = MapCreate { kind, key_bytes: 4, value_bytes: 8, entries, flags: 0 };
    bpf(MAP_CREATE, &attributes).map(owned)
}

/// Puts a socket that shares a port under a key of such a map, if there is none.
pub(crate) fn put_shared(map: BorrowedFd<'_>, key: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
    let value = socket.as_raw_fd() as u64;
    let attributes = MapUpdate {
        map: map.as_raw_fd() as u32,
        pad: 0,
        key: (&raw const key) as u64,
        value: (&raw const value) as u64,
        flags: NO_EXIST,
    };
    bpf(MAP_UPDATE_ELEM, &attributes)?;
    Ok(())
}

/// Takes the socket under a key out of such a map.
pub(crate) fn remove_shared(map: BorrowedFd<'_>, key: u32) -> io::Result<()> {
    let attributes =
        MapDelete { map: map.as_raw_fd() as u32, pad: 0, key: (&raw const key) as u64 };
    bpf(MAP_DELETE_ELEM, &attributes)?;
    Ok(())
}

/// The cookie of the socket under a key of such a map; closed sockets are not there.
pub(crate) fn shared_cookie(map: BorrowedFd<'_>, key: u32) -> io::Result<u64> {
    let mut cookie = 0_u64;
    let attributes = MapLookup {
        map: map.as_raw_fd() as u32,
        pad: 0,
        key: (&raw const key) as u64,
        value: (&raw mut cookie) as u64,
        flags: 0,
    };
    let at = &raw const attributes;
    // SAFETY: the kernel reads one `MapLookup` at `at` and the four bytes of the key, and writes
    // eight, which is what values of these maps have, to `cookie`; all of them live on.
    let returned =
        unsafe { libc::syscall(libc::SYS_bpf, MAP_LOOKUP_ELEM, at, size_of::<MapLookup>()) };
    check(returned as libc::c_int)?;
    Ok(cookie)
}

/// Loads an XDP program; the kernel proves that it ends and reads nothing but the frame.
pub(crate) fn load_xdp(instructions: &[Instruction]) -> io::Result<OwnedFd> {
    load(PROG_TYPE_XDP, ATTACH_XDP, instructions)
}

/// Loads a program that chooses among sockets that share a port.
pub(crate) fn load_selector(instructions: &[Instruction]) -> io::Result<OwnedFd> {
    load(PROG_TYPE_SK_REUSEPORT, 0, instructions)
}

/// Loads a program that tells a socket which packets to keep.
pub(crate) fn load_filter(instructions: &[Instruction]) -> io::Result<OwnedFd> {
    load(PROG_TYPE_SOCKET_FILTER, 0, instructions)
}

fn load(kind: u32, attach: u32, instructions: &[Instruction]) -> io::Result<OwnedFd> {
    let license = c"Dual MIT/GPL";
    let mut name = [0; 16];
    for (to, from) in name.iter_mut().zip(b"convoy") {
        *to = *from;
    }
    let attributes = ProgLoad {
        kind,
        count: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level: 0,
        log_bytes: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
        name,
        interface: 0,
        attach,
    };
    bpf(PROG_LOAD, &attributes).map(owned)
}

/// A program attached to an interface, until this is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct XdpLink(OwnedFd);

impl XdpLink {
    /// Attaches a program. `flags` are those of `linux/if_link.h`.
    pub(crate) fn new(program: BorrowedFd<'_>, index: u32, flags: u32) -> io::Result<Self> {
        let program = program.as_raw_fd() as u32;
        let attributes = LinkCreate { program, interface: index, attach: ATTACH_XDP, flags };
        bpf(LINK_CREATE, &attributes).map(owned).map(Self)
    }

    /// Puts another program in the place of the one attached, without a gap.
    pub(crate) fn replace(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        let (link, program) = (self.0.as_raw_fd() as u32, program.as_raw_fd() as u32);
        bpf(LINK_UPDATE, &LinkUpdate { link, program, flags: 0, old_program: 0 })?;
        Ok(())
    }
}

impl Drop for XdpLink {
    /// Closing would leave the program where it is for as long as a child between `fork` and
    /// `exec` has the descriptor too.
    fn drop(&mut self) {
        // The interface may be gone, and the program with it.
        let _ = bpf(LINK_DETACH, &LinkDetach { link: self.0.as_raw_fd() as u32 });
    }
}

/// Answer of `program` to a frame, without an interface (`BPF_PROG_TEST_RUN`).
#[cfg(test)]
pub(crate) fn try_out(program: BorrowedFd<'_>, frame: &[u8]) -> io::Result<u32> {
    #[repr(C)]
    struct TestRun {
        program: u32,
        answer: u32,
        in_bytes: u32,
        out_bytes: u32,
        data_in: u64,
        data_out: u64,
        repeat: u32,
        duration: u32,
    }
    let mut attributes = TestRun {
        program: program.as_raw_fd() as u32,
        answer: 0,
        in_bytes: frame.len() as u32,
        out_bytes: 0,
        data_in: frame.as_ptr() as u64,
        data_out: 0,
        repeat: 1,
        duration: 0,
    };
    let at = &raw mut attributes;
    // SAFETY: the kernel reads and writes one `TestRun` at `at` and reads `in_bytes` of the frame.
    let returned = unsafe { libc::syscall(libc::SYS_bpf, 10, at, size_of::<TestRun>()) };
    check(returned as libc::c_int)?;
    Ok(attributes.answer)
}
