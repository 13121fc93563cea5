//! Programs as extended BPF, for XDP (`Documentation/bpf/standardization/instruction-set.rst`).

use std::os::fd::{AsRawFd, BorrowedFd};

use crate::ebpf::{
    ADD, AND_32, CALL, EXIT, JUMP, JUMP_IF_ABOVE, JUMP_IF_AT_LEAST_32, JUMP_IF_EQUAL_32, LOAD_BYTE,
    LOAD_HALF, LOAD_MAP, LOAD_WORD, MOVE, PSEUDO_MAP, SET, TO_BIG_ENDIAN, op,
};
use crate::link::{Goto, Program, Step, Test, Width};
use crate::sys::Instruction;

/// Answer of a program, in `enum xdp_action`.
pub(super) const PASS: i32 = 2;

// Registers: 1 to 5 are arguments of calls and scratch, 6 to 9 keep their value.
const ANSWER: u8 = 0;
const CONTEXT: u8 = 1;
const VALUE: u8 = 2;
const DATA: u8 = 6;
const DATA_END: u8 = 7;
const SAVED_CONTEXT: u8 = 8;

/// `bpf_redirect_map`.
const REDIRECT_MAP: i32 = 51;
/// `struct xdp_md`: where the frame begins and ends, and the queue it came by.
const MD_DATA: i16 = 0;
const MD_DATA_END: i16 = 4;
const MD_QUEUE: i16 = 16;

