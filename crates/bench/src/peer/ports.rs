//! Greatest throughput of the processor's ports: loops of independent instructions, timed.
//!
//! Each loop holds ten chains or more, as many as any of the instructions needs to hide its latency, so
//! what is measured is throughput.

use convoy_crypto::time_stamp;

/// Vector width in bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Width {
    /// 128 bits.
    W128,
    /// 256 bits.
    W256,
    /// 512 bits.
    W512,
}

impl Width {
    /// Number of lanes of `bytes` bytes.
    #[must_use]
    pub const fn lanes(self, bytes: usize) -> usize {
        match self {
            Self::W128 => 16 / bytes,
            Self::W256 => 32 / bytes,
            Self::W512 => 64 / bytes,
        }
    }
}

/// A loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Loop {
    /// AESENC.
    Aes(Width),
    /// PCLMULQDQ.
    Clmul(Width),
    /// Ten AESENC to three PCLMULQDQ, as a block of GCM has them.
    AesAndClmul(Width),
    /// Additions, logic and rotations or shifts in the proportions of hashes and ChaCha20: with
    /// 512 bits three rotations, three ternary operations and four additions; else one shift left
    /// and one right, one OR, one exclusive OR and one addition.
    Alu(Width),
    /// SHA1RNDS4.
    Sha1,
    /// SHA256RNDS2.
    Sha256,
}

/// Turns of a loop: some ten thousand instructions.
const TURNS: u32 = 256;

/// One instruction on each of the registers of these numbers, in between the literals: once, or as
/// destination and first source.
macro_rules! on {
    ([$($n:literal)*] $a:literal, $end:literal) => { concat!($($a, $n, $end, "\n"),*) };
    ([$($n:literal)*] $a:literal, $b:literal, $end:literal) => {
        concat!($($a, $n, $b, $n, $end, "\n"),*)
    };
}

/// One instruction on each of twelve chains.
macro_rules! each {
    ($($part:literal),*) => {
        on!(["1" "2" "3" "4" "5" "6" "7" "8" "9" "10" "11" "12"] $($part),*)
    };
}

/// A function that runs `$body` [`TURNS`] times and returns the cycles it took.
macro_rules! timed {
    ($name:ident, $features:literal, $end:literal, $($body:expr),+ $(,)?) => {
        #[target_feature(enable = $features)]
        fn $name() -> u64 {
            let start = time_stamp();
            // SAFETY: it only computes in registers, all of which are declared as lost, and the
            // features of its instructions are enabled.
            unsafe {
                std::arch::asm!(
                    "2:",
                    $($body,)+
                    "dec ecx",
                    "jnz 2b",
                    $end,
                    inout("ecx") TURNS => _,
                    clobber_abi("C"),
                    options(nomem, nostack),
                );
            }
            time_stamp() - start
        }
    };
}

timed!(aes_128, "aes", "", each!("aesenc xmm", ", xmm15"), each!("aesenc xmm", ", xmm15"));
timed!(
    aes_256,
    "vaes,avx2",
    "vzeroupper",
    each!("vaesenc ymm", ", ymm", ", ymm15"),
    each!("vaesenc ymm", ", ymm", ", ymm15"),
);
timed!(
    aes_512,
    "vaes,avx512f",
    "vzeroupper",
    each!("vaesenc zmm", ", zmm", ", zmm15"),
    each!("vaesenc zmm", ", zmm", ", zmm15"),
);
timed!(
    clmul_128,
    "pclmulqdq",
    "",
    each!("pclmulqdq xmm", ", xmm15, 0x11"),
    each!("pclmulqdq xmm", ", xmm15, 0x11"),
);
timed!(
    clmul_256,
    "vpclmulqdq,avx2",
    "vzeroupper",
    each!("vpclmulqdq ymm", ", ymm", ", ymm15, 0x11"),
    each!("vpclmulqdq ymm", ", ymm", ", ymm15, 0x11"),
);
timed!(
    clmul_512,
    "vpclmulqdq,avx512f",
    "vzeroupper",
    each!("vpclmulqdq zmm", ", zmm", ", zmm15, 0x11"),
    each!("vpclmulqdq zmm", ", zmm", ", zmm15, 0x11"),
);

/// One block of GCM in every lane: ten AESENC on ten chains, three PCLMULQDQ on three.
macro_rules! block {
    ([$($aes:literal),*] [$($clmul:literal),*]) => {
        concat!(
            on!(["1" "2" "3" "4" "5"] $($aes),*),
            on!(["11" "12"] $($clmul),*),
            on!(["6" "7" "8" "9" "10"] $($aes),*),
            on!(["13"] $($clmul),*),
        )
    };
}

