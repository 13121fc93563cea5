//! Programs as classic BPF, for sockets (`socket(7)`, `SO_ATTACH_FILTER`).

use libc::sock_filter;

use super::program::{Goto, Program, Step, Test, Width};

/// Offsets from here on count from the network header (`linux/filter.h`).
const NET_OFF: u32 = -0x10_0000_i32 as u32;

fn op(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

/// Jumps over the next instruction unless the test holds.
fn unless_skip(code: u32, k: u32) -> sock_filter {
    sock_filter { jf: 1, ..op(libc::BPF_JMP | code | libc::BPF_K, k) }
}

/// A filter that keeps nothing.
pub(crate) fn leave_all() -> [sock_filter; 1] {
    [op(libc::BPF_RET | libc::BPF_K, 0)]
}

/// The program as a filter that keeps what is taken. A load beyond the end keeps nothing.
pub(crate) fn to_classic(program: &Program) -> Vec<sock_filter> {
    // Every step has its place first, so that jumps know where they lead. Conditional jumps reach
    // 255 instructions only, so each leads to a far jump.
    let len = |step: &Step| match step {
        Step::Go(_) => 1,
        Step::If { mask, .. } => 4 + usize::from(*mask != u32::MAX),
    };
    let starts: Vec<usize> = program
        .steps
        .iter()
        .scan(0, |at, step| {
            let start = *at;
            *at += len(step);
            Some(start)
        })
        .collect();
    let take = program.steps.iter().map(len).sum::<usize>();
    let start = |step: usize| starts.get(step).copied().unwrap_or(take + 1);
    let place = |goto: Goto, step: usize| match goto {
        Goto::Next => start(step + 1),
        Goto::Label(label) => start(program.labels.get(label).copied().unwrap_or(usize::MAX)),
        Goto::Take => take,
        Goto::Leave => take + 1,
    };
    let mut code = Vec::with_capacity(take + 2);
    for (number, step) in program.steps.iter().enumerate() {
        let jump = |from: usize, to: Goto| {
            let distance = place(to, number).saturating_sub(from + 1);
            op(libc::BPF_JMP | libc::BPF_JA, distance as u32)
        };
        match *step {
            Step::Go(to) => code.push(jump(code.len(), to)),
            Step::If { at, width, mask, test, yes, no } => {
                let size = match width {
                    Width::One => libc::BPF_B,
                    Width::Two => libc::BPF_H,
                    Width::Four => libc::BPF_W,
                };
                code.push(op(libc::BPF_LD | size | libc::BPF_ABS, at));
                if mask != u32::MAX {
                    code.push(op(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, mask));
                }
                code.push(match test {
                    Test::Equal(value) => unless_skip(libc::BPF_JEQ, value),
                    Test::AtLeast(value) => unless_skip(libc::BPF_JGE, value),
                });
                code.push(jump(code.len(), yes));
                code.push(jump(code.len(), no));
            }
        }
    }
    code.push(op(libc::BPF_RET | libc::BPF_K, u32::MAX));
    code.push(op(libc::BPF_RET | libc::BPF_K, 0));
    code
}

/// A selector of sockets that returns the SPI, so that each socket gets its share of the SPIs. Of
/// fragments it returns the identification, so that all parts of a packet come together. It sees
/// what [`super::Take`] keeps of the wire side.
pub(crate) fn spread_by_spi() -> Vec<sock_filter> {
    let load =
        |size: u32, at: u32| op(libc::BPF_LD | size | libc::BPF_ABS, NET_OFF.wrapping_add(at));
    let answer = op(libc::BPF_RET | libc::BPF_A, 0);
    let unless = |value: u32, over: u8| sock_filter {
        jf: over,
        ..op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value)
    };
    let (byte, half, word) = (libc::BPF_B, libc::BPF_H, libc::BPF_W);
    let answer_with = |number: sock_filter| [number, answer];
    let fragment_bits = op(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0x3fff);
    let unless_whole = sock_filter { jt: 2, jf: 0, ..unless(0, 0) };
    // IPv4 options would move the SPI. Packets with them still go to one socket per SA.
    let v4 = [
        &[load(half, 6), fragment_bits, unless_whole][..],
        &answer_with(load(half, 4)),
        &[load(byte, 9), unless(17, 2)],
        &answer_with(load(word, 28)),
        &[unless(51, 2)],
        &answer_with(load(word, 24)),
        &answer_with(load(word, 20)),
    ]
    .concat();
    let v6 = [
        &[load(byte, 6), unless(44, 2)][..],
        &answer_with(load(word, 44)),
        &[unless(17, 2)],
        &answer_with(load(word, 48)),
        &[unless(51, 2)],
        &answer_with(load(word, 44)),
        &answer_with(load(word, 40)),
    ]
    .concat();
    let version = [
        load(byte, 0),
        op(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0xf0),
        unless(0x40, v4.len() as u8),
    ];
    [&version[..], &v4, &v6].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{Sight, Take, What};

    /// A machine for the few instructions used here, apart from the kernel's.
    fn run(code: &[sock_filter], frame: &[u8]) -> u32 {
        let (mut at, mut a) = (0, 0_u32);
        loop {
            let sock_filter { code: op, jt, jf, k } = code[at];
            at += 1;
            let op = u32::from(op);
            match op & 7 {
                libc::BPF_LD => {
                    let size = match op & 0x18 {
                        libc::BPF_B => 1,
                        libc::BPF_H => 2,
                        _ => 4,
                    };
                    let Some(bytes) = frame.get(k as usize..k as usize + size) else { return 0 };
                    a = bytes.iter().fold(0, |n, b| n << 8 | u32::from(*b));
                }
                libc::BPF_ALU => a &= k,
                libc::BPF_RET => return k,
                libc::BPF_JMP if op & 0xf0 == libc::BPF_JA => at += k as usize,
                libc::BPF_JMP => {
                    let holds = if op & 0xf0 == libc::BPF_JEQ { a == k } else { a >= k };
                    at += usize::from(if holds { jt } else { jf });
                }
                other => panic!("instruction class {other}"),
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn the_compiled_program_says_what_the_steps_say(
            mut frame in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..90),
            kind in 0..3_usize,
            dst in 0..3_usize,
            protocol in proptest::sample::select(vec![6_u8, 17, 44, 50, 51]),
            next in proptest::sample::select(vec![6_u8, 17, 50, 51]),
            field in proptest::sample::select(vec![0_u16, 1, 8, 0x2000, 0x2009, 0x4000]),
        ) {
            let mac = [2, 0, 0, 0, 0, 1];
            let local: Vec<std::net::IpAddr> = vec![[10, 0, 0, 1].into(), [1; 16].into(), [2; 16].into()];
            let port = u16::from_be_bytes([7, 7]);
            let takes = [
                What::Forwarded { except: local.clone() },
                What::Protected { local: local.clone(), esp: true, ah: true, udp_port: Some(port) },
                What::Protected { local: local.clone(), esp: false, ah: true, udp_port: Some(port) },
            What::Protected { local, esp: false, ah: false, udp_port: None },
            ];
            let mut put = |at: usize, bytes: &[u8]| {
                if frame.len() >= at + bytes.len() {
                    frame[at..at + bytes.len()].copy_from_slice(bytes);
                }
            };
            put(0, &mac);
            put(12, [&[8, 0][..], &[0x86, 0xdd], &[8, 6]][kind]);
            if kind == 0 {
                put(14, &[0x45]);
                put(20, &field.to_be_bytes());
                put(23, &[protocol]);
                put(30, &[10, 0, 0, dst as u8]);
                put(36, &[7, 7]);
            } else {
                put(20, &[protocol]);
                put(38, &[dst as u8; 16]);
                put(56, &[7, 7]);
                if protocol == 44 {
                    put(54, &[next]);
                    put(56, &field.to_be_bytes());
                    put(64, &[7, 7]);
                }
            }
            for what in takes {
                for sight in [Sight::Copies, Sight::Alone] {
                    let program = Take { mac, what: what.clone() }.program(sight).unwrap();
                    let code = to_classic(&program);
                    proptest::prop_assert_eq!(run(&code, &frame) != 0, program.takes(&frame));
                }
            }
        }
    }
}
