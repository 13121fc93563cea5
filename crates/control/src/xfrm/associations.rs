//! SAs by identity, as `net/xfrm/xfrm_state.c` keeps them: live ones, and larval ones that only hold
//! an SPI until a daemon brings their keys.

mod larval;
mod spi_class;

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};

use convoy_wire::Spi;
use convoy_xfrm::{
    AllocSpi, Errno, Mark, ProtocolFilter, Refusal, Sa, SaInfo, SaKey, SaProtocol, Usage,
};

use super::plane::Placed;
use larval::{Kind, Larval};
pub use spi_class::SpiClass;

/// Seconds that a larval SA waits for its keys where the host says nothing else: a kernel's own value of
/// `net.core.xfrm_acq_expires`.
pub const LARVAL_SECONDS: u64 = 30;
/// Maximum number of SAs; a kernel's limit is its memory.
const SAS_MAX: usize = 1 << 20;

/// The SAs that daemons made.
#[derive(Debug, Default)]
pub struct Associations {
    /// By when they came, later ones with higher numbers.
    stored: BTreeMap<u64, Association>,
    /// By protocol and SPI, the newest last; those that have none yet are not here.
    by_spi: HashMap<(SaProtocol, Spi), Vec<u64>>,
    /// Larval SAs.
    larval: Larval,
    /// Seconds that larval SAs to come wait for their keys; `None`: [`LARVAL_SECONDS`].
    larval_seconds: Option<u64>,
    /// Number of the next SA.
    next: u64,
}

/// An SA and how far it is.
#[derive(Debug)]
pub struct Association {
    /// Number in the order of arrival: later ones have higher numbers.
    pub number: u64,
    /// The SA as the XFRM protocol describes it.
    pub sa: Sa,
    /// True if it has no keys yet.
    pub is_larval: bool,
    /// Position in the workers' picture; `None` for a larval SA.
    pub placed: Option<Placed>,
    /// Source of its packets that daemons were last told, and the time of that in seconds since 1970.
    pub mapped: Option<(SocketAddr, u64)>,
}

impl Association {
    const fn new(sa: Sa, is_larval: bool) -> Self {
        Self { number: 0, sa, is_larval, placed: None, mapped: None }
    }
}

/// True if a request or packet with this mark means an SA.
fn takes(sa: &Sa, mark: Mark) -> bool {
    sa.mark.matches(mark.value & mark.mask)
}

/// Result of an addition.
#[derive(Debug)]
pub struct Added<'a> {
    /// The SA as it is now.
    pub now: &'a mut Association,
    /// The larval SA in whose place it came.
    pub larval: Option<Association>,
}

impl Associations {
    /// None, of a gateway with so many workers.
    #[must_use]
    pub fn for_workers(workers: u16) -> Self {
        Self { larval: Larval::for_workers(workers), ..Self::default() }
    }

    /// Seconds that larval SAs wait for their keys.
    #[must_use]
    pub fn larval_seconds(&self) -> u64 {
        self.larval_seconds.unwrap_or(LARVAL_SECONDS)
    }

    /// Has larval SAs to come wait for their keys so many seconds.
    pub fn set_larval_seconds(&mut self, seconds: u64) {
        self.larval_seconds = Some(seconds);
    }

    /// Number of larval SAs that hold an SPI of a class, whose divisor is the number of workers.
    #[must_use]
    pub fn waiting_in(&self, class: SpiClass) -> usize {
        self.larval.with_spi(class)
    }

    /// Gives out an SPI within the range that a request names, at `now` in seconds since 1970, and holds
    /// it by a larval SA: one of the class `wanted`, if that has a free one. `draw` gives a random number between two,
    /// both included.
    ///
    /// # Errors
    /// `ENOENT` when no SPI was free, `ENOMEM` when there are 2²⁰ SAs.
    pub fn allocate(
        &mut self,
        request: &AllocSpi,
        now: u64,
        wanted: Option<SpiClass>,
        mut draw: impl FnMut(u32, u32) -> u32,
    ) -> Result<&Sa, Refusal> {
        let at = match self.acquire_of(request) {
            Some(at) => at,
            None => {
                self.store(Association::new(waiting(request, self.larval_seconds(), now), true))?
            }
        };
        let has_spi = self.stored.get(&at).is_some_and(|found| found.sa.info.spi.is_some());
        if !has_spi {
            // Without one it waits all the same, and the next request of its kind finds it.
            let spi = self.free_spi(request, wanted, &mut draw).ok_or_else(|| {
                Refusal::new(Errno::ENOENT, "No SPI available in the requested range")
            })?;
            self.name(at, spi);
        }
        let found = self.stored.get_mut(&at).ok_or(Refusal::bare(Errno::ENOENT))?;
        if request.direction.is_some() {
            found.sa.direction = request.direction;
        }
        Ok(&found.sa)
    }

