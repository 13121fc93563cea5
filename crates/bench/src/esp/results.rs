//! Results of `convoy bench esp`.

use convoy_ipsec::pipeline::Stage;

use super::beside::{Beside, Ways};
use super::goal::{self, Figure};
use super::measure::{DirectionCost, Point};
use super::report::Report;
use super::soak::Soak;
use super::workers::Rate;
use crate::cores::Cores;
use crate::mix::Sizes;
use crate::results::build::Draft;
use crate::results::fields::Fields;
use crate::results::{About, Better, Bound, CONVOY, Name, Results, Statistic};

/// The crypto library beside the pipelines.
const LIBRARY: &str = "crypto library alone";
/// The pipeline behind its first stage, as a goal has it.
const PARSED: &str = "pipeline from parsed packet on";

impl Report {
    /// In the form of all benches.
    #[must_use]
    pub fn results(&self) -> Results {
        let mut results = Results::new("esp", &self.head);
        if let Some(cores) = &self.cores {
            results.facts = facts(cores);
        }
        for point in &self.points {
            results.add(way(point, "outbound", &point.outbound, &self.figures));
            results.add(way(point, "inbound", &point.inbound, &self.figures));
            results.add(lookups(point, &self.figures));
        }
        for one in &self.beside {
            results.add(beside(one, "outbound", |ways| &ways.outbound));
            results.add(beside(one, "inbound", |ways| &ways.inbound));
        }
        self.rates.iter().for_each(|rate| results.add(workers(rate)));
        self.soaks.iter().for_each(|one| results.add(soak(one)));
        results.errors.extend_from_slice(&self.errors);
        results
    }
}

/// State of the workers' processors before the run.
fn facts(cores: &Cores) -> Fields {
    let mut facts = Fields::default().with("computing_at_once", cores.together);
    for (cpu, busy) in cores.cpus.iter().zip(&cores.busy) {
        facts.set(format!("processor_{cpu}_taken_by_others"), *busy);
    }
    facts
}

fn place(point: &Point) -> Fields {
    Fields::default()
        .with("suite", point.suite.as_str())
        .with("size", point.size)
        .with("sas", point.sas)
        .with("policies", point.policies)
        .with("flows", point.flows)
        .with("esn", point.esn)
        .with("burst", point.burst)
        .with("engine", point.engine.as_str())
        .with("tier", point.tier)
}

fn convoy(by: &str) -> Name {
    Name::new(CONVOY, by)
}

/// One direction: the pipeline, the library alone, what is over, and the stages.
fn way(point: &Point, direction: &str, way: &DirectionCost, figures: &[Figure]) -> Draft {
    let (pipeline, library, parsed) = (convoy("pipeline"), convoy(LIBRARY), convoy(PARSED));
    let place = place(point).with("direction", direction);
    let mut draft = Draft::new("cycles per packet", "cycles", Better::Less, place)
        .fact("inner_bytes", point.inner_bytes)
        .fact("disturbed_bursts", point.disturbed)
        .fact("packets_sent", point.books.sent)
        .fact("packets_received", point.books.received)
        .series(&pipeline, &way.samples.pipeline)
        .series(&library, &way.samples.crypto)
        .difference(&pipeline, &library, Better::Less);
    for cost in &way.stages {
        let stage = Stage::ALL.into_iter().find(|stage| stage.name() == cost.stage);
        if let Some(stage) = stage {
            let name = convoy(&format!("stage {}", cost.stage));
            draft = draft.series(&name, way.samples.stages.of(stage));
        }
    }
    let over = if direction == "outbound" { goal::OUTBOUND_OVER } else { goal::INBOUND_OVER };
    for figure in figures.iter().filter(|figure| is_of(figure, point)) {
        let about = match figure.what {
            goal::WHOLE_PACKET if direction == "outbound" => {
                draft = draft.series(&parsed, &way.samples.behind(Stage::Parse));
                About::Series(parsed.clone())
            }
            what if what == over => About::Difference { of: pipeline.clone(), to: library.clone() },
            _ => continue,
        };
        draft = draft.goal(figure.what, about, Statistic::Mean, Bound::AtMost(figure.goal), None);
    }
    draft
}

