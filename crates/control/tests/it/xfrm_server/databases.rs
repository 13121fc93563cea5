//! Service behind the socket in these tests: the databases, without anything that follows.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard};

use convoy_control::xfrm::{
    Answer, Associations, Client, Cursor, Insertion, Multicast, Policies, Service,
};
use convoy_xfrm::{
    Address, Datagram, Errno, Group, PolicyDeleted, Refusal, Reply, Request, SaDeleted, SadInfo,
    SpdInfo,
};

/// Fixed time of all requests, in seconds since 1970.
const NOW: u64 = 1_700_000_000;

#[derive(Default)]
pub(crate) struct Databases {
    sas: Mutex<Associations>,
    policies: Mutex<Policies>,
    /// Requests that were carried out or refused.
    pub(crate) requests: AtomicUsize,
    /// Messages of dumps that were asked for.
    pub(crate) dumped: AtomicUsize,
    /// Local ports of UDP sockets that came, and of which kind they are to be.
    pub(crate) steered: Mutex<Vec<(u16, u32)>>,
    /// Destination of an event during each request, if it is set.
    pub(crate) multicast: Mutex<Option<Multicast>>,
    /// Process that asked last.
    pub(crate) client: Mutex<Option<Client>>,
}

impl Databases {
    pub(crate) fn sas(&self) -> MutexGuard<'_, Associations> {
        self.sas.lock().unwrap()
    }

    pub(crate) fn policies(&self) -> MutexGuard<'_, Policies> {
        self.policies.lock().unwrap()
    }
}

fn event(group: Group, reply: &Reply, to: Address) -> Answer {
    let events = vec![(group, reply.build(to).unwrap())];
    Answer { events, ..Answer::default() }
}

fn reply(reply: Datagram) -> Answer {
    Answer { replies: vec![reply], ..Answer::default() }
}

impl Service for Databases {
    fn answer(&self, client: &Client, request: Request, to: Address) -> Result<Answer, Refusal> {
        self.requests.fetch_add(1, SeqCst);
        *self.client.lock().unwrap() = Some(client.clone());
        if let Some(multicast) = &*self.multicast.lock().unwrap() {
            let flushed = Reply::FlushSa(Default::default()).build(Address::default());
            multicast.send(Group::Expire, flushed.unwrap());
        }
        Ok(match request {
            Request::NewSa(sa) => {
                let told = self.sas().add(*sa, NOW)?.now.sa.answer(false, to);
                Answer { events: vec![(Group::Sa, told)], ..Answer::default() }
            }
            Request::UpdSa(sa) => {
                let told = self.sas().update(*sa, NOW)?.now.sa.answer(true, to);
                Answer { events: vec![(Group::Sa, told)], ..Answer::default() }
            }
            Request::DelSa(query) => {
                let sa = Box::new(self.sas().remove(&query.key)?.sa);
                event(Group::Sa, &Reply::DelSa(SaDeleted { sa }), to)
            }
            Request::GetSa(query) => reply(self.sas().get(&query.key)?.sa.answer(false, to)),
            Request::DumpSa(dump) => {
                let dump = Some(Cursor::Sas(Box::new(dump), None));
                Answer { dump, ..Answer::default() }
            }
            Request::AllocSpi(asked) => {
                let mut sas = self.sas();
                let middle = |low: u32, high| low.midpoint(high);
                reply(sas.allocate(&asked, NOW, None, middle)?.answer(false, to))
            }
            Request::FlushSa(flush) => {
                self.sas().flush(flush.protocol);
                event(Group::Sa, &Reply::FlushSa(flush), to)
            }
            Request::NewPolicy(policy) => {
                let added = self.policies().insert(*policy, Insertion::New, NOW)?.policy.clone();
                event(Group::Policy, &Reply::NewPolicy(Box::new(added)), to)
            }
            Request::UpdPolicy(policy) => {
                let added =
                    self.policies().insert(*policy, Insertion::Replace, NOW)?.policy.clone();
                event(Group::Policy, &Reply::UpdPolicy(Box::new(added)), to)
            }
            Request::DelPolicy(key) => {
                let policy = self.policies().remove(&key)?;
                let deleted = PolicyDeleted { name: key.name, policy };
                event(Group::Policy, &Reply::DelPolicy(Box::new(deleted)), to)
            }
            Request::GetPolicy(key) => reply(self.policies().get(&key)?.answer(false, to)),
            Request::DumpPolicy => {
                Answer { dump: Some(Cursor::Policies(None)), ..Answer::default() }
            }
            Request::FlushPolicy(flush) => {
                self.policies().flush(flush.policy_type.unwrap_or_default());
                event(Group::Policy, &Reply::FlushPolicy(flush), to)
            }
            Request::GetSadInfo(query) => {
                let count = self.sas().len() as u32;
                let info = SadInfo { flags: query.flags, count, buckets: (8, 1 << 20) };
                reply(Reply::NewSadInfo(info).build(to).unwrap())
            }
            Request::GetSpdInfo(query) => {
                let counts = self.policies().counts();
                let counts = [counts.inbound, counts.outbound, counts.forward, 0, 0, 0];
                let info = SpdInfo { flags: query.flags, counts, ..SpdInfo::default() };
                reply(Reply::NewSpdInfo(info).build(to).unwrap())
            }
            _ => return Err(Refusal::new(Errno::EOPNOTSUPP, "not in these tests")),
        })
    }

    fn dump(&self, cursor: &mut Cursor, to: Address, room: usize) -> Vec<Datagram> {
        let messages: Vec<Datagram> = match cursor {
            Cursor::Sas(_, from) => {
                let sas = self.sas();
                let next = sas.dump(*from).take(room);
                next.map(|(at, found)| {
                    *from = Some(at);
                    found.sa.answer(false, to)
                })
                .collect()
            }
            Cursor::Policies(from) => {
                let policies = self.policies();
                let next = policies.dump(*from).take(room);
                next.map(|(at, policy)| {
                    *from = Some(at);
                    policy.answer(false, to)
                })
                .collect()
            }
        };
        self.dumped.fetch_add(messages.len(), SeqCst);
        messages
    }

    fn steer(&self, _: &Client, socket: OwnedFd, encap: u32) -> Result<(), Refusal> {
        let port = std::net::UdpSocket::from(socket).local_addr().unwrap().port();
        self.steered.lock().unwrap().push((port, encap));
        if encap > 2 { Err(Refusal::bare(Errno::ENOPROTOOPT)) } else { Ok(()) }
    }
}
