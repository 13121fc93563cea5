//! Poly1305 in general registers, a few blocks after every round of ChaCha20: while vectors are busy,
//! these registers and their multiplier cost nothing.
//!
//! Two messages are under way at a time, for the blocks of one wait for one another.

use super::{
    poly::Poly,
    wide::{Pad, Wide},
};
use crate::isa::job::ChaChaJob;

/// Most packets that make one list. Their MAC keys wait on the stack.
pub(super) const GROUP: usize = 128;

/// MACs of the list's packets.
pub(super) type Tags = [u128; GROUP];

/// A message under way, or none.
#[derive(Clone, Copy)]
pub(super) struct Chain {
    pub(super) busy: bool,
    pub(super) job: usize,
    /// Blocks of data that were taken.
    taken: usize,
    poly: Poly,
}

impl Chain {
    /// No message.
    pub(super) const NONE: Self = Self { busy: false, job: 0, taken: 0, poly: Poly::NONE };
}

/// Blocks that a step takes: no more than fit beside a round.
const fn stride<W: Wide>() -> usize {
    if W::LANES > 4 { 2 } else { 1 }
}

/// Steps beside the rounds of ChaCha20, of both chains together.
pub(super) const STEPS: usize = 2 * 10;

/// Steps that a message takes, about.
pub(super) fn steps<W: Wide>(job: &ChaChaJob<'_>) -> usize {
    1 + (job.data.len() / 16).div_ceil(stride::<W>())
}

/// Packets whose MACs may be computed.
struct Queue<'a, 'j> {
    jobs: &'a [ChaChaJob<'j>],
    keys: &'a [Pad],
    /// Place in the list of the packet that `jobs` begins with.
    first: usize,
    /// The next that is not under way.
    next: usize,
}

/// Two chains, and what comes after them.
pub(super) struct Beside<'a, 'j> {
    queue: Queue<'a, 'j>,
    // No array: the compiler would keep it in memory.
    a: ChainBlocks<'a>,
    b: ChainBlocks<'a>,
}

impl<'a, 'j> Beside<'a, 'j> {
    /// Goes on with chains.
    #[inline(always)]
    pub(super) fn resume(
        jobs: &'a [ChaChaJob<'j>],
        keys: &'a [Pad],
        first: usize,
        next: usize,
        [a, b]: &'a mut [Chain; 2],
    ) -> Self {
        let queue = Queue { jobs, keys, first, next };
        let (a, b) = (ChainBlocks::resume(a, &queue), ChainBlocks::resume(b, &queue));
        Self { queue, a, b }
    }

    /// Puts the chains by. Yields the next packet that is not under way.
    #[inline(always)]
    pub(super) fn pause(self) -> usize {
        self.a.pause(&self.queue);
        self.b.pause(&self.queue);
        self.queue.next
    }

    /// True if every MAC is computed.
    #[inline(always)]
    pub(super) fn is_done(&self) -> bool {
        !self.a.chain.busy && !self.b.chain.busy && self.queue.job(self.queue.next).is_none()
    }

    /// Takes some blocks of the first message.
    #[inline(always)]
    pub(super) fn step_a<W: Wide>(&mut self, w: W, tags: &mut Tags) {
        self.a.step(w, &mut self.queue, tags);
    }

    /// Takes some blocks of the second message.
    #[inline(always)]
    pub(super) fn step_b<W: Wide>(&mut self, w: W, tags: &mut Tags) {
        self.b.step(w, &mut self.queue, tags);
    }

    /// Takes some blocks of both messages.
    #[inline(always)]
    pub(super) fn step<W: Wide>(&mut self, w: W, tags: &mut Tags) {
        self.step_a(w, tags);
        self.step_b(w, tags);
    }
}

impl<'a, 'j> Queue<'a, 'j> {
    #[inline(always)]
    fn job(&self, place: usize) -> Option<&'a ChaChaJob<'j>> {
        self.jobs.get(place.wrapping_sub(self.first))
    }
}

/// A chain with the blocks that are left to it.
struct ChainBlocks<'a> {
    chain: &'a mut Chain,
    left: &'a [[u8; 16]],
}

impl<'a> ChainBlocks<'a> {
    #[inline(always)]
    fn resume(chain: &'a mut Chain, queue: &Queue<'a, '_>) -> Self {
        let job = queue.job(chain.job).filter(|_| chain.busy);
        let blocks = job.map_or(&[][..], |job| job.data.as_chunks().0);
        let left = blocks.get(chain.taken..).unwrap_or_default();
        ChainBlocks { chain, left }
    }

    #[inline(always)]
    fn pause(self, queue: &Queue<'a, '_>) {
        let whole = queue.job(self.chain.job).map_or(0, |job| job.data.len() / 16);
        self.chain.taken = whole.saturating_sub(self.left.len());
    }

    /// Takes some blocks, or ends the message and begins the next.
    #[inline(always)]
    fn step<W: Wide>(&mut self, w: W, queue: &mut Queue<'a, '_>, tags: &mut Tags) {
        let (stride, blocks) = (stride::<W>(), self.left);
        if blocks.len() >= stride {
            for block in &blocks[..stride] {
                self.chain.poly.block(u128::from_le_bytes(*block));
            }
            self.left = &blocks[stride..];
            return;
        }
        if self.chain.busy
            && let Some(job) = queue.job(self.chain.job)
            && let Some(tag) = tags.get_mut(self.chain.job)
        {
            for block in blocks {
                self.chain.poly.block(u128::from_le_bytes(*block));
            }
            self.chain.poly.padded(w, job.data.as_chunks::<16>().1);
            self.chain.poly.lengths(job.aad.len() as u64, job.data.len() as u64);
            *tag = self.chain.poly.finish();
            self.chain.busy = false;
            self.left = &[];
        }
        if let Some(job) = queue.job(queue.next)
            && let Some(key) = queue.keys.get(queue.next - queue.first)
        {
            self.chain.poly = Poly::new(&key.0);
            self.chain.poly.padded(w, job.aad);
            self.chain.job = queue.next;
            self.chain.busy = true;
            self.left = job.data.as_chunks().0;
            queue.next += 1;
        }
    }
}
