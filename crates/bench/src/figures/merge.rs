//! Results of several benches in one.

use super::Experiment;
use crate::results::{LeftOut, Point, Results};

/// The field of a point's place that says which experiment it belongs to.
pub const EXPERIMENT: &str = "experiment";
/// The field that says by which step it was measured, where an experiment has several of the same quantity.
pub const STEP: &str = "step";

/// Adds what a step of `experiment` wrote to the results of the report.
pub fn add(report: &mut Results, experiment: Experiment, step: &str, results: Results) {
    let Results { machine, facts, points, left_out, errors, command, complete, .. } = results;
    for peer in machine.peers {
        report.machine.add_peer(&peer.who, &peer.version, peer.tier.as_deref());
    }
    for (name, value) in facts.iter() {
        report.facts.set(format!("{}: {name}", experiment.name()), value.clone());
    }
    report.facts.set(command_of(experiment, step), command);
    report.complete &= complete;
    report.points.extend(points.into_iter().map(|mut point| {
        point.place.set(EXPERIMENT, experiment.name());
        point.place.set(STEP, step);
        point
    }));
    for LeftOut { what, why } in left_out {
        let what = format!("{}: {what}", experiment.name());
        let one = LeftOut { what, why };
        if !report.left_out.contains(&one) {
            report.left_out.push(one);
        }
    }
    report.errors.extend(errors.into_iter().map(|one| format!("{}: {one}", experiment.name())));
}

/// The fact that names a step's command.
#[must_use]
pub fn command_of(experiment: Experiment, step: &str) -> String {
    format!("{}: command: {step}", experiment.name())
}

/// The command of a step, as the results have it; of the experiment's first, where another wrote the results.
pub(super) fn command(results: &Results, experiment: Experiment, step: &str) -> String {
    let any = command_of(experiment, "");
    let any = || results.facts.iter().find(|(name, _)| name.starts_with(&any));
    let of_step = results.facts.get(&command_of(experiment, step));
    let command = of_step.or_else(|| any().map(|(_, value)| value));
    command.and_then(|value| value.text()).unwrap_or_default().to_owned()
}

/// Measurements that were left out of an experiment.
pub(super) fn left_out(results: &Results, experiment: Experiment) -> Vec<LeftOut> {
    let prefix = format!("{}: ", experiment.name());
    let of = |one: &LeftOut| {
        let what = one.what.strip_prefix(&prefix)?;
        Some(LeftOut::new(what, &one.why))
    };
    results.left_out.iter().filter_map(of).collect()
}

impl Results {
    /// The points of an experiment, of one quantity.
    pub fn of<'a>(
        &'a self,
        experiment: Experiment,
        quantity: &'a str,
    ) -> impl Iterator<Item = &'a Point> {
        self.points.iter().filter(move |point| {
            let of = point.place.get(EXPERIMENT).and_then(|value| value.text());
            of == Some(experiment.name()) && point.quantity == quantity
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::build::Draft;
    use crate::results::fields::Fields;
    use crate::results::head::Head;
    use crate::results::{Better, Name};

    #[test]
    fn points_of_two_benches_stay_apart_and_are_read_back() {
        let head = Head::now();
        let of = |bench: &str| {
            let mut results = Results::new(bench, &head);
            let place = Fields::default().with("size", 64_usize);
            let draft = Draft::new("cycles per packet", "cycles", Better::Less, place);
            results.add(draft.series(&Name::new("convoy", "a"), &[1.0, 2.0]));
            results.left_out.push(LeftOut::new("a peer", "it is missing"));
            results.errors.push("a packet was lost".to_owned());
            results.facts.set("computing_at_once", 0.9);
            results
        };
        let mut report = Results::new("report", &head);
        add(&mut report, Experiment::OneTunnel, "esp", of("esp"));
        add(&mut report, Experiment::MultiBuffer, "crypto", of("crypto"));
        add(&mut report, Experiment::MultiBuffer, "again", of("crypto"));
        assert_eq!(report.of(Experiment::MultiBuffer, "cycles per packet").count(), 2);
        assert_eq!(report.of(Experiment::OneTunnel, "cycles per packet").count(), 1);
        assert_eq!((report.left_out.len(), report.errors.len()), (2, 3));
        let read = Results::parse(report.to_json().unwrap().as_bytes()).unwrap();
        assert_eq!(read, report);
        let command = command_of(Experiment::OneTunnel, "esp");
        assert_eq!(read.facts.get(&command).unwrap().text(), Some(head.command.as_str()));
    }
}
