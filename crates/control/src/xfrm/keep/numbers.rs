//! Sequence numbers below a ceiling that was written first, and floors of anti-replay windows.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::io;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Weak};

use convoy_ipsec::counters::SaCounters;
use convoy_ipsec::selector::Direction;
use convoy_ipsec::sequence::Lease;

use super::DEAD_MAX;
use super::cell::{CELL, Cell, Counts};
use super::medium::Medium;
use super::words::{Edges, Words};
use crate::lease::{LEAST_ALLOWANCE, Progress, RecordId, allowance};

/// Numbers that are allowed at least beyond those that were used; twice as many at most when an SA
/// stands still. A restart skips them: a two thousandth part of those without ESN.
pub(super) const BLOCK: u64 = 1 << 20;
/// They last for so many ticks at the pace of the last one.
const TICKS_AHEAD: u64 = 64;
/// Most numbers that a pace allows: what 32 bits have must outlive many restarts.
const AHEAD_MAX: u64 = 1 << 25;

/// Place of an SA's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::xfrm) struct Kept {
    cell: u32,
    /// Of the SA: its name in the journal.
    pub(in crate::xfrm) serial: u64,
}

/// An SA whose numbers are to be kept, before workers see it.
#[derive(Debug)]
pub(in crate::xfrm) struct Admission {
    pub(in crate::xfrm) key: RecordId,
    pub(in crate::xfrm) counters: Arc<SaCounters>,
    pub(in crate::xfrm) way: Numbering,
}

/// Packets whose numbers are kept.
#[derive(Debug)]
pub(in crate::xfrm) enum Numbering {
    /// Packets that the SA sends.
    Outbound {
        lease: Arc<Lease>,
        /// The lowest number that it may use next.
        first: u64,
        /// The first number that it can never use.
        limit: u64,
    },
    /// Packets that the SA receives: floors are in the counters.
    Inbound,
}

#[derive(Debug)]
enum Numbered {
    Outbound { lease: Arc<Lease>, limit: u64, used_before: u64 },
    Inbound { noted: Progress, written: Progress, seen: u64, pace: u64 },
}

#[derive(Debug)]
struct Live {
    cell: Cell,
    counters: Arc<SaCounters>,
    numbered: Numbered,
    /// True if the cell holds values that are not written yet.
    is_due: bool,
}

impl Live {
    /// Takes over how far it is. `all`: also what only people ask for.
    fn look(&mut self, all: bool) {
        let Self { cell, counters, numbered, is_due } = self;
        match numbered {
            Numbered::Outbound { lease, limit, used_before } => {
                let (used, granted) = (lease.used().get(), lease.granted());
                let pace = used.saturating_sub(std::mem::replace(used_before, used));
                let ahead = pace.saturating_mul(TICKS_AHEAD).clamp(BLOCK, AHEAD_MAX);
                if granted < used.saturating_add(ahead) && granted < *limit {
                    let wanted = used.saturating_add(ahead.saturating_mul(2)).min(*limit);
                    *is_due |= wanted > cell.sequence;
                    cell.sequence = cell.sequence.max(wanted);
                }
            }
            Numbered::Inbound { noted, written, seen, pace } => {
                let packets = counters.usage.packets.get();
                let edge = counters.floor.get().get().max(cell.sequence);
                *noted = noted.next(edge, packets, std::mem::replace(seen, packets));
                *pace = noted.numbers_since(*written).max(*pace);
                let room = allowance(*pace, LEAST_ALLOWANCE);
                *is_due |= (edge, room) != (cell.sequence, cell.allowance);
                (cell.sequence, cell.allowance) = (edge, room);
                if all {
                    // Forgotten within some seconds, so that a burst of long ago costs nothing.
                    *pace /= 2;
                }
            }
        }
        if all || *is_due {
            let counts = Counts::of(counters);
            *is_due |= counts != cell.counts;
            cell.counts = counts;
        }
    }

