//! Snapshot that workers see of the SAs and policies that daemons made.
//!
//! Every change is made in a draft of the next snapshot, which is published or forgotten. The site's own SAs and
//! policies are in the same snapshots and are not touched: SAs have slots of their own, and reqids.

mod ends;
mod graves;
mod groups;
mod honoured;
mod interfaces;
mod owners;
mod placed;
mod policies;
mod sa;
mod surroundings;

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use convoy_crypto::{Cipher, Suite};
use convoy_engine::registry::Drivers;
use convoy_ipsec::key::SaKeyMaterial;
use convoy_ipsec::sa::{ReqId, SaSlot, WorkerId};
use convoy_ipsec::selector::Direction;
use convoy_ipsec::sequence::SequenceLimits;
use convoy_ipsec::snapshot::{Draft, MAX_SLOTS, Published, Snapshot, SnapshotError};
use convoy_ipsec::spd::{PolicyId, SpdId};
use convoy_ipsec::trace::longest_inner;
use convoy_wire::{FlowKey, Prefix, SeqNum};
use convoy_xfrm::{Addresses, AllocSpi, Errno, Policy, PolicyInfo, Refusal, Sa, SaFlags};

use super::Moment;
use super::transform::key_material;
use crate::lease::{HashKey, RecordId};
use crate::site::WorkerRule;
use crate::xfrm::SpiClass;
use crate::xfrm::keep::{Admission, Keeper, Kept, Numbering, Past};
use ends::Ends;
use graves::Graves;
use groups::{Group, Groups, Member, Numbers};
use interfaces::Interfaces;
use owners::Owners;
pub use placed::Placed;
use policies::Placement;
pub(super) use policies::{Numbered, PolicyMove, Read};
pub(super) use sa::direction_of;
use sa::{Keys, Known, Way};
use surroundings::Surroundings;

/// Properties of a gateway on which SAs and policies of daemons depend.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Implementations that work with keys.
    pub drivers: Drivers,
    /// The database that the plain interface asks.
    pub spd: SpdId,
    /// Interface identifiers (`if_id`) with their databases, in the order of the interfaces' numbers, of
    /// which the first is 1.
    pub interfaces: Vec<(u32, SpdId)>,
    /// Number of workers.
    pub workers: u16,
    /// Rules by which they own SAs.
    pub worker_rules: Vec<WorkerRule>,
    /// The UDP port for ESP.
    pub udp_port: u16,
    /// Largest outer packet in bytes where no route says so.
    pub wire_mtu: u16,
    /// True if SAs may have ciphers of old peers.
    pub legacy: bool,
}

/// Direction of an SA's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Course {
    pub(super) direction: Direction,
    /// True if nothing says so. Such an SA receives, which uses no nonce, until something says that it sends.
    pub(super) is_guess: bool,
    /// True if its source address is an address of this host.
    pub(super) source_is_here: bool,
}

/// An SA whose keys and wishes are checked, and that is in no snapshot yet.
#[derive(Debug)]
pub(super) struct Checked {
    keys: Keys,
    direction: Direction,
    is_guess: bool,
    way: Way,
}

/// A peer to which the largest outer packet has another size than before, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathChange {
    /// The peer.
    pub peer: IpAddr,
    /// The size of before.
    pub before: u16,
    /// The size of now.
    pub now: u16,
}

/// An SA with its place, which is in no snapshot yet.
#[derive(Debug)]
pub(super) struct Reserved {
    pub(super) placed: Placed,
    /// Identity for policies.
    pub(super) numbers: Numbers,
    /// The highest sequence number that may have been used.
    pub(super) sent: SeqNum,
}

/// The snapshot of workers, as far as daemons make it.
#[derive(Debug)]
pub(super) struct Plane {
    surroundings: Surroundings,
    published: Arc<Published>,
    groups: Groups,
    graves: Graves,
    keeper: Option<Keeper>,
    placement: Placement,
    owners: Owners,
    /// That of the last SA.
    serial: u64,
    generation: u64,
}

fn inconsistent(error: SnapshotError) -> Refusal {
    match error {
        SnapshotError::InboundSpiTwice { .. } | SnapshotError::OutboundKeyTwice { .. } => {
            Refusal::new(Errno::EEXIST, error.to_string())
        }
        SnapshotError::Full(_) => Refusal::new(Errno::ENOMEM, error.to_string()),
        _ => Refusal::new(Errno::EINVAL, error.to_string()),
    }
}

