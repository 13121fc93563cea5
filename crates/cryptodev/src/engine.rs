//! A queue pair as an engine.

use std::sync::Arc;

use convoy_engine::lookaside::{Caps, Health, KeyRefused, Request};
use convoy_engine::{EngineKey, Job, KeyId, KeyTable, Lookaside};

use crate::device::{Cryptodev, Device, REQUESTS};
use crate::ffi::{DeviceKey, Queue, Session, SessionError, Sessions, Work};
use crate::suite::{device_key, idle_key};

/// Additional data that ESP has: with sequence numbers of 32 and of 64 bits (RFC 4106 section 5).
const AAD: [u8; 2] = [8, 12];

/// Deadlines after which the device is asked to stop if it does not give back what it has.
const GRACE: u64 = 4;

/// The engine of one worker and direction.
#[derive(Debug)]
struct Engine {
    // These go in this order: what is under way needs its sessions, and sessions are the device's.
    queue: Queue,
    /// Keys that are forgotten when all requests up to a number are back.
    retired: Vec<(u64, Key)>,
    keys: Keys,
    seat: Seat,
    stopping_since: Option<u64>,
}

/// The right to a queue pair.
#[derive(Debug)]
struct Seat {
    device: Arc<Device>,
    number: u16,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.device.give_back(self.number);
    }
}

impl Cryptodev {
    /// An engine for one worker and direction. `None` when all queue pairs are taken, or memory is short.
    #[must_use]
    pub fn engine(&self) -> Option<Box<dyn Lookaside>> {
        let (device, number, queue) = self.take_queue()?;
        Some(Box::new(Engine::new(device, number, queue)))
    }
}

impl Engine {
    fn new(device: Arc<Device>, number: u16, queue: Queue) -> Self {
        let keys = Keys { by_copy: device.by_copy, table: KeyTable::new() };
        let seat = Seat { device, number };
        Self { queue, retired: Vec::new(), keys, seat, stopping_since: None }
    }

    fn retire(&mut self, id: KeyId) {
        if let Some(key) = self.keys.table.remove(id) {
            self.retired.push((self.queue.serial(), key));
        }
    }

    fn bury(&mut self) {
        if !self.retired.is_empty() {
            let oldest = self.queue.oldest();
            self.retired.retain(|(until, _)| *until > oldest);
        }
    }
}

impl Lookaside for Engine {
    fn caps(&self) -> Caps {
        Caps { requests: REQUESTS, enough: REQUESTS, deadline: self.seat.device.deadline }
    }

    fn install(&mut self, id: KeyId, key: &EngineKey) -> Result<(), KeyRefused> {
        self.retire(id);
        let key = Key::new(&self.seat.device, key)?;
        self.keys.table.put(id, Some(key));
        Ok(())
    }

    fn remove(&mut self, id: KeyId) {
        self.retire(id);
        self.bury();
    }

    fn submit(&mut self, _: u64, request: Request) -> Result<(), Request> {
        self.queue.submit(request, &mut self.keys)
    }

    fn poll(&mut self, _: u64) -> Option<Request> {
        let finished = self.queue.poll();
        if finished.is_some() {
            self.bury();
        }
        finished
    }

    fn health(&self) -> Health {
        if self.seat.device.is_lost() { Health::Lost } else { Health::Up }
    }

    fn quiesce(&mut self, now: u64) -> bool {
        let since = *self.stopping_since.get_or_insert(now);
        if !self.seat.device.is_lost() && self.queue.drain() {
            return true;
        }
        let is_patient = now.saturating_sub(since) < GRACE * self.seat.device.deadline;
        if !self.seat.device.is_lost() && is_patient {
            return false;
        }
        // Nothing is asked of the pair from now on, so that the device can be stopped.
        if !self.seat.device.let_go(self.seat.number) {
            return false;
        }
        self.queue.begin_anew().is_ok()
    }

    fn restart(&mut self, _: u64) -> bool {
        if !self.seat.device.begin_anew(self.seat.number) {
            return false;
        }
        self.stopping_since = None;
        self.keys.table.clear();
        self.retired.clear();
        true
    }
}

/// A key with its sessions: a device wants to know how much additional data an AEAD's packets have, and only
/// they tell.
#[derive(Debug)]
struct Key {
    key: DeviceKey,
    sessions: [Option<Session>; AAD.len()],
}

impl Key {
    fn new(device: &Device, key: &EngineKey) -> Result<Self, KeyRefused> {
        let (suite, material, opens) = match key {
            EngineKey::Seal(key) => (key.suite(), key.material(), false),
            EngineKey::Open(key) => (key.suite(), key.material(), true),
        };
        let key = match (device.is_idle, material) {
            (true, _) => idle_key(suite, opens),
            (false, Some(material)) => device_key(suite, material, opens),
            (false, None) => return Err(KeyRefused::Failed),
        };
        let mut key = key.ok_or(KeyRefused::Algorithm)?;
        let mut sessions = [const { None }; AAD.len()];
        let lengths = if key.is_aead() { &AAD[..] } else { &[0] };
        for (place, length) in sessions.iter_mut().zip(lengths) {
            let session = Session::new(device.shim, device.info.id, key.with_aad(*length));
            *place = Some(session.map_err(|error| match error {
                SessionError::Unknown => KeyRefused::Algorithm,
                SessionError::Full => KeyRefused::Full,
                SessionError::Failed => KeyRefused::Failed,
            })?);
        }
        Ok(Self { key, sessions })
    }
}

#[derive(Debug)]
struct Keys {
    by_copy: bool,
    table: KeyTable<Key>,
}

impl Sessions for Keys {
    fn of(&mut self, job: &Job) -> Option<Work<'_>> {
        let Key { key, sessions } = self.table.get(job.key)?;
        let is_aead = key.is_aead();
        let place =
            if is_aead { AAD.iter().position(|length| *length == job.aad_len)? } else { 0 };
        // What is hashed behind the text would have to be written into the source; and where nothing is
        // encrypted, the text would not get to the output.
        let hashes = !is_aead && !key.is_idle();
        let by_copy = self.by_copy || hashes && (job.aad_len > 0 || key.is_mac_alone());
        Some(Work { session: sessions.get(place)?.as_ref()?, is_aead, icv: key.icv(), by_copy })
    }
}
