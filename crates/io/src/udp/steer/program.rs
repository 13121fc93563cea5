//! The programs that choose the socket a datagram goes to.
//!
//! What RFC 3948 section 2 tells apart: ESP begins with an SPI that is not zero, IKE with four zero
//! bytes, and a NAT keepalive is one byte of 0xff.

use std::os::fd::{AsRawFd, BorrowedFd};

use crate::ebpf::{
    ADD, CALL, EXIT, JUMP, JUMP_IF_EQUAL, JUMP_IF_OTHER, LOAD_BYTE, LOAD_BYTES, LOAD_MAP,
    LOAD_WORD, MODULO_32, MOVE, PSEUDO_MAP, SET, STORE_NUMBER, STORE_WORD, TO_BIG_ENDIAN, op,
};
use crate::sys::Instruction;

/// Bytes of a UDP header.
const UDP_LEN: i32 = 8;
/// A NAT keepalive with its UDP header.
const KEEPALIVE_LEN: i32 = UDP_LEN + 1;
const KEEPALIVE: i32 = 0xff;

/// `bpf_sk_select_reuseport`.
const SELECT: i32 = 82;
/// `struct sk_reuseport_md`: length from the UDP header on.
const MD_LEN: i16 = 16;
// `enum sk_action`.
const DROP: i32 = 0;
const PASS: i32 = 1;

// Places in the stack, below the frame pointer.
const KEY: i16 = -4;
const BYTES: i16 = -8;
const CONTEXT: u8 = 6;
const FRAME: u8 = 10;

/// Picks the socket under a key of `map`: 0 for IKE and what is too short for an SPI, 1 for NAT
/// keepalives, and 1 + SPI modulo `workers` for ESP. Without a socket there the datagram is dropped.
pub(super) fn extended(map: BorrowedFd<'_>, workers: u16) -> Vec<Instruction> {
    // `bpf_skb_load_bytes(context, 8, stack + BYTES, n)`
    let load = |n| {
        [
            op(MOVE, 1, CONTEXT, 0, 0),
            op(SET, 2, 0, 0, UDP_LEN),
            op(MOVE, 3, FRAME, 0, 0),
            op(ADD, 3, 0, 0, i32::from(BYTES)),
            op(SET, 4, 0, 0, n),
            op(CALL, 0, 0, 0, LOAD_BYTES),
        ]
    };
    let short = [op(LOAD_WORD, 1, CONTEXT, MD_LEN, 0), op(JUMP_IF_OTHER, 1, 0, 0, KEEPALIVE_LEN)];
    let keepalive = [
        op(JUMP_IF_OTHER, 0, 0, 0, 0),
        op(LOAD_BYTE, 5, FRAME, BYTES, 0),
        op(JUMP_IF_OTHER, 5, 0, 0, KEEPALIVE),
        op(STORE_NUMBER, FRAME, 0, KEY, 1),
        op(JUMP, 0, 0, 0, 0),
    ];
    let long = [
        op(LOAD_WORD, 5, FRAME, BYTES, 0),
        op(JUMP_IF_EQUAL, 5, 0, 0, 0),
        op(TO_BIG_ENDIAN, 5, 0, 0, 32),
        op(MODULO_32, 5, 0, 0, i32::from(workers)),
        op(ADD, 5, 0, 0, 1),
        op(STORE_WORD, FRAME, 5, KEY, 0),
    ];
    let select = [
        op(MOVE, 1, CONTEXT, 0, 0),
        op(LOAD_MAP, 2, PSEUDO_MAP, 0, map.as_raw_fd()),
        op(0, 0, 0, 0, 0),
        op(MOVE, 3, FRAME, 0, 0),
        op(ADD, 3, 0, 0, i32::from(KEY)),
        op(SET, 4, 0, 0, 0),
        op(CALL, 0, 0, 0, SELECT),
        op(JUMP_IF_EQUAL, 0, 0, 2, 0),
        op(SET, 0, 0, 0, DROP),
        op(EXIT, 0, 0, 0, 0),
        op(SET, 0, 0, 0, PASS),
        op(EXIT, 0, 0, 0, 0),
    ];
    let mut code = vec![op(MOVE, CONTEXT, 1, 0, 0), op(STORE_NUMBER, FRAME, 0, KEY, 0)];
    code.extend(load(4));
    let to_long = code.len();
    code.push(op(JUMP_IF_EQUAL, 0, 0, 0, 0));
    let first = code.len();
    code.extend(short);
    code.extend(load(1));
    code.extend(keepalive);
    let at_long = code.len();
    code.extend(long);
    let at_select = code.len();
    code.extend(select);
    // Jumps without a distance yet: out of the short and the long part, to the choice.
    for (at, op) in code.iter_mut().enumerate().take(at_select).skip(to_long) {
        let target = if at < first { at_long } else { at_select };
        if [JUMP, JUMP_IF_EQUAL, JUMP_IF_OTHER].contains(&op.code) {
            op.offset = (target - at - 1) as i16;
        }
    }
    code
}

/// The same in classic BPF, which knows sockets by their place in the group only and cannot drop:
/// `ike` is the daemon's place, `workers` are those of the workers. What has no place here goes to
/// the first worker, which makes nothing of it.
pub(super) fn classic(ike: Option<usize>, workers: &[usize]) -> Vec<libc::sock_filter> {
    let op = |code: u32, jt, jf, k: usize| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k: u32::try_from(k).unwrap_or(u32::MAX),
    };
    let first = workers.first().copied().unwrap_or_default();
    let ike = ike.unwrap_or(first);
    let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let give = libc::BPF_RET | libc::BPF_K;
    let mut code = vec![
        op(libc::BPF_LD | libc::BPF_W | libc::BPF_LEN, 0, 0, 0),
        op(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 5, 0, 4),
        op(equal, 0, 3, 1),
        op(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, 0),
        op(equal, 0, 1, KEEPALIVE as usize),
        op(give, 0, 0, first),
        op(give, 0, 0, ike),
        op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        op(equal, 0, 1, 0),
        op(give, 0, 0, ike),
        op(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, 0, 0, workers.len().max(1)),
    ];
    for (worker, place) in workers.iter().enumerate() {
        code.push(op(equal, 0, 1, worker));
        code.push(op(give, 0, 0, *place));
    }
    code.push(op(give, 0, 0, first));
    code
}
