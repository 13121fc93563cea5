//! Questions of the kernel about packets between mixed prefixes, answered from the security policy database.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use convoy_control::status::{QuestionCounts, Questions as QuestionReport};
use convoy_io::tun::Inlet;
use convoy_ipsec::snapshot::Published;
use convoy_ipsec::spd::{Direction, MeantFor, PolicyAction, PolicyId, Spd, SpdId};
use convoy_leak_protection::{
    Answered, Answers, Asked, AskedTotal, Config, Held, LeakProtectionError, Listener, Policies,
    PolicyDirection, Questions, Verdict,
};
use convoy_wire::{FlowKey, parse_packet};

use super::connections::Connections;

/// Longest time until the thread sees that it is to end.
const LOOKS: Duration = Duration::from_millis(100);
/// Pause when no listener can be had.
const RESTS: Duration = Duration::from_millis(200);

/// A thread that answers until this is dropped.
#[derive(Debug)]
pub(super) struct Answering {
    questions: Questions,
    desk: Arc<Desk>,
    thread: Option<JoinHandle<()>>,
}

/// State that the thread shares with others.
#[derive(Debug)]
struct Desk {
    published: Arc<Published>,
    /// The database of the plain interface.
    spd: SpdId,
    /// Locked while questions are answered: who holds it knows that no answer is on its way.
    held: Mutex<Held>,
    pauses: Pauses,
    answers: Arc<Mutex<Answers>>,
    connections: Connections,
    /// The interface that packets are put into which were to leave by another one.
    tun: String,
    /// The kernel's questions do not come, and are asked for again and again.
    is_deaf: AtomicBool,
    is_over: AtomicBool,
}

/// Number of those who want no question answered for a while.
#[derive(Clone, Debug, Default)]
pub(super) struct Pauses(Arc<(Mutex<u32>, Condvar)>);

/// Questions wait as long as this is there; the kernel drops what finds no room among them.
#[derive(Debug)]
#[must_use = "questions are answered when it is dropped"]
pub(super) struct Pause(Pauses);

impl Pauses {
    /// Whoever began to answer before may still do.
    pub(super) fn begin(&self) -> Pause {
        *lock(&self.0.0) += 1;
        Pause(self.clone())
    }

    fn any(&self) -> bool {
        *lock(&self.0.0) > 0
    }

    /// Waits until there is none, at most so long; whether there is none.
    fn are_over(&self, at_most: Duration) -> bool {
        let (count, ended) = &*self.0;
        let waited = ended.wait_timeout_while(lock(count), at_most, |count| *count > 0);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        let (count, ended) = &*self.0.0;
        *lock(count) -= 1;
        ended.notify_all();
    }
}

/// Outcomes of questions since the gateway's start.
#[derive(Debug, Default)]
pub(super) struct Tally {
    answers: Arc<Mutex<Answers>>,
    listeners: Arc<Listeners>,
    kernel: AskedTotal,
    /// The kernel does not tell what it counts.
    is_unseen: bool,
}

/// Count of beginnings and ends of opening a listener: odd while one is opened.
#[derive(Debug, Default)]
struct Listeners(AtomicU64);

impl Listeners {
    fn open(&self, config: &Config) -> Result<Listener, LeakProtectionError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        let opened = Listener::open(config);
        self.0.fetch_add(1, Ordering::SeqCst);
        opened
    }

    /// A number that changes with each one; none while one is opened.
    fn number(&self) -> Option<u64> {
        Some(self.0.load(Ordering::SeqCst)).filter(|number| number % 2 == 0)
    }
}

impl Tally {
    /// Takes over what the kernel counts. To be called about once a second while somebody answers.
    pub(super) fn follow_kernel(&mut self, questions: &Questions) {
        self.is_unseen = self.kernel.follow(questions, || self.listeners.number()).is_err();
    }

    /// Counts of the kernel, if it tells.
    fn asked(&self) -> Option<[Asked; 2]> {
        Some(self.kernel.both()).filter(|_| !self.is_unseen)
    }

    /// Counts of the answers.
    pub(super) fn answered(&self) -> Answered {
        lock(&self.answers).sum()
    }

    /// Packets that were dropped as their questions found no room.
    pub(super) fn overflows(&self) -> u64 {
        let lost = self.kernel.both().into_iter().flat_map(|it| [it.full, it.unread]);
        lost.fold(0, u64::saturating_add)
    }

    /// For `convoy status`, with what was dropped without an answer.
    pub(super) fn report(&self, unanswered: [u64; 2]) -> QuestionReport {
        let Answers { outbound, inbound } = *lock(&self.answers);
        let [of_outbound, of_inbound] = self.asked().map_or([None; 2], |both| both.map(Some));
        let [past_out, past_in] = unanswered;
        QuestionReport {
            outbound: direction(outbound, of_outbound, past_out),
            inbound: direction(inbound, of_inbound, past_in),
        }
    }
}

