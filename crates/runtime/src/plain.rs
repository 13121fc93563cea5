//! The plain side of one worker: the interface that every gateway has, and those beside it.

use core::fmt;

use convoy_io::{IoError, Port, PortCounters};
use convoy_packet::{Burst, Frame, InterfaceId, Pool};

use crate::ports::{Lost, Source};

/// An interface beside the first, and the packets on their way to it.
#[derive(Debug)]
struct Other {
    source: Source,
    output: Burst,
}

/// All plain interfaces of one worker.
pub(crate) struct Plain {
    first: Source,
    /// Packets on their way to the first; used only where there are others.
    output: Burst,
    /// Interfaces from number 1 on; none in the place of one that died.
    others: Vec<Option<Other>>,
    /// Counters of interfaces that died.
    buried: PortCounters,
    /// One died since this was last asked.
    lost_one: bool,
}

impl fmt::Debug for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plain").field("others", &self.others.len()).finish_non_exhaustive()
    }
}

impl Plain {
    pub(crate) fn new(first: Box<dyn Port>, others: Vec<Box<dyn Port>>) -> Self {
        let other = |port| Other { source: Source::new(port), output: Burst::new() };
        Self {
            first: Source::new(first),
            output: Burst::new(),
            others: others.into_iter().map(|port| Some(other(port))).collect(),
            buried: PortCounters::default(),
            lost_one: false,
        }
    }

    /// Receives from all of them; packets know which one they came from. One beside the first may die,
    /// as when somebody removes it; the rest goes on.
    #[inline]
    pub(crate) fn rx(&mut self, pool: &mut Pool) -> Result<usize, IoError> {
        let mut moved = self.first.rx(pool)?;
        for (place, number) in self.others.iter_mut().zip(1..) {
            let Some(other) = place else { continue };
            let before = other.source.input.len();
            let outcome = other.source.rx(pool);
            let fresh = other.source.input.as_mut_slice().get_mut(before..).unwrap_or_default();
            fresh.iter_mut().for_each(|frame| frame.set_interface(InterfaceId(number)));
            match outcome {
                Ok(n) => moved += n,
                Err(_) => {
                    self.buried += bury(place, pool);
                    self.lost_one = true;
                }
            }
        }
        Ok(moved)
    }

    /// True if one died since this was last asked.
    pub(crate) fn lost_one(&mut self) -> bool {
        core::mem::take(&mut self.lost_one)
    }

    /// Packets received and not yet taken.
    pub(crate) fn inputs(&mut self) -> impl Iterator<Item = &mut Burst> {
        let others = self.others.iter_mut().flatten().map(|other| &mut other.source.input);
        core::iter::once(&mut self.first.input).chain(others)
    }

    /// Number of packets received and not yet taken.
    pub(crate) fn left(&self) -> usize {
        self.sources().map(|source| source.input.len()).sum()
    }

    /// Sends packets, each through its interface. Gives those of one that died to `lost`.
    #[inline]
    pub(crate) fn tx(
        &mut self,
        pool: &mut Pool,
        from: &mut Burst,
        lost: impl FnMut(&mut Pool, Frame),
    ) -> Result<(), IoError> {
        let first = |frame: &Frame| frame.interface() == InterfaceId(0);
        // Usually the whole burst goes one way.
        if self.others.is_empty() || from.as_slice().iter().all(first) {
            return self.first.port.tx(pool, from);
        }
        self.tx_each(pool, from, lost)
    }

    #[inline(never)]
    fn tx_each(
        &mut self,
        pool: &mut Pool,
        from: &mut Burst,
        mut lost: impl FnMut(&mut Pool, Frame),
    ) -> Result<(), IoError> {
        for frame in from.drain() {
            let unplaced = match usize::from(frame.interface().0).checked_sub(1) {
                // As much room as in the burst that is being emptied.
                None => self.output.push(frame).err(),
                Some(n) => match self.others.get_mut(n) {
                    Some(Some(other)) => other.output.push(frame).err(),
                    Some(None) | None => Some(frame),
                },
            };
            if let Some(frame) = unplaced {
                lost(pool, frame);
            }
        }
        if !self.output.is_empty() {
            self.first.port.tx(pool, &mut self.output)?;
        }
        for place in &mut self.others {
            let Some(other) = place.as_mut().filter(|other| !other.output.is_empty()) else {
                continue;
            };
            if other.source.port.tx(pool, &mut other.output).is_err() {
                self.buried += bury(place, pool);
                self.lost_one = true;
            }
        }
        Ok(())
    }

    /// The sum of their counters, and what each lost since this was last asked.
    pub(crate) fn count(&mut self, mut lost: impl FnMut(Lost)) -> PortCounters {
        let others = self.others.iter_mut().flatten().map(|other| &mut other.source);
        let mut sum = self.buried;
        for source in core::iter::once(&mut self.first).chain(others) {
            let (counters, since) = source.count();
            sum += counters;
            lost(since);
        }
        sum
    }

    /// All ports, in the order of their interfaces.
    pub(crate) fn sources(&self) -> impl Iterator<Item = &Source> {
        core::iter::once(&self.first).chain(self.others.iter().flatten().map(|other| &other.source))
    }

    /// The port in place `n` of [`Plain::sources`]; `Err` says how far `n` is beyond them.
    pub(crate) fn source(&mut self, n: usize) -> Result<&mut Source, usize> {
        let Some(n) = n.checked_sub(1) else { return Ok(&mut self.first) };
        let mut living = self.others.iter_mut().flatten().map(|other| &mut other.source);
        let mut beyond = n;
        // By hand: how many there were is wanted if there are too few.
        for source in living.by_ref() {
            match beyond.checked_sub(1) {
                None => return Ok(source),
                Some(less) => beyond = less,
            }
        }
        Err(beyond)
    }

    /// Gives back the frames at hand.
    pub(crate) fn release(&mut self, pool: &mut Pool) {
        self.first.input.release(pool);
        self.output.release(pool);
        self.others.iter_mut().for_each(|other| {
            let _ = bury(other, pool);
        });
    }
}

/// Closes an interface, and gives back its frames; says what it had counted.
#[cold]
fn bury(place: &mut Option<Other>, pool: &mut Pool) -> PortCounters {
    let Some(mut other) = place.take() else { return PortCounters::default() };
    other.source.input.release(pool);
    other.output.release(pool);
    other.source.count().0
}
