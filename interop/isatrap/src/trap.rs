//! The signal handlers, and the registers in the frame that a signal finds.

use std::{
    arch::x86_64::{__cpuid_count, CpuidResult},
    env,
    ffi::{c_int, c_void},
    mem,
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
};

use libc::{siginfo_t, ucontext_t};

use crate::{
    compute::Lane,
    decode::{Segment, decode},
    execute::{Registers, execute},
};

static TRAPS: AtomicU64 = AtomicU64::new(0);
static INSTRUCTIONS: AtomicU64 = AtomicU64::new(0);
static CPUIDS: AtomicU64 = AtomicU64::new(0);
/// Index into `LEVELS`.
static LEVEL: AtomicUsize = AtomicUsize::new(0);
/// Whether `UD2` before an instruction asks for that instruction to be emulated: for tests on
/// processors that have it.
static OBEYS_UD2: AtomicBool = AtomicBool::new(false);
/// Where the parts of the extended state lie, by their number (SDM volume 1, section 13.5); 0 where
/// there is none.
static OFFSETS: [AtomicUsize; 8] = [const { AtomicUsize::new(0) }; 8];

/// A level: bits of CPUID that are set and cleared in leaf 7's EBX and ECX, and in leaf 1's ECX.
struct Level {
    name: &'static str,
    set: [u32; 2],
    clear: [u32; 3],
    needs_avx512: bool,
}

const AVX2: u32 = 1 << 5 | 1 << 3 | 1 << 8;
const SHA: u32 = 1 << 29;
const AVX512: u32 = 1 << 16 | 1 << 17 | 1 << 21 | 1 << 28 | 1 << 30 | 1 << 31;
/// VAES and VPCLMULQDQ, in ECX.
const VAES: u32 = 1 << 9 | 1 << 10;
const MORE_AVX512: u32 = 1 << 1 | 1 << 6 | 1 << 11 | 1 << 12 | 1 << 14;
/// FMA and F16C, in leaf 1.
const FMA: u32 = 1 << 12 | 1 << 29;

const LEVELS: [Level; 6] = [
    level("avx", [0, 0], [AVX2 | AVX512 | SHA, MORE_AVX512 | VAES, FMA]),
    level("avx2", [0, 0], [AVX512 | SHA, MORE_AVX512 | VAES, 0]),
    level("avx2-sha", [SHA, 0], [AVX512, MORE_AVX512 | VAES, 0]),
    level("avx2-vaes", [SHA, VAES], [AVX512, MORE_AVX512, 0]),
    Level { needs_avx512: true, ..level("avx512", [0, 0], [SHA, VAES, 0]) },
    Level { needs_avx512: true, ..level("avx512-vaes", [SHA, VAES], [0, 0, 0]) },
];

const fn level(name: &'static str, set: [u32; 2], clear: [u32; 3]) -> Level {
    Level { name, set, clear, needs_avx512: false }
}

/// The registers of a signal frame, changed in place.
pub(crate) struct Frame {
    context: *mut ucontext_t,
}

/// Parts of the extended state.
const SSE: usize = 1;
const AVX_HIGH: usize = 2;
const ZMM_HIGH: usize = 6;
const ZMM_MORE: usize = 7;

impl Frame {
    /// # Safety
    ///
    /// `context` is what the kernel handed to a signal handler that is still running.
    unsafe fn new(context: *mut c_void) -> Self {
        Self { context: context.cast() }
    }

    fn general_registers(&self) -> &[i64; 23] {
        // SAFETY: the context is valid by the contract of `new`.
        unsafe { &(*self.context).uc_mcontext.gregs }
    }

    fn set_general(&mut self, which: c_int, value: i64) {
        // SAFETY: as above, and the frame is the handler's alone.
        let registers = unsafe { &mut (*self.context).uc_mcontext.gregs };
        registers[which as usize] = value;
    }

    fn state(&self) -> *mut u8 {
        // SAFETY: as above.
        let legacy = unsafe { (*self.context).uc_mcontext.fpregs };
        legacy.cast()
    }

