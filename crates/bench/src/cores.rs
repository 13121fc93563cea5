//! State of the cores that workers are to run on, and their use by others.

use std::fs;
use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use convoy_runtime::pin_current_thread;
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use serde::Serialize;

/// Time for which the use of the cores is watched.
const LOOK: Duration = Duration::from_millis(300);
/// Time of one sum, computed to see how fast a core is.
const SUM: Duration = Duration::from_millis(50);

/// The cores of a measurement, as they were just before it.
#[derive(Clone, Debug, Serialize)]
pub struct Cores {
    /// Their numbers.
    pub cpus: Vec<usize>,
    /// Share of each core's time that was taken by others, 0 to 1.
    pub busy: Vec<f64>,
    /// Groups of them that are threads of one core, as the system says.
    pub siblings: Vec<Vec<usize>>,
    /// Sums that all of them compute at once, divided by those that they compute one at a time: 1 where they share
    /// nothing and nobody else runs.
    pub together: f64,
}

impl Cores {
    /// The processors this process may use.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn allowed() -> Result<Vec<usize>, nix::Error> {
        let set = sched_getaffinity(Pid::from_raw(0))?;
        Ok((0..CpuSet::count()).filter(|cpu| set.is_set(*cpu) == Ok(true)).collect())
    }

    /// Looks at `cpus` for about a second.
    #[must_use]
    pub fn look(cpus: &[usize]) -> Self {
        let before = times();
        std::thread::sleep(LOOK);
        let after = times();
        let busy = |cpu: &usize| {
            let spent = |(busy, all): (u64, u64), (busy_0, all_0): (u64, u64)| {
                (busy - busy_0) as f64 / (all - all_0).max(1) as f64
            };
            let of = |times: &[(usize, (u64, u64))]| {
                times.iter().find(|(number, _)| number == cpu).map(|(_, times)| *times)
            };
            of(&after).zip(of(&before)).map_or(0.0, |(now, then)| spent(now, then))
        };
        Self {
            cpus: cpus.to_vec(),
            busy: cpus.iter().map(busy).collect(),
            siblings: siblings(cpus),
            together: together(cpus),
        }
    }

    /// One line for people.
    #[must_use]
    pub fn told(&self) -> String {
        let busy: Vec<_> =
            self.busy.iter().map(|share| format!("{:.0} %", 100.0 * share)).collect();
        let threads = match self.siblings.as_slice() {
            [] => "the system says that they are cores of their own".to_owned(),
            groups => format!("the system says that {groups:?} are threads of one core"),
        };
        format!(
            "processors {:?}, taken by others before the run: {}; {threads}; computing at once they \
             reach {:.2} of what they reach one at a time",
            self.cpus,
            busy.join(", "),
            self.together
        )
    }
}

/// Busy and whole time of each processor, in ticks.
fn times() -> Vec<(usize, (u64, u64))> {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = |line: &str| {
        let mut words = line.strip_prefix("cpu")?.split_whitespace();
        let cpu = words.next()?.parse().ok()?;
        let ticks: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
        // User, nice, system, idle, waiting for I/O, interrupts, soft interrupts, stolen; what
        // follows is contained in the first two.
        let all: u64 = ticks.iter().take(8).sum();
        let idle: u64 = ticks.get(3..5)?.iter().sum();
        Some((cpu, (all - idle, all)))
    };
    text.lines().filter_map(line).collect()
}

/// Groups of `cpus` that are threads of one core.
pub(crate) fn siblings(cpus: &[usize]) -> Vec<Vec<usize>> {
    let mut groups: Vec<(String, Vec<usize>)> = Vec::new();
    for &cpu in cpus {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        let name = fs::read_to_string(path).unwrap_or_else(|_| cpu.to_string());
        match groups.iter_mut().find(|(other, _)| *other == name) {
            Some((_, group)) => group.push(cpu),
            None => groups.push((name, vec![cpu])),
        }
    }
    groups.into_iter().map(|(_, group)| group).filter(|group| group.len() > 1).collect()
}

/// Sums that all processors compute at once, divided by those that they compute alone, best of some tries.
fn together(cpus: &[usize]) -> f64 {
    let tries = (0..3).map(|_| {
        let alone: f64 = cpus.iter().map(|cpu| sums(&[*cpu])).sum();
        sums(cpus) / alone.max(1.0)
    });
    tries.fold(0.0, f64::max)
}

/// Sums that `cpus` compute in [`SUM`], all at once.
fn sums(cpus: &[usize]) -> f64 {
    let barrier = Barrier::new(cpus.len());
    std::thread::scope(|scope| {
        let threads: Vec<_> = cpus
            .iter()
            .map(|&cpu| {
                let barrier = &barrier;
                scope.spawn(move || {
                    // Where pinning is not possible the comparison still says how far two threads get.
                    let _ = pin_current_thread(cpu);
                    barrier.wait();
                    count()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or(0) as f64).sum()
    })
}

/// Work that keeps the multipliers busy and touches no memory.
fn count() -> u64 {
    let (begin, mut rounds) = (Instant::now(), 0);
    let mut sums = [1u64, 3, 5, 7, 9, 11, 13, 15];
    while begin.elapsed() < SUM {
        for _ in 0..1000 {
            sums = sums.map(|sum| sum.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1));
        }
        black_box(&mut sums);
        rounds += 1;
    }
    rounds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_looked_at_one_by_one() {
        let cpus = Cores::allowed().unwrap();
        assert!(!cpus.is_empty());
        let cores = Cores::look(&cpus);
        assert_eq!(cores.busy.len(), cpus.len());
        assert!(cores.busy.iter().all(|share| (0.0..=1.0).contains(share)), "{cores:?}");
        assert!(cores.together > 0.0 && cores.told().contains("taken by others"));
    }
}
