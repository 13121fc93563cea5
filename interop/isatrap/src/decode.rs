//! From bytes to an instruction (Intel SDM volume 2, chapters 2 and 4).

/// What an instruction does to each 128-bit lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The names are the instructions'.
pub enum Operation {
    AesEnc,
    AesEncLast,
    AesDec,
    AesDecLast,
    Clmul,
    Sha1Rnds4,
    Sha1NextE,
    Sha1Msg1,
    Sha1Msg2,
    Sha256Rnds2,
    Sha256Msg1,
    Sha256Msg2,
}

/// Where the last source operand is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A vector register, 0 to 31.
    Register(u8),
    /// Memory.
    Memory(Address),
}

/// An address as an instruction names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Address {
    /// A general register, 0 to 15 in the order of their encoding.
    pub base: Option<u8>,
    /// A general register and the power of two that it is multiplied with.
    pub index: Option<(u8, u8)>,
    /// What is added, in bytes.
    pub displacement: i64,
    /// Whether the address of the next instruction is added too.
    pub relative: bool,
    /// Which segment's base is added.
    pub segment: Segment,
}

/// The segments that have a base in 64-bit mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Segment {
    #[default]
    Flat,
    Fs,
    Gs,
}

/// One instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// What it computes.
    pub operation: Operation,
    /// Its bytes.
    pub length: u8,
    /// The vector register that is written, 0 to 31.
    pub target: u8,
    /// The first source; the target itself for SHA.
    pub first: u8,
    /// The second source.
    pub second: Source,
    /// 128-bit lanes: 1, 2 or 4.
    pub lanes: u8,
    /// The immediate byte; 0 where there is none.
    pub immediate: u8,
    /// Whether the rest of the target is cleared: it is by VEX and EVEX forms.
    pub clears_rest: bool,
}