fn direction(answered: Answered, kernel: Option<Asked>, unanswered: u64) -> QuestionCounts {
    let asked = kernel.map(|kernel| kernel.packets);
    let (queue_full, unread) = (kernel.map(|it| it.full), kernel.map(|it| it.unread));
    let Answered { bypassed, protected, discarded } = answered;
    QuestionCounts { asked, bypassed, protected, discarded, unanswered, queue_full, unread }
}

impl Answering {
    /// Begins to answer questions of the calling thread's network namespace.
    pub(super) fn start(
        config: &Config,
        (published, spd): (&Arc<Published>, SpdId),
        held: Held,
        (tally, connections): (&Tally, &Connections),
        pauses: &Pauses,
    ) -> Result<Self, LeakProtectionError> {
        let listeners = Arc::clone(&tally.listeners);
        let listener = listeners.open(config)?;
        let desk = Arc::new(Desk {
            published: Arc::clone(published),
            spd,
            held: Mutex::new(held),
            pauses: pauses.clone(),
            answers: Arc::clone(&tally.answers),
            connections: connections.clone(),
            tun: config.tun.to_string(),
            is_deaf: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        });
        let thread = thread::Builder::new().name("convoy-questions".into());
        let at = Arc::clone(&desk);
        let questions = config.questions;
        let config = config.clone();
        let thread = thread
            .spawn(move || at.serve(listener, || listeners.open(&config)))
            .map_err(|error| LeakProtectionError::Netlink(error.into()))?;
        Ok(Self { questions, desk, thread: Some(thread) })
    }

    /// Answers by these prefix sets, and by the policies that are published, from now on: when this returns, every
    /// answer by others has been given.
    pub(super) fn set(&self, held: Held) {
        let _first = self.desk.pauses.begin();
        *lock(&self.desk.held) = held;
    }

    /// During a pause: when this returns, all that was answered before it has been given.
    pub(super) fn finish(&self) {
        drop(lock(&self.desk.held));
    }

    /// Settings by which they are asked.
    pub(super) const fn questions(&self) -> &Questions {
        &self.questions
    }

    /// True if nobody answers any more.
    pub(super) fn is_dead(&self) -> bool {
        let has_ended = self.thread.as_ref().is_none_or(JoinHandle::is_finished);
        has_ended || self.desk.is_deaf.load(Ordering::Relaxed)
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.desk.is_over.store(true, Ordering::Relaxed);
        if self.thread.take().map(JoinHandle::join).is_some_and(|ended| ended.is_err()) {
            tracing::error!("the thread that answers questions about packets died");
        }
    }
}

impl Desk {
    /// Answers until it is over; after an error by another listener.
    fn serve(&self, first: Listener, open: impl Fn() -> Result<Listener, LeakProtectionError>) {
        let mut listener = Some(first);
        let mut has_failed = false;
        let mut inlet = None;
        while !self.is_over.load(Ordering::Relaxed) {
            let outcome = match &mut listener {
                Some(listener) => {
                    self.answer(listener, &mut inlet).map_err(|error| error.to_string())
                }
                None => open().map(|anew| listener = Some(anew)).map_err(|error| error.to_string()),
            };
            match outcome {
                Ok(()) if core::mem::take(&mut has_failed) => {
                    tracing::info!("questions about packets are answered again");
                }
                Ok(()) => {}
                Err(error) => {
                    if !core::mem::replace(&mut has_failed, true) {
                        tracing::error!("questions about packets cannot be answered: {error}");
                    }
                    // The queues are free only without it, and what was asked and not answered would stay there.
                    if listener.take().is_none() {
                        thread::sleep(RESTS);
                    }
                }
            }
            self.is_deaf.store(listener.is_none(), Ordering::Relaxed);
        }
    }

    fn answer(&self, listener: &mut Listener, inlet: &mut Option<Inlet>) -> std::io::Result<()> {
        if self.pauses.are_over(LOOKS) && listener.wait(LOOKS)? {
            let held = lock(&self.held);
            // Whoever began to pause since counts on that nobody answers who locks after it.
            if self.pauses.any() {
                return Ok(());
            }
            let snapshot = self.published.current();
            let spd = snapshot.spd_of(self.spd);
            let database = Database { spd, held: Cow::Borrowed(&*held) };
            let is_nearly_full = self.connections.is_nearly_full();
            let tun = self.tun.as_str();
            let now = listener.answer(&mut Sparing { database, is_nearly_full, tun, inlet })?;
            lock(&self.answers).add(&now);
        }
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The security policy database, and what is held where it says nothing.
pub(super) struct Database<'a> {
    /// None: it is gone, and everything is dropped.
    pub(super) spd: Option<&'a Spd>,
    pub(super) held: Cow<'a, Held>,
}

impl Database<'_> {
    fn look_up(&self, way: PolicyDirection, packet: &[u8]) -> Verdict {
        let Some(flow) = flow_of(packet) else { return Verdict::Discard };
        let (policy, verdict) = self.judge(way, &flow);
        if let (Some(spd), Some(policy)) = (self.spd, policy) {
            spd.count_question(policy);
        }
        verdict
    }

