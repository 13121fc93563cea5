//! The files that config(5) of OpenSSL describes, as far as providers need them.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Files include each other no deeper than this.
const DEPTH: usize = 10;

/// No configuration is longer.
const BYTES: u64 = 1 << 20;

/// What a configuration says, includes and all.
#[derive(Debug)]
pub(super) struct Conf {
    entries: Vec<Entry>,
    /// The file that was asked for.
    pub(super) file: PathBuf,
}

/// A line that gives a name a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) section: String,
    pub(super) name: String,
    pub(super) value: String,
    pub(super) file: PathBuf,
    pub(super) line: usize,
}

impl Conf {
    /// The section of what stands before the first one.
    pub(super) const DEFAULT: &str = "default";

    /// Reads a file and what it includes.
    ///
    /// # Errors
    ///
    /// A file cannot be read, or a line makes no sense; the text says where.
    pub(super) fn load(file: &Path) -> io::Result<Self> {
        let mut conf = Self { entries: Vec::new(), file: file.to_owned() };
        let mut section = Self::DEFAULT.to_owned();
        conf.read(file, &mut section, DEPTH)?;
        Ok(conf)
    }

    /// What a name of a section says; of several lines the last counts.
    pub(super) fn entry(&self, section: &str, name: &str) -> Option<&Entry> {
        self.entries.iter().rev().find(|entry| entry.section == section && entry.name == name)
    }

    pub(super) fn value(&self, section: &str, name: &str) -> Option<&str> {
        Some(&self.entry(section, name)?.value)
    }

    /// Whether anything stands in a section.
    pub(super) fn has(&self, section: &str) -> bool {
        self.section(section).next().is_some()
    }

    /// The lines of a section that count, in the order of the file.
    pub(super) fn section<'a>(&'a self, section: &'a str) -> impl Iterator<Item = &'a Entry> {
        self.entries.iter().enumerate().filter_map(move |(at, entry)| {
            let behind = &self.entries[at + 1..];
            let is_replaced =
                behind.iter().any(|later| later.section == section && later.name == entry.name);
            (entry.section == section && !is_replaced).then_some(entry)
        })
    }

    fn read(&mut self, file: &Path, section: &mut String, depth: usize) -> io::Result<()> {
        let fault = |line: usize, what: String| {
            io::Error::other(format!("{}:{line}: {what}", file.display()))
        };
        let name_it =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", file.display()));
        if fs::metadata(file).map_err(name_it)?.len() > BYTES {
            return Err(fault(1, "is longer than a configuration is".to_owned()));
        }
        let text = fs::read(file).map_err(name_it)?;
        let text = String::from_utf8_lossy(&text);
        let mut lines = text.lines().enumerate();
        while let Some((at, line)) = lines.next() {
            let mut whole = line.to_owned();
            while whole.ends_with('\\') && !whole.ends_with("\\\\") {
                whole.pop();
                whole.push_str(lines.next().map_or("", |(_, line)| line));
            }
            let line = at + 1;
            let whole = without_comment(&whole).trim();
            if whole.is_empty() {
                continue;
            }
            if let Some(rest) = whole.strip_prefix('[') {
                let Some((name, _)) = rest.split_once(']') else {
                    return Err(fault(line, "the section's name has no ] behind it".to_owned()));
                };
                name.trim().clone_into(section);
                continue;
            }
            if let Some(rest) = whole.strip_prefix(".include") {
                let path = rest.trim_start().trim_start_matches('=').trim();
                let path = self.value_of(section, path);
                if depth == 0 {
                    return Err(fault(line, format!("includes are nested deeper than {DEPTH}")));
                }
                for included in included(Path::new(&path)) {
                    self.read(&included, section, depth - 1)?;
                }
                continue;
            }
            if whole.starts_with(".pragma") {
                continue;
            }
            let Some((name, value)) = whole.split_once('=') else {
                return Err(fault(line, format!("{whole:?} has no =")));
            };
            let (of, name) = match name.trim().split_once("::") {
                Some((of, name)) => (of.to_owned(), name.to_owned()),
                None => (section.clone(), name.trim().to_owned()),
            };
            let value = self.value_of(&of, value.trim());
            self.entries.push(Entry { section: of, name, value, file: file.to_owned(), line });
        }
        Ok(())
    }

