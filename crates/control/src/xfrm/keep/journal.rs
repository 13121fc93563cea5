//! SAs and policies as messages, one record each, in the order in which they came.
//!
//! A record is a header of 16 bytes (kind, length, checksum) and what it holds, filled up to 16 bytes:
//! a header is never on two pages of memory, so a process that is killed leaves it whole or not
//! written. What came later with the same name counts. What went is made blank where it stands, and
//! its bytes are wiped; when more is blank than not, all is written anew.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;

use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::medium::Medium;
use crate::lease::HashKey;

/// Bytes of a header, and what records are filled up to.
const HEADER: usize = 16;
/// The longest record: no message is longer than a datagram.
const RECORD_MAX: usize = 1 << 20;
/// Blank bytes that are worth no new file.
const BLANK_MIN: u64 = 1 << 20;
/// Version of the records' form, as the first record says it.
const VERSION: u64 = 1;

const BLANK: u8 = 0;
const HEAD: u8 = 1;

/// Subject of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub(in crate::xfrm) enum Kind {
    /// An SA, by its serial number.
    Sa = 2,
    /// A policy, by its index.
    Policy = 3,
    /// Networks that lives before closed, and this one has no policies for, stay closed.
    Closed = 4,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sa => "SA",
            Self::Policy => "policy",
            Self::Closed => "note on blocked networks",
        })
    }
}

