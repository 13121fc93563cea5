//! Tables of documents, made from results of `convoy bench crypto`, and the results that are kept for them.

use std::fmt::Write as _;

use super::build::Draft;
use super::fields::{Fields, Value};
use super::{About, Bound, Goal, Point, Results};

/// The goal that tables are about.
const GOAL: &str = "the fastest peer's time in Convoy's";

impl Results {
    /// Reduces results to the data behind ratios with goals: of each point Convoy's series and the fastest peer's, with `rounds` of their rounds at
    /// even distances. Points without such a goal go.
    #[must_use]
    pub fn kept(&self, rounds: usize) -> Self {
        let mut kept = Self { points: Vec::new(), ..self.clone() };
        for point in &self.points {
            if let Some((goal, of, to)) = goal(point) {
                let (about, place) = (goal.about.clone(), point.place.clone());
                let mut draft = Draft::new(&point.quantity, &point.unit, point.better, place);
                for series in [to, of].into_iter().filter_map(|name| point.series(name)) {
                    draft = draft.series(&series.name, &thinned(&series.rounds, rounds));
                }
                let better = super::Better::More;
                draft = draft.ratio(of, to, better);
                kept.add(draft.goal(&goal.name, about, goal.statistic, goal.bound, goal.class));
            }
        }
        kept
    }

    /// Machine, date and command, and a table of ratios with goals for each number of keys, as Markdown.
    #[must_use]
    pub fn ratio_tables(&self) -> String {
        let goals: Vec<_> = self.points.iter().filter_map(goal).collect();
        let reached = goals.iter().filter(|(goal, ..)| goal.reached).count();
        let peers = self.machine.peers.iter().map(|peer| format!("{} {}", peer.who, peer.version));
        let date = self.started.split('T').next().unwrap_or_default();
        let mut text = format!(
            "{}, {} processors, time-stamp counter {:.0} MHz, {date}, `{}`, beside {}. {reached} of {} figures with goals were reached.\n",
            self.machine.cpu,
            self.machine.processors.len(),
            self.machine.tsc_mhz,
            self.command,
            peers.collect::<Vec<_>>().join("; "),
            goals.len()
        );
        for keys in values(&self.points, "keys") {
            let points: Vec<&Point> =
                self.points.iter().filter(|point| point.place.get("keys") == Some(&keys)).collect();
            let _ = write!(text, "\nKeys: {keys}\n\n{}", table(&points));
        }
        text
    }
}

/// The goal about the fastest peer, and the names that its ratio is of.
fn goal(point: &Point) -> Option<(&Goal, &super::Name, &super::Name)> {
    point.goals.iter().find_map(|goal| match &goal.about {
        About::Ratio { of, to } if goal.name == GOAL => Some((goal, of, to)),
        _ => None,
    })
}

/// So many at most, at even distances.
fn thinned(rounds: &[f64], most: usize) -> Vec<f64> {
    let step = rounds.len().div_ceil(most.max(1)).max(1);
    rounds.iter().step_by(step).copied().collect()
}

/// Distinct values of a field, in their order.
fn values(points: &[Point], name: &str) -> Vec<Value> {
    let mut found: Vec<Value> = Vec::new();
    for value in points.iter().filter(|point| goal(point).is_some()) {
        let value = value.place.get(name);
        found.extend(
            value.filter(|value| !found.contains(value)).cloned().into_iter().collect::<Vec<_>>(),
        );
    }
    found
}

