//! The records of all keys, in memory and in two images.
//!
//! Images are written alternately. The *working* image is the one that was not synced last; it may
//! be rewritten any number of times, and only a successful sync makes it the one to keep.

use std::collections::HashMap;
use std::io;

use convoy_ipsec::selector::Direction;

use super::binding::Binding;
use super::error::LeaseError;
use super::hash::{HashKey, RecordId};
use super::image::{BadImage, BootId, Image, Record, VERSION};
use super::storage::{Slot, Storage};

/// Position of a record in its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct RecordAt(usize);

/// Records, and the storage they are kept in.
#[derive(Debug)]
pub(super) struct Store {
    storage: Box<dyn Storage>,
    key: HashKey,
    boot: Option<BootId>,
    binding: Binding,
    /// True if images were tied to no machine before.
    newly_bound: bool,
    records: Vec<Record>,
    by_id: HashMap<RecordId, RecordAt>,
    /// For each record the bound that the last synced image sets on the next one.
    bounds: Vec<u64>,
    /// The slot to write next, and the generation it gets.
    working: Slot,
    generation: u64,
    /// The copy that could not be believed when the store was opened.
    mended: Option<Slot>,
}

impl Store {
    /// Reads the images, and decides from where each key goes on. Nothing is changed where they are tied
    /// to something else than `here`.
    pub(super) fn open(
        mut storage: Box<dyn Storage>,
        key: HashKey,
        boot: Option<BootId>,
        here: Binding,
    ) -> Result<Self, LeaseError> {
        let mut read = |slot| -> Result<Option<Result<Image, BadImage>>, LeaseError> {
            let bytes = storage.read(slot).map_err(LeaseError::Write)?;
            Ok(bytes.map(|bytes| Image::from_bytes(&bytes, &key)))
        };
        let (a, b) = (read(Slot::A)?, read(Slot::B)?);
        for image in [&a, &b] {
            if let Some(Err(BadImage::Version(found))) = image {
                return Err(LeaseError::Version { found: *found, known: VERSION });
            }
        }
        let both = matches!((&a, &b), (Some(Ok(_)), Some(Ok(_))));
        let (a, b) = (a.and_then(Result::ok), b.and_then(Result::ok));
        let generation = |image: &Option<Image>| image.as_ref().map_or(0, |image| image.generation);
        let (newest, slot) =
            if generation(&a) > generation(&b) { (a, Slot::A) } else { (b, Slot::B) };
        let newest = newest.ok_or(LeaseError::Corrupt)?;
        let binding = newest.binding.judge(&here).map_err(LeaseError::foreign)?;
        let newly_bound = binding.knows_machine() && !newest.binding.knows_machine();
        let newest = Image { binding, ..newest };
        // It may never have been synced, if a process was killed; and the kernel may have given up
        // on it unseen. It must be on the disk before the other one is touched.
        let bytes = newest.to_bytes(&key);
        storage.write(slot, &bytes).and_then(|()| storage.sync(slot)).map_err(LeaseError::Write)?;
        let records = recovered(&newest, both, boot);
        let by_id =
            records.iter().enumerate().map(|(at, record)| (record.id, RecordAt(at))).collect();
        let bounds = records.iter().map(|record| record.number).collect();
        let mut store = Self {
            storage,
            key,
            boot,
            binding,
            newly_bound,
            records,
            by_id,
            bounds,
            working: slot.other(),
            generation: newest.generation + 1,
            mended: (!both).then(|| slot.other()),
        };
        store.settle()?;
        Ok(store)
    }

    /// The copy that was damaged or missing when the store was opened, if one was.
    pub(super) fn mended(&self) -> Option<Slot> {
        self.mended
    }

    /// Names of the identifiers that images are tied to from now on, if they were tied to no machine.
    pub(super) fn newly_bound(&self) -> Option<String> {
        self.newly_bound.then(|| self.binding.machine_in_words())
    }

    pub(super) fn key(&self) -> &HashKey {
        &self.key
    }

