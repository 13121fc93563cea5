//! A kernel's IPsec as daemons know it: requests go to the databases, and from there to workers.
//!
//! A request is carried out as a whole or refused with a kernel's error number, and then nothing has
//! changed. Who serves daemons waits, before the answer goes out, until every worker has seen the
//! [generation](Kernel::generation) that the request made.

#[cfg(test)]
mod choice_tests;
#[cfg(test)]
mod direction_tests;
mod directions;
mod events;
#[cfg(test)]
mod fault_tests;
#[cfg(test)]
mod interface_tests;
#[cfg(test)]
mod keep_tests;
#[cfg(test)]
mod path_tests;
mod policies;
#[cfg(test)]
mod policy_tests;
mod questions;
mod request_log;
mod restore;
mod sas;
mod seen;
#[cfg(test)]
mod tests;
mod transaction;
#[cfg(test)]
mod worker_tests;

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use convoy_engine::registry::Drivers;
use convoy_ipsec::sa::SaSlot;
use convoy_ipsec::selector::Direction;
use convoy_ipsec::snapshot::{Published, Writer};
use convoy_wire::Prefix;
use convoy_xfrm::{Address, Errno, HashThreshold, PolicyDirection, Refusal, Request, Sa};

use self::request_log::RequestLog;
use super::keep::Keep;
pub use super::plane::PathChange;
use super::plane::{Checked, Course, Plane, Setting};
use super::{Answer, Associations, Client, Insertion, LARVAL_SECONDS, Moment, Policies};
use crate::site::WorkerRule;

pub use events::Told;
pub use request_log::Refused;
pub use restore::Restored;
pub use seen::Wanted;

/// Questions of a kernel's IPsec to the host.
pub trait Host: Send {
    /// Returns true if packets to this address are for this host.
    fn is_local(&self, address: IpAddr) -> bool;

    /// The address that this host's packets to another one have.
    fn source_for(&self, destination: IpAddr) -> Option<IpAddr>;

    /// Largest packet in bytes that the host's routes take from one address to another, as far as this gateway has
    /// room for it; `None` where no route leads there, and where a site file says how large packets are.
    fn mtu_between(&self, _source: IpAddr, _destination: IpAddr) -> Option<u16> {
        None
    }

    /// Seconds that larval SAs wait for their keys (`net.core.xfrm_acq_expires`).
    fn larval_seconds(&self) -> u64 {
        LARVAL_SECONDS
    }
}

/// The interface of an SA or a policy in words, behind others.
struct OnInterface(u32);

impl fmt::Display for OnInterface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            if_id => write!(f, ", if_id {if_id}"),
        }
    }
}

/// SA or policy of a request. Nothing is put into words before they are wanted: most requests are carried out.
enum Subject {
    Sa(sas::Described),
    Policy(policies::Described),
    Defaults,
}

impl Subject {
    fn of(request: &Request) -> Option<Self> {
        match request {
            Request::NewSa(sa) | Request::UpdSa(sa) => Some(Self::Sa(sas::describe(sa))),
            Request::NewPolicy(policy) | Request::UpdPolicy(policy) => {
                Some(Self::Policy(policies::describe(policy)))
            }
            Request::SetDefault(_) => Some(Self::Defaults),
            _ => None,
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sa(sa) => sa.fmt(f),
            Self::Policy(policy) => policy.fmt(f),
            Self::Defaults => f.write_str("default policies"),
        }
    }
}

/// Treatment of packets between two networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cover {
    /// They go through an SA.
    Protect,
    /// They pass in clear.
    Bypass,
    /// They are dropped.
    Discard,
}

/// Networks that a policy covers, as far as the packet filter of the host follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Covered {
    /// The network on this side.
    pub local: Prefix,
    /// The network on the far side.
    pub remote: Prefix,
    /// True if it covers all packets between the two, and not only some protocol or ports.
    pub is_whole: bool,
    /// Treatment of these packets.
    pub cover: Cover,
    /// Direction of these packets: away, to this host, or through it.
    pub direction: PolicyDirection,
}