    /// The larval SA that waits for this request: of its acquire event, or of its addresses.
    fn acquire_of(&self, request: &AllocSpi) -> Option<u64> {
        let AllocSpi { destination, mark, cpu, .. } = *request;
        let by_seq = self.of_acquire(request.seq, mark, cpu);
        let by_seq = by_seq.filter(|(_, sa)| sa.info.destination == destination);
        by_seq.or_else(|| self.waiting(&Kind::of_request(request), mark, cpu)).map(|(at, _)| at)
    }

    /// The newest larval SA of an acquire event.
    fn of_acquire(&self, seq: u32, mark: Mark, cpu: Option<u32>) -> Option<(u64, &Sa)> {
        // None has number 0.
        self.first(self.larval.of_event(seq), mark, cpu)
    }

    /// The newest larval SA of a kind without an SPI.
    fn waiting(&self, kind: &Kind, mark: Mark, cpu: Option<u32>) -> Option<(u64, &Sa)> {
        self.first(self.larval.waiting(kind), mark, cpu)
    }

    /// The first of these that such a request means.
    fn first(
        &self,
        mut all: impl Iterator<Item = u64>,
        mark: Mark,
        cpu: Option<u32>,
    ) -> Option<(u64, &Sa)> {
        all.find_map(|at| {
            let sa = &self.stored.get(&at)?.sa;
            (takes(sa, mark) && sa.cpu == cpu).then_some((at, sa))
        })
    }

    /// An SPI that no SA of the protocol has, after at most as many draws as the range is wide, and as it has of the
    /// class.
    fn free_spi(
        &self,
        request: &AllocSpi,
        wanted: Option<SpiClass>,
        draw: &mut impl FnMut(u32, u32) -> u32,
    ) -> Option<Spi> {
        /// Of a full range nobody waits for more.
        const DRAWS_MAX: u32 = 1 << 16;
        // Numbers from `first` on, each `step` behind the one before.
        let mut find = |first: u32, last: u32, step: u32| {
            let steps = last.saturating_sub(first) / step;
            let draws = steps.saturating_add(1).min(DRAWS_MAX);
            (0..draws).find_map(|_| {
                // All of them are below `last`.
                let spi = match steps {
                    0 => first,
                    _ if step == 1 => draw(first, last),
                    _ => first + draw(0, steps) * step,
                };
                let spi = Spi::new(spi)?;
                (!self.by_spi.contains_key(&(request.protocol, spi))).then_some(spi)
            })
        };
        let (min, max) = (request.min, request.max);
        let wanted = wanted.filter(|class| class.step() > 1);
        let own = wanted.and_then(|class| Some((class.within(min, max)?, class.step())));
        own.and_then(|((first, last), step)| find(first, last, step)).or_else(|| find(min, max, 1))
    }

