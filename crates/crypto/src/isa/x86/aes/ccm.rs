//! AES-CCM: the MACs of all packets in lanes, and CTR packet by packet.

use super::{
    super::{
        lanes::{B, Lanes},
        token::Task,
    },
    keys,
    mac::{self, Message, Messages, Scratch},
    order::{MOST, Order},
    stream::Stream,
    width::{Widest, Width},
};
use crate::{KeyBits, block::Block, pass::CcmJob};

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
        for jobs in self.jobs.chunks_mut(MOST) {
            for job in &mut *jobs {
                job.tag.set([0; 16]);
            }
            // One loop rather than two calls before and behind, for they are much code.
            for behind in [false, true] {
                if behind == self.seal {
                    for job in &mut *jobs {
                        crypt(l, self.bits, job);
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
/// and zeros behind: the counter block of number zero, if no flags are added.
#[inline(always)]
fn nonce_block<L: Lanes>(l: L, job: &CcmJob<'_>, flags: u8) -> B {
    let flags = flags | 14u8.saturating_sub(job.nonce_len as u8);
    l.xor(mac::up(l, l.load(job.nonce), 1), l.pair(0, i64::from(flags)))
}

/// Encrypts or decrypts the data, and adds the block that masks the MAC to the tag.
#[inline(always)]
fn crypt<L: Widest>(l: L, bits: KeyBits, job: &mut CcmJob<'_>) {
    let (w, nonce) = (l.widest(), nonce_block(l, job, 0));
    let mask = keys::encrypt(l, bits, job.keys, nonce);
    let tag = job.tag.get_mut();
    let masked = l.xor(l.load(tag), mask);
    l.store(tag, masked);
    let stream = Stream { w, keys: job.keys, rounds: bits.rounds() };
    let (nonce, mut number) = (l.reverse(nonce), 1u64);
    let mut rest = &mut *job.data;
    loop {
        // The stream counts in 32 bits. No data is longer than that for real, but might be.
        let blocks = (1 << 32) - (number & 0xffff_ffff);
        let bytes = usize::try_from(16 * blocks).unwrap_or(usize::MAX).min(rest.len());
        let (now, later) = rest.split_at_mut(bytes);
        stream.ctr(w.repeat(l.add_longs(nonce, l.pair(0, number as i64))), now);
        if later.is_empty() {
            break;
        }
        rest = later;
        number += blocks;
    }
}

/// Adds the MACs to the jobs' tags.
#[inline(always)]
fn macs<L: Widest>(l: L, bits: KeyBits, jobs: &[CcmJob<'_>]) {
    let order = Order::longest_first(jobs, |job| (job.data.len().div_ceil(16), job.keys));
    let Some(first) = jobs.first().map(|job| job.keys) else { return };
    mac::run(l, bits.rounds(), first, &order, &mut Jobs { l, bits, jobs });
}

struct Jobs<'p, 'j, L> {
    l: L,
    bits: KeyBits,
    jobs: &'p [CcmJob<'j>],
}

/// Blocks of a message's head.
const HEAD: usize = 12;

/// Bodies of up to this many blocks are copied, so that the whole message is one piece.
const SHORT: usize = HEAD - 3;

impl<'p, L: Lanes> Messages<'p, HEAD> for Jobs<'p, '_, L> {
    #[inline(always)]
    fn message(&self, number: usize, scratch: &Scratch<HEAD>) -> Option<Message<'p>> {
        let (l, job) = (self.l, self.jobs.get(number)?);
        let (state, mut head) = header(l, self.bits, job, scratch);
        let (body, end) = job.data.as_chunks();
        let last = mac::end(l, job.data, end.len());
        let ended = usize::from(!end.is_empty());
        if body.len() > SHORT {
            scratch.tail[0].set(l.to_bytes(last));
            return Some(Message { keys: job.keys, state, head, body, tail: ended });
        }
        for (place, block) in scratch.head.get(head..)?.iter().zip(body) {
            place.set(*block);
        }
        head += body.len();
        // Where the message ends with a whole block, this is behind it.
        scratch.head.get(head)?.set(l.to_bytes(last));
        head += ended;
        Some(Message { keys: job.keys, state, head, body: &[], tail: 0 })
    }

    #[inline(always)]
    fn done(&mut self, number: usize, mac: &Block) {
        if let Some(CcmJob { tag, .. }) = self.jobs.get(number) {
            let l = self.l;
            tag.set(l.to_bytes(l.xor(l.load(&tag.get()), l.table(mac))));
        }
    }
}

/// Writes the first block, and the additional data with its length (NIST SP 800-38C appendices A.2.1
/// and A.2.2), as the scratch's head: one block or two. If there is more, all but its last block goes
/// into the state that is returned.
#[inline(always)]
fn header<L: Lanes>(l: L, bits: KeyBits, job: &CcmJob<'_>, scratch: &Scratch<HEAD>) -> (B, usize) {
    let tag = (job.icv_len as u8).saturating_sub(2) / 2;
    let flags = tag << 3 | u8::from(!job.aad.is_empty()) << 6;
    let data_len = (job.data.len() as u64).swap_bytes();
    let first = l.xor(nonce_block(l, job, flags), l.pair(data_len as i64, 0));
    if job.aad.len() > 14 {
        let (state, last) = long_header(l, bits, job, first);
        scratch.head[0].set(l.to_bytes(last));
        return (state, 1);
    }
    scratch.head[0].set(l.to_bytes(first));
    if job.aad.is_empty() {
        return (l.zero(), 1);
    }
    let len = i32::from((job.aad.len() as u16).swap_bytes());
    let second = l.xor(l.quad(0, 0, 0, len), mac::up(l, l.load_some(job.aad), 2));
    scratch.head[1].set(l.to_bytes(second));
    (l.zero(), 2)
}

/// The state in front of the last block of a header, and that block, if there is more additional data
/// than IPsec ever has.
#[inline(always)]
fn long_header<L: Lanes>(l: L, bits: KeyBits, job: &CcmJob<'_>, first: B) -> (B, B) {
    let add = |state: B, block: B| keys::encrypt(l, bits, job.keys, l.xor(state, block));
    let mut block = [0; 16];
    let len = job.aad.len();
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
    let mut state = add(add(l.zero(), first), l.load(&block));
    // At least one byte is left.
    let (blocks, end) = rest.split_at(rest.len().saturating_sub(1) / 16 * 16);
    for block in blocks.as_chunks().0 {
        state = add(state, l.load(block));
    }
    (state, l.load_some(end))
}