impl Kind {
    fn from_number(number: u8) -> Option<Self> {
        match number {
            2 => Some(Self::Sa),
            3 => Some(Self::Policy),
            4 => Some(Self::Closed),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Place {
    at: u64,
    len: u32,
}

impl Place {
    /// Bytes that the record takes.
    fn size(self) -> u64 {
        (HEADER as u64).saturating_add(u64::from(self.len)).next_multiple_of(HEADER as u64)
    }
}

/// Position of the first record: version and hash key.
const HEAD_PLACE: Place = Place { at: 0, len: 8 + 32 };

/// A record that was found.
#[derive(Debug)]
pub(in crate::xfrm) struct Found {
    pub(in crate::xfrm) kind: Kind,
    pub(in crate::xfrm) id: u64,
    pub(in crate::xfrm) message: Zeroizing<Vec<u8>>,
}

/// Content of a journal when it was opened.
#[derive(Debug)]
pub(in crate::xfrm) struct Loaded {
    pub(in crate::xfrm) hash: HashKey,
    /// In the order in which they were written.
    pub(in crate::xfrm) records: Vec<Found>,
    pub(in crate::xfrm) earlier: Earlier,
    /// True if nothing that was there could be used.
    pub(in crate::xfrm) is_fresh: bool,
}

/// State that was found of an earlier life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Earlier {
    /// There was none.
    None,
    /// All that it wrote.
    Whole,
    /// A part, for what it wrote is damaged or of another version.
    Damaged,
}

#[derive(Debug)]
pub(in crate::xfrm) struct Journal {
    medium: Box<dyn Medium>,
    entries: HashMap<(Kind, u64), Place>,
    end: u64,
    /// Bytes of records that are not blank.
    alive: u64,
}

fn sum(kind: u8, len: u32, parts: &[&[u8]]) -> [u8; 8] {
    let mut hash = Sha256::new();
    hash.update([kind]);
    hash.update(len.to_le_bytes());
    parts.iter().for_each(|part| hash.update(part));
    let [a, b, c, d, e, f, g, h, ..] = <[u8; 32]>::from(hash.finalize());
    [a, b, c, d, e, f, g, h]
}

fn header(kind: u8, len: u32, parts: &[&[u8]]) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    let (head, check) = bytes.split_at_mut(8);
    let (tag, length) = head.split_at_mut(4);
    if let Some(first) = tag.first_mut() {
        *first = kind;
    }
    length.copy_from_slice(&len.to_le_bytes());
    check.copy_from_slice(&sum(kind, len, parts));
    bytes
}

/// A whole record; `None` when it is too long.
fn record(kind: u8, id: u64, message: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let len = message.len().checked_add(8).filter(|len| *len <= RECORD_MAX)?;
    let id = id.to_le_bytes();
    let header = header(kind, u32::try_from(len).ok()?, &[&id, message]);
    let mut bytes = Zeroizing::new(Vec::with_capacity((HEADER + len).next_multiple_of(HEADER)));
    bytes.extend_from_slice(&header);
    bytes.extend_from_slice(&id);
    bytes.extend_from_slice(message);
    let end = bytes.len().next_multiple_of(HEADER);
    bytes.resize(end, 0);
    Some(bytes)
}

/// Record at the beginning of `bytes`, if it is whole: its kind, its length and its content.
fn read(bytes: &[u8]) -> Option<(u8, u32, &[u8])> {
    let (header, rest) = bytes.split_first_chunk::<HEADER>()?;
    let [kind, 0, 0, 0, a, b, c, d, check @ ..] = *header else { return None };
    let len = u32::from_le_bytes([a, b, c, d]);
    let held = rest.get(..usize::try_from(len).ok()?)?;
    let size = HEADER.checked_add(held.len())?.next_multiple_of(HEADER);
    if bytes.len() < size {
        return None;
    }
    let parts: &[&[u8]] = if kind == BLANK { &[] } else { &[held] };
    (sum(kind, len, parts) == check).then_some((kind, len, held))
}

/// True if bytes that begin with no record are the rest of one that a killed process was writing.
fn is_torn(rest: &[u8]) -> bool {
    let Some((header, held)) = rest.split_first_chunk::<HEADER>() else { return true };
    let [_, _, _, _, a, b, c, d, ..] = *header;
    let size = Place { at: 0, len: u32::from_le_bytes([a, b, c, d]) }.size();
    (held.len() as u64) < size.saturating_sub(HEADER as u64)
}

fn split_id(held: &[u8]) -> (u64, &[u8]) {
    held.split_first_chunk().map_or((0, &[]), |(id, rest)| (u64::from_le_bytes(*id), rest))
}

/// Bytes of a journal with the sums that their records should have, up to the first that is not whole.
pub(super) fn with_sums(bytes: &[u8]) -> Vec<u8> {
    let mut all = bytes.to_vec();
    let mut at: usize = 0;
    while let Some((head, rest)) = bytes.get(at..).and_then(|it| it.split_first_chunk::<HEADER>()) {
        let [kind, _, _, _, a, b, c, d, ..] = *head;
        let len = u32::from_le_bytes([a, b, c, d]);
        let held = usize::try_from(len).ok().and_then(|len| rest.get(..len));
        let (Some(held), Some(into)) = (held, all.get_mut(at..at.saturating_add(HEADER))) else {
            break;
        };
        let parts: &[&[u8]] = if kind == BLANK { &[] } else { &[held] };
        into.copy_from_slice(&header(kind, len, parts));
        at = at.saturating_add(HEADER).saturating_add(held.len()).next_multiple_of(HEADER);
    }
    all
}

impl Journal {
    /// Reads what is there; a torn end is cut off. What is of another form, or nothing, is begun anew.
    pub(super) fn open(mut medium: Box<dyn Medium>) -> io::Result<(Self, Loaded)> {
        let bytes = medium.read()?;
        // One of another length would end elsewhere, and records behind it not be found.
        let head = read(&bytes).filter(|(kind, len, _)| *kind == HEAD && *len == HEAD_PLACE.len);
        let head = head.map(|(_, _, held)| held);
        let (version, secret) = split_id(head.unwrap_or_default());
        let Some(secret) = secret.first_chunk::<32>().filter(|_| version == VERSION) else {
            // Shorter than its first record: somebody was killed while making it.
            let is_none = bytes.len() < HEADER + 8 + 32;
            return Self::begin(medium, if is_none { Earlier::None } else { Earlier::Damaged });
        };
        let hash = HashKey::from_bytes(Zeroizing::new(*secret));
        let mut found: BTreeMap<u64, Found> = BTreeMap::new();
        let head = HEAD_PLACE.size();
        let mut journal = Self { medium, entries: HashMap::new(), end: head, alive: head };
        let mut rest = bytes.get(usize::try_from(head).unwrap_or(usize::MAX)..).unwrap_or_default();
        while let Some((kind, len, held)) = read(rest) {
            let place = Place { at: journal.end, len };
            if let Some(kind) = Kind::from_number(kind) {
                let (id, message) = split_id(held);
                if let Some(old) = journal.entries.insert((kind, id), place) {
                    found.remove(&old.at);
                    journal.alive = journal.alive.saturating_sub(old.size());
                    journal.blank(old)?;
                }
                journal.alive = journal.alive.saturating_add(place.size());
                let message = Zeroizing::new(message.to_vec());
                found.insert(place.at, Found { kind, id, message });
            }
            journal.end = journal.end.saturating_add(place.size());
            let size = usize::try_from(place.size()).unwrap_or(usize::MAX);
            rest = rest.get(size..).unwrap_or_default();
        }
        journal.medium.cut(journal.end)?;
        let earlier = if is_torn(rest) { Earlier::Whole } else { Earlier::Damaged };
        let records = found.into_values().collect();
        Ok((journal, Loaded { hash, records, earlier, is_fresh: false }))
    }