    /// Adds an SA with its keys at `now`. A larval one without an SPI that waited for it goes.
    ///
    /// # Errors
    /// `EEXIST` when there is an SA of its identity, also a larval one; `ENOMEM` when there are 2²⁰.
    pub fn add(&mut self, sa: Sa, now: u64) -> Result<Added<'_>, Refusal> {
        if self.same_identity(&sa).is_some() {
            return Err(Refusal::bare(Errno::EEXIST));
        }
        let waiting = self.acquire_for(&sa);
        let at = self.store(Association::new(begun(sa, now), false))?;
        let larval = waiting.and_then(|at| self.take(at));
        let now = self.stored.get_mut(&at).ok_or(Refusal::bare(Errno::ENOENT))?;
        Ok(Added { now, larval })
    }

    /// The larval SA without an SPI in whose place one with keys comes.
    fn acquire_for(&self, sa: &Sa) -> Option<u64> {
        let info = &sa.info;
        let by_seq = self.of_acquire(info.seq, sa.mark, sa.cpu).filter(|(_, one)| {
            (one.info.protocol, one.info.destination) == (info.protocol, info.destination)
        });
        let found = by_seq.or_else(|| self.waiting(&Kind::of_sa(sa), sa.mark, sa.cpu));
        found.map(|(at, _)| at)
    }

    /// Gives a larval SA its keys, or a live one other limits, ports and marks (`xfrm_state_update`).
    ///
    /// # Errors
    /// `ESRCH` when there is no SA of its identity; `EINVAL` when a live one would gain, lose or
    /// change its kind of encapsulation.
    pub fn update(&mut self, sa: Sa, now: u64) -> Result<Added<'_>, Refusal> {
        let at = self.same_identity(&sa).ok_or(Refusal::bare(Errno::ESRCH))?;
        let gone = Refusal::bare(Errno::ESRCH);
        if self.stored.get(&at).is_some_and(|found| found.is_larval) {
            let larval = self.take(at);
            let at = self.store(Association::new(begun(sa, now), false))?;
            let now = self.stored.get_mut(&at).ok_or(gone)?;
            return Ok(Added { now, larval });
        }
        let found = self.stored.get_mut(&at).ok_or(gone)?;
        match (&mut found.sa.encap, sa.encap) {
            (Some(before), Some(now)) if before.kind == now.kind => *before = now,
            (None, None) => {}
            _ => return Err(Refusal::bare(Errno::EINVAL)),
        }
        if found.sa.care_of.is_some() && sa.care_of.is_some() {
            found.sa.care_of = sa.care_of;
        }
        found.sa.info.limits = sa.info.limits;
        if sa.output_mark != Mark::default() || sa.if_id != 0 {
            found.sa.output_mark = sa.output_mark;
            if sa.if_id != 0 {
                found.sa.if_id = sa.if_id;
            }
        }
        Ok(Added { now: found, larval: None })
    }

    /// The SA that a new one would be the twin of.
    fn same_identity(&self, sa: &Sa) -> Option<u64> {
        let SaInfo { destination, spi, protocol, .. } = sa.info;
        self.by_id(destination, spi?, protocol, sa.mark)
    }

    fn by_id(
        &self,
        destination: IpAddr,
        spi: Spi,
        protocol: SaProtocol,
        mark: Mark,
    ) -> Option<u64> {
        let newest_first = self.by_spi.get(&(protocol, spi))?.iter().rev();
        newest_first.copied().find(|at| {
            let found = self.stored.get(at);
            found.is_some_and(|f| f.sa.info.destination == destination && takes(&f.sa, mark))
        })
    }

    /// The SA that a request names.
    ///
    /// # Errors
    /// `ESRCH`.
    pub fn get(&self, key: &SaKey) -> Result<&Association, Refusal> {
        let found = self.find(key).and_then(|at| self.stored.get(&at));
        found.ok_or(Refusal::bare(Errno::ESRCH))
    }

    /// The same, to be brought up to date.
    ///
    /// # Errors
    /// `ESRCH`.
    pub fn get_mut(&mut self, key: &SaKey) -> Result<&mut Association, Refusal> {
        let found = self.find(key).and_then(|at| self.stored.get_mut(&at));
        found.ok_or(Refusal::bare(Errno::ESRCH))
    }

    /// The SA of this number.
    pub fn by_number(&mut self, number: u64) -> Option<&mut Association> {
        self.stored.get_mut(&number)
    }

    /// The same, to look at.
    #[must_use]
    pub fn of_number(&self, number: u64) -> Option<&Association> {
        self.stored.get(&number)
    }

    /// Removes the SA of this number.
    pub fn remove_number(&mut self, number: u64) -> Option<Association> {
        self.take(number)
    }

    /// Takes back that an SA came, and returns it; the larval one in whose place it came waits again where it did.
    pub fn take_back(&mut self, number: u64, larval: Option<Association>) -> Option<Association> {
        let came = self.take(number);
        if let Some(larval) = larval {
            // There is room, for there was a moment ago.
            self.enter(larval);
        }
        came
    }

    /// The newest SA that came before the one of this number, or the newest of all: dumps show SAs in this
    /// order.
    pub fn before(&mut self, number: Option<u64>) -> Option<&mut Association> {
        let mut older = self.stored.range_mut(..number.unwrap_or(u64::MAX));
        older.next_back().map(|(_, found)| found)
    }

    /// Checks that a new SA of this identity would not be refused.
    ///
    /// # Errors
    /// `EEXIST`.
    pub fn is_free(&self, sa: &Sa) -> Result<(), Refusal> {
        match self.same_identity(sa) {
            Some(_) => Err(Refusal::bare(Errno::EEXIST)),
            None => Ok(()),
        }
    }

    /// The SA that an update of this identity would change: a larval one gets its keys.
    ///
    /// # Errors
    /// `ESRCH`.
    pub fn twin(&self, sa: &Sa) -> Result<&Association, Refusal> {
        let found = self.same_identity(sa).and_then(|at| self.stored.get(&at));
        found.ok_or(Refusal::bare(Errno::ESRCH))
    }

    /// Keeps a larval SA that an acquire event asks daemons to fill.
    ///
    /// # Errors
    /// `EEXIST` when one waits of its protocol, mode, reqid, interface and addresses, `ENOMEM` when there are 2²⁰ SAs.
    pub fn want(&mut self, sa: Sa) -> Result<(), Refusal> {
        if self.larval.has(&sa) {
            return Err(Refusal::bare(Errno::EEXIST));
        }
        self.store(Association::new(sa, true)).map(drop)
    }

    /// Removes the SA that a request names.
    ///
    /// # Errors
    /// `ESRCH`.
    pub fn remove(&mut self, key: &SaKey) -> Result<Association, Refusal> {
        self.find(key).and_then(|at| self.take(at)).ok_or(Refusal::bare(Errno::ESRCH))
    }

    fn find(&self, key: &SaKey) -> Option<u64> {
        self.by_id(key.destination, key.spi?, key.protocol, key.mark)
    }

    /// Removes all SAs of these protocols and returns them.
    pub fn flush(&mut self, protocol: ProtocolFilter) -> Vec<Association> {
        let matching = self.stored.iter().filter(|(_, f)| protocol.matches(f.sa.info.protocol));
        let all: Vec<u64> = matching.map(|(at, _)| *at).collect();
        all.iter().filter_map(|at| self.take(*at)).collect()
    }

    /// Removes and returns larval SAs whose time is over at `now`.
    pub fn expire_larval(&mut self, now: u64) -> Vec<Sa> {
        let all: Vec<u64> = self.larval.ended(now).collect();
        all.iter().filter_map(|at| self.take(*at)).map(|found| found.sa).collect()
    }

    /// All SAs in the order of a dump, the newest first; `from` is where one before ended.
    pub fn dump(&self, from: Option<u64>) -> impl Iterator<Item = (u64, &Association)> {
        let end = from.unwrap_or(u64::MAX);
        self.stored.range(..end).rev().map(|(at, found)| (*at, found))
    }

    /// Number of SAs, larval ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.stored.len()
    }

    /// Returns true if there is no SA.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.stored.is_empty()
    }

    fn store(&mut self, association: Association) -> Result<u64, Refusal> {
        if self.stored.len() >= SAS_MAX {
            return Err(Refusal::new(Errno::ENOMEM, "The table of SAs is full"));
        }
        let number = self.next;
        self.next += 1;
        self.enter(Association { number, ..association });
        Ok(number)
    }

    /// Brings an SA that has a number to where it belongs.
    fn enter(&mut self, association: Association) {
        let at = association.number;
        let SaInfo { protocol, spi, .. } = association.sa.info;
        if let Some(spi) = spi {
            insert_sorted(self.by_spi.entry((protocol, spi)).or_default(), at);
        }
        if association.is_larval {
            self.larval.insert(at, &association.sa);
        }
        self.stored.insert(at, association);
    }

    /// Gives an SA that has none its SPI.
    fn name(&mut self, at: u64, spi: Spi) {
        let Some(found) = self.stored.get_mut(&at) else { return };
        self.larval.name(at, &found.sa, spi);
        found.sa.info.spi = Some(spi);
        self.by_spi.entry((found.sa.info.protocol, spi)).or_default().push(at);
    }

    fn take(&mut self, at: u64) -> Option<Association> {
        let found = self.stored.remove(&at)?;
        let SaInfo { protocol, spi, .. } = found.sa.info;
        self.larval.remove(at, &found.sa);
        if let Some(spi) = spi
            && let Some(all) = self.by_spi.get_mut(&(protocol, spi))
        {
            all.retain(|other| *other != at);
            if all.is_empty() {
                self.by_spi.remove(&(protocol, spi));
            }
        }
        Some(found)
    }
}

