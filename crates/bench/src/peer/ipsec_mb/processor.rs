//! Managers that a processor can start.
//!
//! The library's own `init_mb_mgr_*` are no judge: on a processor that lacks what they need, versions up to
//! 2.0.2 leave the manager's functions unset and run their self-test through them.

use super::layout::Generation;
use super::library::Arch;

/// Features that the processor reports, and registers that the system saves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Processor {
    /// ECX of leaf 1.
    leaf_1_ecx: u32,
    /// EDX of leaf 1.
    leaf_1_edx: u32,
    /// EBX of leaf 7; 0 where there is no such leaf.
    leaf_7_ebx: u32,
    /// ECX of leaf 7.
    leaf_7_ecx: u32,
    /// The register `XCR0`: whose registers survive a change of threads. 0 where the system does not use it.
    saved: u64,
}

/// Register bits that show a feature.
#[derive(Clone, Copy)]
enum Place {
    /// A bit of ECX of leaf 1.
    OneC(u32),
    /// A bit of EDX of leaf 1.
    OneD(u32),
    /// A bit of EBX of leaf 7.
    SevenB(u32),
    /// A bit of ECX of leaf 7.
    SevenC(u32),
    /// All these bits of `XCR0`.
    Saved(u64),
}

/// A name for people, and where it shows.
type Feature = (&'static str, Place);

/// `IMB_CPUFLAGS_SSE`.
const SSE: &[Feature] = &[
    ("CMOV", Place::OneD(15)),
    ("SSE4.2", Place::OneC(20)),
    ("AES-NI", Place::OneC(25)),
    ("PCLMULQDQ", Place::OneC(1)),
];
/// Features that `IMB_CPUFLAGS_AVX` adds to it, and one that it does not ask for: the system saves the registers.
const AVX: &[Feature] = &[
    ("OSXSAVE", Place::OneC(27)),
    ("AVX", Place::OneC(28)),
    ("a system that saves registers of 256 bits", Place::Saved(0b110)),
];
/// Features that `IMB_CPUFLAGS_AVX2` of version 1 adds to that.
const AVX2: &[Feature] = &[("AVX2", Place::SevenB(5)), ("BMI2", Place::SevenB(8))];
/// Features that version 2 adds to it.
const AVX2_V2: &[Feature] = &[("XSAVE", Place::OneC(26))];
/// `IMB_FEATURE_AVX512_SKX`.
const AVX512: &[Feature] = &[
    ("AVX512F", Place::SevenB(16)),
    ("AVX512DQ", Place::SevenB(17)),
    ("AVX512CD", Place::SevenB(28)),
    ("AVX512BW", Place::SevenB(30)),
    ("AVX512VL", Place::SevenB(31)),
    ("a system that saves registers of 512 bits", Place::Saved(0b1110_0110)),
];
/// Features that type 2 of the SSE managers adds.
const SHA_NI: &[Feature] = &[("SHA-NI", Place::SevenB(29))];
/// Features that type 2 of the AVX2 managers adds.
const TYPE_2: &[Feature] = &[
    ("SHA-NI", Place::SevenB(29)),
    ("VAES", Place::SevenC(9)),
    ("VPCLMULQDQ", Place::SevenC(10)),
    ("GFNI", Place::SevenC(8)),
];
/// Features that type 2 of the AVX-512 managers adds to that.
const IFMA: &[Feature] = &[("AVX512-IFMA", Place::SevenB(21))];

/// Features that a kind of manager needs, as the library's header of this generation says (`IMB_CPUFLAGS_*`).
const fn needs(arch: Arch, generation: Generation) -> [&'static [Feature]; 7] {
    let none: &[Feature] = &[];
    let avx2_more = match generation {
        Generation::V1 => none,
        Generation::V2 => AVX2_V2,
    };
    match arch {
        Arch::SseType1 => [SSE, none, none, none, none, none, none],
        Arch::SseShaNi => [SSE, SHA_NI, none, none, none, none, none],
        Arch::AvxType1 => [SSE, AVX, none, none, none, none, none],
        Arch::Avx2Type1 => [SSE, AVX, AVX2, avx2_more, none, none, none],
        Arch::Avx2Type2 => [SSE, AVX, AVX2, avx2_more, TYPE_2, none, none],
        Arch::Avx512Type1 => [SSE, AVX, AVX2, avx2_more, AVX512, none, none],
        Arch::Avx512Type2 => [SSE, AVX, AVX2, avx2_more, AVX512, TYPE_2, IFMA],
    }
}

impl Processor {
    /// The one that this runs on. `CONVOY_DENY_CPU` hides nothing from a peer, so it is not asked.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn here() -> Self {
        use std::arch::x86_64::{__cpuid, __cpuid_count};
        let highest = __cpuid(0).eax;
        let one = __cpuid(1);
        let mut this = Self { leaf_1_ecx: one.ecx, leaf_1_edx: one.edx, ..Self::default() };
        if highest >= 7 {
            let seven = __cpuid_count(7, 0);
            (this.leaf_7_ebx, this.leaf_7_ecx) = (seven.ebx, seven.ecx);
        }
        if this.has(Place::OneC(27)) {
            // SAFETY: OSXSAVE says that the system lets programs read XCR0.
            this.saved = unsafe { saved() };
        }
        this
    }

    /// The library is for x86-64 alone.
    #[cfg(not(target_arch = "x86_64"))]
    pub(super) fn here() -> Self {
        Self::default()
    }

    /// Requirement that is missing for a kind of manager; none if that can start.
    pub(super) fn lacks(&self, arch: Arch, generation: Generation) -> Option<&'static str> {
        if arch == Arch::AvxType1 && generation == Generation::V2 {
            return Some("version 1 of the library");
        }
        let needs = needs(arch, generation);
        let mut needs = needs.iter().copied().flatten();
        needs.find(|(_, place)| !self.has(*place)).map(|(name, _)| *name)
    }

    /// The best kind of manager that can start, among `most` and those before it; without SHA-NI and VAES, if `most` is.
    pub(super) fn best(&self, most: Arch, generation: Generation) -> Option<Arch> {
        let is_meant = |arch: &Arch| *arch <= most && (arch.is_type_1() || !most.is_type_1());
        let mut kinds = Arch::ALL.into_iter().filter(is_meant);
        kinds.rfind(|arch| self.lacks(*arch, generation).is_none())
    }

    const fn has(&self, place: Place) -> bool {
        match place {
            Place::OneC(bit) => self.leaf_1_ecx >> bit & 1 == 1,
            Place::OneD(bit) => self.leaf_1_edx >> bit & 1 == 1,
            Place::SevenB(bit) => self.leaf_7_ebx >> bit & 1 == 1,
            Place::SevenC(bit) => self.leaf_7_ecx >> bit & 1 == 1,
            Place::Saved(bits) => self.saved & bits == bits,
        }
    }
}

