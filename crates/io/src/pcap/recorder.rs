//! Writing captures beside the data path.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use rtrb::{Consumer, Producer, RingBuffer};

use super::CaptureFile;
use crate::IoError;

/// Time that the writer sleeps when there is nothing to write.
const IDLE: Duration = Duration::from_millis(2);

/// Bounds of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecorderConfig {
    /// Largest size of the file in bytes; packets beyond are not recorded.
    pub file_bytes: u64,
    /// Bytes recorded of each packet at most, 1…65,535.
    pub snap: u16,
    /// Packets that each tap may be ahead of the disk.
    pub depth: usize,
}

impl Default for RecorderConfig {
    /// 64 MiB, 2,048 bytes of each packet, 4,096 packets ahead.
    fn default() -> Self {
        Self { file_bytes: 64 << 20, snap: 2048, depth: 4096 }
    }
}

/// One capture file with a thread of its own that writes it; any number of taps may feed it.
///
/// The file is complete once the recorder is dropped.
#[derive(Debug)]
pub struct Recorder {
    shared: Arc<Shared>,
    config: RecorderConfig,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    lanes: Mutex<Vec<Inlet>>,
    stop: AtomicBool,
    /// Packets in the file.
    written: AtomicU64,
    /// The file has reached its size, or the disk failed.
    full: AtomicBool,
}

impl Recorder {
    /// Makes the file, which nobody but this user can read, or empties it if it exists, and starts the writer.
    ///
    /// # Errors
    /// [`IoError::Capture`] when the file cannot be created, [`IoError::Setup`] when there can be no
    /// thread.
    pub fn create(path: &Path, config: RecorderConfig) -> Result<Self, IoError> {
        let file = CaptureFile::create(path)?;
        let shared = Arc::new(Shared {
            lanes: Mutex::new(Vec::new()),
            stop: AtomicBool::new(false),
            written: AtomicU64::new(0),
            full: AtomicBool::new(false),
        });
        let writer = FileWriter {
            file,
            room: config.file_bytes - config.file_bytes.min(super::FILE_OVERHEAD),
        };
        let thread = thread::Builder::new().name("convoy-capture".into());
        let shared_there = Arc::clone(&shared);
        let thread = thread
            .spawn(move || writer.run(&shared_there))
            .map_err(IoError::setup("start the thread that writes the capture"))?;
        Ok(Self { shared, config, thread: Some(thread) })
    }

    /// Number of packets written so far.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.shared.written.load(Ordering::Relaxed)
    }

    /// A new way in, for one tap.
    pub(super) fn lane(&self) -> Lane {
        let (out, inward) = RingBuffer::new(self.config.depth.max(1));
        let (mut give_back, empties) = RingBuffer::new(self.config.depth.max(1));
        for _ in 0..self.config.depth.max(1) {
            let bytes = vec![0; usize::from(self.config.snap.max(1))].into();
            let _ = give_back.push(Record { at: Duration::ZERO, len: 0, original: 0, bytes });
        }
        self.shared.lanes().push(Inlet { inward, give_back });
        Lane { out, empties, shared: Arc::clone(&self.shared), missed: 0 }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // A writer that panicked has nothing more to say.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lanes(&self) -> std::sync::MutexGuard<'_, Vec<Inlet>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A packet on its way to the file.
#[derive(Debug)]
struct Record {
    at: Duration,
    len: usize,
    original: u32,
    bytes: Box<[u8]>,
}

/// The tap's end: never waits.
#[derive(Debug)]
pub(super) struct Lane {
    out: Producer<Record>,
    empties: Consumer<Record>,
    shared: Arc<Shared>,
    missed: u64,
}

impl Lane {
    pub(super) fn record(&mut self, at: Duration, packet: &[u8]) {
        if self.shared.full.load(Ordering::Relaxed) {
            self.missed += 1;
            return;
        }
        let Ok(mut record) = self.empties.pop() else {
            self.missed += 1;
            return;
        };
        let len = packet.len().min(record.bytes.len());
        if let (Some(to), Some(from)) = (record.bytes.get_mut(..len), packet.get(..len)) {
            to.copy_from_slice(from);
        }
        record.at = at;
        record.len = len;
        record.original = packet.len() as u32;
        // As many places as records: this cannot be full.
        let _ = self.out.push(record);
    }

    pub(super) fn missed(&self) -> u64 {
        self.missed
    }
}

/// The writer's end of a lane.
#[derive(Debug)]
struct Inlet {
    inward: Consumer<Record>,
    give_back: Producer<Record>,
}

struct FileWriter {
    file: CaptureFile,
    room: u64,
}

impl FileWriter {
    fn run(mut self, shared: &Shared) {
        loop {
            let stop = shared.stop.load(Ordering::Acquire);
            let mut wrote = false;
            for inlet in shared.lanes().iter_mut() {
                while let Ok(record) = inlet.inward.pop() {
                    self.write(&record, shared);
                    let _ = inlet.give_back.push(record);
                    wrote = true;
                }
            }
            if stop {
                break;
            }
            if !wrote {
                thread::sleep(IDLE);
            }
        }
        let _ = self.file.flush();
    }

    fn write(&mut self, record: &Record, shared: &Shared) {
        let size = record.len as u64 + super::RECORD_OVERHEAD;
        if shared.full.load(Ordering::Relaxed) {
            return;
        }
        let data = record.bytes.get(..record.len).unwrap_or_default();
        if size > self.room || self.file.add(record.at, record.original, data).is_err() {
            shared.full.store(true, Ordering::Relaxed);
            return;
        }
        self.room -= size;
        shared.written.fetch_add(1, Ordering::Relaxed);
    }
}