/// Changes that a request about policies would make to what they cover.
#[derive(Debug, Default)]
pub struct CoverChange {
    /// Networks that the host is to close first.
    pub come: Option<Covered>,
    /// Networks that would not be covered any more by the policies that go.
    pub gone: Vec<Covered>,
}

/// A request that was carried out.
#[derive(Debug, Default)]
pub struct Carried {
    /// Messages about it.
    pub answer: Answer,
    /// Networks that are covered from now on.
    pub covered: Vec<Covered>,
    /// Networks that are not covered any more.
    pub uncovered: Vec<Covered>,
}

/// The databases that daemons see, and the snapshot that workers do.
pub struct Kernel {
    associations: Associations,
    policies: Policies,
    plane: Plane,
    host: Box<dyn Host>,
    /// Store in which all this outlives the process, if there is one.
    keep: Option<Keep>,
    /// SAs whose direction is not known.
    guesses: BTreeSet<u64>,
    /// SAs among them about which something came that may say it.
    undecided: Vec<SaSlot>,
    /// SAs by where workers have them.
    by_slot: HashMap<(Direction, SaSlot), u64>,
    /// The number of the last acquire event.
    acquires: u32,
    log: RequestLog,
    /// Thresholds of a kernel's hash tables: kept, because daemons set them, and of no effect.
    thresholds: (HashThreshold, HashThreshold),
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel")
            .field("sas", &self.associations.len())
            .field("policies", &self.policies.counts())
            .finish_non_exhaustive()
    }
}

impl Kernel {
    /// Empty databases of a gateway.
    ///
    /// # Errors
    /// Fails if the system has no random numbers.
    pub fn new(
        setting: Setting,
        published: &Arc<Published>,
        host: Box<dyn Host>,
    ) -> Result<Self, getrandom::Error> {
        Ok(Self {
            associations: Associations::for_workers(setting.workers),
            policies: Policies::default(),
            plane: Plane::new(setting, published.clone())?,
            host,
            keep: None,
            guesses: BTreeSet::new(),
            undecided: Vec::new(),
            by_slot: HashMap::new(),
            acquires: 0,
            log: RequestLog::default(),
            thresholds: (
                HashThreshold { local: 32, remote: 32 },
                HashThreshold { local: 128, remote: 128 },
            ),
        })
    }

