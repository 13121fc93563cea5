//! Columns of text, folded where the terminal is narrower than they are.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Columns of the terminal that texts are shown on; 0 where they are shown on none.
static TERMINAL: AtomicUsize = AtomicUsize::new(0);

/// Has tables folded to a terminal of so many columns from now on.
pub fn fold_to(columns: u16) {
    TERMINAL.store(columns.into(), Ordering::Relaxed);
}

/// Space between two columns.
const GAP: &str = "  ";

/// Rows of cells, each column as wide as its widest cell, or folded between words to the width of the terminal. Numbers stand
/// to the right: `is_right` says of which columns, and those are not folded.
#[must_use]
pub fn columns(rows: &[Vec<String>], is_right: impl Fn(usize) -> bool) -> String {
    let width = Some(TERMINAL.load(Ordering::Relaxed)).filter(|width| *width > 0);
    folded(rows, is_right, width)
}

fn folded(rows: &[Vec<String>], is_right: impl Fn(usize) -> bool, width: Option<usize>) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widest = |at: usize, of: fn(&str) -> usize| {
        rows.iter().filter_map(|row| row.get(at)).map(|cell| of(cell)).max().unwrap_or(0)
    };
    let mut widths: Vec<_> = (0..count).map(|at| widest(at, length)).collect();
    if let Some(width) = width {
        let least: Vec<_> = (0..count)
            .map(|at| if is_right(at) { widest(at, length) } else { widest(at, longest_word) })
            .collect();
        shrink(&mut widths, &least, width.saturating_sub(GAP.len() * count.saturating_sub(1)));
    }
    let mut text = String::new();
    for row in rows {
        let cells: Vec<_> =
            row.iter().zip(&widths).map(|(cell, width)| wrap(cell, *width)).collect();
        for at in 0..cells.iter().map(Vec::len).max().unwrap_or(1) {
            let parts = cells.iter().zip(&widths).enumerate().map(|(column, (lines, &width))| {
                let part = lines.get(at).copied().unwrap_or_default();
                match is_right(column) {
                    true => format!("{part:>width$}"),
                    false => format!("{part:<width$}"),
                }
            });
            text.push_str(parts.collect::<Vec<_>>().join(GAP).trim_end());
            text.push('\n');
        }
    }
    text
}

/// Makes the widest columns narrower, none below its least width, until all of them together take no more than `room`.
fn shrink(widths: &mut [usize], least: &[usize], room: usize) {
    while widths.iter().sum::<usize>() > room {
        let widest = widths.iter_mut().zip(least).filter(|(width, least)| **width > **least);
        let Some((width, _)) = widest.max_by_key(|(width, _)| **width) else { return };
        *width -= 1;
    }
}

fn length(text: &str) -> usize {
    text.chars().count()
}

fn longest_word(text: &str) -> usize {
    text.split(' ').map(length).max().unwrap_or(0)
}

/// Lines of a cell, none longer than `width` unless one word is.
fn wrap(cell: &str, width: usize) -> Vec<&str> {
    let (mut lines, mut rest) = (Vec::new(), cell);
    while length(rest) > width {
        // The last blank at which what stands before it fits, or the first one at all.
        let fitting = rest.char_indices().nth(width + 1).map_or(rest.len(), |(at, _)| at);
        let head = rest.get(..fitting).unwrap_or(rest);
        let Some(at) = head.rfind(' ').filter(|at| *at > 0).or_else(|| rest.find(' ')) else {
            break;
        };
        lines.push(rest.get(..at).unwrap_or(rest).trim_end());
        rest = rest.get(at..).unwrap_or_default().trim_start();
    }
    lines.push(rest);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(cells: &[&[&str]]) -> Vec<Vec<String>> {
        cells.iter().map(|row| row.iter().map(|cell| (*cell).to_owned()).collect()).collect()
    }

    #[test]
    fn columns_line_up_where_there_is_room() {
        let rows = rows(&[&["name", "n", "what"], &["a", "10", "two words"]]);
        let text = "name   n  what\na     10  two words\n";
        for width in [None, Some(19), Some(80)] {
            assert_eq!(folded(&rows, |at| at == 1, width), text, "{width:?}");
        }
    }

    #[test]
    fn long_cells_are_folded_between_words_and_numbers_are_not() {
        let rows = rows(&[
            &["name", "packets", "meaning"],
            &["too-old", "12 345 678", "left of the window, or not above the floor"],
            &["x", "1", "short"],
        ]);
        let text = "name        packets  meaning\n\
                    too-old  12 345 678  left of the window, or\n\
                    \u{20}                    not above the floor\n\
                    x                 1  short\n";
        assert_eq!(folded(&rows, |at| at == 1, Some(45)), text);
        // Where words alone are too long, no line gets longer than they make it.
        let narrow = folded(&rows, |at| at == 1, Some(10));
        assert!(narrow.lines().all(|line| line.chars().count() <= 7 + 10 + 7 + 4), "{narrow}");
    }

    #[test]
    fn every_word_stays() {
        for width in 1..60 {
            let cell = "µ left of  the window, or not";
            let words: Vec<_> =
                wrap(cell, width).iter().flat_map(|line| line.split_whitespace()).collect();
            assert_eq!(words, cell.split_whitespace().collect::<Vec<_>>(), "{width}");
            assert!(wrap(cell, width).iter().all(|line| length(line) <= width.max(7)), "{width}");
        }
    }
}