/// Puts a number into a list in which later ones are behind.
fn insert_sorted(list: &mut Vec<u64>, number: u64) {
    let place = list.partition_point(|other| *other < number);
    list.insert(place, number);
}

/// An SA with keys as it is when it begins; what it has done may go on from elsewhere.
fn begun(mut sa: Sa, now: u64) -> Sa {
    let fresh = Usage { add_time: now, ..Usage::default() };
    sa.info.usage = sa.state.usage.take().unwrap_or(fresh);
    sa
}

/// Larval SA before an SPI is found: it has no direction yet.
fn waiting(request: &AllocSpi, seconds: u64, now: u64) -> Sa {
    Sa { direction: None, ..request.larval(None, seconds, now) }
}

#[cfg(test)]
mod tests {
    use convoy_xfrm::{Encap, Limit, Limits, Mode};

    use super::*;

    fn local() -> IpAddr {
        [192, 0, 2, 1].into()
    }

    fn request(spi: u32, reqid: u32) -> AllocSpi {
        AllocSpi {
            destination: local(),
            source: [192, 0, 2, 9].into(),
            protocol: SaProtocol::Esp,
            mode: Mode::Tunnel,
            seq: 0,
            reqid,
            min: spi,
            max: spi,
            mark: Mark::default(),
            if_id: 0,
            direction: None,
            cpu: None,
            others: Default::default(),
        }
    }

