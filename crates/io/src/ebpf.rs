//! Instructions of extended BPF (`Documentation/bpf/standardization/instruction-set.rst`), as far as programs here have them.

use crate::sys::Instruction;

// Operation codes.
pub(crate) const LOAD_BYTE: u8 = 0x71;
pub(crate) const LOAD_HALF: u8 = 0x69;
pub(crate) const LOAD_WORD: u8 = 0x61;
pub(crate) const LOAD_DOUBLE: u8 = 0x79;
pub(crate) const LOAD_MAP: u8 = 0x18;
pub(crate) const STORE_WORD: u8 = 0x63;
pub(crate) const STORE_NUMBER: u8 = 0x62;
pub(crate) const ATOMIC_DOUBLE: u8 = 0xdb;
pub(crate) const MOVE: u8 = 0xbf;
pub(crate) const SET: u8 = 0xb7;
pub(crate) const ADD: u8 = 0x07;
pub(crate) const ADD_REGISTER: u8 = 0x0f;
pub(crate) const AND: u8 = 0x57;
pub(crate) const AND_32: u8 = 0x54;
pub(crate) const SHIFT_LEFT: u8 = 0x67;
pub(crate) const SHIFT_RIGHT: u8 = 0x77;
pub(crate) const MODULO_32: u8 = 0x94;
pub(crate) const SUBTRACT_32: u8 = 0x1c;
pub(crate) const TO_BIG_ENDIAN: u8 = 0xdc;
pub(crate) const JUMP: u8 = 0x05;
pub(crate) const JUMP_IF_ABOVE: u8 = 0x2d;
pub(crate) const JUMP_IF_ABOVE_32: u8 = 0x26;
pub(crate) const JUMP_IF_EQUAL: u8 = 0x15;
pub(crate) const JUMP_IF_EQUAL_32: u8 = 0x16;
pub(crate) const JUMP_IF_OTHER: u8 = 0x55;
pub(crate) const JUMP_IF_AT_LEAST_32: u8 = 0x36;
pub(crate) const CALL: u8 = 0x85;
pub(crate) const EXIT: u8 = 0x95;

/// In [`LOAD_MAP`]: the value is the descriptor of a map.
pub(crate) const PSEUDO_MAP: u8 = 1;
/// In [`LOAD_MAP`]: the value is the descriptor of a map, whose value is pointed to.
pub(crate) const PSEUDO_VALUE: u8 = 2;
/// `bpf_skb_load_bytes`, which reaches what is not in the first piece of a packet's memory as well.
pub(crate) const LOAD_BYTES: i32 = 26;

/// An instruction, of a code and the numbers of two registers.
pub(crate) const fn op(code: u8, dst: u8, src: u8, offset: i16, value: i32) -> Instruction {
    Instruction { code, registers: src << 4 | dst, offset, value }
}
