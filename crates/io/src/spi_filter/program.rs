//! The filter of a raw socket, as extended BPF (`Documentation/bpf/standardization/instruction-set.rst`).

use std::os::fd::{AsRawFd, BorrowedFd};

use crate::ebpf::{
    ADD, ADD_REGISTER, AND, ATOMIC_DOUBLE, CALL, EXIT, JUMP, JUMP_IF_ABOVE_32, JUMP_IF_EQUAL,
    JUMP_IF_OTHER, LOAD_BYTE, LOAD_BYTES, LOAD_DOUBLE, LOAD_MAP, LOAD_WORD, MODULO_32, MOVE,
    PSEUDO_VALUE, SET, SHIFT_LEFT, SHIFT_RIGHT, SUBTRACT_32, TO_BIG_ENDIAN, op,
};
use crate::sys::{Instruction, SLOTS, WITH_EDGE, offsets};

// Registers: 1 to 5 are arguments of calls and scratch, 6 to 9 keep their value.
const ANSWER: u8 = 0;
const SCRATCH: u8 = 1;
const NUMBER: u8 = 2;
const CONTEXT: u8 = 6;
const TABLE: u8 = 7;
const AT: u8 = 8;
const SPI: u8 = 9;
const FRAME: u8 = 10;

/// Atomic operation: addition.
const ATOMIC_ADD: i32 = 0;
/// Answer of a filter that keeps a packet whole.
const KEEP: i32 = -1;
/// A number this far before the window may as well be far behind it (RFC 4303 appendix A2).
const FARTHEST: i32 = 1 << 30;
/// Place in the stack for SPI and sequence number, below the frame pointer.
const BYTES: i16 = -8;

/// Position of the SPI in what a filter sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The packet begins with an IPv4 header; else with what follows the IP header.
    pub(crate) behind_v4: bool,
    /// Bytes before it in the header of ESP or AH.
    pub(crate) offset: u8,
}

/// SPIs that a socket takes: those which are `number` modulo `of`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) number: u16,
    pub(crate) of: u16,
}

/// Ends of the program.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Keep,
    Drop,
    Unknown,
    Old,
}

#[derive(Default)]
struct Code {
    all: Vec<Instruction>,
    jumps: Vec<(usize, End)>,
}

impl Code {
    fn op(&mut self, code: u8, dst: u8, src: u8, offset: i16, value: i32) {
        self.all.push(op(code, dst, src, offset, value));
    }

    fn go_if(&mut self, code: u8, register: u8, value: i32, end: End) {
        self.jumps.push((self.all.len(), end));
        self.op(code, register, 0, 0, value);
    }

    /// `bpf_skb_load_bytes(context, AT, stack + BYTES, n)`; a packet that is too short goes to `short`.
    fn load(&mut self, n: i32, short: End) {
        self.op(MOVE, 1, CONTEXT, 0, 0);
        self.op(MOVE, 2, AT, 0, 0);
        self.op(MOVE, 3, FRAME, 0, 0);
        self.op(ADD, 3, 0, 0, BYTES.into());
        self.op(SET, 4, 0, 0, n);
        self.op(CALL, 0, 0, 0, LOAD_BYTES);
        self.go_if(JUMP_IF_OTHER, ANSWER, 0, short);
    }

    fn end(&mut self, end: End) {
        for (at, _) in self.jumps.iter().filter(|(_, to)| *to == end) {
            let distance = self.all.len() - at - 1;
            if let Some(jump) = self.all.get_mut(*at) {
                jump.offset = distance as i16;
            }
        }
        let counter = match end {
            End::Unknown => Some(offsets::UNKNOWN),
            End::Old => Some(offsets::OLD),
            End::Keep | End::Drop => None,
        };
        if let Some(counter) = counter {
            self.op(SET, SCRATCH, 0, 0, 1);
            self.op(ATOMIC_DOUBLE, TABLE, SCRATCH, counter, ATOMIC_ADD);
        }
        self.op(SET, ANSWER, 0, 0, if end == End::Keep { KEEP } else { 0 });
        self.op(EXIT, 0, 0, 0, 0);
    }
}

