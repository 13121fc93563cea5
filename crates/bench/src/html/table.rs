//! Tables, in frames of their own that scroll where a table is wider than the screen.

use maud::{Markup, html};

/// A table of `rows`, whose first cells head them. `id` names its caption.
pub(super) fn table(id: &str, caption: &Markup, head: &[&str], rows: &[Vec<Markup>]) -> Markup {
    let id = format!("{id}-caption");
    html! {
        div.scroll tabindex="0" role="region" aria-labelledby=(id) {
            table {
                // What is long stays in sight while the table is scrolled.
                caption { span id=(id) { (caption) } }
                thead { tr {
                    @for name in head {
                        // An empty heading would be read aloud as one.
                        @if name.is_empty() { td {} } @else { th scope="col" { (name) } }
                    }
                } }
                tbody {
                    @for row in rows { tr {
                        @for (n, cell) in row.iter().enumerate() {
                            @if n == 0 { th scope="row" { (cell) } } @else { td { (cell) } }
                        }
                    } }
                }
            }
        }
    }
}

/// A cell of text.
pub(super) fn cell(text: &str) -> Markup {
    html! { (text) }
}

/// Sign and word that tell if a goal was reached.
pub(super) fn verdict(is_reached: bool) -> Markup {
    html! {
        @if is_reached {
            span.verdict.reached { span.sign aria-hidden="true" { "✓" } " reached" }
        } @else {
            span.verdict.missed { span.sign aria-hidden="true" { "✗" } " missed" }
        }
    }
}
