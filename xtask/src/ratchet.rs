//! Measures that may fall and never rise: `xtask/measures.json` has the allowed number of each.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};

use crate::tree::{Finding, Tree};

/// The file with the allowed numbers.
pub(crate) const FILE: &str = "xtask/measures.json";

/// A measure and its number today.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured {
    pub(crate) key: &'static str,
    pub(crate) number: usize,
    /// The number to arrive at; none where nobody set one.
    pub(crate) goal: Option<usize>,
    pub(crate) mend: &'static str,
}

type Allowed = BTreeMap<String, usize>;

/// Reports every measure above its allowed number.
pub(crate) fn check(tree: &Tree, measured: &[Measured]) -> Vec<Finding> {
    let allowed = match read(tree) {
        Ok(allowed) => allowed,
        Err(error) => {
            let mend = "cargo xtask count --write writes the numbers of today";
            return vec![Finding::new(FILE, 0, format!("{error:#}"), mend)];
        }
    };
    let over = |one: &Measured| {
        let what = match allowed.get(one.key) {
            None => format!("has no number for {}", one.key),
            Some(most) if one.number > *most => {
                format!("{}: {} where {most} are allowed", one.key, one.number)
            }
            Some(_) => return None,
        };
        Some(Finding::new(FILE, 0, what, one.mend))
    };
    measured.iter().filter_map(over).collect()
}

/// One line for each measure: its number, the allowed one and the goal.
pub(crate) fn table(tree: &Tree, measured: &[Measured]) -> String {
    let allowed = read(tree).unwrap_or_default();
    let mut text = format!("{:<32}{:>8}{:>9}{:>7}\n", "measure", "number", "allowed", "goal");
    for one in measured {
        let number =
            |number: Option<usize>| number.map_or_else(|| "–".to_owned(), |n| n.to_string());
        let most = number(allowed.get(one.key).copied());
        text += &format!("{:<32}{:>8}{most:>9}{:>7}\n", one.key, one.number, number(one.goal));
    }
    text
}

/// The text of the file with numbers lowered to those of today. Numbers that rose are an error.
pub(crate) fn lowered(tree: &Tree, measured: &[Measured]) -> Result<String> {
    let mut allowed = if tree.text(FILE).is_some() { read(tree)? } else { Allowed::new() };
    for one in measured {
        let most = allowed.entry(one.key.to_owned()).or_insert(one.number);
        ensure!(
            one.number <= *most,
            "{} rose from {most} to {}: {}",
            one.key,
            one.number,
            one.mend
        );
        *most = one.number;
    }
    Ok(serde_json::to_string_pretty(&allowed)? + "\n")
}

fn read(tree: &Tree) -> Result<Allowed> {
    let text = tree.text(FILE).context("is missing")?;
    let value: serde_json::Value = serde_json::from_str(text)?;
    let object = value.as_object().context("is no object of JSON")?;
    let number = |(key, value): (&String, &serde_json::Value)| {
        let number = value.as_u64().with_context(|| format!("{key} is no whole number"))?;
        Ok((key.clone(), usize::try_from(number)?))
    };
    object.iter().map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIVE: &str = "{ \"a\": 5 }";

    fn measured(number: usize) -> [Measured; 1] {
        [Measured { key: "a", number, goal: Some(0), mend: "take one out" }]
    }

    fn whats(file: &str, number: usize) -> Vec<String> {
        let findings = check(&Tree::of(&[(FILE, file)]), &measured(number));
        findings.into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn number_may_fall_and_not_rise() {
        assert_eq!(whats(FIVE, 4), [""; 0]);
        assert_eq!(whats(FIVE, 5), [""; 0]);
        assert_eq!(whats(FIVE, 6), ["a: 6 where 5 are allowed"]);
    }

    #[test]
    fn file_that_is_missing_broken_or_incomplete_is_reported() {
        assert_eq!(check(&Tree::of(&[]), &measured(1))[0].what, "is missing");
        assert_eq!(whats("[1]", 1), ["is no object of JSON"]);
        assert_eq!(whats("{ \"a\": -1 }", 1), ["a is no whole number"]);
        assert_eq!(whats("{ \"b\": 1 }", 1), ["has no number for a"]);
        assert_eq!(whats("{", 1).len(), 1);
    }

    #[test]
    fn numbers_are_written_lower_and_never_higher() {
        let tree = Tree::of(&[(FILE, FIVE)]);
        assert_eq!(lowered(&tree, &measured(3)).unwrap(), "{\n  \"a\": 3\n}\n");
        let error = lowered(&tree, &measured(6)).unwrap_err().to_string();
        assert_eq!(error, "a rose from 5 to 6: take one out");
        assert_eq!(lowered(&Tree::of(&[]), &measured(6)).unwrap(), "{\n  \"a\": 6\n}\n");
    }

    #[test]
    fn table_shows_number_limit_and_goal() {
        let text = table(&Tree::of(&[(FILE, FIVE)]), &measured(4));
        let row: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(row, ["a", "4", "5", "0"]);
    }
}
