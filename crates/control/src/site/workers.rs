//! The section `[workers]`: how many there are, and which of them own the SAs of IKE daemons.

use convoy_ipsec::sa::WorkerId;

use super::daemon_sas::{self, Wanted};
use super::fields::{cpus, section, tables, transposed};
use super::model::{WorkerRule, Workers, Xfrm};
use super::reader::{At, Field, Place, Report, Table};

/// The rules, before it is known which interfaces there are.
pub(super) struct Rules(Vec<(Place, Rule)>);

struct Rule {
    /// `None` where they are wrong.
    workers: Option<Vec<WorkerId>>,
    sas: Wanted,
}

/// Reads the section; without it there is one worker.
pub(super) fn read(
    root: &mut Table<'_>,
    report: &mut Report<'_>,
) -> Option<(Option<Workers>, Option<Rules>)> {
    section(root, report, "workers", |mut table, report| {
        let drafts = tables(&mut table, report, "rule");
        let workers = workers(table, report);
        // If it is not known how many there are, no number is told as an error, too.
        let count = workers.as_ref().map_or(u16::MAX, |workers| workers.count);
        let rules: Vec<_> = drafts
            .into_iter()
            .map(|table| Some((table.place.clone(), rule(table, report, count)?)))
            .collect();
        Some((workers, rules.into_iter().collect::<Option<_>>().map(Rules)))
    })
}

fn workers(mut table: Table<'_>, report: &mut Report<'_>) -> Option<Workers> {
    let count = table.take("count").map(|f| {
        f.integer(report, 1..=256, "use the number of worker threads, at most one per CPU")
    });
    let pin = table.take("pin");
    let pin_place = pin.as_ref().map(|f| f.place.clone());
    let pin = pin.map(|f| cpus(f, report, "two workers"));
    let busy_poll = table.take("busy_poll").map(|f| f.boolean(report));
    table.finish(report);
    let count = transposed(count)?.map(|at| at.value);
    let pin = transposed(pin)?.unwrap_or_default();
    let pinned = u64::try_from(pin.len()).unwrap_or(u64::MAX);
    let workers = count.unwrap_or_else(|| pinned.max(1));
    if let Some(place) = pin_place.filter(|_| pinned != 0 && pinned != workers) {
        report.error(
            &place,
            format!("{pinned} CPUs are given for {workers} workers"),
            "give one CPU per worker, or leave `count` out",
        );
        return None;
    }
    Some(Workers {
        count: u16::try_from(workers).ok()?,
        pin,
        busy_poll: busy_poll.map_or(Some(false), |given| given)?,
    })
}

/// Reads the number of a worker, of which there are `count`.
pub(super) fn worker(field: Field<'_>, report: &mut Report<'_>, count: u16) -> Option<WorkerId> {
    let last = u64::from(count.saturating_sub(1));
    let help =
        format!("workers are numbered from 0 to {last}; more come from `count` in [workers]");
    let number = field.integer(report, 0..=last, &help)?;
    u16::try_from(number.value).ok().map(WorkerId)
}

fn rule(mut table: Table<'_>, report: &mut Report<'_>, count: u16) -> Option<Rule> {
    let workers = table
        .need(report, "worker", "worker = 1, or worker = [0, 1]")
        .and_then(|field| several(field, report, count));
    let sas = daemon_sas::wanted(&mut table, report);
    table.finish(report);
    Some(Rule { workers, sas: sas? })
}

/// One worker, or a list of some.
fn several(field: Field<'_>, report: &mut Report<'_>, count: u16) -> Option<Vec<WorkerId>> {
    let place = field.place.clone();
    let each = field.one_or_many().into_iter();
    let read: Vec<_> = each
        .map(|field| {
            let place = field.place.clone();
            Some(At { value: worker(field, report, count)?, place })
        })
        .collect();
    if read.is_empty() {
        report.error(&place, "names no worker", "use a number, or a list such as [0, 1]");
        return None;
    }
    let mut workers: Vec<WorkerId> = Vec::new();
    for At { value, place } in read.into_iter().collect::<Option<Vec<_>>>()? {
        if workers.contains(&value) {
            let what = format!("names worker {} twice", value.0);
            report.error(&place, what, "name each worker once");
            return None;
        }
        workers.push(value);
    }
    Some(workers)
}

impl Rules {
    /// The rules, if there can be SAs for each of them.
    pub(super) fn checked(
        self,
        xfrm: Option<&Xfrm>,
        serves_daemons: bool,
        report: &mut Report<'_>,
    ) -> Option<Vec<WorkerRule>> {
        if let (false, Some((place, _))) = (serves_daemons, self.0.first()) {
            report.error(
                place,
                "is a rule for SAs of IKE daemons, and there is no [xfrm] section",
                "add [xfrm], or use `worker` in [[sa]]",
            );
            return None;
        }
        let rules: Vec<_> = self
            .0
            .into_iter()
            .map(|(_, Rule { workers, sas })| {
                // What is wrong with [xfrm] is told there.
                if let Some(xfrm) = xfrm {
                    sas.has_interface(xfrm, report)?;
                }
                Some(WorkerRule { workers: workers?, sas: sas.sas })
            })
            .collect();
        rules.into_iter().collect()
    }
}
