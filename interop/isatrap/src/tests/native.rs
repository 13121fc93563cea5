//! Each instruction executed by the processor, by [`execute`] on a plain structure, and by the signal
//! handler in a frame; all three must leave the same registers.

use std::arch::global_asm;

use crate::{
    compute::Lane,
    decode::{Segment, decode},
    execute::{Registers, execute},
    trap::testing::{emulated, obey_ud2},
};

/// The registers of one run, as the assembler below lays them out.
#[derive(Clone, PartialEq, Eq)]
#[repr(C, align(64))]
struct State {
    vectors: [[Lane; 4]; 32],
    /// RAX, RCX, RDX and RBX, which addresses are made of.
    general: [u64; 4],
}

/// What the address operands point into.
#[repr(align(64))]
struct Memory([u8; 512]);

static MEMORY: Memory = {
    let mut bytes = [0; 512];
    let mut i = 0;
    while i < 512 {
        bytes[i] = (i * i * 7 + i * 29 + 11) as u8;
        i += 1;
    }
    Memory(bytes)
};

unsafe extern "C" {
    /// Loads the registers, calls `code`, stores them.
    fn isatrap_test_run(state: *mut State, code: *const u8);
}

global_asm!(
    ".globl isatrap_test_run",
    "isatrap_test_run:",
    "push rbx",
    "push rdi",
    "push rsi",
    ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
    "vmovdqu64 zmm\\n, [rdi + 64 * \\n]",
    ".endr",
    "mov rax, [rdi + 2048]",
    "mov rcx, [rdi + 2056]",
    "mov rdx, [rdi + 2064]",
    "mov rbx, [rdi + 2072]",
    "call qword ptr [rsp]",
    "mov rdi, [rsp + 8]",
    ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
    "vmovdqu64 [rdi + 64 * \\n], zmm\\n",
    ".endr",
    "mov [rdi + 2048], rax",
    "mov [rdi + 2056], rcx",
    "mov [rdi + 2064], rdx",
    "mov [rdi + 2072], rbx",
    "vzeroupper",
    "pop rsi",
    "pop rdi",
    "pop rbx",
    "ret",
);

/// Instructions as text: a table of their text, of the code alone, and of the code behind a UD2.
macro_rules! instructions {
    ($($name:ident $emulated:ident: $text:literal;)*) => {
        global_asm!($(
            concat!(stringify!($name), ": ", $text),
            "ret",
            concat!(stringify!($emulated), ": ud2"),
            $text,
            "ret",
        )*);
        unsafe extern "C" { $(static $name: u8; static $emulated: u8;)* }

        fn cases() -> Vec<(&'static str, *const u8, *const u8)> {
            vec![$(($text, &raw const $name, &raw const $emulated)),*]
        }
    };
}

instructions! {
    it_n1 it_e1: "vaesenc ymm1, ymm2, ymm3";
    it_n2 it_e2: "vaesenc ymm9, ymm10, [rax]";
    it_n3 it_e3: "vaesenc zmm1, zmm2, zmm3";
    it_n4 it_e4: "vaesenc zmm17, zmm18, [rax + 64]";
    it_n5 it_e5: "vaesenc xmm20, xmm21, xmm22";
    it_n6 it_e6: "vaesenclast ymm4, ymm4, ymm4";
    it_n7 it_e7: "vaesenclast zmm31, zmm16, zmm15";
    it_n8 it_e8: "vaesenclast ymm3, ymm12, [rax + rcx * 4 + 5]";
    it_n9 it_e9: "vaesenclast ymm19, ymm12, [rax + rcx * 8 - 32]";
    it_n10 it_e10: "vaesdec ymm1, ymm2, ymm3";
    it_n11 it_e11: "vaesdec zmm8, zmm27, zmm13";
    it_n12 it_e12: "vaesdec zmm8, zmm7, [rbx + 0x100]";
    it_n13 it_e13: "vaesdeclast ymm14, ymm15, ymm0";
    it_n14 it_e14: "vaesdeclast zmm30, zmm1, [rcx * 2 + rax]";
    it_n15 it_e15: "vpclmulqdq ymm1, ymm2, ymm3, 0x00";
    it_n16 it_e16: "vpclmulqdq ymm11, ymm2, [rax + 1], 0x01";
    it_n17 it_e17: "vpclmulqdq zmm1, zmm2, zmm3, 0x10";
    it_n18 it_e18: "vpclmulqdq zmm29, zmm28, [rax + rdx], 0x11";
    it_n19 it_e19: "vpclmulqdq zmm5, zmm28, [rip + it_n1], 0xff";
    it_n20 it_e20: "vpclmulqdq xmm24, xmm2, xmm25, 0x11";
    it_n21 it_e21: "sha1rnds4 xmm1, xmm2, 0";
    it_n22 it_e22: "sha1rnds4 xmm9, xmm12, 1";
    it_n23 it_e23: "sha1rnds4 xmm1, [rax + 16], 2";
    it_n24 it_e24: "sha1rnds4 xmm1, xmm1, 3";
    it_n25 it_e25: "sha1nexte xmm3, xmm4";
    it_n26 it_e26: "sha1nexte xmm13, [rax + rcx * 2 + 0x40]";
    it_n27 it_e27: "sha1msg1 xmm5, xmm6";
    it_n28 it_e28: "sha1msg1 xmm15, [rip + it_n30]";
    it_n29 it_e29: "sha1msg2 xmm7, xmm8";
    it_n30 it_e30: "sha1msg2 xmm0, [rbx]";
    it_n31 it_e31: "sha256rnds2 xmm1, xmm2";
    it_n32 it_e32: "sha256rnds2 xmm0, xmm0";
    it_n33 it_e33: "sha256rnds2 xmm10, [rax + 32]";
    it_n34 it_e34: "sha256msg1 xmm1, xmm2";
    it_n35 it_e35: "sha256msg1 xmm11, [rax + 48]";
    it_n36 it_e36: "sha256msg2 xmm1, xmm2";
    it_n37 it_e37: "sha256msg2 xmm8, [rax + rcx * 4]";
}

