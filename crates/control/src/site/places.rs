//! Positions of keys in a site file, for what is found only once all of it is understood.

use std::collections::HashMap;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::finding::{Excerpt, Finding};
use super::model::Site;
use super::source::Source;

/// Keys of each `[[sa]]` and `[[policy]]` that are remembered. There may be thousands of these sections, and what is
/// wrong with other keys is found while they are read.
const OF_EACH: [&str; 2] = ["local", "remote"];

/// Positions of sections and keys by their paths, such as `plain.routes` and `sa[to-right].local`.
#[derive(Debug, Default)]
pub struct Places(HashMap<String, Position>);

#[derive(Clone, Debug)]
struct Position {
    line: usize,
    column: usize,
    excerpt: Option<Excerpt>,
}

impl Places {
    /// Positions of all sections and their keys; of `[[sa]]` and `[[policy]]` some.
    pub(super) fn of(document: &DeTable<'_>, source: &Source) -> Self {
        let mut places = Self::default();
        places.note("", document, source, |_| true);
        places
    }

    fn note(
        &mut self,
        section: &str,
        table: &DeTable<'_>,
        source: &Source,
        is_wanted: fn(&str) -> bool,
    ) {
        for (key, value) in table.iter().filter(|(key, _)| is_wanted(key.get_ref())) {
            let key = key.get_ref();
            let path =
                if section.is_empty() { key.to_string() } else { format!("{section}.{key}") };
            match value.get_ref() {
                DeValue::Table(table) => self.note(&path, table, source, |_| true),
                DeValue::Array(items) => self.note_each(&path, items.iter(), source),
                _ => {}
            }
            self.add(path, value, source);
        }
    }

    /// Notes the sections of one name, each of which has a name of its own.
    fn note_each<'v, 's: 'v>(
        &mut self,
        path: &str,
        items: impl Iterator<Item = &'v Spanned<DeValue<'s>>>,
        source: &Source,
    ) {
        for item in items {
            let DeValue::Table(table) = item.get_ref() else { continue };
            let Some(name) = table.get("name").and_then(|name| name.get_ref().as_str()) else {
                continue;
            };
            let path = format!("{path}[{name}]");
            self.note(&path, table, source, |key| OF_EACH.contains(&key));
            self.add(path, item, source);
        }
    }

    fn add(&mut self, path: String, value: &Spanned<DeValue<'_>>, source: &Source) {
        let (line, column) = source.position(value.span().start);
        let excerpt = source.excerpt(&value.span());
        self.0.entry(path).or_insert(Position { line, column, excerpt });
    }

    /// Position of a key, or of the section that lacks it; `None` for what the file as a whole lacks.
    fn of_key(&self, key: &str) -> Option<&Position> {
        let mut path = key;
        loop {
            if let Some(position) = self.0.get(path) {
                return Some(position);
            }
            path = path.rsplit_once('.')?.0;
        }
    }
}

impl Site {
    /// A finding about a key of the file, such as `plain.routes`.
    #[must_use]
    pub fn finding(&self, key: &str, what: String, help: &str) -> Finding {
        let position = self.places.of_key(key).cloned();
        let position = position.unwrap_or(Position { line: 0, column: 0, excerpt: None });
        let Position { line, column, excerpt } = position;
        let (file, help) = (self.path.clone(), Some(help.to_owned()));
        Finding { file, line, column, key: key.to_owned(), what, help, excerpt }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const TEXT: &str = "name = \"left\" # 1\n[plain]\ninterface = \"convoy0\"\nroutes = [\n  \"10.2.0.0/24\",\n]\n\
                        [workers]\npin = [0]\n[crypto]\nengine = \"pool\"\n[crypto.pool]\npin = [1]\n\
                        [[policy]]\nname = \"v1.2\"\naction = \"discard\"\nlocal = \"10.1.0.0/24\"\nremote = \"10.2.0.0/24\"\n";

    #[test]
    fn findings_have_the_line_of_the_key_or_of_the_section_that_lacks_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("left.toml");
        std::fs::write(&path, TEXT).unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o700)).unwrap();
        let (site, _) = Site::load(&path).unwrap();
        for (key, position) in [
            ("plain.routes", (4, 10)),
            ("plain.mtu", (2, 1)),
            ("plain.interface", (3, 13)),
            ("workers.pin", (8, 7)),
            ("crypto.pool.pin", (12, 7)),
            ("policy[v1.2].local", (16, 9)),
            ("policy[v1.2].remote", (17, 10)),
            ("policy[v1.2].priority", (13, 1)),
            ("wire.interface", (0, 0)),
            ("namespace", (0, 0)),
        ] {
            let finding = site.finding(key, "is wrong".into(), "write it right");
            assert_eq!((finding.line, finding.column), position, "{key}");
        }
        let finding = site.finding("workers.pin", "is wrong".into(), "write it right");
        assert_eq!(
            finding.to_string(),
            format!(
                "{}:8:7: workers.pin: is wrong\n 8 | pin = [0]\n   |       ^^^\n  help: write it right",
                path.display()
            )
        );
    }
}
