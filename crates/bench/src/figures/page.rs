//! The page of a report: what stands on top, and all figures.

use super::headline::{Headline, Headlines};
use super::{
    Experiment, Id, gateways, look_aside, many_tunnels, multi_buffer, one_tunnel, web_server,
};
use crate::chart::{Figure, number};
use crate::html;
use crate::results::{LeftOut, Results};

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
    lines.into()
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
