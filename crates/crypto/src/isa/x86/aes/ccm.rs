//! AES-CCM: the MACs of all packets in lanes, and CTR packet by packet.

use zeroize::Zeroize;

use super::{
    super::{
        lanes::{B, Lanes},
        token::Task,
    },
    keys,
    mac::{self, HEAD, Message, Messages, Writer},
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
        let bits = self.bits;
        for jobs in self.jobs.chunks_mut(MOST) {
            if !self.seal {
                jobs.iter_mut().for_each(|job| crypt(l, bits, job));
            }
            macs(l, bits, jobs);
            for job in jobs {
                let mask = keys::encrypt(l, bits, job.keys, l.reverse(counter(l, job)));
                let tag = l.xor(l.load(&job.tag), mask);
                l.store(&mut job.tag, tag);
                if self.seal {
                    crypt(l, bits, job);
                }
            }
        }
    }
}

/// The counter block of number zero with its bytes reversed (NIST SP 800-38C appendix A.3).
#[inline(always)]
fn counter<L: Lanes>(l: L, job: &CcmJob<'_>) -> B {
    let block = counter_number(job);
    l.pair((block >> 64) as i64, block as i64)
}

#[inline(always)]
fn counter_number(job: &CcmJob<'_>) -> u128 {
    let flags = 14u8.saturating_sub(job.nonce_len as u8);
    u128::from_be_bytes(*job.nonce) >> 8 | u128::from(flags) << 120
}

#[inline(always)]
fn crypt<L: Widest>(l: L, bits: KeyBits, job: &mut CcmJob<'_>) {
    let w = l.widest();
    let first = l.add_longs(counter(l, job), l.pair(0, 1));
    let stream = Stream { w, keys: job.keys, rounds: bits.rounds() };
    stream.ctr::<true>(w.repeat(first), job.data);
}

/// Leaves the MACs in the jobs' tags.
#[inline(always)]
fn macs<L: Widest>(l: L, bits: KeyBits, jobs: &mut [CcmJob<'_>]) {
    let bytes = |job: &CcmJob<'_>| job.aad.len() + job.data.len();
    let order = Order::longest_first(jobs.iter().map(|job| bytes(job).div_ceil(16)));
    let Some(first) = jobs.first().map(|job| job.keys) else { return };
    let shared = jobs.iter().all(|job| std::ptr::eq(job.keys, first));
    let mut macs = [Block::ZERO; MOST];
    let mut messages = Jobs { l, bits, jobs, macs: &mut macs };
    mac::run(l, bits.rounds(), first, shared, &order, &mut messages);
    for (job, mac) in jobs.iter_mut().zip(&mut macs) {
        job.tag = mac.0;
        mac.zeroize();
    }
}

struct Jobs<'p, 'j, L> {
    l: L,
    bits: KeyBits,
    jobs: &'p [CcmJob<'j>],
    macs: &'p mut [Block; MOST],
}

impl<'p, L: Lanes> Messages<'p, L> for Jobs<'p, '_, L> {
    #[inline(always)]
    fn message(&self, number: usize, writer: &mut Writer<'_, L>) -> Option<Message<'p>> {
        let job = self.jobs.get(number)?;
        let state = header(self.l, self.bits, job, writer);
        let head = writer.bytes() / 16;
        let (blocks, end) = job.data.as_chunks();
        let body = writer.push_short(blocks);
        let (head, tail) = if body.is_empty() {
            writer.push_end(job.data, end.len());
            writer.pad(0, false);
            (writer.bytes() / 16, 0..0)
        } else {
            // The tail may overwrite what lies before.
            writer.push(self.l.zero(), 16);
            writer.push_end(job.data, end.len());
            writer.pad(0, false);
            (head, head + 1..writer.bytes() / 16)
        };
        Some(Message { keys: job.keys, state, head, body, tail })
    }

    #[inline(always)]
    fn done(&mut self, number: usize, mac: &Block) {
        if let Some(place) = self.macs.get_mut(number) {
            *place = *mac;
        }
    }
}

/// Writes the first block, and the additional data with its length (NIST SP 800-38C appendices A.2.1
/// and A.2.2); all but the last block of more than fits goes into the state that is returned.
#[inline(always)]
fn header<L: Lanes>(l: L, bits: KeyBits, job: &CcmJob<'_>, writer: &mut Writer<'_, L>) -> B {
    let tag = (job.icv_len as u8).saturating_sub(2) / 2;
    let flags = tag << 3 | u8::from(!job.aad.is_empty()) << 6;
    let block = counter_number(job) | u128::from(flags) << 120 | job.data.len() as u128;
    let first = l.reverse(l.pair((block >> 64) as i64, block as i64));
    if job.aad.len() > 16 * (HEAD - 1) - 2 {
        return long_header(l, bits, job, first, writer);
    }
    writer.push(first, 16);
    if !job.aad.is_empty() {
        // At most 46.
        let len = (job.aad.len() as u16).swap_bytes();
        writer.push(l.quad(0, 0, 0, i32::from(len)), 2);
        let (blocks, end) = job.aad.as_chunks();
        for block in blocks {
            writer.push(l.load(block), 16);
        }
        writer.push(l.load_some(end), end.len());
        writer.pad(0, false);
    }
    l.zero()
}

/// The same for additional data that is longer than IPsec's ever is.
#[inline(always)]
fn long_header<L: Lanes>(
    l: L,
    bits: KeyBits,
    job: &CcmJob<'_>,
    first: B,
    writer: &mut Writer<'_, L>,
) -> B {
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
    let Some((front, rest)) = job.aad.split_at_checked(16 - field) else { return first };
    block[field..].copy_from_slice(front);
    let mut state = add(add(l.zero(), first), l.load(&block));
    // At least one byte is left.
    let (blocks, end) = rest.split_at(rest.len().saturating_sub(1) / 16 * 16);
    for block in blocks.as_chunks().0 {
        state = add(state, l.load(block));
    }
    writer.push(l.load_some(end), 16);
    state
}