    /// Notes that the cell is written, and grants the numbers of an outbound SA.
    fn written(&mut self) {
        if !std::mem::take(&mut self.is_due) {
            return;
        }
        match &mut self.numbered {
            Numbered::Outbound { lease, .. } => lease.grant(self.cell.sequence),
            // Not where the edge is by now: the write took time.
            Numbered::Inbound { noted, written, .. } => *written = *noted,
        }
    }

    /// Nobody uses it any more.
    fn rest(&mut self) {
        self.look(true);
        match &self.numbered {
            Numbered::Outbound { lease, .. } => {
                let exact = lease.used().get().saturating_add(1);
                self.cell.sequence = self.cell.sequence.min(exact);
            }
            Numbered::Inbound { .. } => self.cell.allowance = 0,
        }
        self.is_due = true;
    }
}

/// All cells.
#[derive(Debug)]
pub(super) struct Numbers {
    medium: Box<dyn Medium>,
    edges: Edges,
    live: BTreeMap<u32, Live>,
    /// Cells of the previous run until those that are wanted are live, the oldest first.
    earlier: Vec<u32>,
    /// Cells of keys without an SA, the oldest first, with the counters of the last one: whoever still has
    /// these may write to the cell's words.
    dead: VecDeque<(u32, Weak<SaCounters>)>,
    free: Vec<u32>,
    /// Number of cells.
    count: u32,
    next_serial: u64,
}

impl Numbers {
    /// Reads all cells. Those of SAs that are still wanted are to be [admitted](Self::admit) again.
    pub(super) fn open(
        mut medium: Box<dyn Medium>,
        words: Option<Box<dyn Words>>,
        forget: bool,
    ) -> io::Result<(Self, Vec<Past>)> {
        if forget {
            medium.replace(&[])?;
        }
        let bytes = medium.read()?;
        let mut edges = Edges::new(words);
        let (mut past, mut free) = (Vec::new(), Vec::new());
        let mut count = 0;
        for bytes in bytes.as_chunks::<CELL>().0 {
            match Cell::decode(bytes) {
                Some(mut cell) => {
                    if let Some(edge) = edges.reached(count, cell.serial)
                        && cell.direction == Direction::Inbound
                    {
                        (cell.sequence, cell.allowance) = (cell.sequence.max(edge), 0);
                        // Nobody receives any more, so this is exact for who starts next as well.
                        medium.write_at(u64::from(count) * CELL as u64, &cell.encode())?;
                    }
                    past.push(Past { at: count, cell });
                }
                None => free.push(count),
            }
            count += 1;
        }
        // Not before: who is killed until here leaves the edges to the next one, which else would know them
        // with a margin alone, or not far enough.
        edges.begin_anew()?;
        let next_serial = past.iter().map(|past| past.cell.serial).max().unwrap_or(0) + 1;
        let mut earlier: Vec<_> = past.iter().map(|past| (past.cell.serial, past.at)).collect();
        earlier.sort_unstable();
        let earlier = earlier.into_iter().map(|(_, at)| at).collect();
        let (live, dead) = (BTreeMap::new(), VecDeque::new());
        Ok((Self { medium, edges, live, earlier, dead, free, count, next_serial }, past))
    }

    /// Serial numbers from here on are free.
    pub(super) fn begin_behind(&mut self, serial: u64) {
        self.next_serial = self.next_serial.max(serial.saturating_add(1));
    }

