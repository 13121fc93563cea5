//! Looks of series. Each differs from the others of a chart by more than its colour, and a name looks the same in
//! all charts.

use svg::node::element::{Circle, Element, Path};

use super::canvas::{self, Size};
use crate::chart::{Figure, Kind, Role};

/// Role and rank of a series, which decide how it is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    role: Role,
    /// Position within its role.
    rank: usize,
}

/// Colours of a role, by number in the style sheet.
const fn colours(role: Role) -> &'static [usize] {
    match role {
        Role::Convoy => &[1, 2, 3],
        Role::Base => &[8],
        Role::Peer => &[4, 5, 6, 7],
        Role::Computed => &[9, 8, 1, 4],
    }
}

/// Kinds of markers.
const MARKERS: usize = 6;
/// Patterns of dashes in the style sheet, the first without gaps.
const DASHES: usize = 4;
/// Radius of a round marker; other shapes are scaled by it.
const REACH: f64 = 4.0;

impl Look {
    /// Classes of what is drawn in its colour.
    pub(super) fn class(self) -> String {
        let all = colours(self.role);
        let role = match self.role {
            Role::Convoy => "convoy",
            Role::Base => "base",
            Role::Peer => "peer",
            Role::Computed => "computed",
        };
        format!("{role} c{} d{}", all[self.rank % all.len()], self.dash())
    }

    fn dash(self) -> usize {
        let all = colours(self.role).len();
        match self.role {
            // Dashes are what sets them apart from what was measured.
            Role::Base | Role::Computed => 1 + self.rank % (DASHES - 1),
            Role::Convoy | Role::Peer => (self.rank / all) % DASHES,
        }
    }

    /// Marker of a value at a place; computed ones have none.
    pub(super) fn marker(self, at: (f64, f64)) -> Option<Element> {
        let first = match self.role {
            Role::Convoy => 0,
            Role::Base => 3,
            Role::Peer => 1,
            Role::Computed => return None,
        };
        let (x, y) = at;
        let shape = |points: &[(f64, f64)]| -> Path {
            let moved: Vec<_> =
                points.iter().map(|(right, down)| (x + right * REACH, y + down * REACH)).collect();
            canvas::polygon("marker", &moved)
        };
        Some(match (first + self.rank + self.rank / MARKERS) % MARKERS {
            0 => {
                let circle = Circle::new().set("class", "marker").set("r", REACH);
                circle.set("cx", canvas::place(x)).set("cy", canvas::place(y)).into()
            }
            1 => shape(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]).into(),
            2 => shape(&[(0.0, -1.2), (1.1, 0.9), (-1.1, 0.9)]).into(),
            3 => shape(&[(0.0, -1.3), (1.2, 0.0), (0.0, 1.3), (-1.2, 0.0)]).into(),
            4 => shape(&[(0.0, 1.2), (1.1, -0.9), (-1.1, -0.9)]).into(),
            _ => shape(&[
                (-1.2, -0.4),
                (-0.4, -0.4),
                (-0.4, -1.2),
                (0.4, -1.2),
                (0.4, -0.4),
                (1.2, -0.4),
                (1.2, 0.4),
                (0.4, 0.4),
                (0.4, 1.2),
                (-0.4, 1.2),
                (-0.4, 0.4),
                (-1.2, 0.4),
            ])
            .into(),
        })
    }

    /// A line with its marker, for a legend.
    pub(super) fn swatch(self) -> String {
        let mut group = canvas::group(&format!("series {}", self.class()));
        group = group.add(canvas::polyline("line", &[(0.0, 7.0), (32.0, 7.0)]));
        if let Some(marker) = self.marker((16.0, 7.0)) {
            group = group.add(marker);
        }
        let document = svg::Document::new().set("class", "swatch").set("aria-hidden", "true");
        let document = document.set("viewBox", (0, 0, 32, 14)).set("font-size", Size::Wide.font());
        document.set("width", 32).set("height", 14).add(group).to_string()
    }
}

