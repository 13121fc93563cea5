//! Memory that workers write themselves, and that outlives a process that is killed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::{fmt, io};

use convoy_ipsec::counters::SaCounters;

use super::cell::Cell;

/// Pairs of words by number, such as those of a mapped file on tmpfs: what was stored is there after the
/// process was killed, whenever that was. Those of a new life begin with zeros.
pub trait Words: fmt::Debug + Send {
    /// Pairs of the life before, by number.
    fn earlier(&self) -> &[[u64; 2]];

    /// Forgets those of the life before, for this process and those after it. They are kept elsewhere by
    /// now, and nothing was stored yet.
    ///
    /// # Errors
    /// Fails if the file of this life cannot take the other one's place.
    fn begin(&mut self) -> io::Result<()>;

    /// The pair of a number, to be stored to from now on.
    ///
    /// # Errors
    /// Fails if there is no room for it.
    fn pair(&mut self, number: u32) -> io::Result<[&'static AtomicU64; 2]>;
}

/// Right edges of anti-replay windows, each beside the serial number of its SA.
#[derive(Debug)]
pub(super) struct Edges(Option<Box<dyn Words>>);

impl Edges {
    pub(super) fn new(words: Option<Box<dyn Words>>) -> Self {
        Self(words)
    }

    /// The edge that the SA of a cell had reached when the process of the life before ended, if that is
    /// known: then nothing above was accepted.
    pub(super) fn reached(&self, at: u32, serial: u64) -> Option<u64> {
        let [of, edge] = *self.0.as_ref()?.earlier().get(at as usize)?;
        (of == serial && serial != 0).then_some(edge)
    }

    /// Forgets the life before, all of which is written elsewhere, so that nobody takes its edges for those
    /// of this life.
    pub(super) fn begin_anew(&mut self) -> io::Result<()> {
        self.0.as_mut().map_or(Ok(()), |words| words.begin())
    }

    /// Has a worker write the edge of an SA here, before it has the SA.
    pub(super) fn begin(&mut self, at: u32, cell: &Cell, counters: &SaCounters) {
        let Some(words) = &mut self.0 else { return };
        match words.pair(at) {
            Ok([serial, edge]) => {
                // Whoever is killed in between leaves words of nobody.
                serial.store(0, Ordering::SeqCst);
                edge.store(cell.sequence, Ordering::SeqCst);
                serial.store(cell.serial, Ordering::SeqCst);
                let _ = counters.outliving.set(edge);
            }
            Err(error) => {
                tracing::warn!(
                    "the replay windows of SAs are recorded with a margin from now on, and after a crash some \
                     packets from peers are refused: {error}"
                );
                self.0 = None;
            }
        }
    }
}
