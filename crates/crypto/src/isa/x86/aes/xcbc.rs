//! AES-XCBC and AES-CMAC.

use super::{
    super::{
        lanes::{B, Lanes},
        token::Task,
    },
    mac::{self, Message, Messages, Scratch},
    order::{MOST, Order},
    width::Widest,
};
use crate::{
    KeyBits,
    block::{Block, CbcMacKey},
    isa::job::{CbcMacJob, TRAILER_MAX},
};

/// Makes the MACs of AES-XCBC or AES-CMAC.
pub(super) struct CbcMac<'p, 'j> {
    pub(super) bits: KeyBits,
    pub(super) jobs: &'p mut [CbcMacJob<'j>],
}

impl<L: Widest> Task<L> for CbcMac<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run(self, l: L) {
        for jobs in self.jobs.chunks_mut(MOST) {
            let order = Order::longest_first(jobs, |job| (job.message.len() / 16, job.key));
            let Some(first) = jobs.first().map(|job| job.key) else { break };
            mac::run(l, self.bits.rounds(), &first.round_keys, &order, &mut Jobs { l, jobs });
        }
    }
}

struct Jobs<'p, 'j, L> {
    l: L,
    jobs: &'p mut [CbcMacJob<'j>],
}

impl<'j, L: Lanes> Messages<'j, 0> for Jobs<'_, 'j, L> {
    #[inline(always)]
    fn message(&self, number: usize, scratch: &Scratch<0>) -> Option<Message<'j>> {
        let &CbcMacJob { key, message, trailer, .. } = self.jobs.get(number)?;
        let l = self.l;
        // The tail has the message's last 1 to 16 bytes, if there are any.
        let body = message.len().saturating_sub(1) / 16;
        let mut len = message.len() - 16 * body;
        let mut last = mac::end(l, message, len);
        let mut tail = 1;
        if !trailer.is_empty() {
            let added = l.load_some(trailer);
            let all = len + trailer.len().min(TRAILER_MAX);
            last = l.xor(last, mac::up(l, added, len));
            if all > 16 {
                scratch.tail[0].set(l.to_bytes(last));
                last = mac::down(l, added, 16 - len);
                tail = 2;
            }
            len = all - 16 * (tail - 1);
        }
        scratch.tail[tail - 1].set(l.to_bytes(l.xor(last, masked(l, key, len))));
        let body = message.as_chunks().0.get(..body)?;
        Some(Message { keys: &key.round_keys, state: l.zero(), head: 0, body, tail })
    }

    #[inline(always)]
    fn done(&mut self, number: usize, mac: &Block) {
        if let Some(job) = self.jobs.get_mut(number) {
            job.tag = mac.0;
        }
    }
}

/// Addend of a last block of `len` bytes: padding, and the key's block.
#[inline(always)]
fn masked<L: Lanes>(l: L, key: &CbcMacKey, len: usize) -> B {
    if len == 16 {
        return l.table(&key.whole);
    }
    l.xor(l.table(&key.padded), mac::up(l, l.quad(0, 0, 0, 0x80), len))
}
