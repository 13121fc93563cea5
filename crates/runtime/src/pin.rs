//! Binding a worker to a processor.

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// A worker could not be bound to a processor.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PinError {
    /// The number is larger than any processor number.
    #[error("processor number {0} is too large for this system")]
    NoSuchNumber(usize),
    /// The processor is missing, offline, or outside what this process may use.
    #[error("processor {cpu} is not available here; this process may run on {allowed}")]
    NotAllowed {
        /// The processor asked for.
        cpu: usize,
        /// The ones allowed, as ranges.
        allowed: String,
    },
    /// The system refused for another reason.
    #[error("binding to processor {cpu} failed: {errno}")]
    System {
        /// The processor asked for.
        cpu: usize,
        /// Error number from the system.
        errno: Errno,
    },
}

/// Binds the calling thread to processor `cpu` (counted from 0).
///
/// # Errors
/// [`PinError`], when there is no such processor or it may not be used.
pub fn pin_current_thread(cpu: usize) -> Result<(), PinError> {
    let mut set = CpuSet::new();
    set.set(cpu).map_err(|_| PinError::NoSuchNumber(cpu))?;
    // 0 means the calling thread.
    sched_setaffinity(Pid::from_raw(0), &set).map_err(|errno| match errno {
        Errno::EINVAL => PinError::NotAllowed { cpu, allowed: allowed() },
        errno => PinError::System { cpu, errno },
    })
}

/// Checks that the calling thread may be bound to processor `cpu` (counted from 0). Binds nothing.
///
/// # Errors
/// As [`pin_current_thread`].
pub fn may_pin(cpu: usize) -> Result<(), PinError> {
    let allowed_set = sched_getaffinity(Pid::from_raw(0));
    match allowed_set.map_err(|errno| PinError::System { cpu, errno })?.is_set(cpu) {
        Ok(true) => Ok(()),
        Ok(false) => Err(PinError::NotAllowed { cpu, allowed: allowed() }),
        Err(_) => Err(PinError::NoSuchNumber(cpu)),
    }
}

/// The processors this thread may use, as `0-3,8`.
fn allowed() -> String {
    let Ok(set) = sched_getaffinity(Pid::from_raw(0)) else { return "unknown".into() };
    let on: Vec<_> = (0..CpuSet::count()).filter(|n| set.is_set(*n) == Ok(true)).collect();
    ranges(&on)
}

/// Writes ascending numbers as ranges.
fn ranges(numbers: &[usize]) -> String {
    numbers
        .chunk_by(|a, b| a + 1 == *b)
        .map(|run| match run {
            [one] => one.to_string(),
            [first, .., last] => format!("{first}-{last}"),
            [] => String::new(),
        })
        .collect::<Vec<_>>()
        .join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_may_run_on_that_processor_only() {
        std::thread::spawn(|| {
            let set = sched_getaffinity(Pid::from_raw(0)).unwrap();
            let cpu = (0..CpuSet::count()).find(|n| set.is_set(*n) == Ok(true)).unwrap();
            pin_current_thread(cpu).unwrap();
            assert_eq!(allowed(), cpu.to_string());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_missing_processor_is_named_together_with_the_available_ones() {
        std::thread::spawn(|| {
            let missing = CpuSet::count() - 1;
            assert_eq!(may_pin(missing), pin_current_thread(missing));
            assert_eq!(may_pin(CpuSet::count()), pin_current_thread(CpuSet::count()));
            let error = pin_current_thread(missing).unwrap_err().to_string();
            assert!(error.starts_with(&format!("processor {missing} is not available")), "{error}");
            assert!(error.ends_with(&allowed()), "{error}");
            assert_eq!(
                pin_current_thread(CpuSet::count()),
                Err(PinError::NoSuchNumber(CpuSet::count()))
            );
        })
        .join()
        .unwrap();
    }

    #[test]
    fn ranges_are_short() {
        assert_eq!(ranges(&[0, 1, 2, 5, 8, 9]), "0-2,5,8-9");
        assert_eq!(ranges(&[]), "");
    }
}
