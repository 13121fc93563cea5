//! Files for tests, and all that was ever written to them: a process may be killed anywhere.

use std::io;
use std::sync::{Arc, Mutex};

use convoy_ipsec::snapshot::{Published, Snapshot};
use zeroize::Zeroizing;

use super::{Journal, Keep, Medium, Words};

/// A kernel finishes what it copies within a page, whoever is killed.
const WHOLE_MAX: usize = 128;

#[derive(Clone, Debug)]
enum Step {
    Write(usize, u64, Vec<u8>),
    Cut(usize, u64),
    Replace(usize, Vec<u8>),
}

/// Two files, `journal` and `numbers`.
#[derive(Clone, Debug, Default)]
pub(in crate::xfrm) struct Memory(Arc<Mutex<Files>>);

/// A question about a snapshot, and what the answers were.
#[derive(Clone, Debug)]
struct Watched {
    published: Arc<Published>,
    is: fn(&Snapshot) -> bool,
    seen: Vec<bool>,
}

#[derive(Clone, Debug, Default)]
struct Files {
    now: [Vec<u8>; 2],
    start: [Vec<u8>; 2],
    steps: Vec<Step>,
    /// Writes fail that make a file longer, for each.
    is_full: [bool; 2],
    /// Asked at each step of the journal.
    watched: Option<Watched>,
}

fn apply(files: &mut [Vec<u8>; 2], step: &Step, part: usize) {
    match step {
        Step::Write(file, at, bytes) => {
            let bytes = &bytes[..part.min(bytes.len())];
            let at = usize::try_from(*at).unwrap();
            let end = at + bytes.len();
            let file = &mut files[*file];
            file.resize(file.len().max(end), 0);
            file[at..end].copy_from_slice(bytes);
        }
        Step::Cut(file, len) => files[*file].truncate(usize::try_from(*len).unwrap()),
        Step::Replace(file, bytes) => files[*file].clone_from(bytes),
    }
}

impl Memory {
    /// Opens the files in this memory.
    pub(in crate::xfrm) fn open(&self) -> Keep {
        self.open_with(None)
    }

    /// The same, and memory that workers write.
    pub(in crate::xfrm) fn open_with(&self, words: Option<Box<dyn Words>>) -> Keep {
        let (journal, numbers) = (Leaf::journal(self), Leaf::numbers(self));
        Keep::from_media(None, Box::new(journal), Box::new(numbers), words).unwrap()
    }

    /// Files that a process leaves that is killed now. Its later writes do not come here.
    pub(in crate::xfrm) fn killed(&self) -> Self {
        Self::holding(self.0.lock().unwrap().now.clone())
    }

    fn holding(now: [Vec<u8>; 2]) -> Self {
        Self(Arc::new(Mutex::new(Files { start: now.clone(), now, ..Files::default() })))
    }

    /// Number of steps made.
    pub(in crate::xfrm) fn steps(&self) -> usize {
        self.0.lock().unwrap().steps.len()
    }

    /// Files that a process leaves that is killed in this step, for each byte that the step may have come to.
    pub(in crate::xfrm) fn killed_in(&self, step: usize) -> Vec<Self> {
        let files = self.0.lock().unwrap();
        let mut before = files.start.clone();
        files.steps[..step].iter().for_each(|step| apply(&mut before, step, usize::MAX));
        let parts = match &files.steps[step] {
            Step::Write(_, _, bytes) if bytes.len() > WHOLE_MAX => bytes.len(),
            _ => 1,
        };
        let torn = |part| {
            let mut left = before.clone();
            if part > 0 {
                apply(&mut left, &files.steps[step], part);
            }
            Self::holding(left)
        };
        (0..parts).map(torn).collect()
    }

    /// Records of the journal when it is opened, and the bytes of the cells.
    pub(in crate::xfrm) fn records(&self) -> (Vec<(u64, Vec<u8>)>, Vec<u8>) {
        let (_, loaded) = Journal::open(Box::new(Leaf::journal(self))).unwrap();
        let all = loaded.records.iter().map(|found| (found.id, found.message.to_vec()));
        (all.collect(), self.bytes(1))
    }

    pub(in crate::xfrm) fn bytes(&self, file: usize) -> Vec<u8> {
        self.0.lock().unwrap().now[file].clone()
    }

    pub(in crate::xfrm) fn change(&self, file: usize, change: impl FnOnce(&mut Vec<u8>)) {
        change(&mut self.0.lock().unwrap().now[file]);
    }

    pub(in crate::xfrm) fn fill_up(&self, is_full: bool) {
        self.0.lock().unwrap().is_full = [is_full; 2];
    }

    /// Only the journal grows no more.
    pub(in crate::xfrm) fn fill_up_journal(&self) {
        self.0.lock().unwrap().is_full = [true, false];
    }

    /// Asks the snapshot this with each step of the journal.
    pub(in crate::xfrm) fn watch(&self, published: &Arc<Published>, is: fn(&Snapshot) -> bool) {
        let watched = Watched { published: published.clone(), is, seen: Vec::new() };
        self.0.lock().unwrap().watched = Some(watched);
    }

    /// Answers of the snapshot at these steps.
    pub(in crate::xfrm) fn watched(&self) -> Vec<bool> {
        self.0.lock().unwrap().watched.take().unwrap().seen
    }
}

#[derive(Debug)]
pub(super) struct Leaf {
    memory: Memory,
    file: usize,
}

impl Leaf {
    pub(super) fn journal(memory: &Memory) -> Self {
        Self { memory: memory.clone(), file: 0 }
    }

    pub(super) fn numbers(memory: &Memory) -> Self {
        Self { memory: memory.clone(), file: 1 }
    }

    fn step(&self, step: Step) {
        let mut files = self.memory.0.lock().unwrap();
        apply(&mut files.now, &step, usize::MAX);
        files.steps.push(step);
        if self.file == 0
            && let Some(Watched { published, is, seen }) = &mut files.watched
        {
            seen.push(is(&published.current()));
        }
    }
}

impl Medium for Leaf {
    fn look(&self) -> io::Result<()> {
        Ok(())
    }

    fn read(&mut self) -> io::Result<Zeroizing<Vec<u8>>> {
        Ok(Zeroizing::new(self.memory.bytes(self.file)))
    }

    fn read_at(&mut self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let at = usize::try_from(at).unwrap();
        into.copy_from_slice(&self.memory.bytes(self.file)[at..at + into.len()]);
        Ok(())
    }

    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let (len, is_full) = {
            let files = self.memory.0.lock().unwrap();
            (files.now[self.file].len(), files.is_full[self.file])
        };
        if is_full && usize::try_from(at).unwrap() + bytes.len() > len {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.step(Step::Write(self.file, at, bytes.to_vec()));
        Ok(())
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.step(Step::Cut(self.file, len));
        Ok(())
    }

    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.step(Step::Replace(self.file, bytes.to_vec()));
        Ok(())
    }

    fn remove(&mut self) -> io::Result<()> {
        self.replace(&[])
    }
}