    /// Keeps the numbers of an SA from now on, and grants its first ones. With `place` those of an SA of
    /// the previous run, before the others of that run are [buried](Self::bury_others).
    pub(super) fn admit(&mut self, admission: Admission, place: Option<&Past>) -> io::Result<Kept> {
        self.medium.look()?;
        let Admission { key, counters, way } = admission;
        let at = place.map_or_else(|| self.free_cell(), |past| past.at);
        let serial = place.map_or(self.next_serial, |past| past.cell.serial);
        let (direction, sequence, room, numbered) = match way {
            Numbering::Outbound { lease, first, limit } => {
                let wanted = first.saturating_add(2 * BLOCK).min(limit).max(lease.granted());
                let used_before = lease.used().get();
                let numbered = Numbered::Outbound { lease, limit, used_before };
                (Direction::Outbound, wanted, 0, numbered)
            }
            Numbering::Inbound => {
                let (edge, packets) = (counters.floor.get().get(), counters.usage.packets.get());
                let start = Progress { edge, packets, covered: packets };
                let pace = LEAST_ALLOWANCE;
                let numbered =
                    Numbered::Inbound { noted: start, written: start, seen: packets, pace };
                (Direction::Inbound, edge, allowance(pace, LEAST_ALLOWANCE), numbered)
            }
        };
        let counts = Counts::of(&counters);
        let cell = Cell { serial, direction, key, sequence, allowance: room, counts };
        if let Err(error) = self.write(at, &cell) {
            if place.is_none() {
                self.free.push(at);
            }
            return Err(error);
        }
        if cell.direction == Direction::Inbound {
            self.edges.begin(at, &cell, &counters);
        }
        self.next_serial = self.next_serial.max(serial.saturating_add(1));
        let mut live = Live { cell, counters, numbered, is_due: true };
        live.written();
        self.live.insert(at, live);
        Ok(Kept { cell: at, serial })
    }

    /// All SAs of the previous run that are wanted are admitted: the others are dead.
    pub(super) fn bury_others(&mut self) {
        let mut others = std::mem::take(&mut self.earlier);
        // One that came back may have gone again.
        let gone: HashSet<_> = self.dead.iter().map(|(at, _)| *at).collect();
        others.retain(|at| !self.live.contains_key(at) && !gone.contains(at));
        others.iter().rev().for_each(|at| self.dead.push_front((*at, Weak::new())));
        self.forget_oldest();
    }

    fn free_cell(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.count += 1;
            self.count - 1
        })
    }

    fn write(&mut self, at: u32, cell: &Cell) -> io::Result<()> {
        self.medium.write_at(u64::from(at) * CELL as u64, &cell.encode())
    }

    /// An SA went. Its key is remembered, with all that it was allowed.
    pub(super) fn retire(&mut self, kept: Kept) -> io::Result<()> {
        let Some(mut live) = self.live.remove(&kept.cell) else { return Ok(()) };
        let granted = live.cell.sequence;
        live.look(true);
        if live.cell.direction == Direction::Outbound {
            live.cell.sequence = granted;
        }
        self.dead.push_back((kept.cell, Arc::downgrade(&live.counters)));
        self.write(kept.cell, &live.cell)
    }

    /// Has the cells of the oldest keys used again, but for those of SAs that a worker may still have: it
    /// would write how far it is where another SA's number is kept.
    fn forget_oldest(&mut self) {
        let surplus = self.dead.len().saturating_sub(DEAD_MAX);
        let oldest: Vec<_> = self.dead.drain(..surplus).collect();
        for (at, counters) in oldest.into_iter().rev() {
            if counters.strong_count() == 0 {
                // Behind all that was stored before they went.
                fence(Ordering::Acquire);
                self.free.push(at);
            } else {
                self.dead.push_front((at, counters));
            }
        }
    }

    /// Looks at all SAs and writes what must be written.
    ///
    /// # Errors
    /// Fails if it cannot write; then nothing was granted, and the next tick tries again.
    pub(super) fn tick(&mut self, all: bool) -> io::Result<()> {
        self.medium.look()?;
        self.live.values_mut().for_each(|live| live.look(all));
        if all {
            self.forget_oldest();
        }
        self.write_due()
    }

    fn write_due(&mut self) -> io::Result<()> {
        let mut run = Run::default();
        for (at, live) in self.live.iter().filter(|(_, live)| live.is_due) {
            run.add(*at, &live.cell, self.medium.as_mut())?;
        }
        run.write(self.medium.as_mut())?;
        self.live.values_mut().for_each(Live::written);
        Ok(())
    }

    /// The orderly end: writes exact numbers.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        self.live.values_mut().for_each(Live::rest);
        let mut run = Run::default();
        for (at, live) in &self.live {
            run.add(*at, &live.cell, self.medium.as_mut())?;
        }
        self.live.clear();
        run.write(self.medium.as_mut())
    }

    pub(super) fn destroy(&mut self) -> io::Result<()> {
        self.medium.remove()
    }
}

