//! Sending many packets, to see that none is lost, no counter is wrong and memory does not grow.

use std::fs;
use std::time::Instant;

use super::books::Books;
use super::rig::{Rig, RigError, Task};
use crate::maker::Maker;
use crate::mix::Sizes;

/// Growth of the resident set that is not taken for a leak, bytes: the allocator's own affairs.
const GROWTH_MAX: u64 = 4 << 20;
/// Of the packets, this part is sent before memory is looked at for the first time.
const SETTLED: u64 = 8;

/// Result of a soak.
#[derive(Clone, Debug)]
pub struct Soak {
    /// Name of the suite.
    pub suite: String,
    /// Size of inner packets, or the name of the mix.
    pub size: Sizes,
    /// SAs in each direction.
    pub sas: usize,
    /// Name of the engine.
    pub engine: String,
    /// The tier of the keys.
    pub tier: &'static str,
    /// Time that it took, in seconds.
    pub seconds: f64,
    /// Resident memory after an eighth of the packets, bytes; 0 where the system does not tell.
    pub memory_before: u64,
    /// Resident memory at the end, bytes.
    pub memory_after: u64,
    /// Counts of all packets; they add up if every packet is accounted for.
    pub books: Books,
}

impl Soak {
    /// Describes errors; empty when all is well.
    #[must_use]
    pub fn errors(&self) -> Vec<String> {
        let mut errors = self.books.errors();
        let growth = self.memory_after.saturating_sub(self.memory_before);
        if growth > GROWTH_MAX {
            errors.push(format!("resident memory grew by {growth} bytes"));
        }
        errors
    }
}

/// Sends `packets` packets of `task`, in whole bursts, and tells `progress` how many from time to
/// time.
///
/// # Errors
/// [`RigError`].
pub fn soak(
    maker: &Maker,
    task: &Task,
    packets: u64,
    mut progress: impl FnMut(u64),
) -> Result<Soak, RigError> {
    let mut rig = Rig::<()>::new(maker, task)?;
    let begin = Instant::now();
    let (mut burst, mut told, mut memory_before) = (0, 0, None);
    while rig.sent() < packets {
        rig.lap(burst)?;
        burst += 1;
        if memory_before.is_none() && rig.sent() >= packets / SETTLED {
            memory_before = Some(resident());
        }
        if rig.sent() / (packets / 20).max(1) > told {
            told = rig.sent() / (packets / 20).max(1);
            progress(rig.sent());
        }
    }
    let (seconds, memory_after) = (begin.elapsed().as_secs_f64(), resident());
    Ok(Soak {
        suite: task.suite.to_string(),
        size: task.sizes,
        sas: task.shape.sas,
        engine: maker.name().to_owned(),
        tier: rig.site.tier().name(),
        seconds,
        memory_before: memory_before.unwrap_or(memory_after),
        memory_after,
        books: rig.finish()?,
    })
}

/// Memory of this process that is in RAM, bytes.
fn resident() -> u64 {
    let field = |text: String| text.split_whitespace().nth(1)?.parse::<u64>().ok();
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten();
    let pages = fs::read_to_string("/proc/self/statm").ok().and_then(field);
    pages.unwrap_or(0) * page.and_then(|page| u64::try_from(page).ok()).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_grows_is_an_error() {
        let soak = |memory_after| Soak {
            suite: String::new(),
            size: Sizes::Fixed(64),
            sas: 1,
            engine: "inline".to_owned(),
            tier: "portable",
            seconds: 1.0,
            memory_before: 10 << 20,
            memory_after,
            books: Books::default(),
        };
        assert!(soak(13 << 20).errors().is_empty());
        assert!(soak(9 << 20).errors().is_empty());
        assert!(soak(15 << 20).errors()[0].contains("5242880"));
    }

    #[test]
    fn this_process_has_memory() {
        assert!(resident() > 1 << 20);
    }
}
