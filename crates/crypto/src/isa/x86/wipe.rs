//! Wiping vector registers at the end of a burst.

use std::arch::asm;

use super::token::{AesNi, Avx, Avx512};

/// Wipes the general registers that a function need not keep, in which kernels put halves of blocks, of round keys too.
#[inline]
pub(crate) fn general() {
    // SAFETY: only the registers declared as overwritten are written.
    unsafe {
        asm!(
            "xor eax, eax",
            "xor ecx, ecx",
            "xor edx, edx",
            "xor esi, esi",
            "xor edi, edi",
            "xor r8d, r8d",
            "xor r9d, r9d",
            "xor r10d, r10d",
            "xor r11d, r11d",
            out("rax") _, out("rcx") _, out("rdx") _, out("rsi") _, out("rdi") _,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
            options(nomem, nostack),
        );
    }
}

/// Wipes the sixteen 128-bit registers.
#[inline]
pub(super) fn xmm(_: AesNi) {
    // SAFETY: only the registers declared as overwritten are written.
    unsafe {
        asm!(
            "pxor xmm0, xmm0",
            "pxor xmm1, xmm1",
            "pxor xmm2, xmm2",
            "pxor xmm3, xmm3",
            "pxor xmm4, xmm4",
            "pxor xmm5, xmm5",
            "pxor xmm6, xmm6",
            "pxor xmm7, xmm7",
            "pxor xmm8, xmm8",
            "pxor xmm9, xmm9",
            "pxor xmm10, xmm10",
            "pxor xmm11, xmm11",
            "pxor xmm12, xmm12",
            "pxor xmm13, xmm13",
            "pxor xmm14, xmm14",
            "pxor xmm15, xmm15",
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
            out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
            out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
            out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
            options(nomem, nostack, preserves_flags),
        );
    }
}

/// Wipes the sixteen 256-bit registers. It also spares the code that follows a switch between
/// encodings.
#[inline]
pub(super) fn ymm(_: Avx) {
    // SAFETY: only the registers declared as overwritten are written; the token proves AVX.
    unsafe {
        asm!(
            "vzeroall",
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
            out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
            out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
            out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
            options(nomem, nostack, preserves_flags),
        );
    }
}

/// Wipes all 32 512-bit registers. `vzeroall` also spares the code that follows a switch between
/// encodings.
#[inline]
pub(super) fn zmm(_: Avx512) {
    // SAFETY: only the registers declared as overwritten are written; the token proves AVX-512 F
    // and VL.
    unsafe {
        asm!(
            "vzeroall",
            "vpxord xmm16, xmm16, xmm16",
            "vpxord xmm17, xmm17, xmm17",
            "vpxord xmm18, xmm18, xmm18",
            "vpxord xmm19, xmm19, xmm19",
            "vpxord xmm20, xmm20, xmm20",
            "vpxord xmm21, xmm21, xmm21",
            "vpxord xmm22, xmm22, xmm22",
            "vpxord xmm23, xmm23, xmm23",
            "vpxord xmm24, xmm24, xmm24",
            "vpxord xmm25, xmm25, xmm25",
            "vpxord xmm26, xmm26, xmm26",
            "vpxord xmm27, xmm27, xmm27",
            "vpxord xmm28, xmm28, xmm28",
            "vpxord xmm29, xmm29, xmm29",
            "vpxord xmm30, xmm30, xmm30",
            "vpxord xmm31, xmm31, xmm31",
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
            out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
            out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
            out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
            out("xmm16") _, out("xmm17") _, out("xmm18") _, out("xmm19") _,
            out("xmm20") _, out("xmm21") _, out("xmm22") _, out("xmm23") _,
            out("xmm24") _, out("xmm25") _, out("xmm26") _, out("xmm27") _,
            out("xmm28") _, out("xmm29") _, out("xmm30") _, out("xmm31") _,
            options(nomem, nostack, preserves_flags),
        );
    }
}
