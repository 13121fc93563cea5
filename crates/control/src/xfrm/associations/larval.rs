//! Larval SAs, found without looking at all of them.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::net::IpAddr;

use convoy_wire::Spi;
use convoy_xfrm::{AllocSpi, Mode, Sa, SaInfo, SaProtocol};

use super::SpiClass;
use super::insert_sorted;

/// Properties that larval SAs of one kind share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Kind {
    protocol: SaProtocol,
    mode: Mode,
    reqid: u32,
    source: IpAddr,
    destination: IpAddr,
}

impl Kind {
    pub(super) const fn of_sa(sa: &Sa) -> Self {
        let SaInfo { protocol, mode, reqid, source, destination, .. } = sa.info;
        Self { protocol, mode, reqid, source, destination }
    }

    pub(super) const fn of_request(request: &AllocSpi) -> Self {
        let AllocSpi { protocol, mode, reqid, source, destination, .. } = *request;
        Self { protocol, mode, reqid, source, destination }
    }
}

/// The numbers of larval SAs.
#[derive(Debug, Default)]
pub(super) struct Larval {
    /// With the second in which each ends.
    by_end: BTreeSet<(u64, u64)>,
    /// Of acquire events, by their number; the newest last.
    by_event: HashMap<u32, Vec<u64>>,
    /// SAs without an SPI, by kind, whatever their interface (`__find_acq_core`); the newest last.
    waiting: HashMap<Kind, Vec<u64>>,
    /// Number of SAs of a kind for the interface of an identifier (`xfrm_state_find`).
    counts: HashMap<(Kind, u32), usize>,
    /// Number of SAs with an SPI, for each worker whose sockets get their packets.
    with_spi: Vec<usize>,
}

fn drop_from<K: Hash + Eq>(lists: &mut HashMap<K, Vec<u64>>, key: &K, at: u64) {
    if let Some(list) = lists.get_mut(key) {
        list.retain(|other| *other != at);
        if list.is_empty() {
            lists.remove(key);
        }
    }
}

impl Larval {
    pub(super) fn for_workers(workers: u16) -> Self {
        Self { with_spi: vec![0; workers.into()], ..Self::default() }
    }

    /// Number of SAs with an SPI of a class, whose divisor is the number of workers.
    pub(super) fn with_spi(&self, class: SpiClass) -> usize {
        self.with_spi.get(usize::from(class.remainder())).copied().unwrap_or_default()
    }

    fn of_spi(&mut self, spi: Spi) -> Option<&mut usize> {
        let workers = u16::try_from(self.with_spi.len()).unwrap_or(u16::MAX);
        self.with_spi.get_mut(usize::from(SpiClass::of(spi, workers).remainder()))
    }

    pub(super) fn insert(&mut self, at: u64, sa: &Sa) {
        self.by_end.insert((end(sa), at));
        if sa.info.seq != 0 {
            insert_sorted(self.by_event.entry(sa.info.seq).or_default(), at);
        }
        match sa.info.spi {
            None => insert_sorted(self.waiting.entry(Kind::of_sa(sa)).or_default(), at),
            Some(spi) => self.of_spi(spi).into_iter().for_each(|count| *count += 1),
        }
        *self.counts.entry((Kind::of_sa(sa), sa.if_id)).or_default() += 1;
    }

    /// One that had no SPI gets one.
    pub(super) fn name(&mut self, at: u64, sa: &Sa, spi: Spi) {
        drop_from(&mut self.waiting, &Kind::of_sa(sa), at);
        self.of_spi(spi).into_iter().for_each(|count| *count += 1);
    }

    /// Forgets an SA, if it is here.
    pub(super) fn remove(&mut self, at: u64, sa: &Sa) {
        if !self.by_end.remove(&(end(sa), at)) {
            return;
        }
        drop_from(&mut self.by_event, &sa.info.seq, at);
        drop_from(&mut self.waiting, &Kind::of_sa(sa), at);
        if let Some(count) = sa.info.spi.and_then(|spi| self.of_spi(spi)) {
            *count = count.saturating_sub(1);
        }
        let of = (Kind::of_sa(sa), sa.if_id);
        if let Some(count) = self.counts.get_mut(&of) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&of);
            }
        }
    }

    /// True if there is one of an SA's kind for its interface.
    pub(super) fn has(&self, sa: &Sa) -> bool {
        self.counts.contains_key(&(Kind::of_sa(sa), sa.if_id))
    }

    /// Numbers of the SAs of an acquire event, the newest first.
    pub(super) fn of_event(&self, seq: u32) -> impl Iterator<Item = u64> {
        self.by_event.get(&seq).into_iter().flatten().rev().copied()
    }

    /// Numbers of the SAs of a kind that have no SPI yet, the newest first.
    pub(super) fn waiting(&self, kind: &Kind) -> impl Iterator<Item = u64> {
        self.waiting.get(kind).into_iter().flatten().rev().copied()
    }

    /// Numbers of the SAs whose time is over at `now`.
    pub(super) fn ended(&self, now: u64) -> impl Iterator<Item = u64> {
        self.by_end.range(..=(now, u64::MAX)).map(|(_, at)| *at)
    }
}

/// Second in which a larval SA ends.
fn end(sa: &Sa) -> u64 {
    sa.info.usage.add_time.saturating_add(sa.info.limits.add_seconds.hard)
}