/// Looks of all names of a report.
#[derive(Clone, Debug, Default)]
pub(super) struct Looks(Vec<(String, Look)>);

impl Looks {
    /// Names get their looks in the order in which they first appear.
    pub(super) fn of(figures: &[Figure]) -> Self {
        let mut looks = Self::default();
        for chart in figures.iter().flat_map(|figure| &figure.charts) {
            for (name, role) in names(&chart.kind) {
                let is_known =
                    looks.0.iter().any(|(known, look)| known == name && look.role == role);
                if !is_known {
                    let rank = looks.0.iter().filter(|(_, look)| look.role == role).count();
                    looks.0.push((name.to_owned(), Look { role, rank }));
                }
            }
        }
        looks
    }

    /// The looks of a chart's series, no two of them alike: where two would be, the later one takes another.
    pub(super) fn within(&self, kind: &Kind) -> Vec<Look> {
        let mut taken: Vec<Look> = Vec::new();
        for (name, role) in names(kind) {
            let known = self.0.iter().find(|(known, look)| known == name && look.role == role);
            let mut look = known.map_or(Look { role, rank: 0 }, |(_, look)| *look);
            let is_taken = |look: Look| {
                let same = |other: &Look| {
                    other.class() == look.class()
                        && other.marker((0.0, 0.0)).map(|m| m.to_string())
                            == look.marker((0.0, 0.0)).map(|m| m.to_string())
                };
                taken.iter().any(same)
            };
            for _ in 0..MARKERS * DASHES {
                if !is_taken(look) {
                    break;
                }
                look.rank += 1;
            }
            taken.push(look);
        }
        taken
    }
}

/// The series of a chart, and what they show.
fn names(kind: &Kind) -> Vec<(&str, Role)> {
    match kind {
        Kind::Lines(lines) => lines.series.iter().map(|s| (s.name.as_str(), s.role)).collect(),
        Kind::Bars(bars) => bars.series.iter().map(|s| (s.name.as_str(), s.role)).collect(),
        Kind::Radar(radar) => radar.series.iter().map(|s| (s.name.as_str(), s.role)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::{Axis, Bar, Bars};

    fn chart(names: &[(&str, Role)]) -> Kind {
        let bar = |(name, role): &(&str, Role)| Bar {
            name: (*name).to_owned(),
            role: *role,
            values: Vec::new(),
        };
        let series = names.iter().map(bar).collect();
        Kind::Bars(Bars { y: Axis::linear("speed", "Gb/s"), groups: Vec::new(), series })
    }

    #[test]
    fn twelve_of_each_role_look_different() {
        let roles = [Role::Convoy, Role::Base, Role::Peer, Role::Computed];
        let names: Vec<(String, Role)> = roles
            .iter()
            .flat_map(|role| (0..12).map(move |n| (format!("{role:?} {n}"), *role)))
            .collect();
        let series: Vec<_> = names.iter().map(|(name, role)| (name.as_str(), *role)).collect();
        let looks = Looks::default().within(&chart(&series));
        let drawn: Vec<String> = looks.iter().map(|look| look.swatch()).collect();
        for (n, one) in drawn.iter().enumerate() {
            assert!(!drawn[..n].contains(one), "{n} is drawn like another");
        }
    }

    #[test]
    fn a_name_looks_the_same_in_two_charts() {
        let kinds = [
            chart(&[("a", Role::Peer), ("b", Role::Peer), ("c", Role::Convoy)]),
            chart(&[("b", Role::Peer)]),
        ];
        let charts = kinds.map(|kind| crate::chart::Chart { heading: String::new(), kind });
        let figure = Figure {
            id: String::new(),
            title: String::new(),
            caption: String::new(),
            command: String::new(),
            charts: charts.to_vec(),
            studied: Vec::new(),
            goals: Vec::new(),
            notes: Vec::new(),
            left_out: Vec::new(),
        };
        let looks = Looks::of(&[figure]);
        assert_eq!(looks.within(&charts[0].kind)[1], looks.within(&charts[1].kind)[0]);
    }
}