    /// The part that a lane is kept in, and where in the state; `None` if there is no such lane.
    fn place(register: u8, lane: u8) -> Option<(usize, usize)> {
        let (at, lane) = (usize::from(register), usize::from(lane));
        let (part, offset) = match (at, lane) {
            (16.., _) => (ZMM_MORE, (at - 16) * 64 + lane * 16),
            (_, 0) => return Some((SSE, 160 + at * 16)),
            (_, 1) => (AVX_HIGH, at * 16),
            _ => (ZMM_HIGH, at * 32 + (lane - 2) * 16),
        };
        let start = OFFSETS[part].load(Relaxed);
        (start != 0).then_some((part, start + offset))
    }

    /// The word whose bits tell which parts are there; the others count as zeros.
    fn present(&self) -> *mut u64 {
        self.state().wrapping_add(512).cast()
    }

    fn is_present(&self, part: usize) -> bool {
        // SAFETY: the kernel saves the extended state behind the 512 bytes of the legacy one.
        let bits = unsafe { self.present().read_unaligned() };
        bits >> part & 1 == 1
    }

    fn make_present(&mut self, part: usize) {
        if self.is_present(part) {
            return;
        }
        let (start, bytes) = match part {
            SSE => (160, 256),
            AVX_HIGH => (OFFSETS[AVX_HIGH].load(Relaxed), 256),
            ZMM_HIGH => (OFFSETS[ZMM_HIGH].load(Relaxed), 512),
            _ => (OFFSETS[ZMM_MORE].load(Relaxed), 1024),
        };
        let area = self.state().wrapping_add(start);
        // SAFETY: the part lies in the saved state, where CPUID said it does.
        unsafe { area.write_bytes(0, bytes) };
        let present = self.present();
        // SAFETY: as for `is_present`.
        let bits = unsafe { present.read_unaligned() };
        // SAFETY: as for `is_present`.
        unsafe { present.write_unaligned(bits | 1 << part) };
    }

    fn advance(&mut self, bytes: u8) {
        let next = self.general_registers()[libc::REG_RIP as usize] + i64::from(bytes);
        self.set_general(libc::REG_RIP, next);
    }

    /// The bytes at the instruction pointer: those of its page and of the next if it is readable.
    fn code(&self) -> Vec15 {
        let at = self.instruction_pointer();
        let in_page = (4096 - at % 4096).min(15) as usize;
        let start = at as *const u8;
        let mut bytes = [0; 15];
        // SAFETY: the processor has just fetched from this page, or is about to.
        unsafe { start.copy_to_nonoverlapping(bytes.as_mut_ptr(), in_page) };
        if in_page == 15 || decode(&bytes[..in_page]).is_some() || !looks_emulated(bytes[0]) {
            return Vec15 { bytes, length: in_page };
        }
        let (rest, target) = (start.wrapping_add(in_page), bytes[in_page..].as_mut_ptr());
        // SAFETY: what begins like an instruction of ours and does not end in its page goes on in the
        // next one, which the processor fetches too.
        unsafe { rest.copy_to_nonoverlapping(target, 15 - in_page) };
        Vec15 { bytes, length: 15 }
    }
}

/// Up to 15 bytes of code.
struct Vec15 {
    bytes: [u8; 15],
    length: usize,
}

impl Vec15 {
    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Whether an emulated instruction can begin with this byte.
fn looks_emulated(first: u8) -> bool {
    matches!(first, 0x0f | 0x40..=0x4f | 0x62 | 0xc4 | 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65)
}

const GENERAL: [c_int; 16] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

impl Registers for Frame {
    fn lane(&self, register: u8, lane: u8) -> Lane {
        match Self::place(register, lane) {
            Some((part, offset)) if self.is_present(part) => {
                let at: *const Lane = self.state().wrapping_add(offset).cast();
                // SAFETY: the lane lies in the saved state.
                unsafe { at.read_unaligned() }
            }
            _ => [0; 16],
        }
    }