/// `XCR0`.
///
/// # Safety
/// The processor has XSAVE and the system uses it.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "xsave")]
unsafe fn saved() -> u64 {
    // SAFETY: the caller vouches for it; register 0 is always there.
    unsafe { std::arch::x86_64::_xgetbv(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Leaves as others have recorded them on the metal (the InstLatx64 collection of CPUID dumps), with what
    /// Linux saves there.
    const fn recorded(leaf_1: [u32; 2], leaf_7: [u32; 2], saved: u64) -> Processor {
        Processor {
            leaf_1_ecx: leaf_1[0],
            leaf_1_edx: leaf_1[1],
            leaf_7_ebx: leaf_7[0],
            leaf_7_ecx: leaf_7[1],
            saved,
        }
    }

    /// Xeon E5-2699 v3, 000306F2.
    const HASWELL: Processor =
        recorded([0x7FFE_FBFF, 0xBFEB_FBFF], [0x0000_37AB, 0x0000_0000], 0x7);
    /// Xeon of stepping 00050654.
    const SKYLAKE_SP: Processor =
        recorded([0x7FFE_FBFF, 0xBFEB_FBFF], [0xD39F_FFFB, 0x0000_0008], 0x2E7);
    /// EPYC of stepping 00A00F11, Milan.
    const ZEN_3: Processor =
        recorded([0x7EDA_320B, 0x178B_FBFF], [0x219C_97A9, 0x0040_068C], 0x207);
    /// EPYC of stepping 00A10F11, Genoa.
    const ZEN_4: Processor =
        recorded([0x7EFA_320B, 0x178B_FBFF], [0xF1BF_97A9, 0x0041_5FCE], 0x2E7);

    const BOTH: [Generation; 2] = [Generation::V1, Generation::V2];

    fn starting(processor: Processor, generation: Generation) -> Vec<&'static str> {
        let starts = |arch: &Arch| processor.lacks(*arch, generation).is_none();
        Arch::ALL.into_iter().filter(starts).map(Arch::name).collect()
    }

    #[test]
    fn processors_start_the_managers_whose_instructions_they_have() {
        for (generation, avx) in [(Generation::V1, "avx "), (Generation::V2, "")] {
            let names = |processor| starting(processor, generation).join(" ");
            assert_eq!(names(HASWELL), format!("sse {avx}avx2-t1"));
            assert_eq!(names(SKYLAKE_SP), format!("sse {avx}avx2-t1 avx512-t1"));
            assert_eq!(names(ZEN_3), format!("sse sse-sha {avx}avx2-t1"));
            let all = format!("sse sse-sha {avx}avx2-t1 avx2-t2 avx512-t1 avx512-t2");
            assert_eq!(names(ZEN_4), all);
        }
    }

    #[test]
    fn what_is_lacking_is_named() {
        for generation in BOTH {
            assert_eq!(ZEN_3.lacks(Arch::Avx2Type2, generation), Some("GFNI"));
            assert_eq!(ZEN_3.lacks(Arch::Avx512Type1, generation), Some("AVX512F"));
            assert_eq!(HASWELL.lacks(Arch::SseShaNi, generation), Some("SHA-NI"));
            assert_eq!(SKYLAKE_SP.lacks(Arch::Avx512Type2, generation), Some("SHA-NI"));
        }
    }

    #[test]
    fn version_2_has_no_manager_for_avx() {
        assert_eq!(ZEN_3.lacks(Arch::AvxType1, Generation::V1), None);
        let lacks = ZEN_3.lacks(Arch::AvxType1, Generation::V2);
        assert_eq!(lacks, Some("version 1 of the library"));
        for processor in [HASWELL, ZEN_3] {
            assert_eq!(processor.best(Arch::AvxType1, Generation::V2), Some(Arch::SseType1));
        }
    }

    #[test]
    fn best_is_the_last_one_that_starts() {
        for generation in BOTH {
            assert_eq!(HASWELL.best(Arch::Avx512Type2, generation), Some(Arch::Avx2Type1));
            assert_eq!(SKYLAKE_SP.best(Arch::Avx512Type2, generation), Some(Arch::Avx512Type1));
            assert_eq!(ZEN_3.best(Arch::Avx2Type2, generation), Some(Arch::Avx2Type1));
            assert_eq!(ZEN_4.best(Arch::Avx512Type2, generation), Some(Arch::Avx512Type2));
            assert_eq!(ZEN_4.best(Arch::Avx2Type1, generation), Some(Arch::Avx2Type1));
            assert_eq!(Processor::default().best(Arch::Avx512Type2, generation), None);
        }
    }

    #[test]
    fn registers_that_the_system_does_not_save_start_nothing() {
        for generation in BOTH {
            let no_512 = Processor { saved: 0x7, ..ZEN_4 };
            assert_eq!(no_512.best(Arch::Avx512Type2, generation), Some(Arch::Avx2Type2));
            let no_256 = Processor { saved: 0x3, ..ZEN_4 };
            assert_eq!(no_256.best(Arch::Avx512Type2, generation), Some(Arch::SseShaNi));
        }
    }

    #[test]
    fn version_2_asks_for_xsave_as_well() {
        let without = Processor { leaf_1_ecx: HASWELL.leaf_1_ecx & !(1 << 26), ..HASWELL };
        assert_eq!(starting(without, Generation::V1), ["sse", "avx", "avx2-t1"]);
        assert_eq!(starting(without, Generation::V2), ["sse"]);
    }

    /// The standard library is asked the same in its own way.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn this_processor_is_read_as_the_standard_library_reads_it() {
        let here = Processor::here();
        let rows = [
            ("aes", Place::OneC(25), is_x86_feature_detected!("aes")),
            ("sha", Place::SevenB(29), is_x86_feature_detected!("sha")),
            ("bmi2", Place::SevenB(8), is_x86_feature_detected!("bmi2")),
            ("pclmulqdq", Place::OneC(1), is_x86_feature_detected!("pclmulqdq")),
        ];
        for (name, place, detected) in rows {
            assert_eq!(here.has(place), detected, "{name}");
        }
        let avx2 = here.lacks(Arch::Avx2Type1, Generation::V2).is_none();
        assert_eq!(avx2, is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2"));
    }
}