/// What the prefixes say.
#[derive(Clone, Copy, Default)]
struct Prefixes {
    map: u8,
    /// 0, or 1 for 66, 2 for F3, 3 for F2.
    mandatory: u8,
    /// Bits 3 of `reg`, index and base, and bit 4 of `reg`.
    r: u8,
    x: u8,
    b: u8,
    r_high: u8,
    vvvv: u8,
    lanes: u8,
    vector: bool,
    evex: bool,
    segment: Segment,
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn next(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn next_i32(&mut self) -> Option<i64> {
        let bytes = self.bytes.get(self.at..self.at + 4)?;
        self.at += 4;
        Some(i32::from_le_bytes(bytes.try_into().ok()?).into())
    }
}

/// Decodes the instruction that `bytes` begin with. `None` for any that is not emulated, and for
/// forms of the emulated ones that no processor accepts.
#[must_use]
pub fn decode(bytes: &[u8]) -> Option<Instruction> {
    // No instruction is longer.
    let mut reader = Reader { bytes: bytes.get(..15).unwrap_or(bytes), at: 0 };
    let prefixes = prefixes(&mut reader)?;
    let opcode = reader.next()?;
    let operation = operation(&prefixes, opcode)?;
    let modrm = reader.next()?;
    let reg = modrm >> 3 & 7 | prefixes.r << 3 | prefixes.r_high << 4;
    let second = if modrm >> 6 == 3 {
        // X extends the register only where there are 32.
        let high = if prefixes.evex { prefixes.x << 4 } else { 0 };
        Source::Register(modrm & 7 | prefixes.b << 3 | high)
    } else {
        Source::Memory(address(&mut reader, &prefixes, modrm)?)
    };
    let immediate = if prefixes.map == 3 { reader.next()? } else { 0 };
    Some(Instruction {
        operation,
        length: reader.at as u8,
        target: reg,
        first: if prefixes.vector { prefixes.vvvv } else { reg },
        second,
        lanes: prefixes.lanes,
        immediate,
        clears_rest: prefixes.vector,
    })
}

fn prefixes(reader: &mut Reader<'_>) -> Option<Prefixes> {
    let mut found = Prefixes { lanes: 1, ..Prefixes::default() };
    loop {
        match reader.next()? {
            0x64 => found.segment = Segment::Fs,
            0x65 => found.segment = Segment::Gs,
            // Other segments count for nothing in 64-bit mode.
            0x26 | 0x2e | 0x36 | 0x3e => {}
            0xc4 => return vex(reader, found),
            0x62 => return evex(reader, found),
            first => return legacy(reader, found, first),
        }
    }
}

/// The three-byte form; the two-byte form cannot name the maps of these instructions.
fn vex(reader: &mut Reader<'_>, found: Prefixes) -> Option<Prefixes> {
    let (one, two) = (reader.next()?, reader.next()?);
    Some(Prefixes {
        r: !one >> 7 & 1,
        x: !one >> 6 & 1,
        b: !one >> 5 & 1,
        map: one & 31,
        vvvv: !two >> 3 & 15,
        lanes: 1 << (two >> 2 & 1),
        mandatory: two & 3,
        vector: true,
        ..found
    })
}

fn evex(reader: &mut Reader<'_>, found: Prefixes) -> Option<Prefixes> {
    let (one, two, three) = (reader.next()?, reader.next()?, reader.next()?);
    let fixed_bits = one >> 3 & 1 == 0 && two >> 2 & 1 == 1;
    // None of these instructions knows masks, zeroing, broadcast or rounding.
    let plain = three & 0b1001_0111 == 0;
    let length = three >> 5 & 3;
    (fixed_bits && plain && length != 3).then_some(Prefixes {
        r: !one >> 7 & 1,
        x: !one >> 6 & 1,
        b: !one >> 5 & 1,
        r_high: !one >> 4 & 1,
        map: one & 7,
        vvvv: !two >> 3 & 15 | (!three >> 3 & 1) << 4,
        lanes: 1 << length,
        mandatory: two & 3,
        vector: true,
        evex: true,
        ..found
    })
}

fn legacy(reader: &mut Reader<'_>, mut found: Prefixes, mut byte: u8) -> Option<Prefixes> {
    if byte & 0xf0 == 0x40 {
        (found.r, found.x, found.b) = (byte >> 2 & 1, byte >> 1 & 1, byte & 1);
        byte = reader.next()?;
    }
    if byte != 0x0f {
        return None;
    }
    found.map = match reader.next()? {
        0x38 => 2,
        0x3a => 3,
        _ => return None,
    };
    Some(found)
}

fn operation(prefixes: &Prefixes, opcode: u8) -> Option<Operation> {
    Some(match (prefixes.vector, prefixes.map, prefixes.mandatory, opcode) {
        (true, 2, 1, 0xdc) => Operation::AesEnc,
        (true, 2, 1, 0xdd) => Operation::AesEncLast,
        (true, 2, 1, 0xde) => Operation::AesDec,
        (true, 2, 1, 0xdf) => Operation::AesDecLast,
        (true, 3, 1, 0x44) => Operation::Clmul,
        (false, 3, 0, 0xcc) => Operation::Sha1Rnds4,
        (false, 2, 0, 0xc8) => Operation::Sha1NextE,
        (false, 2, 0, 0xc9) => Operation::Sha1Msg1,
        (false, 2, 0, 0xca) => Operation::Sha1Msg2,
        (false, 2, 0, 0xcb) => Operation::Sha256Rnds2,
        (false, 2, 0, 0xcc) => Operation::Sha256Msg1,
        (false, 2, 0, 0xcd) => Operation::Sha256Msg2,
        _ => return None,
    })
}

fn address(reader: &mut Reader<'_>, prefixes: &Prefixes, modrm: u8) -> Option<Address> {
    let (mode, low) = (modrm >> 6, modrm & 7);
    let mut found = Address { segment: prefixes.segment, ..Address::default() };
    let mut wide = mode == 2;
    if low == 4 {
        let sib = reader.next()?;
        let index = sib >> 3 & 7 | prefixes.x << 3;
        // The stack pointer cannot be an index.
        found.index = (index != 4).then_some((index, sib >> 6));
        if sib & 7 == 5 && mode == 0 {
            wide = true;
        } else {
            found.base = Some(sib & 7 | prefixes.b << 3);
        }
    } else if low == 5 && mode == 0 {
        (found.relative, wide) = (true, true);
    } else {
        found.base = Some(low | prefixes.b << 3);
    }
    if wide {
        found.displacement = reader.next_i32()?;
    } else if mode == 1 {
        // EVEX counts short displacements in whole operands.
        let unit = if prefixes.evex { 16 * i64::from(prefixes.lanes) } else { 1 };
        found.displacement = i64::from(reader.next()?.cast_signed()) * unit;
    }
    Some(found)
}