    fn set_lane(&mut self, register: u8, lane: u8, value: Lane) {
        let Some((part, offset)) = Self::place(register, lane) else { return };
        self.make_present(part);
        let at: *mut Lane = self.state().wrapping_add(offset).cast();
        // SAFETY: the lane lies in the saved state.
        unsafe { at.write_unaligned(value) };
    }

    fn general(&self, register: u8) -> u64 {
        self.general_registers()[GENERAL[usize::from(register)] as usize].cast_unsigned()
    }

    fn base(&self, segment: Segment) -> u64 {
        let which = match segment {
            Segment::Flat => return 0,
            Segment::Fs => ARCH_GET_FS,
            Segment::Gs => ARCH_GET_GS,
        };
        let mut base = 0_u64;
        // SAFETY: the kernel writes the base to the address given.
        unsafe { libc::syscall(libc::SYS_arch_prctl, which, &raw mut base) };
        base
    }

    fn instruction_pointer(&self) -> u64 {
        self.general_registers()[libc::REG_RIP as usize].cast_unsigned()
    }

    fn load(&self, address: u64) -> Lane {
        let at = address as *const Lane;
        // SAFETY: the program asks for it, and is answered with a fault if it must not.
        unsafe { at.read_unaligned() }
    }
}

const ARCH_GET_FS: c_int = 0x1003;
const ARCH_GET_GS: c_int = 0x1004;
const ARCH_SET_CPUID: c_int = 0x1012;

/// Makes CPUID fault, or not, on this thread and those that it makes. Yields whether that can be.
fn fault_cpuid(on: bool) -> bool {
    // SAFETY: the call takes two numbers.
    let result = unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_SET_CPUID, c_int::from(!on)) };
    result == 0
}

