//! Results of `convoy bench crypto`.

use super::{Figure, LineupInfo, Report};
use crate::results::build::Draft;
use crate::results::fields::Fields;
use crate::results::{
    About, Better, Bound, CONVOY, FLOOR, LIBRARY, LeftOut, Name, Results, Statistic,
};
use crate::run::{Point, Samples, ThroughC};

impl Report {
    /// In the form of all benches.
    #[must_use]
    pub fn results(&self) -> Results {
        let mut results = Results::new("crypto", &self.head);
        for lineup in &self.lineups {
            add_peers(&mut results, lineup);
        }
        for point in &self.points {
            results.add(draft(point, &self.gate, &self.lineups));
            let what = place(point).to_string();
            results.left_out.extend(point.left_out.iter().map(|why| LeftOut::new(&what, why)));
        }
        results.left_out.extend(self.absent.iter().chain(&self.left_out).cloned());
        results
    }
}

fn add_peers(results: &mut Results, lineup: &LineupInfo) {
    let LineupInfo { tier, ipsec_mb, openssl, aws_lc, boringssl, .. } = lineup;
    for (who, version, tier) in [
        ("ipsec-mb", ipsec_mb, Some(*tier)),
        ("openssl", openssl, None),
        ("aws-lc", aws_lc, None),
        ("boringssl", boringssl, None),
    ] {
        version.iter().for_each(|version| results.machine.add_peer(who, version, tier));
    }
}

fn place(point: &Point) -> Fields {
    Fields::default()
        .with("suite", point.suite.as_str())
        .with("direction", point.direction.name())
        .with("size", point.size)
        .with("keys", point.keys)
        .with("burst", point.burst)
        .with("between", point.between.name())
        .with("tier", point.tier)
        .with("sha_extensions", point.sha_ni)
}

fn name(samples: &Samples) -> Name {
    Name::new(samples.who, samples.api.as_str())
}

/// The manager of intel-ipsec-mb that a series is of, with its version.
fn facts(samples: &Samples, point: &Point, lineups: &[LineupInfo]) -> Fields {
    let is_beside =
        |lineup: &&LineupInfo| (lineup.tier, lineup.sha_ni) == (point.tier, point.sha_ni);
    let library = match samples.who {
        "ipsec-mb" => lineups.iter().find(is_beside).and_then(|lineup| lineup.ipsec_mb.as_ref()),
        _ => None,
    };
    library.map_or_else(Fields::default, |library| {
        Fields::default().with(LIBRARY, format!("intel-ipsec-mb {library}"))
    })
}

fn draft(point: &Point, figures: &[Figure], lineups: &[LineupInfo]) -> Draft {
    let mut draft = Draft::new("cycles per packet", "cycles", Better::Less, place(point))
        .fact("text_bytes", point.text_bytes);
    for samples in &point.samples {
        let facts = facts(samples, point, lineups);
        draft = draft.series_with(&name(samples), &samples.packet, facts);
    }
    let floor = Name::new(FLOOR, "ports");
    if !point.floors.is_empty() {
        draft = draft.series(&floor, &point.floors);
    }
    let Some(convoy) = point.samples.first().map(name) else { return draft };
    let is_other = |name: &Name| !name.is_convoy() || name.who == CONVOY;
    for other in point.samples.iter().skip(1).map(name).filter(is_other) {
        draft = draft.ratio(&other, &convoy, Better::More);
    }
    if !point.floors.is_empty() {
        draft = draft.ratio(&floor, &convoy, Better::More);
    }
    for c in &point.c {
        draft = through_c(draft, c, &convoy);
    }
    match figures.iter().find(|figure| is_of(figure, point)) {
        Some(figure) => goal(draft, point, figure, &convoy),
        None => draft,
    }
}

/// Costs of Convoy through one of the C library's interfaces, beside Rust's and intel-ipsec-mb's.
fn through_c(draft: Draft, c: &ThroughC, rust: &Name) -> Draft {
    let own = Name::new(crate::api::CApi::WHO, c.api);
    let draft = draft.difference(&own, rust, Better::Less);
    let Some(like) = &c.peer else { return draft };
    let of = Name::new("ipsec-mb", like.api.as_str());
    let about = About::Ratio { of: of.clone(), to: own.clone() };
    let bound = Bound::AtLeast(like.target);
    let goal = "intel-ipsec-mb's time in that of the C library";
    draft.ratio(&of, &own, Better::More).goal(goal, about, Statistic::Median, bound, None)
}

fn is_of(figure: &Figure, point: &Point) -> bool {
    let of_figure = (figure.direction, figure.size, figure.keys, figure.between, figure.tier);
    let of_point = (point.direction.name(), point.size, point.keys, point.between, point.tier);
    figure.suite == point.suite && of_figure == of_point
}

/// The figure to reach is about the fastest peer by its fastest interface.
fn goal(draft: Draft, point: &Point, figure: &Figure, convoy: &Name) -> Draft {
    let Some(peer) = point.peers.iter().find(|peer| peer.who == figure.peer) else { return draft };
    let of = Name::new(peer.who, peer.api.as_str());
    let about = About::Ratio { of, to: convoy.clone() };
    let bound = Bound::AtLeast(figure.target);
    let name = "the fastest peer's time in Convoy's";
    draft.goal(name, about, Statistic::Median, bound, Some(figure.class))
}