/// The program that gives what is taken to the socket of its queue in `map` and passes all else to
/// the kernel. Frames of a queue without a socket are answered with `without`.
pub(super) fn to_extended(
    program: &Program,
    map: BorrowedFd<'_>,
    without: i32,
) -> Vec<Instruction> {
    // Places first, as jumps go forward.
    let len = |step: &Step| match step {
        Step::Go(_) => 1,
        Step::If { width, mask, .. } => {
            6 + usize::from(*width != Width::One) + usize::from(*mask != u32::MAX)
        }
    };
    const HEAD: usize = 3;
    let mut starts = Vec::with_capacity(program.steps.len() + 1);
    let mut take = HEAD;
    for step in &program.steps {
        starts.push(take);
        take += len(step);
    }
    // The kernel refuses instructions that are never reached.
    let takes = program.steps.iter().any(|step| match step {
        Step::Go(to) => *to == Goto::Take,
        Step::If { yes, no, .. } => [yes, no].contains(&&Goto::Take),
    });
    let leave = if takes { take + 6 } else { take };
    let start = |step: usize| starts.get(step).copied().unwrap_or(leave);
    let place = |goto: Goto, step: usize| match goto {
        Goto::Next => start(step + 1),
        Goto::Label(label) => start(program.labels.get(label).copied().unwrap_or(usize::MAX)),
        Goto::Take => take,
        Goto::Leave => leave,
    };
    let mut code = Vec::with_capacity(leave + 2);
    code.extend([
        op(MOVE, SAVED_CONTEXT, CONTEXT, 0, 0),
        op(LOAD_WORD, DATA, CONTEXT, MD_DATA, 0),
        op(LOAD_WORD, DATA_END, CONTEXT, MD_DATA_END, 0),
    ]);
    for (number, step) in program.steps.iter().enumerate() {
        let distance = |from: usize, to: usize| to.saturating_sub(from + 1) as i16;
        let jump = |from: usize, to: Goto| op(JUMP, 0, 0, distance(from, place(to, number)), 0);
        match *step {
            Step::Go(to) => code.push(jump(code.len(), to)),
            Step::If { at, width, mask, test, yes, no } => {
                // What the verifier wants to see: nothing is read beyond the frame's end.
                let end = at + width.bytes();
                code.push(op(MOVE, CONTEXT, DATA, 0, 0));
                code.push(op(ADD, CONTEXT, 0, 0, end as i32));
                code.push(op(JUMP_IF_ABOVE, CONTEXT, DATA_END, distance(code.len(), leave), 0));
                let load = match width {
                    Width::One => LOAD_BYTE,
                    Width::Two => LOAD_HALF,
                    Width::Four => LOAD_WORD,
                };
                code.push(op(load, VALUE, DATA, at as i16, 0));
                if width != Width::One {
                    code.push(op(TO_BIG_ENDIAN, VALUE, 0, 0, width.bytes() as i32 * 8));
                }
                if mask != u32::MAX {
                    code.push(op(AND_32, VALUE, 0, 0, mask as i32));
                }
                let (test, wanted) = match test {
                    Test::Equal(wanted) => (JUMP_IF_EQUAL_32, wanted),
                    Test::AtLeast(least) => (JUMP_IF_AT_LEAST_32, least),
                };
                let yes = distance(code.len(), place(yes, number));
                code.push(op(test, VALUE, 0, yes, wanted as i32));
                code.push(jump(code.len(), no));
            }
        }
    }
    if takes {
        code.extend([
            op(LOAD_MAP, CONTEXT, PSEUDO_MAP, 0, map.as_raw_fd()),
            op(0, 0, 0, 0, 0),
            op(LOAD_WORD, VALUE, SAVED_CONTEXT, MD_QUEUE, 0),
            op(SET, 3, 0, 0, without),
            op(CALL, 0, 0, 0, REDIRECT_MAP),
            op(EXIT, 0, 0, 0, 0),
        ]);
    }
    code.extend([op(SET, ANSWER, 0, 0, PASS), op(EXIT, 0, 0, 0, 0)]);
    code
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::os::fd::AsFd;

    use proptest::prelude::*;

    use super::*;
    use crate::link::{Sight, Take, What};
    use crate::sys;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
    /// Not what a program that leaves a frame answers.
    const DROP: i32 = 1;
    const SIGHTS: [Sight; 2] = [Sight::Copies, Sight::Alone];

    fn takes() -> Vec<Take> {
        let local: Vec<IpAddr> = vec![[10, 0, 0, 1].into(), [1; 16].into(), [2; 16].into()];
        let port = u16::from_be_bytes([7, 7]);
        [
            What::Forwarded { except: local.clone() },
            What::Protected { local: local.clone(), esp: true, ah: true, udp_port: Some(port) },
            What::Protected { local: local.clone(), esp: false, ah: true, udp_port: Some(port) },
            What::Protected { local, esp: false, ah: false, udp_port: None },
        ]
        .map(|what| Take { mac: MAC, what })
        .to_vec()
    }

    /// Loads the program for `take`; an error when the kernel refuses, with its words.
    fn load(take: &Take, sight: Sight) -> std::io::Result<std::os::fd::OwnedFd> {
        let map = sys::socket_map(1)?;
        sys::load_xdp(&to_extended(&take.program(sight).unwrap(), map.as_fd(), DROP))
    }

    fn may_load() -> bool {
        match sys::socket_map(1) {
            Err(error) => {
                println!("SKIPPED: no bpf here: {error}");
                false
            }
            Ok(_) => true,
        }
    }

    #[test]
    fn the_kernel_accepts_programs_of_every_size() {
        if !may_load() {
            return;
        }
        for n in [0, 1, 64_u8] {
            let v4: Vec<_> = (0..n).map(|n| IpAddr::from([10, 0, 0, n])).collect();
            let v6: Vec<_> = (0..n).map(|n| IpAddr::from([n; 16])).collect();
            let both = [&v4[..], &v6].concat();
            for (local, what) in
                [v4, v6, both].into_iter().flat_map(|local| (0..5).map(move |w| (local.clone(), w)))
            {
                let what = [
                    What::Forwarded { except: local.clone() },
                    What::Protected {
                        local: local.clone(),
                        esp: true,
                        ah: true,
                        udp_port: Some(4500),
                    },
                    What::Protected {
                        local: local.clone(),
                        esp: false,
                        ah: false,
                        udp_port: Some(4500),
                    },
                    What::Protected { local: local.clone(), esp: true, ah: false, udp_port: None },
                    What::Protected { local, esp: true, ah: true, udp_port: None },
                ][what]
                    .clone();
                for sight in SIGHTS {
                    load(&Take { mac: MAC, what: what.clone() }, sight).unwrap();
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn the_kernel_runs_the_program_as_its_steps_say(
            // The kernel tries no frame shorter than an Ethernet header.
            mut frame in proptest::collection::vec(any::<u8>(), 15..90),
            kind in 0..3_usize,
            dst in 0..3_u8,
            protocol in proptest::sample::select(vec![6_u8, 17, 44, 50, 51]),
            next in proptest::sample::select(vec![6_u8, 17, 50, 51]),
            field in proptest::sample::select(vec![0_u16, 1, 8, 0x2000, 0x2009, 0x4000]),
        ) {
            if !may_load() {
                return Ok(());
            }
            let mut put = |at: usize, bytes: &[u8]| {
                if frame.len() >= at + bytes.len() {
                    frame[at..at + bytes.len()].copy_from_slice(bytes);
                }
            };
            put(0, &MAC);
            put(12, [&[8, 0][..], &[0x86, 0xdd], &[8, 6]][kind]);
            if kind == 0 {
                put(14, &[0x45]);
                put(20, &field.to_be_bytes());
                put(23, &[protocol]);
                put(30, &[10, 0, 0, dst]);
                put(36, &[7, 7]);
            } else {
                put(20, &[protocol]);
                put(38, &[dst; 16]);
                put(56, &[7, 7]);
                if protocol == 44 {
                    put(54, &[next]);
                    put(56, &field.to_be_bytes());
                    put(64, &[7, 7]);
                }
            }
            for (take, sight) in takes().into_iter().flat_map(|take| SIGHTS.map(|s| (take.clone(), s))) {
                let program = load(&take, sight).unwrap();
                let answer = sys::try_out(program.as_fd(), &frame).unwrap();
                let expected = if take.program(sight).unwrap().takes(&frame) { DROP } else { PASS };
                prop_assert_eq!(answer, expected as u32, "{:?}", take);
            }
        }
    }
}
