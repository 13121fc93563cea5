//! Work between bursts: a gateway's core does other things as well, and they leave caches, branch
//! predictors and vector units in another state than the burst before would.

use std::fmt;
use std::hint::{black_box, spin_loop};
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::str::FromStr;
use std::time::{Duration, Instant};

use convoy_crypto::Suite;

use crate::contender::Contender;
use crate::peer::openssl::{self, OpenSsl};
use crate::workload::{Arena, Workload};

/// Work between all bursts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Between {
    /// Nothing: the next burst follows at once.
    None,
    /// OpenSSL seals the same packets, for [`PAUSE`] at least.
    OpenSsl,
    /// [`PAUSE`] of scalar code.
    Pause,
    /// A walk over [`WALK`] bytes.
    Memory,
    /// [`TRIPS`] packets through a pair of sockets.
    Syscalls,
}

/// Longer than vector units stay awake that are not used.
pub const PAUSE: Duration = Duration::from_millis(1);
/// Bytes of the walk: more than the nearest cache holds.
pub const WALK: usize = 512 << 10;
/// Packets through the sockets, a write and a read for each.
pub const TRIPS: usize = 64;

/// Bytes of a cache line.
const LINE: usize = 64;
/// Bytes of a packet through the sockets.
const PACKET: usize = 1420;

impl Between {
    /// Every choice.
    pub const ALL: [Self; 5] =
        [Self::None, Self::OpenSsl, Self::Pause, Self::Memory, Self::Syscalls];

    /// Its name, as arguments and results spell it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::OpenSsl => "openssl",
            Self::Pause => "pause",
            Self::Memory => "memory",
            Self::Syscalls => "syscalls",
        }
    }
}

impl fmt::Display for Between {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text names nothing that can run between bursts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("nothing that runs between bursts is called {0:?}; valid names are {names}", names = names())]
pub struct UnknownBetween(String);

fn names() -> String {
    Between::ALL.map(Between::name).join(", ")
}

impl FromStr for Between {
    type Err = UnknownBetween;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|between| between.name() == text);
        found.ok_or_else(|| UnknownBetween(text.to_owned()))
    }
}

/// Nothing can run between bursts.
#[derive(Debug, thiserror::Error)]
pub enum BetweenError {
    /// OpenSSL is not here.
    #[error("openssl between bursts: no libcrypto was loaded")]
    NoOpenSsl,
    /// OpenSSL has neither the suite nor AES-GCM.
    #[error("openssl between bursts: it lacks {0} and AES-GCM")]
    NoSuite(Suite),
    /// There are no sockets.
    #[error("syscalls between bursts: {0}")]
    Sockets(#[from] io::Error),
}

/// Work between the bursts of one point, with all it needs.
pub(crate) enum Standing {
    Nothing,
    OpenSsl { work: Workload, arena: Arena, contender: Box<dyn Contender> },
    Pause,
    Memory(Vec<[u64; LINE / 8]>),
    Syscalls(UnixStream, UnixStream),
}

impl Standing {
    /// Prepares it for a point. Takes the packets of the point for OpenSSL, under AES-GCM where it
    /// lacks the suite.
    pub(crate) fn new(
        between: Between,
        library: Option<&Rc<OpenSsl>>,
        work: &Workload,
    ) -> Result<Self, BetweenError> {
        Ok(match between {
            Between::None => Self::Nothing,
            Between::Pause => Self::Pause,
            Between::Memory => Self::Memory(vec![[1; LINE / 8]; WALK / LINE]),
            Between::Syscalls => {
                let (near, far) = UnixStream::pair()?;
                Self::Syscalls(near, far)
            }
            Between::OpenSsl => {
                let library = library.ok_or(BetweenError::NoOpenSsl)?;
                let mut work = work.clone();
                let mut contenders = openssl::contenders(library, &work);
                if contenders.is_empty() {
                    work = work.under_gcm();
                    contenders = openssl::contenders(library, &work);
                }
                let contender = contenders.pop().ok_or(BetweenError::NoSuite(work.suite))?;
                let arena = work.plain();
                Self::OpenSsl { work, arena, contender }
            }
        })
    }

