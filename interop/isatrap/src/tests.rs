//! Against the definitions' own vectors everywhere, and against the processor where it has the
//! instructions: the compiler's assembler encodes them, and a UD2 before each has them emulated.

mod native;
mod vectors;

use crate::decode::{Address, Operation, Segment, Source, decode};

#[test]
fn encodings_are_read_as_the_manual_writes_them() {
    // vaesenc ymm1, ymm2, ymm3
    let found = decode(&[0xc4, 0xe2, 0x6d, 0xdc, 0xcb]).unwrap();
    assert_eq!((found.operation, found.length), (Operation::AesEnc, 5));
    assert_eq!((found.target, found.first, found.second), (1, 2, Source::Register(3)));
    assert_eq!((found.lanes, found.clears_rest), (2, true));
    // vaesenclast zmm17, zmm18, [rax + 0x40]: the displacement counts operands.
    let found = decode(&[0x62, 0xe2, 0x6d, 0x40, 0xdd, 0x48, 0x01]).unwrap();
    let address = Address { base: Some(0), displacement: 64, ..Address::default() };
    assert_eq!((found.target, found.first, found.second), (17, 18, Source::Memory(address)));
    assert_eq!((found.lanes, found.length), (4, 7));
    // vpclmulqdq ymm1, ymm2, [rip + 0x10], 0x11: the immediate belongs to the length.
    let found = decode(&[0xc4, 0xe3, 0x6d, 0x44, 0x0d, 0x10, 0, 0, 0, 0x11]).unwrap();
    let address = Address { displacement: 16, relative: true, ..Address::default() };
    assert_eq!((found.second, found.immediate, found.length), (Source::Memory(address), 0x11, 10));
    // sha256rnds2 xmm9, fs:[r12 + r13 * 8 - 1]
    let found = decode(&[0x64, 0x47, 0x0f, 0x38, 0xcb, 0x4c, 0xec, 0xff]).unwrap();
    let address = Address {
        base: Some(12),
        index: Some((13, 3)),
        displacement: -1,
        segment: Segment::Fs,
        ..Address::default()
    };
    assert_eq!((found.target, found.first, found.second), (9, 9, Source::Memory(address)));
    assert!(!found.clears_rest);
}

#[test]
fn what_is_not_ours_or_not_whole_is_refused() {
    for bytes in [
        &[][..],
        &[0x90],
        &[0x0f, 0x0b],
        // vaesenc ymm1, ymm2, ymm3 cut off
        &[0xc4, 0xe2, 0x6d, 0xdc],
        // vpclmulqdq without its immediate
        &[0xc4, 0xe3, 0x6d, 0x44, 0xcb],
        // aesenc xmm1, xmm3, which every host has
        &[0x66, 0x0f, 0x38, 0xdc, 0xcb],
        // vaesenc with a mask, with broadcast, with length 3
        &[0x62, 0xe2, 0x6d, 0x41, 0xdd, 0xcb],
        &[0x62, 0xe2, 0x6d, 0x50, 0xdd, 0x08],
        &[0x62, 0xe2, 0x6d, 0x60, 0xdd, 0xcb],
        // sha1msg1 with a prefix that makes it something else
        &[0x66, 0x0f, 0x38, 0xc9, 0xcb],
        // sixteen segment prefixes before an instruction
        &[0x3e; 20],
    ] {
        assert_eq!(decode(bytes), None, "{bytes:02x?}");
    }
}
