//! Jobs that run at the same time, with what each prints kept together.
//!
//! Many programs of the gate use one CPU, or wait. Beside each other they take less time. Their
//! processes stay in the group of this one, so that a terminal's Ctrl-C ends all of them.

use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::Result;

use crate::report::Tally;

/// Most jobs at the same time, however many CPUs there are: some need much memory.
const WIDTH_MAX: usize = 4;

/// Prints a line of a job, at once or with the rest of its lines.
pub(crate) type Tell<'a> = &'a mut dyn FnMut(&str);

/// Something to be run.
pub(crate) struct Job<'a> {
    name: String,
    run: Box<dyn FnOnce(Tell<'_>) -> Result<Tally> + Send + 'a>,
}

impl<'a> Job<'a> {
    pub(crate) fn new(
        name: impl Into<String>,
        run: impl FnOnce(Tell<'_>) -> Result<Tally> + Send + 'a,
    ) -> Self {
        Self { name: name.into(), run: Box::new(run) }
    }
}

/// Runs jobs, as many at a time as there are CPUs, in the order given; the sum is in this order as
/// well. A job that cannot be run has failed.
pub(crate) fn run(jobs: Vec<Job<'_>>) -> Tally {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    run_at_most(cpus.min(WIDTH_MAX), jobs)
}

fn run_at_most(width: usize, jobs: Vec<Job<'_>>) -> Tally {
    let width = width.min(jobs.len());
    let mut tallies: Vec<Option<Tally>> = jobs.iter().map(|_| None).collect();
    let places = Mutex::new(jobs.into_iter().zip(&mut tallies));
    let next = || places.lock().unwrap_or_else(PoisonError::into_inner).next();
    thread::scope(|scope| {
        for _ in 0..width {
            scope.spawn(|| {
                while let Some((job, place)) = next() {
                    *place = Some(run_one(job, width == 1));
                }
            });
        }
    });
    let mut sum = Tally::default();
    tallies.into_iter().flatten().for_each(|tally| sum.add(tally));
    sum
}

fn run_one(job: Job<'_>, at_once: bool) -> Tally {
    let Job { name, run } = job;
    println!("{name} …");
    let mut lines = String::new();
    let outcome = run(&mut |line| {
        if at_once {
            println!("{line}");
        } else {
            lines.push_str(line);
            lines.push('\n');
        }
    });
    let tally = outcome.unwrap_or_else(|error| {
        let why = format!("{name}: {error:#}");
        lines.push_str(&why);
        lines.push('\n');
        Tally::fail(why)
    });
    // In one piece: `print` holds the lock of standard output.
    print!("{name}: {tally}\n{lines}");
    tally
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn jobs_run_beside_each_other_and_add_up_in_their_order() {
        // Ends only if both are under way.
        let both = Barrier::new(2);
        let job = |n: usize| {
            let both = &both;
            Job::new(format!("job {n}"), move |tell: Tell<'_>| {
                both.wait();
                tell("done");
                Ok(Tally::fail(format!("{n}")))
            })
        };
        let sum = run_at_most(2, (0..4).map(job).collect());
        assert_eq!((sum.failed, sum.failures), (4, ["0", "1", "2", "3"].map(str::to_owned).into()));
    }

    #[test]
    fn no_more_run_than_may_and_an_error_is_a_failure() {
        let (under_way, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let jobs = (0..9).map(|n| {
            let (under_way, most) = (&under_way, &most);
            Job::new(format!("job {n}"), move |_: Tell<'_>| {
                most.fetch_max(under_way.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                under_way.fetch_sub(1, Ordering::SeqCst);
                anyhow::ensure!(n != 4, "cannot be run");
                Ok(Tally::pass())
            })
        });
        let sum = run_at_most(3, jobs.collect());
        assert!(most.into_inner() <= 3);
        assert_eq!((sum.passed, sum.failed), (8, 1));
        assert_eq!(sum.failures, ["job 4: cannot be run"]);
        assert_eq!(run_at_most(2, Vec::new()), Tally::default());
    }
}
