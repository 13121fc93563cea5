//! Counters of the provider's work, in a file.
//!
//! The file is rows of counters that every process maps and adds to, so the workers that a server
//! forks count together with it, and what they counted stays when they are gone. A context counts in the
//! row of the processor that made it, so that workers do not wait for each other's cache lines; a counter
//! stands at the sum of its rows. Which file, if any, is said by [`KEY`] in the provider's section of
//! OpenSSL's configuration, or else by the environment variable [`VARIABLE`]; it is opened once, when the
//! provider is loaded. Without a file nothing is counted.

use std::{
    fmt, io,
    path::Path,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use nix::sched::sched_getcpu;

/// The key of the provider's section that names the file.
pub const KEY: &str = "stats";

/// The environment variable that names the file. A process with rights that its caller lacks ignores it.
pub const VARIABLE: &str = "CONVOY_PROVIDER_STATS";

/// Mark at the beginning of a file of counters.
pub(crate) const MAGIC: [u8; 8] = *b"CONVOYP2";

/// Bytes of a row: a pair of cache lines, as processors fetch them. [`MAGIC`] has the first row to itself.
pub(crate) const ROW: usize = 8 * Counter::ALL.len();
const _: () = assert!(ROW == 128);

/// Rows of counters. Processors of equal numbers modulo this one share a row.
pub(crate) const ROWS: usize = 63;

/// Bytes of a file of counters.
pub(crate) const BYTES: usize = (1 + ROWS) * ROW;

/// Counters of a file, behind its first row.
pub(crate) type Rows = [[AtomicU64; Counter::ALL.len()]; ROWS];

/// The counters of the file that the first loading opened. They stay mapped until the process ends.
static FILE: OnceLock<Option<&'static Rows>> = OnceLock::new();

/// Has the file opened if this is the first time, and notes that the provider was loaded.
pub(crate) fn note_loading(open: impl FnOnce() -> Option<&'static Rows>) {
    FILE.get_or_init(open);
    Tally::here().add(Counter::Loaded, 1);
}

/// A thing that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
#[non_exhaustive]
pub enum Counter {
    /// Times the provider was loaded; processes that fork afterwards do not load it again.
    Loaded,
    /// Contexts made, copies included.
    Contexts,
    /// Keys set up.
    Keys,
    /// Records of TLS 1.0 to 1.2 that were sealed.
    RecordsSealed,
    /// Bytes of their text.
    RecordBytesSealed,
    /// Records of TLS 1.0 to 1.2 that were opened and authentic.
    RecordsOpened,
    /// Bytes of their text.
    RecordBytesOpened,
    /// Messages that were sealed: records of TLS 1.3, and whatever else.
    MessagesSealed,
    /// Bytes of text given to be sealed in messages.
    MessageBytesSealed,
    /// Messages that were opened and authentic.
    MessagesOpened,
    /// Bytes of text given to be opened in messages.
    MessageBytesOpened,
    /// Records and messages that were not authentic.
    Forged,
    /// Messages whose text came in more than one part.
    InParts,
    /// Of the records sealed, those of AES-CBC with HMAC.
    CbcRecordsSealed,
    /// Of the records opened, those of AES-CBC with HMAC.
    CbcRecordsOpened,
    /// Calls that sealed several records of AES-CBC with HMAC at once.
    Multiblocks,
}

impl Counter {
    /// Every counter, in the order of the file.
    pub const ALL: [Self; 16] = [
        Self::Loaded,
        Self::Contexts,
        Self::Keys,
        Self::RecordsSealed,
        Self::RecordBytesSealed,
        Self::RecordsOpened,
        Self::RecordBytesOpened,
        Self::MessagesSealed,
        Self::MessageBytesSealed,
        Self::MessagesOpened,
        Self::MessageBytesOpened,
        Self::Forged,
        Self::InParts,
        Self::CbcRecordsSealed,
        Self::CbcRecordsOpened,
        Self::Multiblocks,
    ];

    /// Its name in the output of `convoy crypto --provider-stats`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Loaded => "loaded",
            Self::Contexts => "contexts",
            Self::Keys => "keys",
            Self::RecordsSealed => "records-sealed",
            Self::RecordBytesSealed => "record-bytes-sealed",
            Self::RecordsOpened => "records-opened",
            Self::RecordBytesOpened => "record-bytes-opened",
            Self::MessagesSealed => "messages-sealed",
            Self::MessageBytesSealed => "message-bytes-sealed",
            Self::MessagesOpened => "messages-opened",
            Self::MessageBytesOpened => "message-bytes-opened",
            Self::Forged => "forged",
            Self::InParts => "in-parts",
            Self::CbcRecordsSealed => "cbc-records-sealed",
            Self::CbcRecordsOpened => "cbc-records-opened",
            Self::Multiblocks => "multiblocks",
        }
    }

    /// Description of what it counts, in a few words.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::Loaded => "times the provider was loaded",
            Self::Contexts => "cipher contexts made or copied",
            Self::Keys => "keys set up",
            Self::RecordsSealed => "records of TLS 1.0 to 1.2 sealed",
            Self::RecordBytesSealed => "bytes of text in them",
            Self::RecordsOpened => "records of TLS 1.0 to 1.2 opened",
            Self::RecordBytesOpened => "bytes of text in them",
            Self::MessagesSealed => "messages sealed: TLS 1.3 records and all else",
            Self::MessageBytesSealed => "bytes of text sealed in messages",
            Self::MessagesOpened => "messages opened: TLS 1.3 records and all else",
            Self::MessageBytesOpened => "bytes of text opened in messages",
            Self::Forged => "records and messages refused as not authentic",
            Self::InParts => "messages whose text came in several parts",
            Self::CbcRecordsSealed => "of the records sealed, those of AES-CBC with HMAC",
            Self::CbcRecordsOpened => "of the records opened, those of AES-CBC with HMAC",
            Self::Multiblocks => "calls that sealed 4 or 8 such records at once",
        }
    }
}