    fn begin(mut medium: Box<dyn Medium>, earlier: Earlier) -> io::Result<(Self, Loaded)> {
        let hash = HashKey::random().map_err(io::Error::other)?;
        let head = record(HEAD, VERSION, hash.expose()).unwrap_or_default();
        medium.replace(&head)?;
        let size = head.len() as u64;
        let journal = Self { medium, entries: HashMap::new(), end: size, alive: size };
        Ok((journal, Loaded { hash, records: Vec::new(), earlier, is_fresh: true }))
    }

    /// Returns true if there are no SAs and no policies.
    pub(in crate::xfrm) fn is_empty(&self) -> bool {
        self.entries.keys().all(|(kind, _)| *kind == Kind::Closed)
    }

    /// Keeps a message in the place of what had its name.
    ///
    /// # Errors
    /// Fails if it cannot be written; what had its name is kept then.
    pub(in crate::xfrm) fn put(&mut self, kind: Kind, id: u64, message: &[u8]) -> io::Result<()> {
        self.medium.look()?;
        let record = record(kind as u8, id, message).ok_or(io::ErrorKind::FileTooLarge)?;
        if let Err(error) = self.medium.write_at(self.end, &record) {
            // A part of it would end the journal here.
            self.medium.cut(self.end)?;
            return Err(error);
        }
        let len = u32::try_from(message.len().saturating_add(8)).unwrap_or(u32::MAX);
        let place = Place { at: self.end, len };
        self.end = self.end.saturating_add(place.size());
        self.alive = self.alive.saturating_add(place.size());
        let old = self.entries.insert((kind, id), place);
        if let Err(error) = self.tidy(old) {
            // What came later counts, whatever is left of what was before.
            tracing::error!(
                "cannot wipe a removed record from the state folder of [xfrm]: {error}"
            );
        }
        Ok(())
    }

    /// Forgets what stood in a place, and writes all anew if little of the file is alive.
    fn tidy(&mut self, old: Option<Place>) -> io::Result<()> {
        old.map_or(Ok(()), |old| self.forget(old))?;
        let blank = self.end.saturating_sub(self.alive);
        if blank > self.alive.saturating_add(BLANK_MIN) { self.compact() } else { Ok(()) }
    }

    /// Forgets what has this name, if anything has.
    pub(in crate::xfrm) fn remove(&mut self, kind: Kind, id: u64) -> io::Result<()> {
        let Some(old) = self.entries.remove(&(kind, id)) else { return Ok(()) };
        self.forget(old)?;
        // What went is wiped wherever it is.
        self.medium.look()
    }

    fn forget(&mut self, place: Place) -> io::Result<()> {
        self.alive = self.alive.saturating_sub(place.size());
        self.blank(place)
    }

    /// First the header, which makes it blank, and then what it held.
    fn blank(&mut self, place: Place) -> io::Result<()> {
        self.medium.write_at(place.at, &header(BLANK, place.len, &[]))?;
        let len = usize::try_from(place.size()).unwrap_or(HEADER).saturating_sub(HEADER);
        self.medium.write_at(place.at.saturating_add(HEADER as u64), &vec![0; len])
    }

    /// Writes all that is alive anew.
    fn compact(&mut self) -> io::Result<()> {
        let mut order: Vec<_> = self.entries.iter().map(|(name, place)| (*name, *place)).collect();
        order.sort_unstable_by_key(|(_, place)| place.at);
        let size = usize::try_from(self.alive).map_err(io::Error::other)?;
        let mut bytes = Zeroizing::new(vec![0; size]);
        let mut at = 0;
        let mut moved = HashMap::with_capacity(order.len());
        let others = order.into_iter().map(|(name, place)| (Some(name), place));
        for (name, place) in std::iter::once((None, HEAD_PLACE)).chain(others) {
            let len = usize::try_from(place.size()).map_err(io::Error::other)?;
            let start = usize::try_from(at).map_err(io::Error::other)?;
            let Some(into) = bytes.get_mut(start..start.saturating_add(len)) else { break };
            self.medium.read_at(place.at, into)?;
            if let Some(name) = name {
                moved.insert(name, Place { at, ..place });
            }
            at = at.saturating_add(place.size());
        }
        self.medium.replace(&bytes)?;
        (self.entries, self.end, self.alive) = (moved, at, at);
        Ok(())
    }

    /// Wipes all of it.
    pub(super) fn destroy(&mut self) -> io::Result<()> {
        self.medium.remove()
    }
}
