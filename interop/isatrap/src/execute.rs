//! One instruction's effect on registers, wherever they are kept.

use crate::{
    compute::{Lane, compute},
    decode::{Address, Instruction, Segment, Source},
};

/// The registers of a program that stands still.
pub trait Registers {
    /// Lane `lane` (0 to 3) of vector register `register` (0 to 31).
    fn lane(&self, register: u8, lane: u8) -> Lane;

    /// Writes such a lane. A lane that the processor does not have is left out.
    fn set_lane(&mut self, register: u8, lane: u8, value: Lane);

    /// A general register, 0 to 15 in the order of their encoding.
    fn general(&self, register: u8) -> u64;

    /// The base of a segment.
    fn base(&self, segment: Segment) -> u64;

    /// The address of the instruction that is to be executed.
    fn instruction_pointer(&self) -> u64;

    /// The 16 bytes at an address of the program, which faults as the instruction would.
    fn load(&self, address: u64) -> Lane;
}

/// Executes an instruction. The instruction pointer stays.
pub fn execute(instruction: &Instruction, registers: &mut impl Registers) {
    let constants = registers.lane(0, 0);
    let mut results = [[0; 16]; 4];
    for lane in 0..instruction.lanes {
        let first = registers.lane(instruction.first, lane);
        let second = match instruction.second {
            Source::Register(register) => registers.lane(register, lane),
            Source::Memory(named) => {
                let address = effective(&named, instruction, registers);
                registers.load(address.wrapping_add(16 * u64::from(lane)))
            }
        };
        results[usize::from(lane)] =
            compute(instruction.operation, first, second, constants, instruction.immediate);
    }
    // Zeros follow the results.
    let written = if instruction.clears_rest { 4 } else { instruction.lanes };
    for (lane, result) in (0..written).zip(results) {
        registers.set_lane(instruction.target, lane, result);
    }
}

fn effective(named: &Address, instruction: &Instruction, registers: &impl Registers) -> u64 {
    let base = named.base.map_or(0, |register| registers.general(register));
    let index = named.index.map_or(0, |(register, shift)| registers.general(register) << shift);
    let next = registers.instruction_pointer().wrapping_add(instruction.length.into());
    base.wrapping_add(index)
        .wrapping_add_signed(named.displacement)
        .wrapping_add(if named.relative { next } else { 0 })
        .wrapping_add(registers.base(named.segment))
}
