//! AES-XCBC and AES-CMAC.

use super::{
    super::{lanes::Lanes, token::Task},
    mac::{self, Message, Messages, Writer},
    order::{MOST, Order},
    width::Widest,
};
use crate::{
    KeyBits,
    block::Block,
    pass::{CbcMacJob, TRAILER_MAX},
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
            let bytes = |job: &CbcMacJob<'_>| job.message.len() + job.trailer.len();
            let order = Order::longest_first(jobs.iter().map(|job| bytes(job).div_ceil(16)));
            let Some(first) = jobs.first().map(|job| job.key) else { break };
            let shared = jobs.iter().all(|job| std::ptr::eq(job.key, first));
            mac::run(
                l,
                self.bits.rounds(),
                &first.round_keys,
                shared,
                &order,
                &mut Jobs { l, jobs },
            );
        }
    }
}

struct Jobs<'p, 'j, L> {
    l: L,
    jobs: &'p mut [CbcMacJob<'j>],
}

impl<'j, L: Lanes> Messages<'j, L> for Jobs<'_, 'j, L> {
    #[inline(always)]
    fn message(&self, number: usize, writer: &mut Writer<'_, L>) -> Option<Message<'j>> {
        let &CbcMacJob { key, message, trailer, .. } = self.jobs.get(number)?;
        // The tail has the message's last 1 to 16 bytes, if there are any.
        let end = message.len() - message.len().saturating_sub(1) / 16 * 16;
        let (blocks, _) = message.split_at_checked(message.len() - end)?;
        let body = writer.push_short(blocks.as_chunks().0);
        writer.push_end(message, end);
        writer.push(self.l.load_some(trailer), trailer.len().min(TRAILER_MAX));
        let empty = writer.bytes() == 0;
        let last = if writer.pad(0x80, empty) { &key.padded } else { &key.whole };
        writer.add_to_last(self.l.table(last));
        let blocks = writer.bytes() / 16;
        let (head, tail) = if body.is_empty() { (blocks, 0..0) } else { (0, 0..blocks) };
        Some(Message { keys: &key.round_keys, state: self.l.zero(), head, body, tail })
    }

    #[inline(always)]
    fn done(&mut self, number: usize, mac: &Block) {
        if let Some(job) = self.jobs.get_mut(number) {
            job.tag = mac.0;
        }
    }
}
