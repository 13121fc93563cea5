//! The blocks of a capture file, one after another.

use std::io::{self, Error, ErrorKind, Read};
use std::sync::{Arc, Mutex, PoisonError};

use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{Block, PcapBlockOwned, PcapError, create_reader};

use crate::IoError;

/// Largest block in bytes; files may claim any.
const BLOCK_MAX: usize = 1 << 20;
/// Bytes that frame a block: its kind, and its length in front and behind.
const BLOCK_MIN: usize = 12;
const TOO_LONG: &str = "a part of it is longer than 1048576 bytes";
const MALFORMED: &str = "a part of it is malformed";
const NO_CAPTURE: &str = "it is neither pcap nor pcapng";

/// Reads pcap and pcapng files, with no more than [`BLOCK_MAX`] in memory.
pub(super) struct Blocks<'a> {
    parser: Box<dyn PcapReaderIterator + Send + 'a>,
    /// Cause of a failed read of the file, which the parser does not tell.
    trouble: Trouble,
    /// Of pcapng, whether the section is big-endian.
    section: Option<bool>,
}

impl<'a> Blocks<'a> {
    /// Looks at the beginning of the file.
    ///
    /// # Errors
    /// [`IoError::Capture`] when it cannot be read or is no capture.
    pub(super) fn open(file: impl Read + Send + 'a) -> Result<Self, IoError> {
        let trouble = Trouble::default();
        let file = Noting { file, trouble: Arc::clone(&trouble) };
        // The parser wants some room beyond the block.
        match create_reader(2 * BLOCK_MAX, file) {
            Ok(parser) => Ok(Self { parser, trouble, section: None }),
            // Even its header is not whole.
            Err(PcapError::Incomplete(_)) => Err(invalid(NO_CAPTURE)),
            Err(error) => Err(explain(&error, &trouble)),
        }
    }

    /// Gives the next block to `take`; `false` at the end of the file. A file whose writer was killed ends
    /// in the middle of a block, which is its end, too.
    ///
    /// # Errors
    /// [`IoError::Capture`] for what cannot be read or is no block, and what `take` returns.
    pub(super) fn next(
        &mut self,
        take: impl FnOnce(&PcapBlockOwned<'_>) -> Result<(), IoError>,
    ) -> Result<bool, IoError> {
        loop {
            let before = self.parser.data().len();
            if self.is_too_short() {
                return Err(invalid(MALFORMED));
            }
            match self.parser.next() {
                Ok((len, block)) => {
                    if let PcapBlockOwned::NG(Block::SectionHeader(header)) = &block {
                        self.section = Some(header.big_endian());
                    }
                    take(&block)?;
                    self.parser.consume(len);
                    return Ok(true);
                }
                Err(PcapError::Eof) => return Ok(false),
                Err(PcapError::UnexpectedEof) => {
                    return if self.is_cut() { Ok(false) } else { Err(invalid(MALFORMED)) };
                }
                Err(PcapError::Incomplete(_)) if before <= BLOCK_MAX => {}
                Err(error) => return Err(explain(&error, &self.trouble)),
            }
            self.parser.refill().map_err(|error| explain(&error, &self.trouble))?;
        }
    }

    /// True if the last block is longer than what is left of the file.
    fn is_cut(&self) -> bool {
        self.length().is_none_or(|len| len > self.parser.data().len())
    }

    /// True if the next block has no room for what frames it. Of some kinds the parser subtracts that unseen.
    fn is_too_short(&self) -> bool {
        self.length().is_some_and(|len| len < BLOCK_MIN)
    }

    /// Length of the next block of a section by its own word, where that is there.
    fn length(&self) -> Option<usize> {
        let big_endian = self.section?;
        let len = self.parser.data().get(4..)?.first_chunk()?;
        let len = if big_endian { u32::from_be_bytes(*len) } else { u32::from_le_bytes(*len) };
        Some(len as usize)
    }
}

fn explain(error: &PcapError<&[u8]>, trouble: &Trouble) -> IoError {
    let why = match error {
        PcapError::ReadError => {
            let noted = trouble.lock().unwrap_or_else(PoisonError::into_inner).take();
            return IoError::Capture(noted.unwrap_or_else(|| ErrorKind::Other.into()));
        }
        PcapError::Eof | PcapError::HeaderNotRecognized => NO_CAPTURE,
        PcapError::Incomplete(_) | PcapError::BufferTooSmall => TOO_LONG,
        _ => MALFORMED,
    };
    invalid(why)
}

fn invalid(why: &'static str) -> IoError {
    IoError::Capture(Error::new(ErrorKind::InvalidData, why))
}

type Trouble = Arc<Mutex<Option<Error>>>;

/// A file that keeps the reason why it could not be read.
struct Noting<R> {
    file: R,
    trouble: Trouble,
}

impl<R: Read> Read for Noting<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.file.read(into) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    let kind = error.kind();
                    *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    return Err(kind.into());
                }
                read => return read,
            }
        }
    }
}
