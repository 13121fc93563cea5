//! Socket options: netlink's, those of other sockets that concern IPsec, and what shows the family.

use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering::Relaxed;

use libc::{SOL_NETLINK, SOL_SOCKET, socklen_t};

use super::{answer, dial, exempt, next, ours, system};
use crate::table::Slot;
use crate::wire;

const ADD_MEMBERSHIP: c_int = 1;
const DROP_MEMBERSHIP: c_int = 2;
const LIST_MEMBERSHIPS: c_int = 9;
/// The options that are switches: `NETLINK_PKTINFO`, `_BROADCAST_ERROR`, `_NO_ENOBUFS`,
/// `_LISTEN_ALL_NSID`, `_CAP_ACK`, `_EXT_ACK`, `_GET_STRICT_CHK`.
const SWITCHES: u32 = 1 << 3 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 10 | 1 << 11 | 1 << 12;
/// `NETLINK_NO_ENOBUFS`.
pub(super) const NO_ENOBUFS: u32 = 1 << 5;
/// Least number of multicast groups of a netlink family.
const GROUPS: u32 = 32;

const IP_IPSEC_POLICY: c_int = 16;
const IP_XFRM_POLICY: c_int = 17;
const IPV6_IPSEC_POLICY: c_int = 34;
const IPV6_XFRM_POLICY: c_int = 35;
const UDP_ENCAP: c_int = 100;
/// `struct xfrm_userpolicy_info` and `struct sadb_x_policy`.
const XFRM_POLICY_LEN: usize = 168;
const SADB_POLICY_LEN: usize = 16;
/// `XFRM_POLICY_OUT`, and `IPSEC_DIR_OUTBOUND` less 1.
const OUTBOUND: u8 = 1;
const UDP_GRO: c_int = 104;

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn setsockopt(
    fd: c_int,
    level: c_int,
    option: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    let is_policy = (level == libc::SOL_IP && matches!(option, IP_IPSEC_POLICY | IP_XFRM_POLICY))
        || (level == libc::SOL_IPV6 && matches!(option, IPV6_IPSEC_POLICY | IPV6_XFRM_POLICY));
    let is_encap = level == libc::SOL_UDP && matches!(option, UDP_ENCAP | UDP_GRO);
    if is_policy {
        // What is no socket has no policy either.
        return answer(system::option(fd, SOL_SOCKET, libc::SO_MARK).and_then(|mark| {
            // SAFETY: the caller's promise.
            let policy = unsafe { SocketPolicy::read(option, value, len) }?;
            policy.set(fd, mark.cast_unsigned()).map(|()| 0)
        }));
    }
    if is_encap {
        // SAFETY: the caller's promise.
        let number = unsafe { read_number(value, len) };
        return answer(number.and_then(|number| encapsulate(fd, option, number)));
    }
    let Some(slot) = ours(fd) else {
        // SAFETY: the caller's promise.
        return unsafe { next::SETSOCKOPT.get()(fd, level, option, value, len) };
    };
    match level {
        SOL_NETLINK => {
            // SAFETY: the caller's promise.
            let number = match unsafe { read_number(value, len) } {
                // As kernels read what is too short.
                Err(libc::EINVAL) => Ok(0),
                number => number,
            };
            answer(number.and_then(|number| switch(fd, slot, option, number.cast_unsigned())))
        }
        SOL_SOCKET => {
            // SAFETY: the caller's promise.
            let number = unsafe { read_number(value, len) };
            remember_buffer(slot, option, number);
            if slot.identity().is_parked() {
                return 0;
            }
            // SAFETY: the caller's promise.
            unsafe { next::SETSOCKOPT.get()(fd, level, option, value, len) }
        }
        _ => answer(Err(libc::ENOPROTOOPT)),
    }
}

/// # Safety
///
/// If not null, `value` points to `len` bytes.
unsafe fn read_number(value: *const c_void, len: socklen_t) -> Result<c_int, c_int> {
    if usize::try_from(len).is_ok_and(|len| len < size_of::<c_int>()) {
        return Err(libc::EINVAL);
    }
    if value.is_null() {
        return Err(libc::EFAULT);
    }
    // SAFETY: it is as long as that; alignment does not matter.
    Ok(unsafe { value.cast::<c_int>().read_unaligned() })
}

/// IPsec policy that a program wants for one socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SocketPolicy {
    /// Its packets pass in clear, as those of IKE must.
    Bypass,
    /// Packets come to it in clear, as they do anyway.
    Inbound,
    /// As those of other sockets.
    Usual,
}

impl SocketPolicy {
    /// Reads a `struct xfrm_userpolicy_info`, or a `struct sadb_x_policy`.
    ///
    /// # Safety
    ///
    /// If not null, `value` points to `len` bytes.
    unsafe fn read(option: c_int, value: *const c_void, len: socklen_t) -> Result<Self, c_int> {
        let len = usize::try_from(len).unwrap_or_default();
        let is_xfrm = matches!(option, IP_XFRM_POLICY | IPV6_XFRM_POLICY);
        // What is longer has templates: the socket would have SAs of its own.
        let least = if is_xfrm { XFRM_POLICY_LEN } else { SADB_POLICY_LEN };
        if value.is_null() {
            return if len == 0 { Ok(Self::Usual) } else { Err(libc::EFAULT) };
        }
        if len < least {
            return Err(libc::EINVAL);
        }
        // SAFETY: it is as long as that.
        let bytes = unsafe { core::slice::from_raw_parts(value.cast::<u8>(), least) };
        let byte = |at: usize| bytes.get(at).copied().unwrap_or_default();
        // The direction, and whether packets pass: `struct xfrm_userpolicy_info` has one byte for each, and
        // `struct sadb_x_policy` a type, of which NONE, ENTRUST and BYPASS pass.
        let (direction, passes) = match is_xfrm {
            true => (byte(160), byte(161) == 0),
            false => {
                let kind = u16::from_ne_bytes([byte(4), byte(5)]);
                (byte(6).wrapping_sub(1), matches!(kind, 1 | 3 | 4))
            }
        };
        match (direction, passes && len == least) {
            (_, false) => Err(libc::EOPNOTSUPP),
            (OUTBOUND, true) => Ok(Self::Bypass),
            (_, true) => Ok(Self::Inbound),
        }
    }