/// Gives up: the instruction runs again, and what then happens is what would have.
fn stand_back(signal: c_int) {
    // SAFETY: the default action may be set in a handler.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

extern "C" fn on_illegal(signal: c_int, _: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel hands its context to this handler.
    let mut frame = unsafe { Frame::new(context) };
    let asked = OBEYS_UD2.load(Relaxed) && frame.code().bytes().starts_with(&[0x0f, 0x0b]);
    if asked {
        frame.advance(2);
    }
    let mut done = 0;
    // Those that follow would trap as well.
    while let Some(instruction) = decode(frame.code().bytes()) {
        execute(&instruction, &mut frame);
        frame.advance(instruction.length);
        done += 1;
        if asked {
            break;
        }
    }
    if done == 0 {
        return stand_back(signal);
    }
    TRAPS.fetch_add(1, Relaxed);
    INSTRUCTIONS.fetch_add(done, Relaxed);
}

extern "C" fn on_fault(signal: c_int, _: *mut siginfo_t, context: *mut c_void) {
    const GENERAL_PROTECTION: i64 = 13;
    // SAFETY: the kernel hands its context to this handler.
    let mut frame = unsafe { Frame::new(context) };
    let registers = *frame.general_registers();
    let is_cpuid = registers[libc::REG_TRAPNO as usize] == GENERAL_PROTECTION
        && frame.code().bytes().starts_with(&[0x0f, 0xa2]);
    if !is_cpuid {
        return stand_back(signal);
    }
    let [leaf, subleaf] =
        [libc::REG_RAX, libc::REG_RCX].map(|which| registers[which as usize] as u32);
    fault_cpuid(false);
    let found = __cpuid_count(leaf, subleaf);
    fault_cpuid(true);
    let answer = answer(&LEVELS[LEVEL.load(Relaxed)], leaf, subleaf, found);
    frame.set_general(libc::REG_RAX, answer.eax.into());
    frame.set_general(libc::REG_RBX, answer.ebx.into());
    frame.set_general(libc::REG_RCX, answer.ecx.into());
    frame.set_general(libc::REG_RDX, answer.edx.into());
    frame.advance(2);
    CPUIDS.fetch_add(1, Relaxed);
}

/// What a processor of the level would say.
fn answer(level: &Level, leaf: u32, subleaf: u32, mut found: CpuidResult) -> CpuidResult {
    if (leaf, subleaf) == (7, 0) {
        found.ebx = found.ebx & !level.clear[0] | level.set[0];
        found.ecx = found.ecx & !level.clear[1] | level.set[1];
    } else if leaf == 1 {
        found.ecx &= !level.clear[2];
    }
    found
}

/// Installs the handlers. Yields whether CPUID is trapped.
fn install(index: usize) -> bool {
    for part in [AVX_HIGH, ZMM_HIGH, ZMM_MORE] {
        let found = __cpuid_count(0xd, part as u32);
        let start = if found.eax == 0 { 0 } else { found.ebx as usize };
        OFFSETS[part].store(start, Relaxed);
    }
    LEVEL.store(index, Relaxed);
    let handlers: [(c_int, Handler); 2] = [(libc::SIGILL, on_illegal), (libc::SIGSEGV, on_fault)];
    for (signal, handler) in handlers {
        // SAFETY: all zeros are a valid value of this structure of integers.
        let mut action: libc::sigaction = unsafe { mem::zeroed() };
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_ONSTACK;
        action.sa_sigaction = handler as usize;
        // SAFETY: the handlers have the signature that SA_SIGINFO asks for, and call nothing that a
        // handler must not.
        unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    }
    fault_cpuid(true)
}

type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

extern "C" fn report() {
    let counts = [&INSTRUCTIONS, &TRAPS, &CPUIDS].map(|count| count.load(Relaxed));
    let [instructions, traps, cpuids] = counts;
    eprintln!("isatrap: {instructions} instructions emulated in {traps} traps, {cpuids} CPUIDs");
}

/// What the dynamic loader calls before the program begins.
extern "C" fn start() {
    let Ok(wanted) = env::var("ISATRAP") else { return };
    if wanted == "none" {
        return;
    }
    let Some(index) = LEVELS.iter().position(|level| level.name == wanted) else {
        eprintln!("isatrap: SKIPPED: there is no level {wanted:?}");
        return;
    };
    let base = is_x86_feature_detected!("avx2");
    let avx512 = is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512vl");
    if !base || (LEVELS[index].needs_avx512 && !avx512) {
        eprintln!("isatrap: SKIPPED: this processor lacks what level {wanted} builds on");
        return;
    }
    if !install(index) {
        eprintln!(
            "isatrap: SKIPPED: no CPUID faulting here, so programs do not see level {wanted}; \
             instructions that they use all the same are emulated"
        );
    }
    if env::var_os("ISATRAP_STATS").is_some() {
        // SAFETY: the function takes nothing and may run at any exit.
        unsafe { libc::atexit(report) };
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// Has `UD2` emulate what follows it, on any processor.
    pub(crate) fn obey_ud2() {
        install(LEVELS.len() - 1);
        fault_cpuid(false);
        OBEYS_UD2.store(true, Relaxed);
    }

    /// How many instructions were emulated.
    pub(crate) fn emulated() -> u64 {
        INSTRUCTIONS.load(Relaxed)
    }

    #[test]
    fn levels_change_what_cpuid_says() {
        let all = CpuidResult { eax: 1, ebx: !0, ecx: !0, edx: 2 };
        let none = CpuidResult { eax: 1, ebx: 0, ecx: 0, edx: 2 };
        let named = |name| LEVELS.iter().find(|level| level.name == name).unwrap();
        let avx2 = answer(named("avx2"), 7, 0, all);
        assert_eq!((avx2.ebx & (AVX512 | SHA), avx2.ecx & VAES, avx2.ebx & AVX2), (0, 0, AVX2));
        let most = answer(named("avx512-vaes"), 7, 0, none);
        assert_eq!((most.ebx, most.ecx, most.eax, most.edx), (SHA, VAES, 1, 2));
        assert_eq!(answer(named("avx2"), 7, 1, all), all);
        assert_eq!(answer(named("avx"), 1, 0, all).ecx, !FMA);
    }
}
