//! A figure: its drawings with their tables, what a study measured, goals, notes and the command.

use maud::{Markup, PreEscaped, html};

use super::canvas::Size;
use super::look::{Look, Looks};
use super::table::{cell, table, verdict};
use super::{bars, lines, radar};
use crate::chart::{Axis, Chart, Figure, Kind, Radar};

/// An identifier of the page made of `text`: letters, digits, `-` and `_`.
pub(super) fn anchor(text: &str) -> String {
    let safe = |letter: char| {
        if letter.is_ascii_alphanumeric() || letter == '_' { letter } else { '-' }
    };
    text.chars().map(safe).collect()
}

/// The figure's part of the page.
pub(super) fn section(figure: &Figure, looks: &Looks) -> Markup {
    let id = anchor(&figure.id);
    let heading = format!("{id}-heading");
    html! {
        section.figure id=(id) aria-labelledby=(heading) {
            h3 id=(heading) { span.id { (figure.id) } " " (figure.title) }
            p.caption { (figure.caption) }
            @if figure.charts.is_empty() { p.nothing { "Nothing was measured for this figure." } }
            @for (n, one) in figure.charts.iter().enumerate() {
                (chart(figure, one, &format!("{id}-{}", n + 1), looks))
            }
            (goals(figure, &id))
            (studied(figure, &id))
            @if !figure.notes.is_empty() {
                div.notes {
                    h4 { "How to read it" }
                    ul { @for note in &figure.notes { li { (note) } } }
                }
            }
            @if !figure.left_out.is_empty() {
                div.notes {
                    h4 { "Left out" }
                    ul { @for one in &figure.left_out { li { (one.what) ": " (one.why) } } }
                }
            }
            @if !figure.command.is_empty() {
                p.command { span.label { "Measured by" } " " code { (figure.command) } }
            }
        }
    }
}

fn chart(figure: &Figure, chart: &Chart, id: &str, looks: &Looks) -> Markup {
    let title = match chart.heading.as_str() {
        "" => format!("{}: {}", figure.id, figure.title),
        heading => format!("{}: {}, {heading}", figure.id, figure.title),
    };
    let looks = looks.within(&chart.kind);
    let drawings = drawings(chart, &looks, id, &title);
    let values = values(chart, id, &title);
    html! {
        div.chart {
            @if !chart.heading.is_empty() { h4 { (chart.heading) } }
            @if let Some(drawings) = drawings {
                (before(chart, &looks))
                (PreEscaped(drawings))
                (after(&chart.kind))
            } @else {
                p.nothing {
                    @if values.is_some() { "Too little was measured for a drawing." }
                    @else { "Nothing was measured." }
                }
            }
            @if let Some(values) = values { (values) }
        }
    }
}

/// The chart in all sizes; none where there is nothing to draw.
fn drawings(chart: &Chart, looks: &[Look], id: &str, title: &str) -> Option<String> {
    let about = about(&chart.kind);
    let mut all = String::new();
    for size in Size::ALL {
        let (canvas, height) = match &chart.kind {
            Kind::Lines(lines) => lines::draw(lines, looks, size)?,
            Kind::Bars(bars) => bars::draw(bars, looks, size)?,
            Kind::Radar(radar) => radar::draw(radar, looks, size)?,
        };
        all += &canvas.finish(id, title, &about, height);
    }
    Some(all)
}

/// Description of the drawing, for readers who cannot see it.
fn about(kind: &Kind) -> String {
    let (what, names): (String, Vec<&str>) = match kind {
        Kind::Lines(lines) => (
            format!("Lines: {} against {}", axis_text(&lines.y), axis_text(&lines.x)),
            lines.series.iter().map(|line| line.name.as_str()).collect(),
        ),
        Kind::Bars(bars) => (
            format!("Bars: {}", axis_text(&bars.y)),
            bars.series.iter().map(|bar| bar.name.as_str()).collect(),
        ),
        Kind::Radar(radar) => (
            "A radar of several qualities, the best on the rim".to_owned(),
            radar.series.iter().map(|polygon| polygon.name.as_str()).collect(),
        ),
    };
    format!("{what}; of {}. The table below has its values.", names.join(", "))
}

fn axis_text(axis: &Axis) -> String {
    match axis.unit.as_str() {
        "" => axis.label.clone(),
        unit => format!("{} ({unit})", axis.label),
    }
}