/// Values of a file of counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts([u64; Counter::ALL.len()]);

impl Counts {
    /// Reads a file of counters.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or holds no counters of this version of the provider.
    pub fn read(file: &Path) -> io::Result<Self> {
        use io::Read as _;
        let mut bytes = Vec::new();
        std::fs::File::open(file)?.take(BYTES as u64).read_to_end(&mut bytes)?;
        Self::parse(&bytes).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "holds no counters of this provider")
        })
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; BYTES] = bytes.try_into().ok().filter(|_| bytes.starts_with(&MAGIC))?;
        let mut counts = [0_u64; Counter::ALL.len()];
        for row in &bytes.as_chunks::<ROW>().0[1..] {
            for (count, word) in counts.iter_mut().zip(row.as_chunks::<8>().0) {
                *count = count.wrapping_add(u64::from_ne_bytes(*word));
            }
        }
        Some(Self(counts))
    }

    /// Value of a counter.
    #[must_use]
    pub fn get(&self, counter: Counter) -> u64 {
        self.0[counter as usize]
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for counter in Counter::ALL {
            writeln!(f, "{:<20} {}", counter.name(), self.get(counter))?;
        }
        Ok(())
    }
}

/// Counters of a context: a row of the file, if there is one.
pub(crate) struct Tally(Option<&'static [AtomicU64; Counter::ALL.len()]>);

impl Tally {
    /// The row of the processor this runs on.
    pub(crate) fn here() -> Self {
        let rows = FILE.get().copied().flatten();
        // By the C library: a system call of our own reads the vDSO, which is not there under Valgrind.
        Self(rows.map(|rows| &rows[sched_getcpu().unwrap_or(0) % ROWS]))
    }

    /// Adds to a counter.
    #[inline]
    pub(crate) fn add(&self, counter: Counter, more: u64) {
        if let Some(row) = self.0 {
            row[counter as usize].fetch_add(more, Relaxed);
        }
    }
}

/// A copy of a context counts where it is made.
impl Clone for Tally {
    fn clone(&self) -> Self {
        Self::here()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_stand_in_the_file_in_the_order_of_the_list() {
        for (place, counter) in Counter::ALL.into_iter().enumerate() {
            assert_eq!(counter as usize, place, "{}", counter.name());
        }
        let mut file = MAGIC.to_vec();
        file.resize(ROW, 0);
        for row in 1..=ROWS as u64 {
            file.extend((0..Counter::ALL.len() as u64).flat_map(|i| (i * row).to_ne_bytes()));
        }
        let counts = Counts::parse(&file).unwrap();
        // 1 + 2 + ... + 63 is 2016.
        assert_eq!((counts.get(Counter::Loaded), counts.get(Counter::Keys)), (0, 2 * 2016));
        assert!(counts.to_string().contains("in-parts             24192\n"), "{counts}");
    }

    #[test]
    fn other_files_are_refused() {
        assert_eq!(Counts::parse(b""), None);
        assert_eq!(Counts::parse(b"CONVOYP2 but short"), None);
        assert_eq!(Counts::parse(&[0; BYTES]), None);
        let missing = Path::new("/nowhere/at/all");
        assert_eq!(Counts::read(missing).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