    /// The policy that decides about a packet, if one does, and what becomes of it.
    pub(super) fn judge(
        &self,
        way: PolicyDirection,
        flow: &FlowKey,
    ) -> (Option<PolicyId>, Verdict) {
        let Some(spd) = self.spd else { return (None, Verdict::Discard) };
        let (from, to) = (flow.src_addr(), flow.dst_addr());
        let (decision, near, far) = match way {
            PolicyDirection::Out => (spd.lookup(Direction::Outbound, flow), from, to),
            PolicyDirection::In => (spd.lookup_for(MeantFor::Host, flow), to, from),
            PolicyDirection::Forward => (spd.lookup_for(MeantFor::Others, flow), to, from),
        };
        let is_held = self.held.holds(way, near, far);
        let verdict = match decision.map(|decision| decision.action) {
            Some(PolicyAction::Protect { .. }) => Verdict::Protect,
            Some(PolicyAction::Bypass) => Verdict::Bypass,
            Some(PolicyAction::Discard) => Verdict::Discard,
            // What no policy names is not protected, but between near and far it is held (RFC 4301 section 5.1).
            None if is_held => Verdict::Discard,
            None => Verdict::Bypass,
        };
        (decision.map(|decision| decision.id), verdict)
    }
}

/// Answers from the database, and keeps what is left of the kernel's table of connections for flows that are protected.
struct Sparing<'a> {
    database: Database<'a>,
    is_nearly_full: bool,
    tun: &'a str,
    /// Opened with the first packet that needs it.
    inlet: &'a mut Option<Inlet>,
}

impl Sparing<'_> {
    fn look_up(&self, way: PolicyDirection, packet: &[u8]) -> Verdict {
        match self.database.look_up(way, packet) {
            Verdict::Bypass if self.is_nearly_full => Verdict::Discard,
            verdict => verdict,
        }
    }
}

impl Policies for Sparing<'_> {
    fn outbound(&mut self, packet: &[u8]) -> Verdict {
        self.look_up(PolicyDirection::Out, packet)
    }

    fn inbound(&mut self, packet: &[u8]) -> Verdict {
        self.look_up(PolicyDirection::In, packet)
    }

    fn forwarded(&mut self, packet: &[u8]) -> Verdict {
        self.look_up(PolicyDirection::Forward, packet)
    }

    /// Puts a packet into the interface. It is lost if that fails, as where there is no room; who sent it sends again.
    fn take(&mut self, packet: &[u8]) {
        if self.inlet.is_none() {
            *self.inlet = Inlet::open(self.tun)
                .inspect_err(|error| tracing::debug!("a packet behind NAT is lost: {error}"))
                .ok();
        }
        if let Some(inlet) = self.inlet {
            let put = inlet.put(packet);
            // It may have another number now.
            if put.is_err_and(|error| error.raw_os_error() == Some(libc::ENXIO)) {
                *self.inlet = None;
            }
        }
    }
}

/// Selector fields of a packet whose end may be missing.
fn flow_of(packet: &[u8]) -> Option<FlowKey> {
    let mut packet = packet.to_vec();
    let is_v4 = packet.first()? >> 4 == 4;
    let (at, shown) = if is_v4 { (2, packet.len()) } else { (4, packet.len().checked_sub(40)?) };
    let said = packet.get_mut(at..)?.first_chunk_mut::<2>()?;
    // Where many packets are together, it may say less, too.
    *said = u16::try_from(shown).ok()?.to_be_bytes();
    parse_packet(&packet).ok().map(|info| info.flow)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_wait_until_the_last_pause_ends() {
        let pauses = Pauses::default();
        assert!(!pauses.any());
        let (one, other) = (pauses.begin(), pauses.clone().begin());
        drop(one);
        assert!(pauses.any() && !pauses.are_over(Duration::ZERO));
        let waits = thread::spawn(move || pauses.are_over(Duration::from_secs(20)));
        drop(other);
        assert!(waits.join().unwrap());
    }

    #[test]
    fn a_packet_whose_end_is_missing_keeps_its_flow() {
        let mut packet = vec![0x45, 0, 0xff, 0xff, 0, 0, 0, 0, 64, 6, 0, 0];
        packet.extend([10, 1, 0, 1, 10, 2, 0, 1]);
        packet.extend([0x12, 0x34, 0, 22]);
        packet.resize(60, 0);
        let flow = flow_of(&packet).unwrap();
        assert_eq!(flow.dst_addr(), std::net::IpAddr::from([10, 2, 0, 1]));
        assert_eq!(flow.ports, convoy_wire::Ports::Known { src: 0x1234, dst: 22 });
        let mut packet = vec![0x60, 0, 0, 0, 0, 0, 17, 64];
        packet.resize(40, 1);
        packet.extend([0, 7, 0, 8, 0xff, 0xff, 0, 0]);
        let flow = flow_of(&packet).unwrap();
        assert_eq!(flow.ports, convoy_wire::Ports::Known { src: 7, dst: 8 });
        for wrong in [&[][..], &[0x45], &[0x60; 39], &[0x10; 60]] {
            assert!(flow_of(wrong).is_none());
        }
    }
}