    /// The record of a key, if it was used before.
    pub(super) fn find(&self, id: RecordId) -> Option<RecordAt> {
        self.by_id.get(&id).copied()
    }

    /// The record of a key, made if it is new. Its key may be used after two commits: else damage to
    /// the one image that knows the key would make it look new.
    pub(super) fn find_or_add(&mut self, id: RecordId, direction: Direction) -> RecordAt {
        if let Some(at) = self.find(id) {
            return at;
        }
        let at = RecordAt(self.records.len());
        // The first sequence number is 1 (RFC 4303 section 2.2); nothing was accepted yet.
        let number = if direction == Direction::Outbound { 1 } else { 0 };
        let (is_spent, allowance) = (false, number);
        let allowance_synced = 0;
        self.records.push(Record { id, direction, is_spent, number, allowance, allowance_synced });
        self.bounds.push(number);
        self.by_id.insert(id, at);
        at
    }

    /// No key that is known may be used any more. To be committed twice.
    pub(super) fn spend(&mut self) {
        self.records.iter_mut().for_each(|record| record.is_spent = true);
    }

    pub(super) fn record(&self, at: RecordAt) -> Option<&Record> {
        self.records.get(at.0)
    }

    pub(super) fn record_mut(&mut self, at: RecordAt) -> Option<&mut Record> {
        self.records.get_mut(at.0)
    }

    /// Highest number that the record may have in the next image.
    pub(super) fn bound(&self, at: RecordAt) -> u64 {
        self.bounds.get(at.0).copied().unwrap_or(0)
    }

    /// Looks whether images still lie where the next run finds them.
    pub(super) fn look(&mut self) -> io::Result<()> {
        self.storage.look()
    }

    /// Writes the working image without waiting for the disk.
    pub(super) fn write(&mut self) -> io::Result<()> {
        self.write_as(false)
    }

    /// Writes the working image, syncs it, and makes the other one the working image. After an
    /// error nothing that this image would allow may be used.
    pub(super) fn commit(&mut self) -> io::Result<()> {
        self.commit_as(false)
    }

    /// Commits to both slots, so that each alone tells of every record.
    fn settle(&mut self) -> Result<(), LeaseError> {
        self.commit().and_then(|()| self.commit()).map_err(LeaseError::Write)
    }

    /// Commits exact numbers at an orderly end.
    pub(super) fn commit_clean(&mut self) -> io::Result<()> {
        self.commit_as(true)
    }

    fn write_as(&mut self, clean: bool) -> io::Result<()> {
        let image = Image {
            generation: self.generation,
            boot: self.boot,
            clean,
            binding: self.binding,
            records: self.records.clone(),
        };
        self.storage.write(self.working, &image.to_bytes(&self.key))
    }

    fn commit_as(&mut self, clean: bool) -> io::Result<()> {
        self.write_as(clean)?;
        self.storage.sync(self.working)?;
        self.bounds = self.records.iter().map(|record| record.allowance).collect();
        self.working = self.working.other();
        self.generation += 1;
        Ok(())
    }
}

/// Records of the newest believable image, raised by what may have happened after it.
///
/// `both`: whether the other image can be believed too. If not, it may have been torn while it was
/// written, when it allowed nothing yet; or it was damaged after its sync, when it was the newer one
/// and allowed as much as the allowance of this one.
fn recovered(newest: &Image, both: bool, boot: Option<BootId>) -> Vec<Record> {
    let same_boot = boot.is_some() && newest.boot == boot;
    let number = |record: &Record| match record.direction {
        _ if newest.clean => record.number,
        Direction::Outbound if both => record.number,
        Direction::Outbound => record.allowance.max(record.number),
        Direction::Inbound if both && same_boot => record.number.saturating_add(record.allowance),
        Direction::Inbound => {
            record.number.saturating_add(record.allowance_synced.max(record.allowance))
        }
    };
    let at_rest = |record: &Record| {
        let number = number(record);
        let allowance = if record.direction == Direction::Outbound { number } else { 0 };
        Record { number, allowance, allowance_synced: 0, ..*record }
    };
    newest.records.iter().map(at_rest).collect()
}