/// A cell of the previous run.
#[derive(Clone, Copy, Debug)]
pub(in crate::xfrm) struct Past {
    at: u32,
    pub(in crate::xfrm) cell: Cell,
}

/// Cells side by side are written at once.
#[derive(Debug, Default)]
struct Run {
    at: u64,
    bytes: Vec<u8>,
}

impl Run {
    fn add(&mut self, at: u32, cell: &Cell, medium: &mut dyn Medium) -> io::Result<()> {
        let at = u64::from(at) * CELL as u64;
        if at != self.at.saturating_add(self.bytes.len() as u64) {
            self.write(medium)?;
            self.at = at;
        }
        self.bytes.extend_from_slice(&cell.encode());
        Ok(())
    }

    fn write(&mut self, medium: &mut dyn Medium) -> io::Result<()> {
        if !self.bytes.is_empty() {
            medium.write_at(self.at, &self.bytes)?;
            self.at = self.at.saturating_add(self.bytes.len() as u64);
            self.bytes.clear();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::{Leaf, Memory};
    use super::*;

    #[test]
    fn no_cell_is_used_again_while_a_worker_may_write_there() {
        let medium = Box::new(Leaf::numbers(&Memory::default()));
        let (mut numbers, _) = Numbers::open(medium, None, true).unwrap();
        let admit = |numbers: &mut Numbers| {
            let counters = Arc::<SaCounters>::default();
            let (key, way) = (RecordId::from_bytes([7; 32]), Numbering::Inbound);
            let admission = Admission { key, counters: counters.clone(), way };
            (numbers.admit(admission, None).unwrap(), counters)
        };
        let (kept, mut counters): (Vec<_>, Vec<_>) =
            (0..DEAD_MAX + 3).map(|_| admit(&mut numbers)).unzip();
        // All go at once, as in a flush.
        kept.iter().for_each(|kept| numbers.retire(*kept).unwrap());
        numbers.tick(true).unwrap();
        let (new, _) = admit(&mut numbers);
        assert!(kept.iter().all(|kept| kept.cell != new.cell));
        // Workers let go of some.
        drop((counters.remove(4), counters.remove(1)));
        numbers.tick(true).unwrap();
        assert_eq!(admit(&mut numbers).0.cell, kept[1].cell);
        assert!(kept.iter().all(|kept| kept.cell != admit(&mut numbers).0.cell));
    }

    /// Many SAs take longer to be there again than the keeper takes from one look to the next.
    #[test]
    fn each_cell_of_a_life_before_serves_one_sa() {
        let memory = Memory::default();
        let open = |memory: &Memory, forget| {
            Numbers::open(Box::new(Leaf::numbers(memory)), None, forget).unwrap()
        };
        let inbound = || Admission {
            key: RecordId::from_bytes([7; 32]),
            counters: Arc::default(),
            way: Numbering::Inbound,
        };
        let (mut first, _) = open(&memory, true);
        for _ in 0..DEAD_MAX + 3 {
            first.admit(inbound(), None).unwrap();
        }
        let (mut numbers, past) = open(&memory, false);
        let (lost, wanted) = past.split_first().unwrap();
        for past in wanted {
            numbers.admit(inbound(), Some(past)).unwrap();
        }
        // One of them cannot be had again after all.
        let kept = numbers.admit(inbound(), Some(lost)).unwrap();
        numbers.retire(kept).unwrap();
        numbers.tick(true).unwrap();
        numbers.bury_others();
        assert_eq!(numbers.dead.len(), 1);
        numbers.tick(true).unwrap();
        for count in wanted.len() + 1..wanted.len() + 5 {
            numbers.admit(inbound(), None).unwrap();
            assert_eq!(numbers.live.len(), count);
        }
    }
}
