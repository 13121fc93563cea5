//! Time that others took of the processors during a trial.

use std::fmt;
use std::fs;
use std::time::{Duration, Instant};

/// Prefix of the names of a gateway's threads.
const WORKERS: &str = "convoy-";
/// The kernel counts stolen time in hundredths of a second.
const TICK: Duration = Duration::from_millis(10);

/// Cause for which a trial says nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Disturbance {
    /// The worker, or threads that help it, were ready to run and did not, for this share of the trial.
    Worker(f64),
    /// The generator was ready to run and did not, for this share of the trial.
    Generator(f64),
    /// The host took the processors of this virtual machine, for this share of the trial.
    Stolen(f64),
    /// The generator did not keep its pace: so many packets were due and not yet offered.
    Pace(u64),
    /// Rings behind the worker overflowed by so many packets, for nobody emptied them.
    Sinks(u64),
    /// The engine was taken for lost: what it held was done in software.
    Engine,
}

impl fmt::Display for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = |f: &mut fmt::Formatter<'_>, who: &str, share: f64| {
            write!(f, "other programs took {:.1} % of the {who}'s time", 100.0 * share)
        };
        match self {
            Self::Worker(part) => share(f, "worker", *part),
            Self::Generator(part) => share(f, "generator", *part),
            Self::Stolen(part) => write!(f, "the host took {:.1} % of the time", 100.0 * part),
            Self::Pace(packets) => write!(f, "the generator was {packets} packets late"),
            Self::Sinks(packets) => write!(f, "the sinks were {packets} packets late"),
            Self::Engine => f.write_str("the engine did not answer in time"),
        }
    }
}

/// Waiting time of one thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Thread {
    /// Its folder below `/proc`.
    folder: String,
    /// Time for which it was ready without a processor.
    waited: Duration,
    /// Number of times that it was taken off its processor against its will. A thread that slept waits a little when it wakes,
    /// though nobody took anything from it.
    taken_off: u64,
}

/// State of threads and processors at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Seen {
    workers: Vec<Thread>,
    generator: Vec<Thread>,
    stolen: Duration,
}

/// A look at the processors, begun.
#[derive(Debug)]
pub struct Watch {
    cpus: Vec<usize>,
    before: Seen,
    begun: Instant,
}

impl Watch {
    /// Begins to watch `cpus`, the threads of gateways in this process, and the calling one.
    #[must_use]
    pub fn begin(cpus: &[usize]) -> Self {
        let before = Seen::now(cpus);
        Self { cpus: cpus.to_vec(), before, begun: Instant::now() }
    }

    /// Worst disturbance, if it took more than `allowed` of the time since, as a share of it.
    #[must_use]
    pub fn end(&self, allowed: f64) -> Option<Disturbance> {
        let took = self.begun.elapsed();
        self.before.until(&Seen::now(&self.cpus), took, allowed)
    }
}

impl Seen {
    fn now(cpus: &[usize]) -> Self {
        let folders = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let of_gateways = folders.filter_map(|folder| {
            let folder = folder.path().to_str()?.to_owned();
            let name = fs::read_to_string(format!("{folder}/comm")).ok()?;
            name.starts_with(WORKERS).then(|| Thread::at(&folder)).flatten()
        });
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let ticks: u64 = cpus.iter().filter_map(|cpu| stolen(&stat, *cpu)).sum();
        Self {
            workers: of_gateways.collect(),
            generator: Thread::at("/proc/thread-self").into_iter().collect(),
            stolen: TICK * u32::try_from(ticks).unwrap_or(u32::MAX),
        }
    }

    /// Worst disturbance, if it took more than the share `allowed` of the time between, `took`.
    fn until(&self, now: &Self, took: Duration, allowed: f64) -> Option<Disturbance> {
        let share = |time: Duration| time.as_secs_f64() / took.as_secs_f64().max(1e-9);
        let shares = [
            (Disturbance::Worker as fn(f64) -> _, share(waited(&self.workers, &now.workers))),
            (Disturbance::Generator, share(waited(&self.generator, &now.generator))),
            (Disturbance::Stolen, share(now.stolen.saturating_sub(self.stolen))),
        ];
        let worst = shares.into_iter().max_by(|(_, a), (_, b)| a.total_cmp(b));
        worst.filter(|(_, share)| *share > allowed).map(|(what, share)| what(share))
    }
}

