//! AES-CCM: heads and MACs in lanes, and CTR packet by packet.
//!
//! What comes before the data, and the block that masks the MAC, is encrypted for several packets side
//! by side, so that lanes begin with the data, where it lies. Short packets of one length in blocks do
//! not go through the lanes at all: one by one, to start and to end them would cost more than AES.

// Indices name registers here, in several arrays at once; every such loop is unrolled.
#![allow(clippy::needless_range_loop)]

use std::array;

use super::{
    super::{
        lanes::{B, Lanes},
        token::Task,
    },
    chain::{self, Apart, LaneKeys, Shared},
    keys,
    mac::{self, Message, Messages, Scratch},
    order::{MOST, Order},
    stream::Stream,
    width::{One, Widest, Width},
};
use crate::{KeyBits, block::Block, isa::job::CcmJob, pairs::PairedWith};

/// Seals or opens with AES-CCM.
pub(super) struct Ccm<'p, 'j> {
    pub(super) bits: KeyBits,
    pub(super) seal: bool,
    pub(super) jobs: &'p mut [CcmJob<'j>],
}

impl<L: Widest> Task<L> for Ccm<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run(self, l: L) {
        let rounds = self.bits.rounds();
        for jobs in self.jobs.chunks_mut(MOST) {
            heads(l, self.bits, jobs);
            // One loop rather than two calls before and behind, for they are much code.
            for behind in [false, true] {
                if behind == self.seal {
                    for job in &mut *jobs {
                        crypt(l, rounds, job);
                    }
                }
                if !behind {
                    macs(l, self.bits, jobs);
                }
            }
        }
    }
}

/// The nonce in its place in a block, with flags in front (NIST SP 800-38C appendices A.2.1 and A.3)
/// and zeros behind: the counter block of number zero.
#[inline(always)]
fn nonce_block<L: Lanes>(l: L, job: &CcmJob<'_>) -> B {
    let flags = 14u8.saturating_sub(job.nonce_len as u8);
    l.xor(mac::up(l, l.load(job.nonce), 1), l.pair(0, i64::from(flags)))
}

/// Encrypts or decrypts the data.
#[inline(always)]
fn crypt<L: Widest>(l: L, rounds: usize, job: &mut CcmJob<'_>) {
    let stream = Stream { w: l.widest(), keys: job.keys, rounds };
    let (nonce, mut number) = (l.reverse(nonce_block(l, job)), 1u64);
    let mut rest = &mut *job.data;
    loop {
        // The stream counts in 32 bits. No data is longer than that for real, but might be.
        let blocks = (1 << 32) - (number & 0xffff_ffff);
        let bytes = usize::try_from(16 * blocks).unwrap_or(usize::MAX).min(rest.len());
        let (now, later) = rest.split_at_mut(bytes);
        stream.ctr(stream.w.repeat(l.add_longs(nonce, l.pair(0, number as i64))), now);
        if later.is_empty() {
            break;
        }
        rest = later;
        number += blocks;
    }
}

/// Packets whose heads are encrypted side by side.
const SIDE: usize = 8;