/// Keeps packets of a share of SPIs, and of those, while the table is active, what some SA may take.
pub(super) fn filter(map: BorrowedFd<'_>, place: Place, share: Share) -> Vec<Instruction> {
    let Share { number, of } = share;
    let is_spread = of > 1;
    let mut code = Code::default();
    code.op(MOVE, CONTEXT, 1, 0, 0);
    code.op(LOAD_MAP, TABLE, PSEUDO_VALUE, 0, map.as_raw_fd());
    code.op(0, 0, 0, 0, 0);
    if !is_spread {
        keep_if_inactive(&mut code);
    }
    code.op(SET, AT, 0, 0, 0);
    let short = if is_spread { End::Drop } else { End::Keep };
    if place.behind_v4 {
        // The length of the IP header is four times the low half of byte 0.
        code.load(1, short);
        code.op(LOAD_BYTE, AT, FRAME, BYTES, 0);
        code.op(AND, AT, 0, 0, 0xf);
        code.op(SHIFT_LEFT, AT, 0, 0, 2);
    }
    code.op(ADD, AT, 0, 0, place.offset.into());
    code.load(8, short);
    code.op(LOAD_WORD, SPI, FRAME, BYTES, 0);
    code.op(TO_BIG_ENDIAN, SPI, 0, 0, 32);
    if is_spread {
        code.op(MOVE, SCRATCH, SPI, 0, 0);
        code.op(MODULO_32, SCRATCH, 0, 0, of.into());
        code.go_if(JUMP_IF_OTHER, SCRATCH, number.into(), End::Drop);
        keep_if_inactive(&mut code);
    }
    ask(&mut code);
    for end in [End::Keep, End::Drop, End::Unknown, End::Old] {
        // The kernel refuses instructions that are never reached.
        if end == End::Keep || code.jumps.iter().any(|(_, to)| *to == end) {
            code.end(end);
        }
    }
    code.all
}

fn keep_if_inactive(code: &mut Code) {
    code.op(LOAD_WORD, SCRATCH, TABLE, offsets::IS_ACTIVE, 0);
    code.go_if(JUMP_IF_EQUAL, SCRATCH, 0, End::Keep);
}

/// Asks the table for the SPI and the number behind it in the stack.
fn ask(code: &mut Code) {
    code.op(AND, SPI, 0, 0, SLOTS as i32 - 1);
    code.op(SHIFT_LEFT, SPI, 0, 0, 3);
    code.op(MOVE, AT, TABLE, 0, 0);
    code.op(ADD_REGISTER, AT, SPI, 0, 0);
    code.op(LOAD_DOUBLE, SCRATCH, AT, offsets::SLOTS, 0);
    code.go_if(JUMP_IF_EQUAL, SCRATCH, 0, End::Unknown);
    code.op(MOVE, NUMBER, SCRATCH, 0, 0);
    code.op(SHIFT_RIGHT, NUMBER, 0, 0, 32);
    code.go_if(JUMP_IF_OTHER, NUMBER, (WITH_EDGE >> 32) as i32, End::Keep);
    code.op(LOAD_WORD, NUMBER, FRAME, BYTES + 4, 0);
    code.op(TO_BIG_ENDIAN, NUMBER, 0, 0, 32);
    // Distance of the number before the edge, in 32 bits.
    code.op(SUBTRACT_32, SCRATCH, NUMBER, 0, 0);
    code.go_if(JUMP_IF_EQUAL, SCRATCH, 0, End::Keep);
    code.go_if(JUMP_IF_ABOVE_32, SCRATCH, FARTHEST, End::Keep);
    code.go_if(JUMP, 0, 0, End::Old);
}