    /// Gives a socket the mark that leak protection lets pass, beside the one that it has, or takes it. That needs the
    /// right which the kernel asks for at these options, `CAP_NET_ADMIN`.
    fn set(self, fd: c_int, before: u32) -> Result<(), c_int> {
        match self {
            Self::Bypass => exempt::exempt(fd, before),
            Self::Usual => exempt::forget(fd, before),
            Self::Inbound => Ok(()),
        }
    }
}

/// Packets of ESP in UDP are Convoy's, whatever kind of encapsulation is asked for; so the kernel must
/// not take them, and not join IKE's packets either.
fn encapsulate(fd: c_int, option: c_int, value: c_int) -> Result<c_int, c_int> {
    let protocol = system::option(fd, SOL_SOCKET, libc::SO_PROTOCOL)?;
    if protocol != libc::IPPROTO_UDP {
        return Err(libc::ENOPROTOOPT);
    }
    if option == UDP_ENCAP {
        system::set_option(fd, SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
        dial::steer(fd, value)?;
    }
    Ok(0)
}

fn switch(fd: c_int, slot: &Slot, option: c_int, value: u32) -> Result<c_int, c_int> {
    match option {
        ADD_MEMBERSHIP | DROP_MEMBERSHIP => {
            // Bits of the mask, so group 1 is bit 0.
            let bit = value.checked_sub(1).filter(|bit| *bit < GROUPS).ok_or(libc::EINVAL)?;
            let join = option == ADD_MEMBERSHIP;
            if join {
                slot.groups.fetch_or(1 << bit, Relaxed);
            } else {
                slot.groups.fetch_and(!(1 << bit), Relaxed);
            }
            dial::tell(fd, slot, wire::MEMBERSHIP, &[value, u32::from(join)]);
        }
        _ => {
            let bit = u32::try_from(option).ok().and_then(|option| 1_u32.checked_shl(option));
            let bit = bit.filter(|bit| bit & SWITCHES != 0).ok_or(libc::ENOPROTOOPT)?;
            if value != 0 {
                slot.options.fetch_or(bit, Relaxed);
            } else {
                slot.options.fetch_and(!bit, Relaxed);
            }
            dial::tell(fd, slot, wire::OPTION, &[option.cast_unsigned(), u32::from(value != 0)]);
        }
    }
    Ok(0)
}

fn remember_buffer(slot: &Slot, option: c_int, value: Result<c_int, c_int>) {
    let place = match option {
        libc::SO_RCVBUF | libc::SO_RCVBUFFORCE => &slot.buffers[0],
        libc::SO_SNDBUF | libc::SO_SNDBUFFORCE => &slot.buffers[1],
        _ => return,
    };
    if let Ok(value) = value {
        place.store(value, Relaxed);
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn getsockopt(
    fd: c_int,
    level: c_int,
    option: c_int,
    room: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    let shown = ours(fd).and_then(|slot| shown(slot, level, option));
    match shown {
        // SAFETY: the caller's promise.
        Some(shown) => answer(shown.and_then(|number| unsafe { give_number(room, len, number) })),
        // SAFETY: the caller's promise.
        None => unsafe { next::GETSOCKOPT.get()(fd, level, option, room, len) },
    }
}

/// The value of an option that the connection itself would tell wrongly.
fn shown(slot: &Slot, level: c_int, option: c_int) -> Option<Result<c_int, c_int>> {
    Some(match (level, option) {
        (SOL_SOCKET, libc::SO_DOMAIN) => Ok(libc::AF_NETLINK),
        (SOL_SOCKET, libc::SO_PROTOCOL) => Ok(libc::NETLINK_XFRM),
        (SOL_SOCKET, libc::SO_TYPE) => Ok(slot.style.load(Relaxed)),
        (SOL_SOCKET, _) if slot.identity().is_parked() => Ok(0),
        (SOL_SOCKET, _) => return None,
        (SOL_NETLINK, LIST_MEMBERSHIPS) => Ok(slot.groups.load(Relaxed).cast_signed()),
        (SOL_NETLINK, 0..=31) if SWITCHES & 1 << option != 0 => {
            Ok(c_int::from(slot.options.load(Relaxed) & 1 << option != 0))
        }
        _ => Err(libc::ENOPROTOOPT),
    })
}

/// # Safety
///
/// If neither is null, `len` points to the number of bytes that `room` points to.
unsafe fn give_number(
    room: *mut c_void,
    len: *mut socklen_t,
    number: c_int,
) -> Result<c_int, c_int> {
    if room.is_null() || len.is_null() {
        return Err(libc::EFAULT);
    }
    // SAFETY: the caller's promise.
    let given = unsafe { len.read_unaligned() };
    let size = size_of::<c_int>();
    if usize::try_from(given).is_ok_and(|given| given < size) {
        return Err(libc::EINVAL);
    }
    // SAFETY: there is room for it; alignment does not matter.
    unsafe { room.cast::<c_int>().write_unaligned(number) };
    // SAFETY: the caller's promise.
    unsafe { len.write_unaligned(socklen_t::try_from(size).unwrap_or_default()) };
    Ok(0)
}
