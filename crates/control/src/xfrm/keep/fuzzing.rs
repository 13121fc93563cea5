//! Journals from any bytes.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use zeroize::Zeroizing;

use super::journal::{Earlier, Found, Journal, Kind, with_sums};
use super::medium::Medium;

/// A file that is only bytes.
#[derive(Clone, Debug, Default)]
struct Bytes(Arc<Mutex<Vec<u8>>>);

impl Bytes {
    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn place(at: u64, len: usize) -> io::Result<std::ops::Range<usize>> {
    let begin = usize::try_from(at).map_err(io::Error::other)?;
    Ok(begin..begin.checked_add(len).ok_or(io::ErrorKind::InvalidInput)?)
}

impl Medium for Bytes {
    fn look(&self) -> io::Result<()> {
        Ok(())
    }

    fn read(&mut self) -> io::Result<Zeroizing<Vec<u8>>> {
        Ok(Zeroizing::new(self.lock().clone()))
    }

    fn read_at(&mut self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let from = place(at, into.len())?;
        into.copy_from_slice(self.lock().get(from).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let to = place(at, bytes.len())?;
        let mut all = self.lock();
        if all.len() < to.end {
            all.resize(to.end, 0);
        }
        all.get_mut(to).ok_or(io::ErrorKind::InvalidInput)?.copy_from_slice(bytes);
        Ok(())
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.lock().truncate(usize::try_from(len).map_err(io::Error::other)?);
        Ok(())
    }

    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        *self.lock() = bytes.to_vec();
        Ok(())
    }

    fn remove(&mut self) -> io::Result<()> {
        self.lock().clear();
        Ok(())
    }
}

/// Opens a journal of these bytes, with the sums that its records should have if `is_summed`. How many records it has.
///
/// # Panics
/// If records are made of more bytes than there are, if the next run finds others, or if it does not find one that this one
/// puts there.
#[must_use]
pub fn journal(bytes: &[u8], is_summed: bool) -> usize {
    let left = if is_summed { with_sums(bytes) } else { bytes.to_vec() };
    let file = Bytes(Arc::new(Mutex::new(left)));
    let open = || Journal::open(Box::new(file.clone())).expect("bytes in memory can be read");
    let names = |records: &[Found]| -> Vec<(Kind, u64, Vec<u8>)> {
        records.iter().map(|it| (it.kind, it.id, it.message.to_vec())).collect()
    };
    let (mut journal, loaded) = open();
    let found = names(&loaded.records);
    let held: usize = found.iter().map(|(_, _, message)| message.len()).sum();
    assert!(held <= bytes.len(), "{held} bytes of records in {}", bytes.len());
    let (_, again) = open();
    assert!(names(&again.records) == found, "the next life finds other records");
    assert!(again.earlier == Earlier::Whole, "what was damaged is cut off");
    let one = (Kind::Policy, 1, b"one more".to_vec());
    journal.put(one.0, one.1, &one.2).expect("bytes in memory can be written");
    let (_, last) = open();
    let kept: Vec<_> = found.iter().filter(|it| (it.0, it.1) != (one.0, one.1)).cloned().collect();
    assert!(
        names(&last.records) == [kept, vec![one]].concat(),
        "it does not find what is put there"
    );
    found.len()
}
