//! Doc comments that begin with a question instead of a noun or a verb.

use std::collections::BTreeSet;

/// First words of clauses that lack what they are about.
const QUESTIONS: &[&str] =
    &["What", "Who", "Which", "Whether", "How", "Where", "Why", "When", "Those"];

/// The doc comments of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Docs {
    pub(super) all: usize,
    /// Lines where one begins with a question, and the line itself.
    pub(super) questions: Vec<(usize, String)>,
}

/// Counts comments of `///` and `//!`, those within `test_lines` left out.
pub(super) fn of(text: &str, test_lines: &BTreeSet<usize>) -> Docs {
    let mut docs = Docs { all: 0, questions: Vec::new() };
    let mut above = None;
    // Whether the comment has no word yet.
    let mut is_bare = false;
    for (index, line) in text.lines().enumerate() {
        let marker = marker(line.trim_start()).filter(|_| !test_lines.contains(&(index + 1)));
        if let Some(marker) = marker {
            if above != Some(marker) {
                docs.all += 1;
                is_bare = true;
            }
            let words = line.trim_start()[marker.len()..].trim();
            if is_bare && !words.is_empty() {
                is_bare = false;
                let end = words.find(|c: char| !c.is_alphabetic()).unwrap_or(words.len());
                if QUESTIONS.contains(&&words[..end]) {
                    docs.questions.push((index + 1, words.to_owned()));
                }
            }
        }
        above = marker;
    }
    docs
}

fn marker(line: &str) -> Option<&'static str> {
    let is_rule = line.starts_with("////");
    ["///", "//!"].into_iter().find(|marker| !is_rule && line.starts_with(marker))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn questions(text: &str) -> Vec<usize> {
        of(text, &BTreeSet::new()).questions.into_iter().map(|(line, _)| line).collect()
    }

    #[test]
    fn every_question_word_is_found_at_the_begin_alone() {
        for word in QUESTIONS {
            assert_eq!(questions(&format!("//! {word} it is.\n")), [1], "{word}");
            assert_eq!(questions(&format!("/// Tells\n/// {word} it is.\n")), [0; 0], "{word}");
            assert_eq!(questions(&format!("// {word} it is.\n")), [0; 0], "{word}");
        }
        assert_eq!(questions("/// Whatever it is.\n/// Howitzer.\n//// What it is.\n"), [0; 0]);
    }

    #[test]
    fn comments_of_different_things_are_counted_apart() {
        let text = "//! What a file has.\n\n/// A type.\nstruct A {\n    /// Who made it.\n    \
                    by: u8,\n}\n///\n/// When it is.\nfn f() {}\n";
        assert_eq!(questions(text), [1, 5, 9]);
        assert_eq!(of(text, &BTreeSet::new()).all, 4);
    }

    #[test]
    fn lines_of_tests_do_not_count() {
        let text = "/// What a test is.\nfn f() {}\n/// How it is.\n";
        let docs = of(text, &BTreeSet::from([1, 2]));
        assert_eq!((docs.all, docs.questions.len()), (1, 1));
    }
}
