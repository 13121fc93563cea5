//! Whoever seals and opens bursts: Convoy, and its peers.

use crate::workload::{Arena, Direction, Workload};

/// One way to seal and open the packets of a workload.
///
/// A call does all that a gateway would have to do for a burst whose headers are in place: name the
/// keys, nonces and bytes of every packet to the library, and have it work. Keys were expanded
/// before. Opening includes comparing ICVs, by whoever does it: not all libraries do.
pub trait Contender {
    /// Whose code it is: `convoy`, or a peer as `--peer` names it.
    fn who(&self) -> &'static str;

    /// By which of its interfaces.
    fn api(&self) -> &str;

    /// Encrypts the texts and writes the ICVs behind them.
    fn seal(&mut self, work: &Workload, arena: &mut Arena);

    /// Verifies the ICVs and decrypts the texts. Returns how many packets were authentic.
    fn open(&mut self, work: &Workload, arena: &mut Arena) -> usize;

    /// One of the two.
    fn run(&mut self, direction: Direction, work: &Workload, arena: &mut Arena) {
        match direction {
            Direction::Seal => self.seal(work, arena),
            Direction::Open => {
                std::hint::black_box(self.open(work, arena));
            }
        }
    }
}

/// Two contenders do not agree, so one of them is wrong and neither is measured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Disagreement {
    /// Sealed packets differ.
    #[error("{suite}: {who} ({api}) seals packet {packet} to other bytes than {reference}")]
    Sealed {
        /// The suite.
        suite: String,
        /// Contender that differs.
        who: &'static str,
        /// By which interface.
        api: String,
        /// From whom.
        reference: &'static str,
        /// The first packet that differs.
        packet: usize,
    },
    /// An opened packet is not what was sealed, or not taken for authentic.
    #[error("{suite}: {who} ({api}) does not open what {reference} sealed")]
    Opened {
        /// The suite.
        suite: String,
        /// Contender that differs.
        who: &'static str,
        /// By which interface.
        api: String,
        /// Contender that sealed.
        reference: &'static str,
    },
    /// A forged packet was taken for authentic.
    #[error("{suite}: {who} ({api}) takes a forged packet for authentic")]
    Forged {
        /// The suite.
        suite: String,
        /// Contender that takes it.
        who: &'static str,
        /// By which interface.
        api: String,
    },
}

/// Seals a workload's packets with the first contender and holds all others against it, in both
/// directions. Returns the sealed packets, and what does not agree with its place among the
/// contenders, in order.
pub fn compare(
    work: &Workload,
    contenders: &mut [Box<dyn Contender + '_>],
) -> (Arena, Vec<(usize, Disagreement)>) {
    let plain = work.plain();
    let mut sealed = plain.clone();
    let Some((first, _)) = contenders.split_first_mut() else { return (sealed, Vec::new()) };
    first.seal(work, &mut sealed);
    let reference = first.who();
    let each = contenders.iter_mut().enumerate();
    let found = each.filter_map(|(i, contender)| {
        let one = check(work, contender.as_mut(), &plain, &sealed, reference);
        one.err().map(|disagreement| (i, disagreement))
    });
    let found = found.collect();
    (sealed, found)
}

/// As [`compare`], where all must agree.
///
/// # Errors
/// [`Disagreement`] of the first that differs.
pub fn agree(
    work: &Workload,
    contenders: &mut [Box<dyn Contender + '_>],
) -> Result<Arena, Disagreement> {
    let (sealed, found) = compare(work, contenders);
    found.into_iter().next().map_or(Ok(sealed), |(_, disagreement)| Err(disagreement))
}

fn check(
    work: &Workload,
    contender: &mut dyn Contender,
    plain: &Arena,
    sealed: &Arena,
    reference: &'static str,
) -> Result<(), Disagreement> {
    let (suite, who, api) = (work.suite.to_string(), contender.who(), contender.api().to_owned());
    let mut arena = plain.clone();
    contender.seal(work, &mut arena);
    if let Some(packet) = work.first_difference(&arena, sealed) {
        return Err(Disagreement::Sealed { suite, who, api, reference, packet });
    }
    arena.copy_from(sealed);
    let authentic = contender.open(work, &mut arena);
    if authentic != work.packets.len() || work.texts_differ(&arena, plain) {
        return Err(Disagreement::Opened { suite, who, api, reference });
    }
    arena.copy_from(sealed);
    work.forge_one(&mut arena);
    if contender.open(work, &mut arena) + 1 != work.packets.len() {
        return Err(Disagreement::Forged { suite, who, api });
    }
    Ok(())
}

impl Workload {
    /// Index of the first packet whose bytes, ICV included, are not the same in both.
    fn first_difference(&self, a: &Arena, b: &Arena) -> Option<usize> {
        (0..self.packets.len()).find(|&i| {
            let range = self.frame_range(i);
            a.bytes()[range.clone()] != b.bytes()[range]
        })
    }

    fn texts_differ(&self, a: &Arena, b: &Arena) -> bool {
        (0..self.packets.len()).any(|i| {
            let range = self.text_range(i);
            a.bytes()[range.clone()] != b.bytes()[range]
        })
    }

    /// Flips the last bit of the last packet's ICV.
    fn forge_one(&self, arena: &mut Arena) {
        let Some(last) = self.packets.len().checked_sub(1) else { return };
        let end = self.frame_range(last).end;
        arena.bytes_mut()[end - 1] ^= 1;
    }
}