impl Thread {
    /// None if it has ended.
    fn at(folder: &str) -> Option<Self> {
        // Run, waited (nanoseconds), time slices.
        let times = fs::read_to_string(format!("{folder}/schedstat")).ok()?;
        let waited = times.split_whitespace().nth(1)?.parse().ok()?;
        let status = fs::read_to_string(format!("{folder}/status")).ok()?;
        let taken_off =
            status.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"));
        let taken_off = taken_off?.trim().parse().ok()?;
        let folder = folder.to_owned();
        Some(Self { folder, waited: Duration::from_nanos(waited), taken_off })
    }
}

/// Time that threads waited that were taken off their processors meanwhile.
fn waited(before: &[Thread], now: &[Thread]) -> Duration {
    let of = |now: &Thread| {
        let before = before.iter().find(|before| before.folder == now.folder)?;
        (now.taken_off > before.taken_off).then(|| now.waited.saturating_sub(before.waited))
    };
    now.iter().filter_map(of).sum()
}

/// Ticks of a processor that the host took (the eighth number of its line in `/proc/stat`).
fn stolen(stat: &str, cpu: usize) -> Option<u64> {
    let name = format!("cpu{cpu}");
    let line = stat.lines().find(|line| line.split(' ').next() == Some(&name))?;
    line.split_whitespace().nth(8)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_share_beyond_what_is_allowed_is_told() {
        let ms = Duration::from_millis;
        let thread = |folder: &str, waited, taken_off| {
            vec![Thread { folder: folder.to_owned(), waited: ms(waited), taken_off }]
        };
        let before =
            Seen { workers: thread("1", 5, 2), generator: thread("2", 7, 0), stolen: ms(50) };
        let now = Seen { workers: thread("1", 6, 3), generator: thread("2", 9, 1), stolen: ms(50) };
        assert_eq!(before.until(&now, ms(125), 0.02), None);
        let told = before.until(&now, ms(125), 0.005);
        assert_eq!(told, Some(Disturbance::Generator(0.016)));
        assert_eq!(told.unwrap().to_string(), "other programs took 1.6 % of the generator's time");
        // Whoever woke by itself, or was not there before, lost nothing to others.
        for generator in [thread("2", 9, 0), thread("3", 9, 1)] {
            let now = Seen { generator, ..now.clone() };
            assert_eq!(before.until(&now, ms(125), 0.005), Some(Disturbance::Worker(0.008)));
        }
        let now = Seen { stolen: ms(175), ..now };
        assert_eq!(before.until(&now, ms(250), 0.005), Some(Disturbance::Stolen(0.5)));
    }

    #[test]
    fn stolen_ticks_are_those_of_the_processor() {
        let stat =
            "cpu  1 2 3 4 5 6 7 8 9 0\ncpu1 0 0 0 0 0 0 0 3 0 0\ncpu11 0 0 0 0 0 0 0 4 0 0\n";
        assert_eq!((stolen(stat, 1), stolen(stat, 11), stolen(stat, 0)), (Some(3), Some(4), None));
    }

    /// Two threads on one processor take turns, and one that is watched waits meanwhile.
    #[test]
    fn a_processor_that_two_want_is_noticed() {
        let cpu = crate::cores::Cores::allowed().unwrap()[0];
        let busy = || {
            convoy_runtime::pin_current_thread(cpu).unwrap();
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(400) {
                std::hint::spin_loop();
            }
        };
        let noticed = std::thread::scope(|scope| {
            scope.spawn(busy);
            let watcher = scope.spawn(|| {
                let watch = Watch::begin(&[cpu]);
                busy();
                watch.end(0.05)
            });
            watcher.join().unwrap()
        });
        assert!(noticed.is_some());
    }
}