/// A row for each suite and direction, a column for each size.
fn table(points: &[&Point]) -> String {
    let points: Vec<&&Point> = points.iter().filter(|point| goal(point).is_some()).collect();
    let word =
        |place: &Fields, name: &str| place.get(name).map(ToString::to_string).unwrap_or_default();
    let distinct = |of: &dyn Fn(&Point) -> String| {
        let mut found: Vec<String> = Vec::new();
        for word in points.iter().map(|point| of(point)) {
            if !found.contains(&word) {
                found.push(word);
            }
        }
        found
    };
    let row = |point: &Point| {
        format!("{} {}", word(&point.place, "suite"), word(&point.place, "direction"))
    };
    let size = |point: &Point| word(&point.place, "size");
    let sizes = distinct(&size);
    let mut text = "| |".to_owned();
    for size in &sizes {
        let unit = if size.parse::<usize>().is_ok() { " B" } else { "" };
        let _ = write!(text, " {size}{unit} |");
    }
    text += &format!("\n|---|{}\n", "---|".repeat(sizes.len()));
    for name in distinct(&row) {
        let _ = write!(text, "| {name} |");
        for at in &sizes {
            let point = points.iter().find(|point| row(point) == name && size(point) == *at);
            let cell = point.and_then(|point| goal(point)).map(|(goal, ..)| cell(goal));
            let _ = write!(text, " {} |", cell.unwrap_or_else(|| "–".to_owned()));
        }
        text.push('\n');
    }
    text
}

/// Measured value, and the one that is asked for.
fn cell(goal: &Goal) -> String {
    let (Bound::AtLeast(asked) | Bound::AtMost(asked)) = goal.bound;
    format!("{:.2} ({asked:.2})", goal.measured)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::head::Head;
    use crate::results::{Better, Name, Statistic};

    fn results() -> Results {
        let mut results = Results::new("crypto", &Head::now());
        let names = ["convoy", "openssl", "ipsec-mb"].map(|who| Name::new(who, "x"));
        for (size, keys) in [(64_usize, 1_usize), (256, 1), (64, 64)] {
            let place = Fields::default().with("suite", "aes-128-gcm-16").with("direction", "seal");
            let place = place.with("size", size).with("keys", keys);
            let rounds =
                |least: f64| (0..100).map(|at| least + f64::from(at % 7)).collect::<Vec<_>>();
            let about = About::Ratio { of: names[2].clone(), to: names[0].clone() };
            let mut draft = Draft::new("cycles per packet", "cycles", Better::Less, place);
            for (name, least) in names.iter().zip([1000.0, 3000.0, 1500.0]) {
                draft = draft.series(name, &rounds(least));
            }
            for name in &names[1..] {
                draft = draft.ratio(name, &names[0], Better::More);
            }
            results.add(draft.goal(GOAL, about, Statistic::Median, Bound::AtLeast(1.4), None));
        }
        results.add(
            Draft::new("others", "cycles", Better::Less, Fields::default())
                .series(&names[0], &[1.0]),
        );
        results
    }

    #[test]
    fn what_is_kept_says_the_same_in_less() {
        let (all, kept) = (results(), results().kept(25));
        assert_eq!((all.points.len(), kept.points.len()), (4, 3));
        for point in &kept.points {
            let names: Vec<&str> = point.series.iter().map(|one| &*one.name.who).collect();
            assert_eq!(names, ["convoy", "ipsec-mb"]);
            assert_eq!(point.series[0].rounds.len(), 25);
            assert!((point.goals[0].measured - 1.5).abs() < 0.01 && point.goals[0].reached);
        }
        let text = kept.to_json().unwrap();
        assert_eq!(Results::parse(text.as_bytes()).unwrap(), kept);
        assert_eq!(kept.kept(25), kept);
    }

    #[test]
    fn tables_have_a_row_for_each_suite_and_a_column_for_each_size() {
        let text = results().kept(25).ratio_tables();
        assert!(text.contains("3 of 3 figures with goals were reached"), "{text}");
        let one = "Keys: 1\n\n| | 64 B | 256 B |\n|---|---|---|\n| aes-128-gcm-16 seal | 1.50 (1.40) | 1.50 (1.40) |\n";
        assert!(text.contains(one), "{text}");
        assert!(text.contains("Keys: 64\n\n| | 64 B |\n|---|---|\n"), "{text}");
    }
}