/// Registers in a structure, for one instruction at `at`.
struct Plain {
    state: State,
    at: u64,
}

impl Registers for Plain {
    fn lane(&self, register: u8, lane: u8) -> Lane {
        self.state.vectors[usize::from(register)][usize::from(lane)]
    }

    fn set_lane(&mut self, register: u8, lane: u8, value: Lane) {
        self.state.vectors[usize::from(register)][usize::from(lane)] = value;
    }

    fn general(&self, register: u8) -> u64 {
        self.state.general[usize::from(register)]
    }

    fn base(&self, _: Segment) -> u64 {
        0
    }

    fn instruction_pointer(&self) -> u64 {
        self.at
    }

    fn load(&self, address: u64) -> Lane {
        let at = address as *const Lane;
        // SAFETY: the table's addresses lie in MEMORY or in the code of the table itself.
        unsafe { at.read_unaligned() }
    }
}

/// Numbers that look random and depend on the seed alone (SplitMix64).
fn random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*seed ^ *seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

fn any_state(seed: &mut u64) -> State {
    let mut lane = || (u128::from(random(seed)) << 64 | u128::from(random(seed))).to_le_bytes();
    let vectors = std::array::from_fn(|_| std::array::from_fn(|_| lane()));
    let base = (&raw const MEMORY.0).cast::<u8>() as u64;
    State { vectors, general: [base, random(seed) % 16 + 16, random(seed) % 64, base + 64] }
}

fn run(mut state: State, code: *const u8) -> State {
    // SAFETY: the code is one instruction of the table and a return; it writes a vector register,
    // all of which `isatrap_test_run` may use by the calling convention.
    unsafe { isatrap_test_run(&raw mut state, code) };
    state
}

fn difference(state: &State, other: &State) -> Option<String> {
    (0..32).find(|&register| state.vectors[register] != other.vectors[register]).map(|register| {
        let (left, right) = (state.vectors[register], other.vectors[register]);
        format!("register {register}: {left:02x?} and {right:02x?}")
    })
}

fn executed(state: State, code: *const u8) -> State {
    // SAFETY: the tables end in other code, so 15 bytes are there.
    let bytes = unsafe { code.cast::<[u8; 15]>().read() };
    let instruction = decode(&bytes).expect("one of ours");
    let mut registers = Plain { state, at: code as u64 };
    execute(&instruction, &mut registers);
    registers.state
}

#[test]
fn handler_and_definitions_agree_on_every_encoding() {
    if !is_x86_feature_detected!("avx512vl") {
        println!("SKIPPED: encodings against the handler: this processor has no AVX-512");
        return;
    }
    obey_ud2();
    let mut seed = 1;
    for (text, _, trapped) in cases() {
        for _ in 0..50 {
            let state = any_state(&mut seed);
            let expected = executed(state.clone(), trapped.wrapping_add(2));
            let before = emulated();
            let found = run(state, trapped);
            assert!(emulated() > before, "{text} was not emulated");
            assert_eq!(difference(&found, &expected), None, "{text}");
            assert!(found.general == expected.general, "{text}: a general register changed");
        }
    }
}

#[test]
fn processor_and_definitions_agree_on_every_encoding() {
    let has = is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("vaes")
        && is_x86_feature_detected!("vpclmulqdq")
        && is_x86_feature_detected!("sha");
    if !has {
        println!(
            "SKIPPED: encodings against the processor: it lacks some of VAES, VPCLMULQDQ, SHA"
        );
        return;
    }
    let mut seed = 2;
    for (text, code, _) in cases() {
        for _ in 0..200 {
            let state = any_state(&mut seed);
            let (expected, found) = (run(state.clone(), code), executed(state, code));
            assert_eq!(difference(&found, &expected), None, "{text}");
        }
    }
}
