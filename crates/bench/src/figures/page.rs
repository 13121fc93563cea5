//! The page of a report: what stands on top, and all figures.

use super::points::spread;
use super::{
    Experiment, Id, gateways, look_aside, many_tunnels, merge, multi_buffer, one_tunnel, web_server,
};
use crate::chart::{Figure, Value, Verdict, number};
use crate::html;
use crate::results::{LeftOut, Results};

/// A ratio for the top of the page.
#[derive(Clone, Debug, PartialEq)]
pub struct Headline {
    /// The figure that it is from.
    pub figure: &'static str,
    /// Subject of the ratio.
    pub what: String,
    /// The ratio, with its quartiles.
    pub value: Value,
    /// Least that is asked for.
    pub asked: f64,
}

impl Headline {
    /// True if as much as was asked for was reached.
    #[must_use]
    pub fn is_reached(&self) -> bool {
        self.value.middle >= self.asked
    }
}

/// Ratios for the top of the page.
#[derive(Clone, Debug, Default)]
pub(super) struct Headlines(Vec<Headline>);

impl Headlines {
    /// Adds one that was measured.
    pub(super) fn add(
        &mut self,
        figure: &'static str,
        what: &str,
        asked: f64,
        value: Option<Value>,
    ) {
        let line = |value| Headline { figure, what: what.to_owned(), value, asked };
        self.0.extend(value.map(line));
    }
}

/// Goals of a figure that were measured.
#[derive(Clone, Debug, Default)]
pub(super) struct Goals(Vec<Verdict>);

impl Goals {
    /// So much at least.
    pub(super) fn at_least(&mut self, what: &str, least: f64, value: Option<Value>) {
        self.add(what, format!("at least {}", number(least)), value, |value| value >= least);
    }

    /// So much at most.
    pub(super) fn at_most(&mut self, what: &str, most: f64, value: Option<Value>) {
        self.add(what, format!("at most {}", number(most)), value, |value| value <= most);
    }

    fn add(
        &mut self,
        what: &str,
        asked: String,
        value: Option<Value>,
        is_kept: impl Fn(f64) -> bool,
    ) {
        self.0.extend(value.map(|value| Verdict {
            what: what.to_owned(),
            asked,
            measured: if value.low == value.high { number(value.middle) } else { spread(&value) },
            is_reached: is_kept(value.middle),
        }));
    }
}

impl From<Goals> for Vec<Verdict> {
    fn from(goals: Goals) -> Self {
        goals.0
    }
}

/// The command of a step, as the results have it; of the experiment's first, where another wrote the results.
pub(super) fn command(results: &Results, experiment: Experiment, step: &str) -> String {
    let any = merge::command_of(experiment, "");
    let any = || results.facts.iter().find(|(name, _)| name.starts_with(&any));
    let of_step = results.facts.get(&merge::command_of(experiment, step));
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

/// All figures that results have something for, in their order; of those `only`, if there are any.
#[must_use]
pub fn figures(results: &Results, only: &[Id]) -> Vec<Figure> {
    let all = Experiment::ALL.into_iter().flat_map(|experiment| match experiment {
        Experiment::OneTunnel => one_tunnel::figures(results),
        Experiment::ManyTunnels => many_tunnels::figures(results),
        Experiment::MultiBuffer => multi_buffer::figures(results),
        Experiment::LookAside => look_aside::figures(results),
        Experiment::Gateways => gateways::figures(results),
        Experiment::WebServer => web_server::figures(results),
    });
    let is_wanted =
        |figure: &Figure| only.is_empty() || only.iter().any(|id| id.to_string() == figure.id);
    all.filter(is_wanted).collect()
}

/// The ratios that matter, best known first.
#[must_use]
pub fn headlines(results: &Results) -> Vec<Headline> {
    let mut lines = Headlines::default();
    multi_buffer::headlines(results, &mut lines);
    one_tunnel::headlines(results, &mut lines);
    many_tunnels::headlines(results, &mut lines);
    gateways::headlines(results, &mut lines);
    lines.0
}

/// The whole page; of figures `only` those, if there are any.
#[must_use]
pub fn report(results: &Results, only: &[Id]) -> html::Report {
    let line = |line: Headline| html::Headline {
        value: number(line.value.middle),
        spread: format!("{} to {}", number(line.value.low), number(line.value.high)),
        about: String::new(),
        asked: Some(format!("at least {}", number(line.asked))),
        is_reached: Some(line.is_reached()),
        figure: Some(line.figure.to_owned()),
        what: line.what,
    };
    let figures = figures(results, only);
    let is_drawn = |line: &Headline| figures.iter().any(|figure| figure.id == line.figure);
    let headline = headlines(results).into_iter().filter(is_drawn).map(line).collect();
    html::Report {
        title: "IPsec at the speed of the processor".to_owned(),
        headline,
        figures,
        machine: results.machine.clone(),
        version: results.version.clone(),
        command: results.command.clone(),
        started: results.started.clone(),
        complete: results.complete,
        left_out: other_left_out(results),
        errors: results.errors.clone(),
    }
}

/// Measurements that were left out and belong to no figure.
fn other_left_out(results: &Results) -> Vec<LeftOut> {
    let is_of = |one: &&LeftOut| {
        Experiment::ALL
            .iter()
            .any(|experiment| one.what.starts_with(&format!("{}: ", experiment.name())))
    };
    results.left_out.iter().filter(|one| !is_of(one)).cloned().collect()
}