/// Brings every packet's MAC to where the data begins, and leaves what masks it in the tag. Where
/// there is no data, the tag is done.
#[inline(always)]
fn heads<L: Lanes>(l: L, bits: KeyBits, jobs: &[CcmJob<'_>]) {
    let rounds = bits.rounds();
    let mut usual = true;
    let (groups, rest) = jobs.as_chunks::<SIDE>();
    for group in groups {
        usual &= side_by_side(l, rounds, group);
    }
    for job in rest {
        usual &= side_by_side(l, rounds, array::from_ref(job));
    }
    if usual {
        return;
    }
    for job in jobs {
        if !has_usual_aad(job) {
            job.state.set(l.to_bytes(odd_header(l, bits, job)));
        }
        if job.data.is_empty() {
            job.tag.set(
                l.to_bytes(l.xor(l.load(&job.tag.get()), l.load(&job.state.replace([0; 16])))),
            );
        }
    }
}

/// Most additional data that fits one block with its length. IPsec has 8 or 12 bytes.
const SHORT_AAD: usize = 14;

#[inline(always)]
fn has_usual_aad(job: &CcmJob<'_>) -> bool {
    (1..=SHORT_AAD).contains(&job.aad.len())
}

/// Does the heads of packets whose additional data fits one block; the states of others are made up.
/// Returns whether there are no others, and none without data.
#[inline(always)]
fn side_by_side<L: Lanes, const N: usize>(l: L, rounds: usize, jobs: &[CcmJob<'_>; N]) -> bool {
    // Filled in loops, for closures are not always inlined, and then instructions are not either.
    let mut keys = Apart([jobs[0].keys; N]);
    let mut states = [l.zero(); N];
    let mut usual = true;
    for i in 0..N {
        usual &= has_usual_aad(&jobs[i]) & !jobs[i].data.is_empty();
        keys.0[i] = jobs[i].keys;
        let nonce = nonce_block(l, &jobs[i]);
        // It is wanted again.
        jobs[i].tag.set(l.to_bytes(nonce));
        states[i] = first_block(l, &jobs[i], nonce);
    }
    encrypt(l, rounds, &keys, &mut states);
    for i in 0..N {
        let aad = jobs[i].aad;
        let len = i32::from((aad.len() as u16).swap_bytes());
        let second = l.xor(l.quad(0, 0, 0, len), mac::up(l, l.load_some(aad), 2));
        states[i] = l.xor(states[i], second);
    }
    encrypt(l, rounds, &keys, &mut states);
    for i in 0..N {
        jobs[i].state.set(l.to_bytes(states[i]));
        states[i] = l.load(&jobs[i].tag.get());
    }
    encrypt(l, rounds, &keys, &mut states);
    for i in 0..N {
        jobs[i].tag.set(l.to_bytes(states[i]));
    }
    usual
}

/// Encrypts one block with each key.
#[inline(always)]
fn encrypt<L: Lanes, const N: usize>(
    l: L,
    rounds: usize,
    keys: &Apart<'_, N>,
    blocks: &mut [B; N],
) {
    for i in 0..N {
        blocks[i] = l.xor(blocks[i], keys.key(One(l), 0, i));
    }
    chain::encrypt(One(l), rounds, blocks, keys);
}

/// The first block of what is authenticated (NIST SP 800-38C appendix A.2.1).
#[inline(always)]
fn first_block<L: Lanes>(l: L, job: &CcmJob<'_>, nonce: B) -> B {
    let tag = (job.icv_len as u8).saturating_sub(2) / 2;
    let flags = tag << 3 | u8::from(!job.aad.is_empty()) << 6;
    let data_len = (job.data.len() as u64).swap_bytes();
    l.xor(nonce, l.pair(data_len as i64, i64::from(flags)))
}

/// The state behind the additional data, if there is none or more than IPsec ever has.
#[inline(always)]
fn odd_header<L: Lanes>(l: L, bits: KeyBits, job: &CcmJob<'_>) -> B {
    let add = |state: B, block: B| keys::encrypt(l, bits, job.keys, l.xor(state, block));
    let mut state = add(l.zero(), first_block(l, job, nonce_block(l, job)));
    let len = job.aad.len();
    if len == 0 {
        return state;
    }
    let mut block = [0; 16];
    let field = match u32::try_from(len) {
        Ok(short) if len < 0xff00 => {
            block[..2].copy_from_slice(&(short as u16).to_be_bytes());
            2
        }
        Ok(short) => {
            block[..2].copy_from_slice(&[0xff, 0xfe]);
            block[2..6].copy_from_slice(&short.to_be_bytes());
            6
        }
        Err(_) => {
            block[..2].copy_from_slice(&[0xff, 0xff]);
            block[2..10].copy_from_slice(&(len as u64).to_be_bytes());
            10
        }
    };
    let (front, rest) = job.aad.split_at(len.min(16 - field));
    block[field..][..front.len()].copy_from_slice(front);
    state = add(state, l.load(&block));
    let (blocks, end) = rest.as_chunks();
    for block in blocks {
        state = add(state, l.load(block));
    }
    if end.is_empty() { state } else { add(state, l.load_some(end)) }
}

/// Adds the MACs to the jobs' tags.
#[inline(always)]
fn macs<L: Widest>(l: L, bits: KeyBits, jobs: &[CcmJob<'_>]) {
    let mut order = Order::longest_first(jobs, |job| (job.data.len().div_ceil(16), job.keys));
    let Some(first) = jobs.first().map(|job| job.keys) else { return };
    // Wider registers hold more lanes than are worth filling at once.
    if L::W::BLOCKS == 1 {
        let rounds = bits.rounds();
        if order.shared() {
            order.offer(|group| level(l, rounds, jobs, group, &mut Shared(first)));
        } else {
            order.offer(|group| level(l, rounds, jobs, group, &mut Apart([first; SIDE])));
        }
        if order.packets().is_empty() {
            return;
        }
    }
    mac::run(l, bits.rounds(), first, &order, &mut Jobs { l, jobs });
}

/// Blocks of short packets.
const SHORT: usize = 16;

/// Adds the MACs to the tags of short packets of one length in blocks, all of whose states stay in
/// registers to the end. Returns whether they are such packets.
#[inline(always)]
fn level<'j, L: Lanes, K: LaneKeys<'j, One<L>>>(
    l: L,
    rounds: usize,
    jobs: &[CcmJob<'j>],
    group: &[u8; SIDE],
    keys: &mut K,
) -> bool {
    let Some(first) = jobs.get(usize::from(group[0])) else { return false };
    let blocks = first.data.len().div_ceil(16);
    if !(1..=SHORT).contains(&blocks) {
        return false;
    }
    let mut group_jobs = [first; SIDE];
    let mut bodies = [&[][..]; SIDE];
    for i in 0..SIDE {
        let Some(job) = jobs.get(usize::from(group[i])) else { return false };
        if job.data.len().div_ceil(16) != blocks {
            return false;
        }
        let Some(body) = job.data.as_chunks::<16>().0.get(..blocks - 1) else { return false };
        (group_jobs[i], bodies[i]) = (job, body);
    }
    let mut states = [l.zero(); SIDE];
    for i in 0..SIDE {
        keys.set(i, group_jobs[i].keys);
        states[i] = l.load(&group_jobs[i].state.replace([0; 16]));
    }
    for number in 0..blocks - 1 {
        for i in 0..SIDE {
            let Some(block) = bodies[i].get(number) else { continue };
            states[i] = l.xor3(l.load(block), keys.key(One(l), 0, i), states[i]);
        }
        chain::encrypt(One(l), rounds, &mut states, keys);
    }
    for i in 0..SIDE {
        let data = &*group_jobs[i].data;
        let last = mac::end(l, data, data.len() - 16 * (blocks - 1));
        states[i] = l.xor3(last, keys.key(One(l), 0, i), states[i]);
    }
    chain::encrypt(One(l), rounds, &mut states, keys);
    for i in 0..SIDE {
        let tag = &group_jobs[i].tag;
        tag.set(l.to_bytes(l.xor(l.load(&tag.get()), states[i])));
    }
    true
}

struct Jobs<'p, 'j, L> {
    l: L,
    jobs: &'p [CcmJob<'j>],
}

/// Blocks of data that are copied, so that the whole of it is one piece, where it does not end with
/// a whole block.
const COPIED: usize = 10;

impl<'p, L: Lanes> Messages<'p, COPIED> for Jobs<'p, '_, L> {
    #[inline(always)]
    fn message(&self, number: usize, scratch: &Scratch<COPIED>) -> Option<Message<'p>> {
        let (l, job) = (self.l, self.jobs.get(number)?);
        if job.data.is_empty() {
            // The longest come first, so there is none behind it either.
            return None;
        }
        let (keys, state) = (job.keys, l.load(&job.state.replace([0; 16])));
        let (body, end) = job.data.as_chunks();
        if end.is_empty() {
            return Some(Message { keys, state, head: 0, body, tail: 0 });
        }
        let last = l.to_bytes(mac::end(l, job.data, end.len()));
        if body.len() >= COPIED {
            scratch.tail[0].set(last);
            return Some(Message { keys, state, head: 0, body, tail: 1 });
        }
        for (place, block) in scratch.head.iter().paired_with(body) {
            place.set(*block);
        }
        scratch.head.get(body.len())?.set(last);
        Some(Message { keys, state, head: body.len() + 1, body: &[], tail: 0 })
    }

    #[inline(always)]
    fn done(&mut self, number: usize, mac: &Block) {
        if let Some(CcmJob { tag, .. }) = self.jobs.get(number) {
            let l = self.l;
            tag.set(l.to_bytes(l.xor(l.load(&tag.get()), l.table(mac))));
        }
    }
}
