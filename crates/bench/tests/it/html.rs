//! The page of a report that has all that is hard to draw.

use convoy_bench::chart::{Chart, Figure};
use convoy_bench::html::{Report, render};
use svg::node::element::tag::Type;
use svg::parser::Event;

#[path = "../../examples/report-sample/sample.rs"]
mod sample;

/// `text` as it stands in a page.
fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;")
}

/// Text between tags, without them.
fn words(page: &str) -> String {
    page.split('<').filter_map(|part| part.split_once('>')).map(|(_, text)| text).collect()
}

/// The drawings of a page, legends included.
fn drawings(page: &str) -> impl Iterator<Item = &str> {
    page.split("<svg").skip(1).map(|rest| {
        let end = rest.find("</svg>").unwrap();
        &page[rest.as_ptr() as usize - page.as_ptr() as usize - 4..][..end + 10]
    })
}

#[test]
fn the_same_report_gives_the_same_bytes() {
    let page = render(&sample::report());
    assert_eq!(page, render(&sample::report()));
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>"));
}

#[test]
fn names_stay_text() {
    let page = render(&sample::report());
    assert!(!page.contains("<script") && !page.contains("<b>"), "a name became a tag");
    assert!(words(&page).contains(&escaped(sample::HOSTILE)));
    // Those in the drawings' own tags, which the library of drawings does not escape.
    for drawing in drawings(&page) {
        for tag in drawing.split('<').filter_map(|part| part.split_once('>')).map(|(tag, _)| tag) {
            assert!(!tag.contains("alert("), "{tag}");
        }
    }
}

#[test]
fn nothing_is_asked_for() {
    let page = render(&sample::report());
    for word in ["http:", "https:", "url(", "@import", " src=", "style=\""] {
        let found = page.replace("http://www.w3.org/2000/svg", "").contains(word);
        assert!(!found, "{word}");
    }
}

#[test]
fn drawings_are_well_formed() {
    let page = render(&sample::report());
    let mut count = 0;
    for drawing in drawings(&page) {
        let mut open = Vec::new();
        for event in svg::read(drawing).unwrap() {
            match event {
                Event::Tag(name, Type::Start, _) => open.push(name),
                Event::Tag(name, Type::End, _) => assert_eq!(open.pop(), Some(name), "{drawing}"),
                Event::Error(error) => panic!("{error}: {drawing}"),
                _ => {}
            }
        }
        assert!(open.is_empty(), "{open:?}: {drawing}");
        assert!(!drawing.contains("NaN") && !drawing.contains("inf"), "{drawing}");
        count += 1;
    }
    assert!(count > 40, "{count} drawings");
}

#[test]
fn all_values_stand_in_tables() {
    let report = sample::report();
    let words = words(&render(&report));
    let charts: Vec<&Chart> = report.figures.iter().flat_map(|figure| &figure.charts).collect();
    let mut count = 0;
    for cell in charts.iter().flat_map(|chart| chart.table().rows).flatten() {
        assert!(words.contains(&escaped(&cell)), "{cell}");
        count += 1;
    }
    assert!(count > 150, "{count} cells");
}

#[test]
fn all_else_of_a_report_stands_there() {
    let report = sample::report();
    let text = words(&render(&report));
    let figure = |figure: &Figure| {
        let mut all = vec![figure.title.clone(), figure.caption.clone(), figure.command.clone()];
        all.extend(figure.notes.clone());
        all.extend(figure.left_out.iter().flat_map(|one| [one.what.clone(), one.why.clone()]));
        all.extend(figure.goals.iter().map(|goal| goal.asked.clone()));
        all.extend(figure.studied.iter().map(|one| one.theirs.clone()));
        all
    };
    let mut all: Vec<String> = report.figures.iter().flat_map(figure).collect();
    all.extend(report.headline.iter().flat_map(|one| [one.what.clone(), one.value.clone()]));
    all.extend(report.left_out.iter().map(|one| one.why.clone()));
    all.extend(report.errors.clone());
    all.extend([report.title, report.command, report.started, report.machine.cpu]);
    all.extend(report.machine.peers.into_iter().map(|peer| peer.version));
    all.extend(["This run is incomplete.", "1 missed", "2 of 3 goals"].map(str::to_owned));
    for one in all {
        assert!(text.contains(&escaped(&one)), "{one}");
    }
}

#[test]
fn a_report_without_anything_is_a_page() {
    let whole = sample::report();
    let report = Report {
        headline: Vec::new(),
        figures: Vec::new(),
        complete: true,
        left_out: Vec::new(),
        errors: Vec::new(),
        ..whole
    };
    let text = words(&render(&report));
    assert!(text.contains("No figure was made.") && text.contains("Nothing."), "{text}");
    assert!(!text.contains("incomplete") && !text.contains("went wrong"), "{text}");
}