/// Elements above a drawing: the legend, and the quantity that is measured upwards.
fn before(chart: &Chart, looks: &[Look]) -> Markup {
    let legend = |names: Vec<&str>| {
        html! {
            ul.legend {
                @for (name, look) in names.into_iter().zip(looks) {
                    li { (PreEscaped(look.swatch())) span { (name) } }
                }
            }
        }
    };
    match &chart.kind {
        Kind::Lines(lines) => html! {
            (legend(lines.series.iter().map(|line| line.name.as_str()).collect()))
            p.axis.up { (axis_text(&lines.y)) }
        },
        Kind::Bars(_) => html! {},
        Kind::Radar(radar) => legend(radar.series.iter().map(|one| one.name.as_str()).collect()),
    }
}

/// Elements below a drawing: the quantity that is measured across, and the spokes.
fn after(kind: &Kind) -> Markup {
    match kind {
        Kind::Lines(lines) => html! { p.axis.across { (axis_text(&lines.x)) } },
        Kind::Bars(bars) => html! { p.axis.across { (axis_text(&bars.y)) } },
        Kind::Radar(radar) => qualities(radar),
    }
}

/// The spokes by number, and why they were judged as they were.
fn qualities(radar: &Radar) -> Markup {
    // Where labels stand in the wide drawing, it needs no more than the reasons.
    let is_labelled = !radar::is_numbered(radar, Size::Wide);
    html! {
        ol.qualities.labelled[is_labelled] {
            @for axis in &radar.axes {
                li.judged[axis.judged.is_some()] {
                    (axis.label)
                    @if let Some(why) = &axis.judged { span.why { " (judged: " (why) ")" } }
                }
            }
        }
    }
}

/// All that is drawn, in numbers; none where there is no number.
fn values(chart: &Chart, id: &str, title: &str) -> Option<Markup> {
    let values = chart.table();
    let mut cells = values.rows.iter().flat_map(|row| row.iter().skip(1));
    if cells.all(String::is_empty) {
        return None;
    }
    // Without a name, what stands in a column is what is measured.
    let (across, inside) = match &chart.kind {
        Kind::Lines(lines) => (axis_text(&lines.x), Some(axis_text(&lines.y))),
        Kind::Bars(bars) => (String::new(), Some(axis_text(&bars.y))),
        Kind::Radar(_) => (String::new(), None),
    };
    let mut head: Vec<&str> = values.head.iter().map(String::as_str).collect();
    if !across.is_empty() {
        head[0] = &across;
    }
    for name in head.iter_mut().skip(1).filter(|name| name.is_empty()) {
        *name = inside.as_deref().unwrap_or("value");
    }
    let caption = html! {
        (title)
        @if let Some(inside) = &inside { ": " (inside) ", with quartiles in brackets" }
    };
    let rows = |row: &Vec<String>| row.iter().map(|text| value(text)).collect();
    let rows: Vec<Vec<Markup>> = values.rows.iter().map(rows).collect();
    Some(html! {
        details.values {
            summary { "Values" span.unseen { " of " (title) } }
            (table(id, &caption, &head, &rows))
        }
    })
}

/// A number in front of its quartiles, or that there is none.
fn value(text: &str) -> Markup {
    match text.split_once(" (") {
        _ if text.is_empty() => html! { span.missing { "–" } },
        Some((middle, rest)) if rest.ends_with(')') => {
            html! { (middle) " " span.quartiles { "(" (rest) } }
        }
        _ => cell(text),
    }
}

fn goals(figure: &Figure, id: &str) -> Markup {
    if figure.goals.is_empty() {
        return html! {};
    }
    let rows = figure.goals.iter().map(|goal| {
        vec![cell(&goal.what), cell(&goal.asked), value(&goal.measured), verdict(goal.is_reached)]
    });
    let head = ["goal", "asked for", "measured", "verdict"];
    let caption = html! { "Goals of " (figure.id) };
    table(&format!("{id}-goals"), &caption, &head, &rows.collect::<Vec<_>>())
}

fn studied(figure: &Figure, id: &str) -> Markup {
    if figure.studied.is_empty() {
        return html! {};
    }
    let rows = figure.studied.iter().map(|one| {
        let ours = one.ours.as_deref().unwrap_or("not measured");
        vec![cell(&one.what), cell(&one.theirs), cell(ours)]
    });
    let head = ["value", "in the study", "measured here"];
    let caption = html! { "Values of the study beside those of " (figure.id) };
    table(&format!("{id}-study"), &caption, &head, &rows.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors_have_no_letter_that_means_something() {
        assert_eq!(anchor("F1"), "F1");
        assert_eq!(anchor("\"><b> é"), "---b---");
    }
}