timed!(
    both_128,
    "aes,pclmulqdq",
    "",
    block!(["aesenc xmm", ", xmm15"] ["pclmulqdq xmm", ", xmm15, 0x11"]),
    block!(["aesenc xmm", ", xmm15"] ["pclmulqdq xmm", ", xmm15, 0x11"]),
);
timed!(
    both_256,
    "vaes,vpclmulqdq,avx2",
    "vzeroupper",
    block!(["vaesenc ymm", ", ymm", ", ymm15"] ["vpclmulqdq ymm", ", ymm", ", ymm15, 0x11"]),
    block!(["vaesenc ymm", ", ymm", ", ymm15"] ["vpclmulqdq ymm", ", ymm", ", ymm15, 0x11"]),
);
timed!(
    both_512,
    "vaes,vpclmulqdq,avx512f",
    "vzeroupper",
    block!(["vaesenc zmm", ", zmm", ", zmm15"] ["vpclmulqdq zmm", ", zmm", ", zmm15, 0x11"]),
    block!(["vaesenc zmm", ", zmm", ", zmm15"] ["vpclmulqdq zmm", ", zmm", ", zmm15, 0x11"]),
);
timed!(
    alu_128,
    "sse2",
    "",
    each!("pslld xmm", ", 7"),
    each!("por xmm", ", xmm15"),
    each!("paddd xmm", ", xmm15"),
    each!("psrld xmm", ", 9"),
    each!("pxor xmm", ", xmm14"),
);
timed!(
    alu_256,
    "avx2",
    "vzeroupper",
    each!("vpslld ymm", ", ymm", ", 7"),
    each!("vpor ymm", ", ymm", ", ymm15"),
    each!("vpaddd ymm", ", ymm", ", ymm15"),
    each!("vpsrld ymm", ", ymm", ", 9"),
    each!("vpxor ymm", ", ymm", ", ymm14"),
);
timed!(
    alu_512,
    "avx512f",
    "vzeroupper",
    each!("vprold zmm", ", zmm", ", 7"),
    each!("vpaddd zmm", ", zmm", ", zmm15"),
    each!("vpternlogd zmm", ", zmm14, zmm15, 0x96"),
    each!("vpaddd zmm", ", zmm", ", zmm15"),
    each!("vprold zmm", ", zmm", ", 7"),
    each!("vpternlogd zmm", ", zmm14, zmm15, 0x96"),
    each!("vpaddd zmm", ", zmm", ", zmm15"),
    each!("vprold zmm", ", zmm", ", 7"),
    each!("vpternlogd zmm", ", zmm14, zmm15, 0x96"),
    each!("vpaddd zmm", ", zmm", ", zmm15"),
);
timed!(
    sha1,
    "sha,sse2",
    "",
    each!("sha1rnds4 xmm", ", xmm15, 0"),
    each!("sha1rnds4 xmm", ", xmm15, 0"),
);
timed!(
    sha256,
    "sha,sse2",
    "",
    each!("sha256rnds2 xmm", ", xmm15, xmm0"),
    each!("sha256rnds2 xmm", ", xmm15, xmm0"),
);

impl Loop {
    /// Runs the loop once. Returns cycles of the time-stamp counter per instruction, for
    /// [`Loop::AesAndClmul`] per block; none if the processor lacks the instructions.
    #[must_use]
    pub fn measure(self) -> Option<f64> {
        use std::is_x86_feature_detected as has;
        let wide = has!("avx512f");
        let (there, run, per_turn): (bool, unsafe fn() -> u64, u32) = match self {
            Self::Aes(Width::W128) => (has!("aes"), aes_128, 24),
            Self::Aes(Width::W256) => (has!("vaes") && has!("avx2"), aes_256, 24),
            Self::Aes(Width::W512) => (has!("vaes") && wide, aes_512, 24),
            Self::Clmul(Width::W128) => (has!("pclmulqdq"), clmul_128, 24),
            Self::Clmul(Width::W256) => (has!("vpclmulqdq") && has!("avx2"), clmul_256, 24),
            Self::Clmul(Width::W512) => (has!("vpclmulqdq") && wide, clmul_512, 24),
            Self::AesAndClmul(Width::W128) => (has!("aes") && has!("pclmulqdq"), both_128, 2),
            Self::AesAndClmul(Width::W256) => {
                (has!("vaes") && has!("vpclmulqdq") && has!("avx2"), both_256, 2)
            }
            Self::AesAndClmul(Width::W512) => {
                (has!("vaes") && has!("vpclmulqdq") && wide, both_512, 2)
            }
            Self::Alu(Width::W128) => (true, alu_128, 60),
            Self::Alu(Width::W256) => (has!("avx2"), alu_256, 60),
            Self::Alu(Width::W512) => (wide, alu_512, 120),
            Self::Sha1 => (has!("sha"), sha1, 24),
            Self::Sha256 => (has!("sha"), sha256, 24),
        };
        if !there {
            return None;
        }
        // SAFETY: the features were found.
        let cycles = unsafe { run() };
        Some(cycles as f64 / f64::from(TURNS * per_turn))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_instruction_takes_no_time_or_ages() {
        let widths = [Width::W128, Width::W256, Width::W512];
        let mut loops: Vec<_> = widths.map(Loop::Aes).to_vec();
        loops.extend(widths.map(Loop::Clmul));
        loops.extend(widths.map(Loop::AesAndClmul));
        loops.extend(widths.map(Loop::Alu));
        loops.extend([Loop::Sha1, Loop::Sha256]);
        for each in loops {
            let best = (0..50).filter_map(|_| each.measure()).reduce(f64::min);
            match best {
                Some(cycles) => {
                    println!("{each:?}: {cycles:.3}");
                    assert!(cycles > 0.05 && cycles < 100.0, "{each:?}: {cycles}");
                }
                None => println!("SKIPPED {each:?}: this processor lacks it"),
            }
        }
    }
}