    /// The number of the last snapshot that was published here; 0 for none.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.plane.generation()
    }

    /// Number of SAs, larval ones included, and number of policies of each direction.
    #[must_use]
    pub fn counts(&self) -> (usize, super::Counts) {
        (self.associations.len(), self.policies.counts())
    }

    /// Returns true if there are no SAs and no policies.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let (sas, policies) = self.counts();
        sas == 0 && policies == super::Counts::default()
    }

    /// Number of requests that were refused with a reason, and the last one.
    #[must_use]
    pub fn refusals(&self) -> (u64, Option<&Refused>) {
        self.log.refusals()
    }

    /// Carries out a request of a client; its answers go to `to`.
    ///
    /// # Errors
    /// As a kernel refuses it, or `EOPNOTSUPP` for what only Convoy cannot do.
    pub fn execute(
        &mut self,
        writer: &mut Writer,
        client: &Client,
        request: Request,
        to: Address,
        at: Moment,
    ) -> Result<Carried, Refusal> {
        let what = Subject::of(&request);
        let mut outcome = self.dispatch(writer, client, request, to, at);
        if let Ok(carried) = &mut outcome {
            // What came may say which direction others have.
            carried.answer.events.extend(self.decide_directions(writer, at));
        }
        if let (Some(what), Err(refusal)) = (what, &outcome) {
            self.tell_refused(client, &what, refusal, at);
        }
        outcome
    }

    /// Logs and counts a request that the host refused before it could be [executed](Kernel::execute).
    pub fn note_refused(
        &mut self,
        client: &Client,
        request: &Request,
        refusal: &Refusal,
        at: Moment,
    ) {
        if let Some(what) = Subject::of(request) {
            self.tell_refused(client, &what, refusal, at);
        }
    }

    /// Daemons tend to show the number alone. A refusal without words is a kernel's everyday answer.
    fn tell_refused(&mut self, client: &Client, what: &Subject, refusal: &Refusal, at: Moment) {
        if !refusal.text.is_empty() {
            self.log.refused(client, what, refusal, at.worker);
        }
    }

    fn dispatch(
        &mut self,
        writer: &mut Writer,
        client: &Client,
        request: Request,
        to: Address,
        at: Moment,
    ) -> Result<Carried, Refusal> {
        match request {
            Request::NewSa(sa) => self.new_sa(writer, client, *sa, to, at),
            Request::UpdSa(sa) => self.update_sa(writer, client, *sa, to, at),
            Request::DelSa(query) => self.delete_sa(writer, client, &query, to, at),
            Request::FlushSa(flush) => self.flush_sas(writer, client, &flush, to),
            Request::AllocSpi(request) => self.allocate_spi(&request, to, at),
            Request::NewPolicy(policy) => {
                self.put_policy(writer, client, *policy, Insertion::New, to, at)
            }
            Request::UpdPolicy(policy) => {
                self.put_policy(writer, client, *policy, Insertion::Replace, to, at)
            }
            Request::DelPolicy(key) => self.delete_policy(writer, client, &key, to),
            Request::FlushPolicy(flush) => self.flush_policies(writer, client, &flush, to),
            Request::NewAe(event) => self.set_state(&event),
            Request::Migrate => Err(Refusal::bare(Errno::ENOPROTOOPT)),
            Request::Raise(_) => {
                Err(Refusal::new(Errno::EOPNOTSUPP, "Convoy does not send events on request"))
            }
            question => {
                self.ask(question, to, at).map(|answer| Carried { answer, ..Carried::default() })
            }
        }
    }

    /// As [`Plane::check`], with the path to the SA's far end.
    fn check(&self, sa: &Sa, course: Course) -> Result<Checked, Refusal> {
        let (source, destination) = (sa.info.source, sa.info.destination);
        let is_outbound = course.direction == Direction::Outbound;
        let path_mtu = is_outbound.then(|| self.host.mtu_between(source, destination)).flatten();
        self.plane.check(sa, course, path_mtu)
    }

    /// The largest inner packet that fits all outbound SAs of an interface, in bytes, by its identifier;
    /// nothing of one without SAs.
    #[must_use]
    pub fn rooms(&self) -> HashMap<u32, u16> {
        self.plane.rooms()
    }

    /// Takes over drivers that are set otherwise. SAs that now have another one go on with it, and no packet
    /// is lost. Returns how many these are.
    ///
    /// # Errors
    /// Fails if an SA would have none; then nothing has changed.
    pub fn set_drivers(&mut self, writer: &mut Writer, drivers: Drivers) -> Result<usize, Refusal> {
        let all = self.associations.dump(None);
        let placed = all.filter_map(|(_, found)| Some((&found.sa, found.placed.as_ref()?)));
        self.plane.set_drivers(drivers, placed, writer.draft())
    }

    /// Says whether SAs to come may have ciphers of old peers; those that are there stay until they end.
    pub fn set_legacy(&mut self, legacy: bool) {
        self.plane.set_legacy(legacy);
    }

    /// Takes over which workers own which SAs, for SAs to come: those that are there stay where they are.
    pub fn set_worker_rules(&mut self, rules: Vec<WorkerRule>) {
        self.plane.set_worker_rules(rules);
    }

    /// Takes over the largest outer packet in bytes where no route says so, and has SAs follow the routes to their far
    /// ends. An SA whose path is as it was keeps what routers have said of it. Returns the peers to which packets may be
    /// larger or smaller than before.
    pub fn follow_paths(&mut self, writer: &mut Writer, wire_mtu: u16) -> Vec<PathChange> {
        let host = &self.host;
        self.plane.follow_paths(wire_mtu, writer.draft(), |source, destination| {
            host.mtu_between(source, destination)
        })
    }
}