    /// As a daemon sends it.
    fn with_keys(spi: u32, reqid: u32) -> Sa {
        let mut sa = request(spi, reqid).larval(Spi::new(spi), 0, 0);
        sa.info.limits = Limits::NONE;
        sa
    }

    fn key(spi: u32) -> SaKey {
        let (destination, protocol) = (local(), SaProtocol::Esp);
        let mark = Mark::default();
        SaKey { destination, spi: Spi::new(spi), protocol, source: None, mark, if_id: 0 }
    }

    fn errno<T>(outcome: Result<T, Refusal>) -> Option<Errno> {
        outcome.err().map(|refusal| refusal.errno)
    }

    /// Steps of daemons for an inbound SA: an SPI first, then `UPDSA` with the keys.
    #[test]
    fn a_larval_sa_gets_its_keys_by_an_update_only() {
        let mut sas = Associations::default();
        assert_eq!(
            sas.allocate(&request(256, 1), 5, None, |_, _| 0).unwrap().info.spi,
            Spi::new(256)
        );
        assert!(sas.get(&key(256)).unwrap().is_larval);
        assert_eq!(errno(sas.add(with_keys(256, 1), 6)), Some(Errno::EEXIST));
        assert_eq!(errno(sas.update(with_keys(257, 1), 6)), Some(Errno::ESRCH));
        let updated = sas.update(with_keys(256, 1), 6).unwrap();
        assert_eq!(updated.larval.unwrap().sa.info.limits.add_seconds.hard, LARVAL_SECONDS);
        assert_eq!(
            (updated.now.sa.info.limits, updated.now.sa.info.usage.add_time),
            (Limits::NONE, 6)
        );
        assert!(!sas.get(&key(256)).unwrap().is_larval);
        assert_eq!(sas.len(), 1);
        assert!(sas.expire_larval(1000).is_empty(), "it has keys");
    }

    #[test]
    fn a_larval_sa_without_keys_ends_after_its_time() {
        let mut sas = Associations::default();
        sas.allocate(&request(256, 1), 100, None, |_, _| 0).unwrap();
        sas.allocate(&request(257, 1), 101, None, |_, _| 0).unwrap();
        assert!(sas.expire_larval(100 + LARVAL_SECONDS - 1).is_empty());
        let gone = sas.expire_larval(100 + LARVAL_SECONDS);
        assert_eq!(gone.iter().map(|sa| sa.info.spi).collect::<Vec<_>>(), [Spi::new(256)]);
        assert_eq!(errno(sas.get(&key(256))), Some(Errno::ESRCH));
        assert_eq!(sas.len(), 1);
    }