/// Look-ups in the SPD.
fn lookups(point: &Point, figures: &[Figure]) -> Draft {
    let names = [convoy("flows that the cache knows"), convoy("new flows")];
    let mut draft =
        Draft::new("cycles per look-up in the SPD", "cycles", Better::Less, place(point));
    for (name, rounds) in names.iter().zip(&point.lookups) {
        draft = draft.series(name, rounds);
    }
    let [known, _] = names;
    for figure in figures.iter().filter(|figure| is_of(figure, point)) {
        if figure.what == goal::WARM_LOOKUP {
            let (about, bound) = (About::Series(known.clone()), Bound::AtMost(figure.goal));
            draft = draft.goal(figure.what, about, Statistic::Mean, bound, None);
        }
    }
    draft
}

fn is_of(figure: &Figure, point: &Point) -> bool {
    let of_figure: (&str, Sizes, usize, &str) =
        (&figure.suite, figure.size, figure.sas, figure.tier);
    point.engine == "inline"
        && of_figure == (point.suite.as_str(), point.size, point.sas, point.tier)
}

/// One direction of engines and tiers that took turns; ratios are to the first with Convoy's own kernels.
fn beside(beside: &Beside, direction: &str, of: fn(&Ways) -> &Vec<f64>) -> Draft {
    let place = Fields::default()
        .with("suite", beside.suite.as_str())
        .with("size", beside.size)
        .with("sas", beside.sas)
        .with("burst", beside.burst)
        .with("direction", direction);
    let mut draft = Draft::new("cycles per packet, engines in turn", "cycles", Better::Less, place)
        .fact("inner_bytes", beside.inner_bytes)
        .fact("disturbed_rounds", beside.disturbed);
    for member in &beside.members {
        draft = draft.series(&convoy(&member.name), of(&member.ways));
    }
    let Some((at, library)) = &beside.library else { return draft };
    let Some(own) = beside.members.get(*at).map(|member| convoy(&member.name)) else {
        return draft;
    };
    let alone = convoy(LIBRARY);
    draft = draft.series(&alone, of(library)).ratio(&alone, &own, Better::More);
    let others = beside.members.iter().map(|member| convoy(&member.name));
    others
        .filter(|name| *name != own)
        .fold(draft, |draft, name| draft.ratio(&name, &own, Better::More))
}

/// Rate of a number of workers.
fn workers(rate: &Rate) -> Draft {
    let place = Fields::default()
        .with("suite", rate.suite.as_str())
        .with("size", rate.size)
        .with("sas", rate.sas)
        .with("engine", rate.engine.as_str())
        .with("tier", rate.tier)
        .with("workers", u64::from(rate.workers));
    let (all, one) = (convoy("workers"), convoy("one worker in the run beside"));
    let draft = Draft::new("packets per second", "packets/s", Better::More, place)
        .fact("packets_helped_with", rate.helped)
        .series(&all, &rate.runs)
        .series(&one, &rate.alone)
        .ratio(&all, &one, Better::More);
    match goal::worker_figures(std::slice::from_ref(rate)).first() {
        Some(Figure { what, goal, .. }) => {
            let about = About::Ratio { of: all, to: one };
            draft.goal(what, about, Statistic::Median, Bound::AtLeast(*goal), None)
        }
        None => draft,
    }
}

/// Many packets, and where they are.
fn soak(soak: &Soak) -> Draft {
    let place = Fields::default()
        .with("suite", soak.suite.as_str())
        .with("size", soak.size)
        .with("sas", soak.sas)
        .with("engine", soak.engine.as_str())
        .with("tier", soak.tier);
    let books = &soak.books;
    let mut draft = Draft::new("packets per second of a soak", "packets/s", Better::More, place)
        .fact("packets_sent", books.sent)
        .fact("packets_received", books.received)
        .fact("packets_taken", books.faults.map_or(0, |faults| faults.lost))
        .fact("memory_before_bytes", soak.memory_before)
        .fact("memory_after_bytes", soak.memory_after);
    for (why, count) in &books.dropped {
        draft = draft.fact(&format!("dropped_{why}"), *count);
    }
    draft.series(&convoy("pipelines"), &[books.sent as f64 / soak.seconds])
}