    /// A value without quotes, and with variables replaced by what they stand for so far.
    fn value_of(&self, section: &str, text: &str) -> String {
        let mut value = String::new();
        let mut rest = text;
        while let Some(next) = rest.chars().next() {
            rest = &rest[next.len_utf8()..];
            match next {
                '\'' | '"' => {
                    let (quoted, behind) = rest.split_once(next).unwrap_or((rest, ""));
                    value.push_str(quoted);
                    rest = behind;
                }
                '\\' => {
                    value.extend(rest.chars().next());
                    rest = rest.get(rest.chars().next().map_or(0, char::len_utf8)..).unwrap_or("");
                }
                '$' => {
                    let (name, behind) = variable(rest);
                    value.push_str(&self.variable(section, name));
                    rest = behind;
                }
                other => value.push(other),
            }
        }
        value
    }

    fn variable(&self, section: &str, name: &str) -> String {
        let (of, name) = name.split_once("::").unwrap_or((section, name));
        if of == "ENV" {
            return env::var(name).unwrap_or_default();
        }
        let value = self.value(of, name).or_else(|| self.value(Self::DEFAULT, name));
        value.unwrap_or_default().to_owned()
    }
}

/// A variable's name, and what is behind it.
fn variable(rest: &str) -> (&str, &str) {
    for (open, close) in [('{', '}'), ('(', ')')] {
        if let Some((name, behind)) =
            rest.strip_prefix(open).and_then(|rest| rest.split_once(close))
        {
            return (name, behind);
        }
    }
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    rest.split_at(rest.find(|c| !is_part(c)).unwrap_or(rest.len()))
}

/// A line up to its comment.
fn without_comment(line: &str) -> &str {
    let mut quote = None;
    let mut is_escaped = false;
    for (at, next) in line.char_indices() {
        match (quote, next) {
            _ if is_escaped => is_escaped = false,
            (_, '\\') => is_escaped = true,
            (None, '#') => return &line[..at],
            (None, '\'' | '"') => quote = Some(next),
            (Some(open), _) if open == next => quote = None,
            _ => {}
        }
    }
    line
}

/// A file that is included, or those of a folder. What is not there is passed over, as OpenSSL does.
fn included(path: &Path) -> Vec<PathBuf> {
    if !path.is_dir() {
        return if path.exists() { vec![path.to_owned()] } else { Vec::new() };
    }
    let is_conf = |path: &PathBuf| {
        path.extension().is_some_and(|extension| extension == "cnf" || extension == "conf")
    };
    let entries = fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<_> = entries.filter(is_conf).collect();
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conf(text: &str) -> Conf {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.cnf");
        fs::write(&file, text).unwrap();
        Conf::load(&file).unwrap()
    }

    #[test]
    fn sections_comments_quotes_and_variables_are_read() {
        let conf = conf(
            "# a comment\nbase = /opt # behind\na = 1\n[ one ]\nb = \"x # y\"\nc = ${base}/m.so\n\
             d = $base/$default::a\\\n  more\nx::y = 5\n b = later\n",
        );
        assert_eq!(conf.value("one", "b"), Some("later"));
        assert_eq!(conf.value("one", "c"), Some("/opt/m.so"));
        assert_eq!(conf.value("one", "d"), Some("/opt/1  more"));
        assert_eq!(conf.value("x", "y"), Some("5"));
        assert_eq!(conf.value("default", "a"), Some("1"));
        let names: Vec<_> = conf.section("one").map(|entry| (&*entry.name, entry.line)).collect();
        assert_eq!(names, [("c", 6), ("d", 7), ("b", 10)]);
    }

    #[test]
    fn files_are_included_and_not_without_end() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a.cnf"), folder.path().join("b.cnf"));
        fs::write(&a, format!(".include {}\nx = 2\n.include = /not/there\n", b.display())).unwrap();
        fs::write(&b, "x = 1\n[s]\ny = 1\n").unwrap();
        let conf = Conf::load(&a).unwrap();
        assert_eq!((conf.value("s", "x"), conf.value("s", "y")), (Some("2"), Some("1")));
        assert_eq!(conf.entry("s", "y").unwrap().file, b);
        fs::write(&b, format!(".include {}\n", a.display())).unwrap();
        assert!(Conf::load(&a).unwrap_err().to_string().contains("deeper"));
    }

    #[test]
    fn faults_name_their_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.cnf");
        for (text, line) in [("a = 1\nrubbish\n", 2), ("[open\n", 1)] {
            fs::write(&file, text).unwrap();
            let error = Conf::load(&file).unwrap_err().to_string();
            assert!(error.contains(&format!("a.cnf:{line}: ")), "{error}");
        }
        assert!(Conf::load(&folder.path().join("none")).unwrap_err().to_string().contains("none"));
    }
}
