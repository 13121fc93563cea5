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
/// to the right: `is_right` says of which columns, and those are not folded, but for the first row, the headings. Where
/// columns are too many for the terminal, the rest of them follows below, each time behind the first column.
#[must_use]
pub fn columns(rows: &[Vec<String>], is_right: impl Fn(usize) -> bool) -> String {
    let width = Some(TERMINAL.load(Ordering::Relaxed)).filter(|width| *width > 0);
    folded(rows, is_right, width)
}

fn folded(rows: &[Vec<String>], is_right: impl Fn(usize) -> bool, width: Option<usize>) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let all: Vec<_> = (0..count).map(|at| Column::of(rows, at, &is_right)).collect();
    let Some(width) = width else {
        return laid_out(rows, &all.iter().collect::<Vec<_>>());
    };
    let parts: Vec<_> = parts(&all, width)
        .into_iter()
        .map(|mut part| {
            shrink(&mut part, width);
            laid_out(rows, &part.iter().collect::<Vec<_>>())
        })
        .collect();
    parts.join("\n")
}

/// A column of a table, with widths in characters.
#[derive(Clone, Copy)]
struct Column {
    at: usize,
    is_right: bool,
    width: usize,
    /// Width below which a word or a number would not fit.
    least: usize,
}

impl Column {
    /// Width up to which a column of words counts when columns are divided: wider ones are folded.
    const COMFORTABLE: usize = 16;

    /// Width with which it counts when columns are divided.
    fn comfortable(&self) -> usize {
        if self.is_right { self.least } else { self.width.min(Self::COMFORTABLE).max(self.least) }
    }

    fn of(rows: &[Vec<String>], at: usize, is_right: &impl Fn(usize) -> bool) -> Self {
        let is_right = is_right(at);
        let cells =
            || rows.iter().enumerate().filter_map(|(row, cells)| Some((row, cells.get(at)?)));
        let least = cells().map(|(row, cell)| match is_right && row > 0 {
            true => length(cell),
            false => longest_word(cell),
        });
        let (width, least) = (cells().map(|(_, cell)| length(cell)).max(), least.max());
        Self { at, is_right, width: width.unwrap_or(0), least: least.unwrap_or(0) }
    }
}

/// The columns of each part of a table: one part, if they fit a terminal at their least widths.
fn parts(all: &[Column], width: usize) -> Vec<Vec<Column>> {
    let least = total(all.iter().map(|column| column.least));
    let Some((first, others)) = all.split_first().filter(|_| least > width) else {
        return vec![all.to_vec()];
    };
    let mut parts = vec![vec![*first]];
    for column in others {
        let Some(part) = parts.last_mut() else { break };
        let with = total(part.iter().chain([column]).map(Column::comfortable));
        if part.len() > 1 && with > width {
            parts.push(vec![*first, *column]);
        } else {
            part.push(*column);
        }
    }
    parts
}

/// Width of columns with the gaps between them.
fn total(widths: impl Iterator<Item = usize>) -> usize {
    widths.map(|width| width + GAP.len()).sum::<usize>().saturating_sub(GAP.len())
}

fn laid_out(rows: &[Vec<String>], columns: &[&Column]) -> String {
    let mut text = String::new();
    for row in rows {
        let cells: Vec<_> = columns
            .iter()
            .filter_map(|column| Some((wrap(row.get(column.at)?, column.width), column)))
            .collect();
        for at in 0..cells.iter().map(|(lines, _)| lines.len()).max().unwrap_or(1) {
            let parts = cells.iter().map(|(lines, Column { is_right, width, .. })| {
                let part = lines.get(at).copied().unwrap_or_default();
                match is_right {
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
fn shrink(columns: &mut [Column], room: usize) {
    while total(columns.iter().map(|column| column.width)) > room {
        let foldable = columns.iter_mut().filter(|column| column.width > column.least);
        let Some(widest) = foldable.max_by_key(|column| column.width) else { return };
        widest.width -= 1;
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
        assert!(narrow.lines().all(|line| line.chars().count() <= 7 + 10 + 2), "{narrow}");
    }

    #[test]
    fn columns_that_do_not_fit_follow_below_behind_the_first_one() {
        let rows = rows(&[
            &["SA", "numbers left", "peer", "last packet"],
            &["one", "12 345 678", "192.0.2.1", "1 min 5 s ago"],
        ]);
        let text = "SA       numbers  peer\n\
                    \u{20}           left\n\
                    one   12 345 678  192.0.2.1\n\
                    \n\
                    SA   last packet\n\
                    one  1 min 5 s ago\n";
        assert_eq!(folded(&rows, |at| at == 1, Some(27)), text);
        let whole = "SA   numbers left  peer       last packet\n\
                     one    12 345 678  192.0.2.1  1 min 5 s ago\n";
        for width in [None, Some(80)] {
            assert_eq!(folded(&rows, |at| at == 1, width), whole, "{width:?}");
        }
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