/// Refusal of a change that could not be written down, and is not made.
pub(super) fn unkept(error: &std::io::Error) -> Refusal {
    Refusal::new(Errno::ENOMEM, format!("The state folder cannot be written: {error}"))
}

impl Plane {
    /// # Errors
    /// Fails if the system has no random numbers.
    pub(super) fn new(
        setting: Setting,
        published: Arc<Published>,
    ) -> Result<Self, getrandom::Error> {
        let Setting { drivers, spd, interfaces, udp_port, wire_mtu, legacy, .. } = setting;
        let interfaces = Interfaces::new(spd, interfaces);
        Ok(Self {
            surroundings: Surroundings { drivers, udp_port, wire_mtu, interfaces, legacy },
            published,
            groups: Groups::default(),
            graves: Graves::new()?,
            keeper: None,
            placement: Placement::default(),
            owners: Owners::new(setting.workers, setting.worker_rules),
            serial: 0,
            generation: 0,
        })
    }

    /// The number of the last snapshot that was published here; 0 for none.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Has workers see a draft from now on.
    pub(super) fn commit(&mut self, draft: Draft<'_>) {
        self.generation = draft.commit();
    }

    /// Has numbers kept from now on, and remembers those of the previous run.
    pub(super) fn keep<'a>(
        &mut self,
        keeper: Keeper,
        hash: Option<HashKey>,
        past: impl Iterator<Item = &'a Past>,
    ) {
        if let Some(hash) = hash {
            self.graves.keep(hash);
        }
        let mut past: Vec<_> = past.map(|past| &past.cell).collect();
        past.sort_unstable_by_key(|cell| cell.serial);
        let mut bounds = HashMap::new();
        for cell in &past {
            let bound: &mut u64 = bounds.entry((cell.direction, cell.key)).or_default();
            *bound = cell.bound().max(*bound);
        }
        // The oldest first: they are forgotten first.
        for cell in past {
            let Some(bound) = bounds.remove(&(cell.direction, cell.key)) else { continue };
            match cell.direction {
                Direction::Outbound => self.graves.remember_lease(cell.key, SeqNum::new(bound)),
                Direction::Inbound => self.graves.remember_floor(cell.key, SeqNum::new(bound)),
            }
        }
        self.keeper = Some(keeper);
    }

    /// Checks that workers can do what an SA with keys asks for. `path_mtu` is its largest outer packet in bytes, where
    /// a route says so.
    ///
    /// # Errors
    /// As a kernel would refuse it; `EOPNOTSUPP` for what only Convoy cannot do.
    pub(super) fn check(
        &self,
        sa: &Sa,
        course: Course,
        path_mtu: Option<u16>,
    ) -> Result<Checked, Refusal> {
        let (protocol, material) = key_material(sa.info.protocol, &sa.transform)?;
        let Course { direction, is_guess, source_is_here } = course;
        honoured::suite(material.suite(), &self.surroundings)?;
        honoured::sa(sa, direction, &self.surroundings)?;
        let keys = Keys { protocol, material };
        Ok(Checked { keys, direction, is_guess, way: Way { source_is_here, path_mtu } })
    }

    /// Reserves what an SA is to have: a slot of a draft, a worker, its place in the groups that policies name it by, and
    /// its sequence numbers; with `past` it is one of the previous run. It is to [enter](Plane::enter) that draft, or
    /// to be [given back](Plane::give_back).
    ///
    /// # Errors
    /// `EEXIST` when another SA has its key; `EINVAL` when the key has the other direction; `ENOMEM` when no slot
    /// is free. Then nothing has changed.
    pub(super) fn reserve(
        &mut self,
        sa: &Sa,
        checked: &Checked,
        past: Option<&Past>,
        draft: &Snapshot,
        at: Moment,
    ) -> Result<Reserved, Refusal> {
        let counters = sa::counters(sa, at);
        if let Some(past) = past {
            past.cell.counts.restore(&counters);
        }
        let (sent, received) = sa::numbers(sa);
        // What the previous run wrote of this SA, also when there are too many keys to remember them all.
        let bound = SeqNum::new(past.map_or(0, |past| past.cell.bound()));
        let (sent, received) = (sent.max(bound), received.max(bound));
        let material = &checked.keys.material;
        let direction = checked.direction;
        let group = Group::of_sa(sa, direction);
        let key = self.graves.name(material, direction);
        self.one_way(material, key, direction)?;
        let spi = sa.info.spi;
        let slot = match direction {
            Direction::Outbound => draft.free_outbound().next(),
            Direction::Inbound => draft.free_inbound().next(),
        };
        let slot = slot.ok_or_else(|| inconsistent(SnapshotError::Full(MAX_SLOTS)))?;
        // From here on only the key of another SA refuses it.
        let lease = match direction {
            Direction::Outbound => Some(self.graves.raise(key, sent, !counts(material))?),
            Direction::Inbound => {
                counters.floor.raise(received.max(self.graves.receive(key)));
                None
            }
        };
        let ends = Ends::of_sa(sa);
        let worker = self.owner(sa, group, direction, draft);
        let is_guess = checked.is_guess;
        let member = Member { direction, is_guess, spi, slot, ends, counters: counters.clone() };
        let numbers = self.groups.join_sa(group, &member);
        self.serial += 1;
        let serial = self.serial;
        let placed = Placed {
            direction,
            slot,
            serial,
            spi,
            group,
            worker,
            ends,
            key,
            counters,
            lease,
            kept: None,
            is_guess,
        };
        self.owners.add(placed.owned());
        Ok(Reserved { placed, numbers, sent })
    }

    /// Adds the record of an SA that has its place to a draft, and has policies use it.
    ///
    /// # Errors
    /// `EEXIST` when another SA has its packets. Then nothing has changed but the draft.
    pub(super) fn enter(
        &self,
        sa: &Sa,
        checked: &Checked,
        placed: &Placed,
        numbers: Numbers,
        draft: &mut Snapshot,
    ) -> Result<(), Refusal> {
        let Placed { serial, worker, slot, group, spi, .. } = *placed;
        let known = Known { serial, numbers, worker, counters: placed.counters.clone() };
        let added = match &placed.lease {
            Some(lease) => {
                let (keys, lease) = (&checked.keys, lease.clone());
                let spec = self.surroundings.outbound(sa, keys, known, lease, checked.way)?;
                draft.add_outbound(slot, Arc::new(spec))
            }
            None => {
                let spec = self.surroundings.inbound(sa, &checked.keys, known)?;
                draft.add_inbound(slot, Arc::new(spec))
            }
        };
        added.map_err(inconsistent)?;
        self.choose(group, self.groups.of_pair(group, spi), draft);
        Ok(())
    }

    /// The worker that is to own an SA that comes.
    fn owner(&self, sa: &Sa, group: Group, direction: Direction, draft: &Snapshot) -> WorkerId {
        let ends = Ends::of_sa(sa);
        match (direction, sa.info.spi) {
            (Direction::Inbound, Some(spi)) => self.owners.of_inbound(spi, ends, sa.if_id),
            _ => {
                let partner = self.groups.partner(group).and_then(|slot| draft.inbound(slot));
                self.owners.of_outbound(partner.map(|sa| sa.worker), ends, sa.if_id)
            }
        }
    }

    /// The SPIs of which an inbound SA is to have one; `waiting` as of [`Owners::spis`].
    pub(super) fn spis(&self, request: &AllocSpi, waiting: impl Fn(SpiClass) -> usize) -> SpiClass {
        let ends = Ends { source: request.source, destination: request.destination };
        self.owners.spis(ends, request.if_id, waiting)
    }

    /// Takes over rules of workers, for SAs to come: the worker of a live one stays.
    pub(super) fn set_worker_rules(&mut self, rules: Vec<WorkerRule>) {
        self.owners.set_rules(rules);
    }

    /// Has an SA's numbers kept before workers see it.
    ///
    /// # Errors
    /// `ENOMEM` when they cannot be written down; `EINVAL` when the previous run used them up.
    pub(super) fn admit(
        &self,
        sa: &Sa,
        placed: &Placed,
        sent: SeqNum,
        past: Option<&Past>,
    ) -> Result<Option<Kept>, Refusal> {
        let Some(keeper) = &self.keeper else { return Ok(None) };
        let way = match &placed.lease {
            Some(lease) => {
                let first = lease.before().max(sent).get().saturating_add(1);
                let hard = SequenceLimits::new(sa.info.flags.any(SaFlags::ESN)).hard.get();
                let limit = hard.saturating_add(1);
                if past.is_some() && first >= limit {
                    return Err(Refusal::new(Errno::EINVAL, "Its sequence numbers are used up"));
                }
                Numbering::Outbound { lease: lease.clone(), first, limit }
            }
            None => Numbering::Inbound,
        };
        let admission = Admission { key: placed.key, counters: placed.counters.clone(), way };
        let kept = keeper.admit(admission, past).map_err(|error| unkept(&error))?;
        Ok(Some(kept))
    }

    /// Changes in a draft what a daemon may change of a live SA.
    ///
    /// # Errors
    /// Refuses what workers cannot do. Then nothing has changed but the draft.
    pub(super) fn change_sa(
        &self,
        sa: &Sa,
        placed: &Placed,
        draft: &mut Snapshot,
    ) -> Result<(), Refusal> {
        let gone = || Refusal::bare(Errno::ESRCH);
        match placed.direction {
            Direction::Outbound => {
                let old = draft.outbound(placed.slot).ok_or_else(gone)?;
                let new = Arc::new(sa::changed_outbound(old, sa));
                draft.replace_outbound(placed.slot, new).map_err(inconsistent)?;
            }
            Direction::Inbound => {
                let old = draft.inbound(placed.slot).ok_or_else(gone)?;
                let new = Arc::new(sa::changed_inbound(old, sa));
                draft.replace_inbound(placed.slot, new).map_err(inconsistent)?;
            }
        }
        Ok(())
    }

    /// Takes SAs out of the snapshot. Their keys are [to be buried](Plane::bury) behind that: it is written, and
    /// workers stop at once however many there are.
    pub(super) fn hide_sas<'a>(
        &mut self,
        all: impl IntoIterator<Item = &'a Placed>,
        mut draft: Draft<'_>,
    ) {
        for placed in all {
            match placed.direction {
                Direction::Outbound => drop(draft.remove_outbound(placed.slot)),
                Direction::Inbound => drop(draft.remove_inbound(placed.slot)),
            }
            let pairs = self.groups.of_pair(placed.group, placed.spi);
            self.leave(placed);
            self.choose(placed.group, pairs, &mut draft);
        }
        self.commit(draft);
    }

    /// Makes policies of many hosts use the SA between two of them that they are to, now that one came or
    /// went.
    fn choose(&self, group: Group, pairs: Vec<(ReqId, Group)>, draft: &mut Snapshot) {
        for (number, any) in pairs {
            self.groups.choose_between(number, any, group, draft);
        }
    }

    /// Gives back what an SA had that is in no snapshot.
    pub(super) fn give_back(&mut self, placed: &Placed) {
        self.leave(placed);
        self.bury(placed);
    }

    /// An SA leaves its place.
    fn leave(&mut self, placed: &Placed) {
        self.groups.leave_sa(placed.group, placed.spi, placed.direction, placed.slot);
        self.owners.remove(placed.owned());
    }

    /// Remembers what is needed of an SA's key. Its cell is used again only when no worker has its counters.
    pub(super) fn bury(&mut self, placed: &Placed) {
        match placed.direction {
            Direction::Outbound => {
                if let Some(lease) = &placed.lease {
                    self.graves.bury_lease(placed.key, lease);
                }
            }
            Direction::Inbound => {
                self.graves.bury_floor(placed.key, placed.counters.clone());
                if placed.is_guess && placed.counters.packets.get() == 0 {
                    self.graves.forget_floor(placed.key);
                }
            }
        }
        if let (Some(keeper), Some(kept)) = (&self.keeper, placed.kept) {
            keeper.retire(kept);
        }
    }

    /// The direction of an SA is known now: it receives.
    pub(super) fn confirm(&mut self, placed: &mut Placed) {
        placed.is_guess = false;
        self.groups.confirm(placed.group, placed.spi, placed.slot);
    }

    /// Direction of an SA's packets, as policies and other SAs of its kind say; `None` where none does, or some
    /// contradict others.
    pub(super) fn said_of(&self, sa: &Sa) -> Option<Direction> {
        self.groups.direction(Group::of_sa(sa, Direction::Outbound))
    }

    /// SAs whose direction is a guess, and about which this SA may say something.
    pub(super) fn guesses_beside(&self, sa: &Sa) -> Vec<SaSlot> {
        self.groups.guesses(Group::of_sa(sa, Direction::Outbound))
    }

    /// The same of a policy.
    pub(super) fn guesses_of(&self, policy: &Policy) -> Vec<SaSlot> {
        let read = self.read(policy).ok();
        read.and_then(|read| read.group).map_or_else(Vec::new, |group| self.groups.guesses(group))
    }

    /// Direction that the packets of an SA's key had before, if that is known.
    pub(super) fn remembered(&self, sa: &Sa) -> Option<Direction> {
        let (_, material) = key_material(sa.info.protocol, &sa.transform).ok()?;
        self.graves.used(&material)
    }

    /// Refuses a key both ways where nonces are made of sequence numbers: both ends would begin with
    /// the same (RFC 4106 section 3). Ciphers with random IVs do not mind.
    fn one_way(
        &self,
        material: &SaKeyMaterial,
        key: RecordId,
        direction: Direction,
    ) -> Result<(), Refusal> {
        if counts(material) && self.graves.is_other_way_alone(material, key, direction) {
            let text = "This key is used in the other direction: nonces would repeat (RFC 4106)";
            return Err(Refusal::new(Errno::EINVAL, text));
        }
        Ok(())
    }

    /// Checks that workers can do what a policy asks for.
    ///
    /// # Errors
    /// As of [`Plane::check`].
    pub(super) fn read(&self, policy: &Policy) -> Result<Read, Refusal> {
        Read::new(policy, &self.surroundings.interfaces)
    }

    /// Brings a policy into a draft, in the place of the one before. The move is to be [published](Self::publish_policy)
    /// or [taken back](Self::take_back_policy).
    ///
    /// # Errors
    /// Fails if there is no room; then nothing has changed but the draft.
    pub(super) fn place_policy(
        &mut self,
        before: Option<&Policy>,
        after: Numbered,
        draft: &mut Snapshot,
    ) -> Result<PolicyMove, Refusal> {
        let old = before.map(|policy| self.numbered(policy)).transpose()?;
        self.placement.begin(old, Some(after), &mut self.groups, draft)
    }

    fn numbered(&self, policy: &Policy) -> Result<Numbered, Refusal> {
        Ok(Numbered { number: policy.info.index, read: self.read(policy)? })
    }

    /// Has workers see a policy that is in a draft.
    pub(super) fn publish_policy(&mut self, change: PolicyMove, mut draft: Draft<'_>) {
        // Of two policies that are one to workers the second changes nothing.
        if self.placement.finish(change, &mut self.groups, &mut draft) {
            self.commit(draft);
        }
    }

    /// Forgets a policy of a draft that is not published.
    pub(super) fn take_back_policy(&mut self, change: &PolicyMove) {
        self.placement.take_back(change, &mut self.groups);
    }

    /// Takes policies out of the snapshot.
    pub(super) fn remove_policies<'a>(
        &mut self,
        all: impl IntoIterator<Item = &'a Policy>,
        mut draft: Draft<'_>,
    ) {
        let mut is_other = false;
        for policy in all {
            // It was read when it came.
            let Ok(old) = self.numbered(policy) else { continue };
            match self.placement.begin(Some(old), None, &mut self.groups, &mut draft) {
                Ok(change) => {
                    is_other |= self.placement.finish(change, &mut self.groups, &mut draft);
                }
                // Less than there is has room, and a database is there as long as its policies.
                Err(refusal) => {
                    tracing::error!("a removed policy stays in force in workers: {refusal}")
                }
            }
        }
        if is_other {
            self.commit(draft);
        }
    }

    /// The number of the daemon's policy that decides about packets of a flow that leave.
    /// `group` is that of the SAs that they want.
    pub(super) fn policy_of(&self, flow: &FlowKey, group: ReqId) -> Option<u32> {
        let spd = self.surroundings.interfaces.spd(self.groups.if_id(group)?)?;
        let snapshot = self.published.current();
        let decision = snapshot.spd_of(spd)?.lookup(Direction::Outbound, flow)?;
        self.placement.number(spd, decision.id)
    }

    /// The number of the daemon's policy that workers know by this one, in this database.
    pub(super) fn number(&self, spd: SpdId, id: PolicyId) -> Option<u32> {
        self.placement.number(spd, id)
    }

    /// Time of the last packet that a policy decided about, in nanoseconds of the workers' clock; 0
    /// for never.
    pub(super) fn last_use(&self, policy: &Policy) -> u64 {
        let Ok(read) = self.read(policy) else { return 0 };
        if let Some(group) = read.group {
            return self.groups.last_ns(group, read.place.direction);
        }
        let snapshot = self.published.current();
        let spd = snapshot.spd_of(read.place.spd);
        let decided = |id: PolicyId| Some(spd?.uses(id)?.last_packet_ns());
        self.placement.id(&read.place).and_then(decided).unwrap_or(0)
    }

    /// The largest inner packet that fits all outbound SAs of an interface, in bytes, for each identifier
    /// that has SAs.
    pub(super) fn rooms(&self) -> HashMap<u32, u16> {
        let snapshot = self.published.current();
        let mut rooms = HashMap::new();
        for (if_id, slot) in self.groups.outbound() {
            let room = snapshot.outbound(slot).and_then(|sa| longest_inner(sa));
            let Some(room) = room.and_then(|room| u16::try_from(room).ok()) else { continue };
            let least = rooms.entry(if_id).or_insert(room);
            *least = room.min(*least);
        }
        rooms
    }

    /// Takes over drivers that are set otherwise, in these SAs too. Returns how many have another one now.
    ///
    /// # Errors
    /// Fails if an SA would have none; then nothing has changed.
    pub(super) fn set_drivers<'a>(
        &mut self,
        drivers: Drivers,
        all: impl Iterator<Item = (&'a Sa, &'a Placed)>,
        mut draft: Draft<'_>,
    ) -> Result<usize, Refusal> {
        let with = Surroundings { drivers, ..self.surroundings.clone() };
        let mut changed = 0;
        for (sa, placed) in all {
            let (_, material) = key_material(sa.info.protocol, &sa.transform)?;
            let slot = placed.slot;
            let replaced = match placed.direction {
                Direction::Outbound => {
                    let Some(old) = draft.outbound(slot) else { continue };
                    let Some(new) = with.driven_outbound(old, sa, &material)? else { continue };
                    draft.replace_outbound(slot, Arc::new(new)).map(drop)
                }
                Direction::Inbound => {
                    let Some(old) = draft.inbound(slot) else { continue };
                    let Some(new) = with.driven_inbound(old, sa, &material)? else { continue };
                    draft.replace_inbound(slot, Arc::new(new)).map(drop)
                }
            };
            replaced.map_err(inconsistent)?;
            changed += 1;
        }
        self.surroundings = with;
        if changed > 0 {
            self.commit(draft);
        }
        Ok(changed)
    }

    /// Says whether SAs to come may have ciphers of old peers.
    pub(super) fn set_legacy(&mut self, legacy: bool) {
        self.surroundings.legacy = legacy;
    }

    /// Takes over the largest outer packet in bytes where no route says so, and what routes say: `path` has it of two
    /// addresses. An SA whose path is as it was stays as it is. Returns the peers whose SAs changed.
    pub(super) fn follow_paths(
        &mut self,
        wire_mtu: u16,
        mut draft: Draft<'_>,
        path: impl Fn(IpAddr, IpAddr) -> Option<u16>,
    ) -> Vec<PathChange> {
        self.surroundings.wire_mtu = wire_mtu;
        let mut known = HashMap::new();
        let mut changes = BTreeMap::new();
        let mut ours = Vec::new();
        for (slot, sa) in draft.outbound_sas().filter(|(_, sa)| groups::is_daemons(sa.reqid)) {
            let (from, to) = (sa.endpoints.local, sa.endpoints.remote);
            let now =
                *known.entry((from, to)).or_insert_with(|| path(from, to).unwrap_or(wire_mtu));
            let before = sa.path_mtu;
            if before != now {
                changes.entry(to).or_insert(PathChange { peer: to, before, now });
                ours.push((slot, Arc::new(sa::with_path_mtu(sa, now))));
            }
        }
        if ours.is_empty() {
            return Vec::new();
        }
        for (slot, sa) in ours {
            // Only its path differs, so there is nothing to refuse.
            let _ = draft.replace_outbound(slot, sa);
        }
        self.commit(draft);
        changes.into_values().collect()
    }
}

/// True if a cipher's nonces are made of sequence numbers: RFC 3602 wants IVs of CBC that nobody can predict, and
/// they come from a generator.
fn counts(material: &SaKeyMaterial) -> bool {
    let suite = material.suite();
    suite.block_bytes() == 1 && !matches!(suite, Suite::Pair { cipher: Cipher::Null, .. })
}

/// Brings what an SA shows up to date.
pub(super) fn refresh(sa: &mut Sa, placed: &Placed, at: Moment) {
    sa::refresh(sa, placed, at);
}

/// The networks that a policy's packets come from and go to.
pub(super) fn networks(policy: &PolicyInfo) -> Option<(Prefix, Prefix)> {
    let Addresses::Networks { source, destination } = policy.selector.addresses else {
        return None;
    };
    Some((policies::prefix(source).ok()?, policies::prefix(destination).ok()?))
}
