//! The page around the figures.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::figure::{anchor, section};
use super::look::Looks;
use super::table::{cell, table, verdict};
use super::{Headline, Report, machine};

const STYLE: &str = include_str!("style.css");
/// Nothing may be loaded, whatever a name in the report says.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

/// The whole page.
pub(super) fn page(report: &Report) -> Markup {
    let looks = Looks::of(&report.figures);
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                title { (report.title) }
                // Without one, browsers ask a server for it.
                link rel="icon" href="data:,";
                style { (PreEscaped(STYLE)) }
            }
            body {
                a.skip href="#main" { "Skip to the results" }
                (header(report))
                (contents(report))
                main id="main" tabindex="-1" {
                    (headline(report))
                    section aria-labelledby="figures" {
                        h2 id="figures" { "Figures" }
                        @if report.figures.is_empty() { p.nothing { "No figure was made." } }
                        @for figure in &report.figures { (section(figure, &looks)) }
                    }
                    section.block aria-labelledby="machine" {
                        h2 id="machine" { "Machine" }
                        (machine::machine(&report.machine))
                    }
                    (left_out(report))
                }
                footer {
                    p { "Made by Convoy " (report.version) ". A band or a whisker reaches from the lower quartile to the upper." }
                }
            }
        }
    }
}

/// The title, where it comes from, and what is wrong with it.
fn header(report: &Report) -> Markup {
    html! {
        header {
            h1 { (report.title) }
            p.from {
                span { "Convoy " (report.version) }
                span { "begun " time { (report.started) } }
                span { (report.machine.cpu) }
            }
            p.command { span.label { "Measure it again" } " " code { (report.command) } }
            @if !report.complete {
                div.warning role="note" {
                    p { strong { "This run is incomplete." } " It was interrupted, so figures lack what was not yet measured." }
                }
            }
            @if !report.errors.is_empty() {
                div.warning role="note" {
                    p { strong { "Something went wrong while this was measured." } }
                    ul { @for error in &report.errors { li { (error) } } }
                }
            }
        }
    }
}

fn contents(report: &Report) -> Markup {
    html! {
        nav.contents aria-labelledby="contents" {
            h2 id="contents" { "Contents" }
            ul {
                @if !report.headline.is_empty() { li { a href="#headline" { "In short" } } }
                @for figure in &report.figures {
                    li { a href={ "#" (anchor(&figure.id)) } { span.id { (figure.id) } " " (figure.title) } }
                }
                li { a href="#machine" { "Machine" } }
                li { a href="#left-out" { "What was left out" } }
            }
        }
    }
}

fn headline(report: &Report) -> Markup {
    let judged = || report.headline.iter().filter_map(|one| one.is_reached);
    let (all, missed) = (judged().count(), judged().filter(|is_reached| !is_reached).count());
    if report.headline.is_empty() {
        return html! {};
    }
    html! {
        section.block aria-labelledby="headline" {
            h2 id="headline" { "In short" }
            @if all > 0 {
                p.sum {
                    (all - missed) " of " (all) @if all == 1 { " goal was reached" } @else { " goals were reached" }
                    @if missed > 0 { ", " strong { (missed) " missed" } }
                    "."
                }
            }
            ul.cards { @for one in &report.headline { (card(one)) } }
        }
    }
}

fn card(one: &Headline) -> Markup {
    let class = if one.is_reached == Some(false) { "card missed" } else { "card" };
    html! {
        li class=(class) {
            p.what {
                @if let Some(figure) = &one.figure {
                    a href={ "#" (anchor(figure)) } { (one.what) }
                } @else { (one.what) }
            }
            p.number.long[one.value.chars().count() > 7] { (one.value) }
            @if !one.spread.is_empty() { p.spread { (one.spread) } }
            p.about { (one.about) }
            @if one.asked.is_some() || one.is_reached.is_some() {
                p.goal {
                    @if let Some(asked) = &one.asked { span.asked { "asked: " (asked) } " " }
                    @if let Some(is_reached) = one.is_reached { (verdict(is_reached)) }
                }
            }
        }
    }
}

/// Measurements that were left out of all, and of each figure.
fn left_out(report: &Report) -> Markup {
    let mut rows: Vec<Vec<Markup>> = Vec::new();
    for one in &report.left_out {
        rows.push(vec![cell(&one.what), cell(&one.why), cell("the whole")]);
    }
    for figure in &report.figures {
        for one in &figure.left_out {
            let of = html! { a href={ "#" (anchor(&figure.id)) } { (figure.id) } };
            rows.push(vec![cell(&one.what), cell(&one.why), of]);
        }
    }
    html! {
        section.block aria-labelledby="left-out" {
            h2 id="left-out" { "What was left out" }
            @if rows.is_empty() {
                p { "Nothing." }
            } @else {
                (table("left-out-table", &html! { "What was not measured, and why" }, &["what", "why", "of"], &rows))
            }
        }
    }
}
