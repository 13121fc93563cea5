//! Rings between workers: packets, and news about paths, for the worker that owns the SA.
//!
//! One ring per ordered pair of workers and direction, each with one producer and one consumer, so
//! nothing is shared by three. Packets move in chunks: one publication of the ring's index and one
//! look at the consumer's sleep flag for a whole burst.

use convoy_ipsec::drop_reason::DropReason;
use convoy_ipsec::pipeline::{HandOff, PathMtuNews, WorkerCounters};
use convoy_ipsec::sa::WorkerId;
use convoy_packet::{BURST_MAX, Burst, Frame, Pool};
use rtrb::{Consumer, Producer, RingBuffer};

use crate::Waker;

/// Packets a ring holds: room for some bursts while the consumer is busy elsewhere.
const DEPTH: usize = 8 * BURST_MAX;
/// Path news a ring holds; they are rare, and a lost one comes again.
const NEWS_DEPTH: usize = 16;

/// Pipeline that handed-off packets are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Outbound,
    Inbound,
}

/// The producing ends that lead to one worker.
#[derive(Debug)]
struct To {
    worker: WorkerId,
    waker: Waker,
    outbound: Producer<Frame>,
    inbound: Producer<Frame>,
    news: Producer<PathMtuNews>,
}

/// The consuming ends that come from one worker.
#[derive(Debug)]
struct From {
    outbound: Consumer<Frame>,
    inbound: Consumer<Frame>,
    news: Consumer<PathMtuNews>,
}

impl From {
    fn ring(&mut self, side: Side) -> &mut Consumer<Frame> {
        match side {
            Side::Outbound => &mut self.outbound,
            Side::Inbound => &mut self.inbound,
        }
    }
}

/// All rings of one worker.
#[derive(Debug, Default)]
pub(crate) struct Links {
    to: Vec<To>,
    from: Vec<From>,
    /// Worker whose rings are emptied first; moves on, so that none starves the others.
    turn: usize,
}

impl Links {
    /// Joins workers, one for each of `wakers`, each with each.
    pub(crate) fn mesh(wakers: &[Waker]) -> Vec<Self> {
        let mut all: Vec<Self> = wakers.iter().map(|_| Self::default()).collect();
        for a in 0..wakers.len() {
            for (b, waker) in wakers.iter().enumerate() {
                if a == b {
                    continue;
                }
                let (out_p, out_c) = RingBuffer::new(DEPTH);
                let (in_p, in_c) = RingBuffer::new(DEPTH);
                let (news_p, news_c) = RingBuffer::new(NEWS_DEPTH);
                let worker = WorkerId(b as u16);
                let waker = waker.clone();
                let to = To { worker, waker, outbound: out_p, inbound: in_p, news: news_p };
                let from = From { outbound: out_c, inbound: in_c, news: news_c };
                if let Some(links) = all.get_mut(a) {
                    links.to.push(to);
                }
                if let Some(links) = all.get_mut(b) {
                    links.from.push(from);
                }
            }
        }
        all
    }

    /// Empties `handoff` into the rings; what does not fit is dropped as [`DropReason::RingFull`].
    /// Returns how many packets went.
    pub(crate) fn push(
        &mut self,
        side: Side,
        handoff: &mut HandOff,
        pool: &mut Pool,
        counters: &WorkerCounters,
    ) -> usize {
        let mut pushed = 0;
        for to in &mut self.to {
            let Some(burst) = handoff.for_worker(to.worker) else { continue };
            if burst.is_empty() {
                continue;
            }
            let ring = match side {
                Side::Outbound => &mut to.outbound,
                Side::Inbound => &mut to.inbound,
            };
            // Nobody would ever take packets out of the ring of a worker that has ended.
            let room = if ring.is_abandoned() { 0 } else { ring.slots() };
            let n = room.min(burst.len());
            if let Ok(chunk) = ring.write_chunk_uninit(n) {
                pushed += chunk.fill_from_iter(burst.drain_front(n));
            }
            for frame in burst.drain() {
                counters.drops.count(DropReason::RingFull);
                pool.free(frame);
            }
            if n > 0 {
                to.waker.wake();
            }
        }
        pushed
    }

    /// Moves packets from the rings into `into`, as many as fit, and returns how many.
    pub(crate) fn pop(&mut self, side: Side, into: &mut Burst) -> usize {
        let before = into.len();
        let n = self.from.len();
        if n == 0 {
            return 0;
        }
        self.turn = (self.turn + 1) % n;
        let (late, early) = self.from.split_at_mut(self.turn);
        for from in early.iter_mut().chain(late) {
            let ring = from.ring(side);
            let take = ring.slots().min(into.room());
            if let Ok(chunk) = ring.read_chunk(take) {
                for frame in chunk {
                    // There is room: `take` was bounded by it.
                    let _ = into.push(frame);
                }
            }
        }
        into.len() - before
    }

    /// Tells every other worker.
    pub(crate) fn tell(&mut self, news: PathMtuNews) {
        for to in &mut self.to {
            if to.news.push(news).is_ok() {
                to.waker.wake();
            }
        }
    }

    /// News that another worker could not place.
    pub(crate) fn hear(&mut self) -> Option<PathMtuNews> {
        self.from.iter_mut().find_map(|from| from.news.pop().ok())
    }

    /// True if nothing waits in any ring to this worker.
    pub(crate) fn is_empty(&self) -> bool {
        self.from
            .iter()
            .all(|from| from.outbound.is_empty() && from.inbound.is_empty() && from.news.is_empty())
    }
}
