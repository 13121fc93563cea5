//! Words that have no place in a committed file: open ends, paths of one machine, hosts of registries.

use crate::tree::{Finding, Tree};

/// A word that is refused, and what to do instead. A row of `*` files is exempt by its folder or name.
struct Word {
    text: &'static str,
    /// True if the word also counts inside a longer identifier.
    inside_words: bool,
    mend: &'static str,
    exempt: &'static [&'static str],
}

const OPEN_END: &str = "finish it or leave it out; what is missing belongs in the tracker";
const ONE_MACHINE: &str = "use a path relative to the repository, a temporary folder, or an option";
const REGISTRY: &str = "let the ordinary client (cargo, pip, apt) find its registry by itself";

/// Spelt in two halves, so that this file does not report itself.
const WORDS: &[Word] = &[
    Word { text: concat!("TO", "DO"), inside_words: false, mend: OPEN_END, exempt: &[] },
    Word { text: concat!("FIX", "ME"), inside_words: false, mend: OPEN_END, exempt: &[] },
    Word { text: concat!("XX", "X"), inside_words: false, mend: OPEN_END, exempt: &[] },
    Word { text: concat!("unimplem", "ented!"), inside_words: false, mend: OPEN_END, exempt: &[] },
    Word { text: concat!("to", "do!"), inside_words: false, mend: OPEN_END, exempt: &[] },
    Word { text: concat!("/wo", "rk/"), inside_words: true, mend: ONE_MACHINE, exempt: &[] },
    Word { text: concat!("/ro", "ot/"), inside_words: true, mend: ONE_MACHINE, exempt: &[] },
    Word { text: concat!("/ho", "me/"), inside_words: true, mend: ONE_MACHINE, exempt: &[] },
    Word { text: concat!("/tmp/", "convoy"), inside_words: true, mend: ONE_MACHINE, exempt: &[] },
    Word {
        text: concat!("crates", ".io"),
        inside_words: true,
        mend: REGISTRY,
        // Cargo writes the name of the registry into every lock file.
        exempt: &["Cargo.lock"],
    },
    Word { text: concat!("pypi", ".org"), inside_words: true, mend: REGISTRY, exempt: &[] },
    Word { text: concat!("python", "hosted.org"), inside_words: true, mend: REGISTRY, exempt: &[] },
    Word { text: concat!("deb.deb", "ian.org"), inside_words: true, mend: REGISTRY, exempt: &[] },
    Word { text: concat!("npm", "js.org"), inside_words: true, mend: REGISTRY, exempt: &[] },
    Word { text: concat!("proxy.go", "lang.org"), inside_words: true, mend: REGISTRY, exempt: &[] },
];

/// Endings of host names that only one network knows.
const PRIVATE_HOSTS: &[&str] = &[".internal", ".intranet", ".corp", ".lan", ".svc"];

/// Reports every refused word of every text file.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.iter() {
        for (index, line) in text.lines().enumerate() {
            for word in WORDS {
                if !is_exempt(word, path) && contains(line, word) {
                    let what = format!("holds the word {:?}", word.text);
                    findings.push(Finding::new(path, index + 1, what, word.mend));
                }
            }
            if let Some(host) = private_host(line) {
                let what = format!("names the host {host:?}, which only one network knows");
                findings.push(Finding::new(path, index + 1, what, REGISTRY));
            }
        }
    }
    findings
}

fn is_exempt(word: &Word, path: &str) -> bool {
    word.exempt.iter().any(|name| path == *name || path.ends_with(&format!("/{name}")))
}

fn contains(line: &str, word: &Word) -> bool {
    line.match_indices(word.text).any(|(at, _)| {
        word.inside_words
            || !(line[..at].ends_with(is_word_character)
                || line[at + word.text.len()..].starts_with(is_word_character))
    })
}

fn is_word_character(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// The host of the first address in `line` that is private to a network.
fn private_host(line: &str) -> Option<&str> {
    line.match_indices("://").find_map(|(at, separator)| {
        let rest = &line[at + separator.len()..];
        let end = rest.find(|c: char| !(c.is_alphanumeric() || ".-_".contains(c)));
        let host = &rest[..end.unwrap_or(rest.len())];
        PRIVATE_HOSTS.iter().any(|ending| host.ends_with(ending)).then_some(host)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<Finding> {
        check(&Tree::of(&[(path, text)]))
    }

    #[test]
    fn reports_each_refused_word_with_its_line() {
        for word in WORDS {
            let text = format!("fine\nhere: {} it is\n", word.text);
            let found = findings("a.md", &text);
            assert!(found.iter().any(|finding| finding.line == 2), "{} was not found", word.text);
        }
    }

    #[test]
    fn part_of_a_longer_word_is_no_open_end() {
        let text = format!("{}S and m{}\n", concat!("TO", "DO"), concat!("to", "do!"));
        assert_eq!(findings("a.rs", &text), []);
    }

    #[test]
    fn lock_file_may_name_the_registry() {
        let text =
            concat!("source = \"registry+https://github.com/rust-lang/crates", ".io-index\"\n");
        assert_eq!(findings("Cargo.lock", text), []);
        assert_eq!(findings("fuzz/Cargo.lock", text), []);
        assert_eq!(findings("README.md", text).len(), 1);
    }

    #[test]
    fn reports_a_host_of_a_private_network() {
        let text = concat!(
            "index = https://mirror.build",
            ".internal:8443/simple and https://github.com/a\n"
        );
        let found = findings("a.toml", text);
        assert_eq!(found.len(), 1);
        assert!(found[0].what.contains(concat!("mirror.build", ".internal\"")));
    }
}
