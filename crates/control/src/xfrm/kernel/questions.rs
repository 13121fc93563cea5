//! Questions of daemons, and requests that change nothing but what is shown.

use convoy_xfrm::{
    Address, AsyncEvent, Datagram, DefaultAction, Defaults, Errno, Refusal, Reply, Request,
    SadInfo, SpdInfo,
};

use super::Kernel;
use crate::xfrm::plane::refresh;
use crate::xfrm::{Answer, Association, Cursor, Moment};

/// Most buckets of a kernel's hash tables.
const BUCKETS_MAX: u32 = 1 << 20;

fn answer(reply: &Reply, to: Address) -> Answer {
    Answer { replies: reply.build(to).into_iter().collect(), ..Answer::default() }
}

/// An SA as it is at this moment.
fn shown(association: &mut Association, to: Address, at: Moment) -> Datagram {
    if let Some(placed) = &association.placed {
        refresh(&mut association.sa, placed, at);
    }
    association.sa.answer(false, to)
}

impl Kernel {
    pub(super) fn ask(
        &mut self,
        question: Request,
        to: Address,
        at: Moment,
    ) -> Result<Answer, Refusal> {
        Ok(match question {
            Request::GetSa(query) => {
                let found = self.associations.get_mut(&query.key)?;
                Answer { replies: vec![shown(found, to, at)], ..Answer::default() }
            }
            Request::GetPolicy(key) => {
                let mut policy = self.policies.get(&key)?.clone();
                policy.info.usage.use_time = at.unix_of(self.plane.last_use(&policy));
                Answer { replies: vec![policy.answer(false, to)], ..Answer::default() }
            }
            Request::DumpSa(dump) => {
                let cursor = Some(Cursor::Sas(Box::new(dump), None));
                Answer { dump: cursor, ..Answer::default() }
            }
            Request::DumpPolicy => {
                Answer { dump: Some(Cursor::Policies(None)), ..Answer::default() }
            }
            Request::GetAe(event) => answer(&self.state_of(*event, at)?, to),
            Request::GetSadInfo(query) => {
                let count = u32::try_from(self.associations.len()).unwrap_or(u32::MAX);
                let buckets = (buckets(count), BUCKETS_MAX);
                answer(&Reply::NewSadInfo(SadInfo { flags: query.flags, count, buckets }), to)
            }
            Request::GetSpdInfo(query) => {
                let counts = self.policies.counts();
                let all = counts.inbound + counts.outbound + counts.forward;
                let info = SpdInfo {
                    flags: query.flags,
                    counts: [counts.inbound, counts.outbound, counts.forward, 0, 0, 0],
                    buckets: (buckets(all), BUCKETS_MAX),
                    v4: Some(self.thresholds.0),
                    v6: Some(self.thresholds.1),
                };
                answer(&Reply::NewSpdInfo(info), to)
            }
            Request::NewSpdInfo(set) => {
                self.thresholds.0 = set.v4.unwrap_or(self.thresholds.0);
                self.thresholds.1 = set.v6.unwrap_or(self.thresholds.1);
                Answer::default()
            }
            Request::GetDefault(_) => {
                let accept = Some(DefaultAction::Accept);
                let (input, forward, output) = (accept, accept, accept);
                let defaults = Defaults { input, forward, output, ..Defaults::default() };
                answer(&Reply::GetDefault(defaults), to)
            }
            Request::SetDefault(wanted) => {
                let all = [wanted.input, wanted.forward, wanted.output];
                if all.contains(&Some(DefaultAction::Block)) {
                    let text =
                        "Convoy never sees packets that no policy covers, and cannot drop them";
                    return Err(Refusal::new(Errno::EOPNOTSUPP, text));
                }
                Answer::default()
            }
            _ => return Err(Refusal::bare(Errno::EINVAL)),
        })
    }

    fn state_of(&mut self, event: AsyncEvent, at: Moment) -> Result<Reply, Refusal> {
        let found = self.associations.get_mut(&event.sa)?;
        if let Some(placed) = &found.placed {
            refresh(&mut found.sa, placed, at);
        }
        let sa = &found.sa;
        let wants = |bit: u32| event.flags & bit != 0;
        let mut state = sa.state.clone();
        state.usage = Some(sa.info.usage);
        if !wants(AsyncEvent::REPLAY_THRESHOLD) {
            state.replay_threshold = None;
        }
        if !wants(AsyncEvent::TIMER_THRESHOLD) {
            state.timer_threshold = None;
        }
        if state.replay_esn.is_some() {
            state.replay = None;
        }
        Ok(Reply::NewAe(Box::new(AsyncEvent {
            source: sa.info.source,
            reqid: sa.info.reqid,
            direction: sa.direction,
            cpu: sa.cpu,
            state,
            ..event
        })))
    }

    /// The next messages of a dump, at most `room`; none when it is over.
    pub fn dump(
        &mut self,
        cursor: &mut Cursor,
        to: Address,
        room: usize,
        at: Moment,
    ) -> Vec<Datagram> {
        let mut messages = Vec::new();
        match cursor {
            Cursor::Sas(dump, from) => {
                while messages.len() < room
                    && let Some(found) = self.associations.before(*from)
                {
                    *from = Some(found.number);
                    let info = &found.sa.info;
                    let is_wanted = dump.protocol.matches(info.protocol)
                        && dump
                            .addresses
                            .as_ref()
                            .is_none_or(|filter| filter.matches(info.source, info.destination));
                    if is_wanted {
                        messages.push(shown(found, to, at));
                    }
                }
            }
            Cursor::Policies(from) => {
                while messages.len() < room
                    && let Some((number, policy)) = self.policies.dump(*from).next()
                {
                    *from = Some(number);
                    let mut policy = policy.clone();
                    policy.info.usage.use_time = at.unix_of(self.plane.last_use(&policy));
                    messages.push(policy.answer(false, to));
                }
            }
        }
        messages
    }
}

/// The size of a kernel's hash table of so many entries.
fn buckets(count: u32) -> u32 {
    count.next_power_of_two().clamp(8, BUCKETS_MAX)
}