    /// Runs it once.
    pub(crate) fn run(&mut self) {
        match self {
            Self::Nothing => {}
            Self::OpenSsl { work, arena, contender } => {
                for_a_pause(|| contender.seal(work, arena));
                black_box(arena.bytes());
            }
            Self::Pause => for_a_pause(spin_loop),
            Self::Memory(lines) => {
                for line in lines.iter_mut() {
                    line[0] = line[0].wrapping_add(1);
                }
                black_box(lines);
            }
            Self::Syscalls(near, far) => {
                let mut packet = [0; PACKET];
                for _ in 0..TRIPS {
                    // A pair of sockets in one thread fails only where the process may not go on anyway.
                    let there = near.write_all(&packet);
                    black_box(there.and_then(|()| far.read_exact(&mut packet)).is_ok());
                }
            }
        }
    }
}

/// Repeats something until [`PAUSE`] is over.
fn for_a_pause(mut each: impl FnMut()) {
    let start = Instant::now();
    while start.elapsed() < PAUSE {
        each();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mix::Sizes;

    fn work(suite: &str) -> Workload {
        Workload::new(suite.parse().unwrap(), Sizes::Fixed(100), 2, 5)
    }

    #[test]
    fn names_are_read_as_they_are_written_and_others_are_told_the_valid_ones() {
        for between in Between::ALL {
            assert_eq!(between.to_string().parse(), Ok(between));
        }
        let error = "lunch".parse::<Between>().unwrap_err().to_string();
        let said = "nothing that runs between bursts is called \"lunch\"; valid names are none, openssl, \
                    pause, memory, syscalls";
        assert_eq!(error, said);
    }

    #[test]
    fn a_pause_and_openssl_take_as_long_as_they_say() {
        let work = work("aes-128-gcm-16");
        let mut standing = vec![Standing::new(Between::Pause, None, &work).unwrap()];
        match OpenSsl::load(None) {
            Ok(library) => {
                standing.push(Standing::new(Between::OpenSsl, Some(&library), &work).unwrap());
            }
            Err(error) => println!("SKIPPED OpenSSL between bursts: {error}"),
        }
        for mut standing in standing {
            let start = Instant::now();
            standing.run();
            assert!(start.elapsed() >= PAUSE);
        }
    }

    #[test]
    fn a_walk_touches_every_line_once() {
        let mut standing = Standing::new(Between::Memory, None, &work("aes-128-gcm-16")).unwrap();
        standing.run();
        let Standing::Memory(lines) = standing else { panic!("something else") };
        assert_eq!(size_of_val(&*lines), WALK);
        assert!(lines.iter().all(|line| line[0] == 2));
    }

    #[test]
    fn packets_through_sockets_leave_nothing_behind() {
        let mut standing = Standing::new(Between::Syscalls, None, &work("aes-128-gcm-16")).unwrap();
        (0..3).for_each(|_| standing.run());
        let Standing::Syscalls(_, far) = &mut standing else { panic!("something else") };
        far.set_nonblocking(true).unwrap();
        assert_eq!(far.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn openssl_works_on_the_packets_of_the_point_and_takes_gcm_for_what_it_lacks() {
        let library = match OpenSsl::load(None) {
            Ok(library) => library,
            Err(error) => return println!("SKIPPED OpenSSL between bursts: {error}"),
        };
        for suite in crate::suite::all() {
            let work = work(&suite.to_string());
            let standing = Standing::new(Between::OpenSsl, Some(&library), &work).unwrap();
            let Standing::OpenSsl { work: other, .. } = standing else { panic!("something else") };
            let lengths = |work: &Workload| work.packets.iter().map(|p| p.text).collect::<Vec<_>>();
            assert_eq!(lengths(&other), lengths(&work), "{suite}");
            let lacks = openssl::contenders(&library, &work).is_empty();
            assert_eq!(other.suite != suite, lacks, "{suite}");
        }
        let nobody = Standing::new(Between::OpenSsl, None, &work("aes-128-gcm-16"));
        assert!(matches!(nobody, Err(BetweenError::NoOpenSsl)));
    }
}