    #[test]
    fn larval_sas_end_by_the_time_that_was_set_when_they_came() {
        let mut sas = Associations::default();
        sas.allocate(&request(256, 1), 100, None, |_, _| 0).unwrap();
        sas.set_larval_seconds(165);
        let later = sas.allocate(&request(257, 1), 100, None, |_, _| 0).unwrap();
        assert_eq!(later.info.limits.add_seconds.hard, 165);
        assert_eq!(sas.expire_larval(100 + LARVAL_SECONDS).len(), 1);
        assert!(sas.expire_larval(264).is_empty());
        assert_eq!(sas.expire_larval(265).len(), 1);
    }

    /// A daemon that gets many SPIs for one peer before it brings any keys.
    #[test]
    fn a_hundred_thousand_larval_sas_are_no_burden() {
        const COUNT: u32 = 100_000;
        let mut sas = Associations::default();
        let begin = std::time::Instant::now();
        for n in 0..COUNT {
            let second = 100 + u64::from(n / 10_000);
            sas.allocate(&request(1000 + n, 1), second, None, |_, _| 0).unwrap();
        }
        assert_eq!(errno(sas.want(with_keys(1, 1))), Some(Errno::EEXIST), "one of its kind waits");
        // All would take minutes if each looked at those before.
        assert!(begin.elapsed().as_secs() < 20, "{:?}", begin.elapsed());
        let gone = sas.expire_larval(102 + LARVAL_SECONDS);
        assert_eq!((gone.len(), sas.len()), (30_000, 70_000));
        for n in 30_000..COUNT {
            sas.update(with_keys(1000 + n, 1), 130).unwrap();
        }
        assert!(sas.expire_larval(1000).is_empty(), "they have keys");
        assert!(sas.want(with_keys(1, 1)).is_ok());
    }

    /// An outbound SA comes by `NEWSA`, in the place of what its acquire event left.
    #[test]
    fn a_new_sa_takes_the_place_of_the_one_that_waited() {
        let mut sas = Associations::default();
        // Nothing is free, so it waits without an SPI.
        sas.allocate(&request(256, 7), 1, None, |_, _| 0).unwrap();
        assert_eq!(errno(sas.allocate(&request(256, 1), 1, None, |_, _| 0)), Some(Errno::ENOENT));
        let added = sas.add(with_keys(300, 2), 2).unwrap();
        assert!(added.larval.is_none(), "of another reqid");
        let added = sas.add(with_keys(301, 1), 2).unwrap();
        assert_eq!(added.larval.map(|larval| larval.sa.info.spi), Some(None));
        assert_eq!(sas.len(), 3);
    }

    #[test]
    fn a_live_sa_keeps_its_keys_and_counters_when_it_changes() {
        let encap = |kind| Encap {
            kind,
            source_port: 4500,
            destination_port: 4501,
            original: [0; 4].into(),
        };
        let mut sas = Associations::default();
        let mut first = with_keys(256, 1);
        (first.encap, first.mark) = (Some(encap(2)), Mark { value: 4, mask: 4 });
        let used = Usage { bytes: 10, packets: 2, add_time: 3, use_time: 4 };
        first.state.usage = Some(used);
        assert_eq!(sas.add(first, 9).unwrap().now.sa.info.usage, used, "it was moved here");
        // Its mark is part of its identity.
        assert_eq!(errno(sas.update(with_keys(256, 1), 9)), Some(Errno::ESRCH));
        let marked = |encap| {
            let mut sa = with_keys(256, 1);
            (sa.mark, sa.encap, sa.if_id) = (Mark { value: 4, mask: 4 }, encap, 12);
            sa.info.limits.packets = Limit { soft: 1, hard: 2 };
            sa
        };
        assert_eq!(errno(sas.update(marked(None), 9)), Some(Errno::EINVAL));
        assert_eq!(errno(sas.update(marked(Some(encap(1))), 9)), Some(Errno::EINVAL));
        let changed = sas.update(marked(Some(encap(2))), 9).unwrap();
        assert_eq!((changed.now.sa.info.usage, changed.now.sa.if_id), (used, 12));
        assert_eq!(changed.now.sa.info.limits.packets, Limit { soft: 1, hard: 2 });
        assert!(changed.larval.is_none());
        let marked = SaKey { mark: Mark { value: 4, mask: u32::MAX }, ..key(256) };
        assert!(!sas.remove(&marked).unwrap().is_larval);
        assert!(sas.is_empty());
    }
}
